"""What the tapped states of two traces are to each other: a sentence for all of which the same holds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from spectrace.analysis.comparison.tap_match import TapMatch
from spectrace.format.figures import noun

_COUNTS = {1: "one", 2: "two", 3: "three"}


def tap_words(taps: Sequence[TapMatch]) -> list[str]:
    """Taps by name where they agree; what differs as seen from the trace that tells more."""
    lines: list[str] = []
    same = [match for match in taps if match.side == "A" and match.is_same]
    if same:
        lowest = min(match.cosine for match in same)
        verb = noun(len(same), "is", "are")
        lines.append(f"{_list(same)} {verb} the same in B, lowest cosine {lowest:.3f}")
    sides = [[m for m in taps if m.side == side and not m.is_same] for side in "AB"]
    telling = [sum(bool(m.shift) or m.is_scaled for m in side) for side in sides]
    chosen = sides[telling[1] > telling[0]]
    for _, group in groupby(chosen, key=lambda m: (m.is_match, m.is_scaled, m.shift)):
        lines += _told(list(group))
    return lines


def _told(group: Sequence[TapMatch]) -> Iterator[str]:
    """Taps of one trace of which the same can be said."""
    first = group[0]
    other = "AB"[first.side == "A"]
    who = f"{_list(group)} {noun(len(group), 'matches', 'match')}"
    names = ", ".join(_name(match, match.best) for match in group)
    if first.shift:
        layers = abs(first.shift)
        shift = f"{_COUNTS.get(layers, str(layers))} {noun(layers, 'layer')}"
        yield f"{who} {other}'s {names}: {shift} {'later' if first.shift > 0 else 'earlier'}"
    elif first.is_match:
        yield f"{who} {names} of {other}'s reference, not {other}'s tap of that name"
    elif first.is_scaled:
        ratios = [match.rms_ratio or 0.0 for match in group]
        span = " to ".join(dict.fromkeys(f"{ratio:.2g}" for ratio in (min(ratios), max(ratios))))
        yield f"{who} {other}'s {names} in direction, at {span} times the size"
    else:
        for match in group:
            nearest = f"nearest {_name(match, match.best)}, cosine {match.cosine:.2f}"
            yield f"{_list([match])} is none of {other}'s: {nearest}"


def _list(taps: Sequence[TapMatch]) -> str:
    return f"{taps[0].side}'s " + ", ".join(_name(match, match.tap) for match in taps)


def _name(match: TapMatch, key: int) -> str:
    return f"tap {key}" if match.by_index else f"B({key})"

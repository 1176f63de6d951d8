"""How a comparison of two traces looks as text: one screen, the cause before its effects."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from spectrace.analysis.comparison.alignment import WAYS
from spectrace.analysis.comparison.difference import INPUTS, KIND_WORDS
from spectrace.analysis.comparison.fork import NO_TIE, OFF_PICK, SAMPLED, TIE, UNKNOWN
from spectrace.analysis.comparison.headers import shown_value
from spectrace.analysis.comparison.inputs import input_place, input_values
from spectrace.analysis.comparison.tap_words import tap_words
from spectrace.cli.output import shown
from spectrace.cli.verdicts import wrapped
from spectrace.format.figures import count_of, number
from spectrace.format.text import visible

if TYPE_CHECKING:
    from spectrace import Trace
    from spectrace.analysis.comparison import Comparison
    from spectrace.analysis.comparison.acceptance_change import Measure
    from spectrace.analysis.comparison.alignment import Alignment
    from spectrace.analysis.comparison.difference import Difference, Kind
    from spectrace.analysis.comparison.fork import Fork

_HEADERS = 8
"""Differences of the headers that are listed."""
_POSITIONS = 5
"""Positions that are listed."""


def text_of(found: Comparison, a: Trace, b: Trace) -> Iterator[str]:
    """The comparison in lines for a person, at most as wide as the terminal."""
    for label, trace in (("A", a), ("B", b)):
        more = f" and {len(trace.paths) - 1} more files" if len(trace.paths) > 1 else ""
        yield from wrapped(f"{label}  ", f"{shown(trace.paths[0])}{more}, {number(len(trace))} steps")
    if [p.resolve() for p in a.paths] == [p.resolve() for p in b.paths]:
        yield "Both are the same file."
    yield from _headers(found)
    if found.alignment.problem is None:
        yield from _alignment(found.alignment)
        yield from _differences(found, _Tokens(a, b))
        for words in tap_words(found.taps):
            yield from wrapped("Tapped states: ", words)
        yield from _acceptance(found)
        if left_out := found.acceptance.left_out:
            yield from wrapped("note: ", left_out)
    for sentence in found.next:
        yield from wrapped("next: ", visible(sentence))


def _alignment(alignment: Alignment) -> Iterator[str]:
    ways = [f"{number(alignment.ways[way])} by {_WAYS[way]}" for way in WAYS if way in alignment.ways]
    pairs = len(alignment.pairs)
    told = f"{count_of(pairs, 'pair')}, {', '.join(ways)}"
    alone = [n - pairs for n in alignment.num_requests]
    if any(alone):
        told += f"; without a partner {number(alone[0])} of A, {number(alone[1])} of B"
    yield from wrapped("Requests: ", told)
    if alignment.num_unchecked:
        told = f"Of {number(alignment.num_unchecked)} nothing recorded says that the prompts are the same."
        yield from wrapped("  ", told)
    if any(alignment.unplaced):
        counts = " and ".join(f"{number(n)} of {label}" for n, label in zip(alignment.unplaced, "AB"))
        yield from wrapped("  ", f"Steps left out, their position being no length: {counts}.")


_WAYS = {
    "prompt_digest": "prompt digest",
    "prompt_ids": "prompt ids",
    "request": "name",
    "external_id": "external id",
    "order": "order",
}


def _headers(found: Comparison) -> Iterator[str]:
    if not found.headers:
        yield "Headers: no difference"
        return
    yield "Headers"
    for item in found.headers[:_HEADERS]:
        words = visible(item.words, limit=100)
        yield from wrapped(
            f"  {words}: ", f"A {shown_value(item.a)} | B {shown_value(item.b)}", indent="    "
        )
    if len(found.headers) > _HEADERS:
        yield f"  and {number(len(found.headers) - _HEADERS)} more: --json lists them"


# --- first differences -----------------------------------------------------------------------------


class _Tokens:
    """Token ids as they are shown: with their text where the trace has one."""

    def __init__(self, a: Trace, b: Trace) -> None:
        self._traces = a, b

    def shown(self, side: int, token: float | None) -> str:
        """An id of one trace, in the target's vocabulary."""
        if token is None:
            return "nothing"
        token_id = int(token)
        text = self._traces[side].token_text(token_id)
        if text is None:
            return str(token_id)
        quoted = visible(text, limit=16).replace('"', '\\"')
        return f'{token_id} "{quoted}"'


def _differences(found: Comparison, tokens: _Tokens) -> Iterator[str]:
    differences = found.first_differences
    yield f"{'':<13}{'compared':>9}{'differ':>9}  first"
    for name, kind in differences.kinds.items():
        if found.without_ids and name not in ("prompt", *INPUTS):
            continue
        if name in INPUTS:
            yield from _input(KIND_WORDS[name], kind)
            continue
        yield from _kind(KIND_WORDS[name], kind, tokens)
    if found.without_ids:
        told = f"no token ids in {found.without_ids} (packed, or counts only)"
        yield from wrapped("  ", f"{told}: neither tokens nor states are compared.")
    notes = (
        ("proposals that differ in length only", differences.only_length),
        ("trees beside chains, not compared", differences.other_shape),
        ("draft tokens of the same raw id and another target id", differences.same_raw_other_id),
        ("texts that are the same as far as the shorter one goes", differences.ends_earlier),
        ("tokens between the others that one trace lacks", differences.unseen),
    )
    yield from (f"  {note}: {number(count)}" for note, count in notes if count)
    if found.fork is not None:
        yield from wrapped("  ", _fork(found.fork, found.first_differences.kinds["emitted"]))


def _input(name: str, kind: Kind) -> Iterator[str]:
    """One line, and none where nothing differs: this has to fit one screen with the rest."""
    first = kind.first
    if first is None or first.steps is None:
        return
    line = f"  {name:<11}{number(kind.compared):>9}{number(kind.differing):>9}  "
    a, b = first.steps
    values = " | ".join(input_values(first))
    yield from wrapped(line, f"step {a} of A, {b} of B, {input_place(first)}: {values}", indent=" " * 8)


def _kind(name: str, kind: Kind, tokens: _Tokens) -> Iterator[str]:
    line = f"  {name:<11}{number(kind.compared):>9}{number(kind.differing):>9}"
    first = kind.first
    if first is None:
        yield line
        return
    yield f"{line}  {_where(first)}"
    yield from wrapped(" " * 6, _values(first, tokens), indent=" " * 8)


def _where(at: Difference) -> str:
    request = " = ".join(visible(name, limit=20) for name in dict.fromkeys(at.request))
    if at.steps is None:
        return f"{request}, token {at.position} of the prompt"
    return f"{request}, token {at.token}, step {at.steps[0]} of A, {at.steps[1]} of B"


def _values(at: Difference, tokens: _Tokens) -> str:
    if at.kind == "decision":
        accepted = " | ".join(f"{label} {count}" for label, count in zip("AB", at.values))
        return f"accepted of the draft tokens that both propose: {accepted}"
    shown_ids = []
    for side, label in enumerate("AB"):
        raw = at.raw[side]
        via = "" if raw is None or raw == at.values[side] else f"raw {raw} -> "
        shown_ids.append(f"{label} {via}{tokens.shown(side, at.values[side])}")
    place = f"position {at.index}: " if at.kind == "proposal" else ""
    return place + " | ".join(shown_ids)


def _fork(fork: Fork, kind: Kind) -> str:
    at = fork.difference
    where = f"{visible(at.request[0], limit=20)} at token {at.token}"
    texts = f"{count_of(kind.requests, 'text parts', 'texts part')}"
    told = f"{texts}. {where}: {_verdict(fork)}"
    judged = sum(fork.judged.values())
    if judged > 1:
        tally = ", ".join(f"{number(count)} {_VERDICTS[name]}" for name, count in fork.judged.items())
        told += f" Of {number(judged)} judged: {tally}."
    return f"{told} Behind such a token no text is compared."


_VERDICTS = {
    TIE: "rounding",
    NO_TIE: "no rounding",
    OFF_PICK: "off the target's pick",
    SAMPLED: "sampled",
    UNKNOWN: "unknown",
}


def _verdict(fork: Fork) -> str:
    gap = "" if fork.gap is None else f"gap {fork.gap:.4g}, a tie up to {fork.limit:.4g}"
    rank = "" if fork.rank_of_other is None else f", the other token has rank {fork.rank_of_other}"
    picks = ", ".join(f"{label} picked {pick}" for label, pick in zip("AB", fork.picks))
    return {
        TIE: f"rounding, {gap}{rank}.",
        NO_TIE: f"no rounding, {gap}{rank}.",
        OFF_PICK: f"not what the target picked ({picks}).",
        SAMPLED: "a run samples, so it may.",
        UNKNOWN: "whether by rounding is not recorded.",
    }[fork.verdict]


# --- acceptance -------------------------------------------------------------------------------------


def _acceptance(found: Comparison) -> Iterator[str]:
    acceptance = found.acceptance
    proposals = acceptance.proposals
    if not any(proposals):
        yield "Acceptance: no proposal in either"
        return
    measures = [*acceptance.overall, *acceptance.positions]
    if proposals[0] == proposals[1] and all(len(set(measure.values)) == 1 for measure in measures):
        told = ", ".join(f"{_measured(m)} {number(m.values[0])}" for m in acceptance.overall)
        yield from wrapped("Acceptance: ", f"the same, {told} in {number(proposals[0])} proposals")
        return
    yield f"{'Acceptance':<19}{'A':>8}{'B':>8}{'B - A':>9}  95 % interval"
    yield from map(_measure, acceptance.overall)
    behind = [m for m in acceptance.positions[1:] if m.change is not None]  # at the first it is alpha1
    yield from map(_measure, behind[:_POSITIONS])
    if not acceptance.is_shown:
        counts = " and ".join(map(number, proposals))
        yield from wrapped("  ", f"No difference that {counts} proposals could show.")


def _measured(measure: Measure) -> str:
    return measure.name.replace("_", " ")


def _measure(measure: Measure) -> str:
    name = _measured(measure)
    name = f"c_{name.rpartition(' ')[2]}, {name}" if name.startswith("position") else name
    line = f"  {name:<17}" + "".join(f"{number(value):>8}" for value in measure.values)
    change = measure.change
    if change is None:
        return line
    differs = "  differs" if change.is_shown else ""
    return f"{line}{change.value:>+9.3f}  {change.low:+.3f} to {change.high:+.3f}{differs}"

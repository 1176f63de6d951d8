"""The lines around the list: facts about the run, minimap, where the cursor is, which keys help.

Plain words from facts that were found elsewhere; what does not fit is left out by importance.
"""

from __future__ import annotations

from collections.abc import Sequence

from spectrace.format.figures import count_of, number, percent
from spectrace.format.reader import STATES
from spectrace.tui.keys import Key, every_key
from spectrace.tui.loader import HeaderFacts
from spectrace.tui.spans import Line, Role, Span, clip, clip_line, width_of

_BARS = " ▁▂▃▄▅▆▇█"


def header_line(facts: HeaderFacts, width: int) -> Line:
    """The run in one line."""
    state_role: Role = "plain" if facts.state == "closed" else "warning"
    # In reading order, each with what it is worth: the least worth goes first when there is no room.
    parts = [
        (6, Span(clip(facts.name, 32), "strong")),
        (7, Span(count_of(facts.steps, "step"))),
        (2, Span(count_of(facts.requests, "request"))),
        (4, Span(f"accept length {number(facts.accept_length, 2)} tokens per step")),
        (5, Span(f"accept length {number(facts.accept_length, 2)}")),
        (3, Span(f"acceptance {percent(facts.acceptance_rate)}")),
        (9, Span(STATES[facts.state], state_role)),
    ]
    if facts.recent is not None and facts.recent.trials:
        recent = f"alpha1 of the last {facts.recent.trials}: {number(facts.recent.value, 2)}"
        parts.append((8, Span(f"{recent}, DROPPED", "warning")) if facts.has_dropped else (5, Span(recent)))
    if facts.lost:
        parts.append((8, Span(f"{count_of(facts.lost, 'step')} lost", "warning")))
    if facts.problems:
        parts.append((8, Span(f"{len(facts.problems)} damaged", "warning")))
    long, short = parts[3], parts[4]
    shown = [part for part in parts if part[1].text and part is not short]
    if _width(shown) > width:
        shown = [part for part in parts if part[1].text and part is not long]
    while len(shown) > 1 and _width(shown) > width:
        shown.remove(min(shown, key=lambda part: part[0]))
    line: Line = [Span(" ")]
    for _, span in shown:
        line += [*([Span("  ")] if len(line) > 1 else []), span]
    return clip_line(line, width)


def _width(parts: Sequence[tuple[int, Span]]) -> int:
    return width_of([span for _, span in parts]) + 2 * len(parts) - 1


def minimap_line(shares: Sequence[float | None], cursor: int | None) -> Line:
    """One cell per part of the trace, the higher the more of its steps had a rejection."""
    drawn = bars(shares)
    if cursor is None or not 0 <= cursor < len(drawn):
        return [Span(drawn, "dim")]
    return [
        Span(drawn[:cursor], "dim"),
        Span("^" if drawn[cursor] == " " else drawn[cursor], "cursor"),
        Span(drawn[cursor + 1 :], "dim"),
    ]


def bars(shares: Sequence[float | None]) -> str:
    """One cell for each share of 0..1, a blank where it is unknown.

    >>> bars([0.0, 0.5, None, 1.0])
    '▁▅ █'
    """
    return "".join(" " if share is None else _bar(share) for share in shares)


def _bar(share: float) -> str:
    return _BARS[min(max(round(share * (len(_BARS) - 2)) + 1, 1), len(_BARS) - 1)]


def place_text(row: int | None, total: int, position: int, num_tokens: int) -> str:
    """Where the cursor is; a row of None: at no step, for none is listed."""
    if not total or row is None:
        return "no step"
    token = f"  token {position}/{num_tokens}" if num_tokens else ""
    return f"step {row:,}/{total:,}{token}"


def typed_room(width: int) -> int:
    """Characters of a search or filter that the status row repeats: place and counts stand beside it."""
    return max(width - 52, 12)


def status_line(place: str, word: str, standing: Sequence[str], width: int, *, count: str = "") -> Line:
    """Where the cursor is, what was last said, what is going on; digits typed so far at the end.

    The newest word is what a reader waits for: the rest gives way to it, the place last.
    """
    parts = [part for part in (f" {place}", word, *standing) if part]
    while word and len(parts) > 2 and width_of([Span("  ".join(parts))]) > width:
        parts.pop()
    if word and width_of([Span("  ".join(parts))]) > width:
        parts = [f" {word}"]
    rest = "  ".join(parts[1:])
    line = clip_line([Span(parts[0]), Span(f"  {rest}" if rest else "", "strong")], width)
    if count:
        line = clip_line(line, width - len(count) - 1)
        gap = width - width_of(line) - len(count)
        line += [Span(" " * gap), Span(count, "strong")]
    return line


STEPS_HINTS = (
    ("move.down", "move.up"),
    ("hunt.first",),
    ("hunt.next", "hunt.previous"),
    ("screen.overview",),
    ("search.start",),
    ("search.filter",),
    ("hunt.finding", "hunt.finding_back"),
    ("screen.step",),
    ("move.right",),
    ("view.tokens",),
    ("system.help",),
    ("system.leave",),
)
PAGE_HINTS = (
    ("move.down", "move.up"),
    ("view.open",),
    ("search.start",),
    ("view.copy",),
    ("system.help",),
    ("view.back",),
)


def hint_line(
    width: int, keys: Sequence[Key] | None = None, hints: Sequence[Sequence[str]] = STEPS_HINTS
) -> Line:
    """The few keys that matter here; the last two, help and the way out, always stay."""
    known = {key.id: key for key in (every_key() if keys is None else keys)}
    words = []
    for names in hints:
        shown = "/".join(known[name].shown.split(" ")[0] for name in names if name in known)
        words += [f"{shown} {known[names[0]].hint}"] if shown else []
    while len(words) > 2 and len("  ".join(words)) + 1 > width:
        words.pop(-3)
    return clip_line([Span(" " + "  ".join(words), "dim")], width)


def offer_line(offers: Sequence[str], width: int) -> Line:
    """What Tab makes of what is typed."""
    words = "Tab: " + "  ".join(offers[:40]) if offers else "Enter does it  ↑ recalls  Esc leaves"
    return clip_line([Span(f" {words}", "dim")], width)


def page_title(title: str, row: int | None, width: int) -> Line:
    """The first line of a screen, over the whole width."""
    place = f" · step {row:,}" if row is not None else ""
    return clip_line([Span(f" {title}{place}", "cursor")], width)


def empty_lines(facts: HeaderFacts, width: int) -> list[Line]:
    """What to do with a trace that holds no step."""
    words = {
        "recording": "No step has been recorded yet. Press F to follow: steps appear as they come.",
        "closed": "The recorder closed this trace without a single step: nothing was generated inside it.",
        "unclosed": "The recorder ended before its first step was written.",
    }
    lines: list[Line] = [[], [Span("This trace holds no step.", "strong")]]
    lines.append([Span(words[facts.state])])
    lines += [[Span(problem, "warning")] for problem in facts.problems[:4]]
    return [clip_line([Span("  "), *line], width) for line in lines]


def nothing_listed_lines(width: int, *, is_scanning: bool) -> list[Line]:
    """What to do with a filter that keeps nothing, or nothing so far."""
    what = "No step fits the filter so far." if is_scanning else "No step fits the filter."
    lines: list[Line] = [[], [Span(what, "strong")]]
    lines.append([Span("u brings back what was listed before; & and Enter lists every step.")])
    return [clip_line([Span("  "), *line], width) for line in lines]

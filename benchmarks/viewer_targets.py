"""What the viewer should reach, and the two tables: what was measured, and which target is met.

Targets are ratios to programs measured in the same run, or figures that hold on any machine. Measures
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from viewer_checks import Check
from viewer_runs import NAVIGATION, Samples

OURS, LONG, SHORT = "spectrace view", "spectrace view, 10M", "spectrace view, 1k"
LINES, HELLO = "Textual lines", "Textual hello"
TENTH = "visidata, a tenth"
"""Its keys; all of the steps it loads once."""
COLUMNS = (OURS, LONG, "less", "lnav", "visidata", "toolong", LINES, HELLO)
_MS, _BYTES = 1e3, 1.0
_ROWS: tuple[tuple[str, str, float, str], ...] = (
    ("first readable rows, ms", "first screen", _MS, "{:,.0f}"),
    ("first key handled, ms", "first key", _MS, "{:,.0f}"),
    ("every row within reach, ms", "loaded", _MS, "{:,.0f}"),
    ("bytes of the start", "start bytes", _BYTES, "{:,.0f}"),
    ("line key inside the page, ms", "line 120x40", _MS, "{:.1f}"),
    ("the same, bytes", "line 120x40 bytes", _BYTES, "{:,.0f}"),
    ("line key that scrolls, ms", "scroll 120x40", _MS, "{:.1f}"),
    ("the same, bytes", "scroll 120x40 bytes", _BYTES, "{:,.0f}"),
    ("the same at 80x24, bytes", "scroll 80x24 bytes", _BYTES, "{:,.0f}"),
    ("page key, ms", "page 120x40", _MS, "{:.1f}"),
    ("the same, bytes", "page 120x40 bytes", _BYTES, "{:,.0f}"),
    ("the same at 80x24, bytes", "page 80x24 bytes", _BYTES, "{:,.0f}"),
    ("line key held at 30 Hz, kbit/s", "held kbit/s", 1.0, "{:,.0f}"),
    ("screen moves on after release, ms", "held lag", _MS, "{:,.0f}"),
    ("the same on a line of 1 Mbit/s, ms", "slow lag", _MS, "{:,.0f}"),
    ("to the last row, ms", "end", _MS, "{:.1f}"),
    ("rare text at nine tenths found, ms", "search", _MS, "{:,.0f}"),
    ("idle for 10 s: bytes", "idle bytes", _BYTES, "{:,.0f}"),
    ("idle for 10 s: processor time, ms", "idle seconds", _MS, "{:,.0f}"),
    ("memory, anonymous, MB", "anonymous", 1.0, "{:,.0f}"),
    ("memory of the process, resident at its largest, MB", "resident", 1.0, "{:,.0f}"),
    ("inside tmux, line key that scrolls, bytes outside", "tmux scroll bytes", _BYTES, "{:,.0f}"),
)


def figures(samples: Samples, missing: Sequence[str]) -> list[str]:
    """The table of medians, a column for each program.

    Args:
        samples: what was measured.
        missing: programs that are not installed.
    """
    lines = [f"| median | {' | '.join(COLUMNS)} |", "|---" * (len(COLUMNS) + 1) + "|"]
    for words, what, factor, form in _ROWS:
        cells = []
        for name in COLUMNS:
            value = value_of(samples, name, what)
            cells.append(
                "not installed" if name in missing else "" if value is None else form.format(value * factor)
            )
        lines.append(f"| {words} | {' | '.join(cells)} |")
    return lines


def value_of(samples: Samples, name: str, what: str) -> float | None:
    """A median; of VisiData that of the whole file where there is one, else that of a tenth."""
    found = samples.median(name, what)
    return samples.median(TENTH, what) if found is None and name == "visidata" else found


# --- targets ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Target:
    """At most `limit`; `value` is None where something was not measured."""

    what: str
    value: float | None
    limit: float
    form: str = "{:.2f} x"
    is_below: bool = False
    """It must be less than the limit."""
    detail: str = ""

    @property
    def is_met(self) -> bool | None:
        """Whether it is reached, None where it was not measured."""
        if self.value is None:
            return None
        return self.value < self.limit if self.is_below else self.value <= self.limit


def verdicts(targets: Sequence[Target], checks: Sequence[Check]) -> list[str]:
    """The table of targets."""
    lines = ["| what | measured | target | met |", "|---|---|---|---|"]
    for target in targets:
        measured = "not measured" if target.value is None else target.form.format(target.value)
        measured += f" ({target.detail})" if target.detail and target.value is not None else ""
        limit = ("< " if target.is_below else "≤ ") + target.form.format(target.limit)
        met = {None: "", True: "yes", False: "**no**"}[target.is_met]
        lines.append(f"| {target.what} | {measured} | {limit} | {met} |")
    lines += [
        f"| {check.what} | {check.measured} | {check.target} | {'yes' if check.is_met else '**no**'} |"
        for check in checks
    ]
    return lines


def all_targets(samples: Samples) -> list[Target]:
    """Every target, the project's own first."""
    return [*_own(samples), *_opening(samples), *_keys(samples), *_finding(samples), *_costs(samples)]


def _beside(samples: Samples) -> Callable[[str, str, float, str], Target]:
    """Targets of the form: ours / another's."""

    def target(words: str, what: str, limit: float, other: str) -> Target:
        own, its = samples.median(OURS, what), value_of(samples, other, what)
        value = own / its if own is not None and its else None
        return Target(f"{words} / {other}", value, limit)

    return target


def _own(samples: Samples) -> Iterator[Target]:
    """The project's own targets."""
    pairs = zip(samples.of(LONG, "first screen alone"), samples.of(SHORT, "first screen alone"), strict=False)
    ratios = sorted(long / short for long, short in pairs)
    middle = ratios[len(ratios) // 2] if ratios else None
    yield Target("first useful paint: 10,000,000 / 1,000 steps", middle, 1.2)
    beside = _beside(samples)
    for other in ("lnav", "visidata", "toolong"):
        found = beside("first useful paint of 1,000,000 steps", "first screen", 1.0, other)
        yield Target(found.what, found.value, 1.0, is_below=True)
    worst = max(NAVIGATION, key=lambda key: samples.p95(LONG, f"key {key}") or 0.0)
    every = [seconds * 1e3 for key in NAVIGATION for seconds in samples.of(LONG, f"key {key}")]
    slowest = samples.p95(LONG, f"key {worst}")
    yield Target(
        "10,000,000 steps, key to last byte, p95 of the slowest of 22 keys",
        None if slowest is None else slowest * 1e3,
        50,
        "{:.0f} ms",
        detail=f"{printed_key(worst)}; all keys: median {sorted(every)[len(every) // 2]:.1f}"
        if every
        else "",
    )
    for size in ("120x40", "80x24"):
        yield beside(f"bytes of a scroll by a line, {size}", f"scroll {size} bytes", 3, "lnav")
        yield beside(f"bytes of a scroll by a line, {size}", f"scroll {size} bytes", 0.125, LINES)
    yield Target("10,000,000 steps, resident memory", samples.median(LONG, "resident"), 200, "{:.0f} MB")
    found_at = samples.median(OURS, "search")
    yield Target("1,000,000 steps, search to its first match", found_at, 1.5, "{:.2f} s")
    blocked = samples.of(LONG, "key while searching")
    yield Target(
        "key during a search, slowest",
        max(blocked) * 1e3 if blocked else None,
        50,
        "{:.0f} ms",
        detail=f"median {sorted(blocked)[len(blocked) // 2] * 1e3:.0f} of {len(blocked)}" if blocked else "",
    )


def _opening(samples: Samples) -> Iterator[Target]:
    beside = _beside(samples)
    for other, limit in (("visidata", 0.1), ("toolong", 0.03), ("lnav", 0.04), ("less", 6.0)):
        yield beside("first readable rows", "first screen", limit, other)
    for other, limit in ((HELLO, 1.3), ("lnav", 0.3)):
        yield beside("first key handled", "first key", limit, other)
    for other, limit in (("lnav", 0.5), ("toolong", 0.3)):
        yield beside("every row within reach", "loaded", limit, other)
    yield beside("bytes of the start", "start bytes", 2.2, "less")


def _keys(samples: Samples) -> Iterator[Target]:
    beside = _beside(samples)
    for what, words in (("line 120x40", "line key, median"), ("scroll 120x40", "scrolling line key, median")):
        yield beside(words, what, 1.5, LINES)
    own, floor = samples.p95(OURS, "line 120x40"), samples.p95(LINES, "line 120x40")
    yield Target(f"line key, p95 / {LINES}", own / floor if own is not None and floor else None, 2)
    yield beside("line key, median", "line 120x40", 0.15, "toolong")
    yield beside("page key, median", "page 120x40", 1.3, LINES)
    yield beside("page key, median", "page 120x40", 0.1, "toolong")
    for what in ("line", "scroll"):
        yield beside(f"bytes of a {what} key", f"{what} 120x40 bytes", 3, "lnav")
        yield beside(f"bytes of a {what} key", f"{what} 120x40 bytes", 0.025, "toolong")
        most = samples.of(OURS, f"{what} 120x40 bytes")
        yield Target(f"bytes of a {what} key, most", max(most) if most else None, 1100, "{:,.0f}")
    for size in ("120x40", "80x24"):
        yield beside(f"bytes of a page key, {size}", f"page {size} bytes", 2, "less")
    for other, limit in (("lnav", 2.5), ("toolong", 0.05)):
        yield beside("bits per second of a held key", "held kbit/s", limit, other)
    for what, words in (("held lag", "screen moves on after release"), ("slow lag", "the same at 1 Mbit/s")):
        lag = samples.median(OURS, what)
        yield Target(words, None if lag is None else lag * 1e3, 100, "{:.0f} ms")
    yield beside("screen moves on after release at 1 Mbit/s", "slow lag", 0.03, "toolong")
    yield beside("bytes of a scroll inside tmux", "tmux scroll bytes", 5, "less")
    yield beside("bytes of a scroll inside tmux", "tmux scroll bytes", 0.2, LINES)


def _finding(samples: Samples) -> Iterator[Target]:
    beside = _beside(samples)
    yield beside("to the last step", "end", 0.25, "toolong")
    yield beside("to the last step", "end", 0.07, "visidata")
    search = samples.median("lnav", "search")
    for key, words in (
        ("5000000G", "to a step by number"),
        ("f", "first rejection"),
        ("e", "next rejection"),
    ):
        own = samples.median(LONG, f"key {key}")
        yield Target(f"{words} / search of lnav", own / search if own and search else None, 0.01, "{:.4f} x")
    for other, limit in (("lnav", 0.05), ("less", 0.02), ("visidata", 0.02)):
        yield beside("rare text at nine tenths", "search", limit, other)
    for what, words, limit in (
        ("search progress", "10,000,000 steps, first word of progress of a search", 100),
        ("search stopped", "the same, Esc stops it", 150),
    ):
        value = samples.median(LONG, what)
        yield Target(words, None if value is None else value * 1e3, limit, "{:.0f} ms")


def _costs(samples: Samples) -> Iterator[Target]:
    beside = _beside(samples)
    yield Target("idle for 10 s, bytes", samples.median(OURS, "idle bytes"), 0, "{:.0f}")
    used = samples.median(OURS, "idle seconds")
    yield Target("idle for 10 s, processor time", None if used is None else used * 1e3, 30, "{:.0f} ms")
    for other, limit in (("lnav", 0.5), ("toolong", 0.65), ("visidata", 0.025)):
        yield beside("anonymous memory", "anonymous", limit, other)
    own, long = samples.median(OURS, "anonymous"), samples.median(LONG, "anonymous")
    further = None if own is None or long is None else (long - own) * 1e6 / 9e6
    yield Target("anonymous memory for each further step", further, 4, "{:.2f} bytes")
    for what, words in (
        ("first screen", "first readable rows"),
        ("first key", "first key handled"),
        ("line 120x40", "line key"),
        ("scroll 120x40", "scrolling line key"),
        ("page 120x40", "page key"),
        ("scroll 120x40 bytes", "bytes of a scroll"),
        ("page 120x40 bytes", "bytes of a page"),
        ("held kbit/s", "held key"),
    ):
        one, ten = samples.median(OURS, what), samples.median(LONG, what)
        value = ten / one if one and ten is not None else None
        yield Target(f"{words}: 10,000,000 / 1,000,000 steps", value, 1.15)


def printed_key(key: str) -> str:
    r"""A key as a reader of the table knows it.

    >>> printed_key("\x04"), printed_key("<PgDn>"), printed_key("}")
    ('Ctrl-D', 'PgDn', '}')
    """
    if len(key) == 1 and ord(key) < 32:
        return f"Ctrl-{chr(ord(key) + 64)}"
    return key.strip("<>") if len(key) > 1 else key

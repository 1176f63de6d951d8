"""What a viewer owes its terminal, right or wrong, for `bench_viewer.py`: colours, sizes, bursts, the end.

Each check starts `spectrace view` itself and answers with a sentence and whether it held.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from screen import colours_in
from terminal import Terminal
from viewer_runs import Bench, Size
from viewers import Program

_WALK = ("<PgDn>", "G", "f", "e", "<PgDn>")
BURST = "/needle<Enter>nnf"


@dataclass(frozen=True, slots=True)
class Check:
    """One answer."""

    what: str
    target: str
    measured: str
    is_met: bool


def all_checks(bench: Bench, viewer: Program, bursts: int) -> list[Check]:
    """Every check."""
    return [
        *_colours(bench, viewer),
        _burst(bench, viewer, bursts),
        *_sizes(bench, viewer),
        *_ends(bench, viewer),
    ]


def _opened(bench: Bench, viewer: Program, size: Size = (120, 40), **options: Any) -> Terminal:
    """The viewer, with nothing left to be drawn."""
    terminal = bench.start(viewer, size, **options)
    terminal.wait_for("=accepted|> +0 ")
    terminal.press("j", "^ step 1/")
    terminal.press("k", "^ step 0/", quiet=0.5)
    return terminal


def _screens(bench: Bench, viewer: Program, environ: dict[str, str]) -> tuple[list[str], bytes]:
    """What is shown at the start and after some keys, and all that was sent."""
    with _opened(bench, viewer, environ=environ) as terminal:
        shown = [terminal.text]
        for key in _WALK:
            terminal.press(key, quiet=0.25)
            shown.append(terminal.text)
        return shown, terminal.output


def _colours(bench: Bench, viewer: Program) -> list[Check]:
    with_colour, sent = _screens(bench, viewer, {})
    without, plain = _screens(bench, viewer, {"NO_COLOR": "1"})
    num_colours = sum(colours_in(plain).values())
    is_same = with_colour == without
    checks = [
        Check(
            "`NO_COLOR=1`: colours sent, same text on the screen",
            "0, same",
            f"{num_colours} (else {sum(colours_in(sent).values())}), {'same' if is_same else 'differs'}",
            num_colours == 0 and is_same,
        )
    ]
    _, sixteen = _screens(bench, viewer, {"TERM": "xterm"})
    deep = colours_in(sixteen)
    beyond = deep["256"] + deep["true"]
    checks.append(
        Check("`TERM=xterm`: colours beyond the 16", "0", f"{beyond} of {sum(deep.values())}", beyond == 0)
    )
    for name in ("vt100", "dumb"):
        with bench.start(viewer, environ={"TERM": name}) as terminal:
            terminal.idle(5.0)
            text, sent = terminal.text, terminal.output
        is_plain = b"\x1b" not in sent and "Traceback" not in text and "spectrace" in text
        measured = "summary and hint, no escape" if is_plain else "something else"
        checks.append(Check(f"`TERM={name}`", "summary and hint, no escape", measured, is_plain))
    return checks


def _burst(bench: Bench, viewer: Program, bursts: int) -> Check:
    """The search is still running when `f` comes; the reader ends where `f` leads."""
    right = 0
    for number in range(bursts):
        with bench.start(viewer) as terminal:
            terminal.wait_for(viewer.ready)
            if number % 2:  # Every second burst comes before the first key is handled.
                terminal.press("", quiet=0.4)
            terminal.press(BURST, "/needle: .*1$", quiet=0.3, longest=8)
            right += "\n step 0/" in terminal.text and "1 of 1" in terminal.text.replace("0 of 1", "1 of 1")
    return Check(
        "type-ahead `/needle⏎nnf` in one write, half of them while it starts: ends on the first rejection, "
        "the needle counted",
        f"{bursts} of {bursts}",
        f"{right} of {bursts}",
        right == bursts,
    )


def _sizes(bench: Bench, viewer: Program) -> list[Check]:
    with _opened(bench, viewer) as terminal:
        terminal.press("<PgDn>")
        for number in range(20):
            terminal.resize(60 + 7 * (number * 5 % 11), 12 + number * 3 % 29)
            terminal.idle(0.02)
        terminal.resize(80, 24)
        terminal.press("g", "^ step 0/", quiet=0.8)
        stormed = terminal.text
    with _opened(bench, viewer, (80, 24)) as terminal:
        terminal.press("g", "^ step 0/", quiet=0.8)
        is_same = terminal.text == stormed
    checks = [
        Check(
            "20 changes of size in 0.4 s, then 80x24", "as if opened so", "yes" if is_same else "no", is_same
        )
    ]
    with _opened(bench, viewer, (40, 10)) as terminal:
        moved = terminal.press("j", "^ step 1/", longest=2).seen is not None
        rows = sum("/" in line and line[8:9].isdigit() for line in terminal.text.splitlines())
        checks.append(
            Check(
                "40x10: rows are shown and a key moves",
                "yes",
                "yes" if moved else f"no ({rows} rows)",
                moved,
            )
        )
    return checks


def _ends(bench: Bench, viewer: Program) -> list[Check]:
    def ended(how: str, end: Callable[[Terminal], float], *, is_restored: bool) -> Check:
        slowest, is_clean = 0.0, True
        for _ in range(5):
            with _opened(bench, viewer) as terminal:
                before = terminal.modes
                slowest = max(slowest, end(terminal))
                if is_restored:
                    is_clean &= terminal.modes_now() == before and b"\x1b[?1049l" in terminal.output[-200:]
        words = f"{slowest * 1e3:.0f} ms" + (", restored" * is_clean if is_restored else "")
        target = "≤ 1000 ms" + (", terminal restored" if is_restored else "")
        return Check(f"{how}: gone after (slowest of 5)", target, words, slowest <= 1.0 and is_clean)

    return [
        ended("`kill -TERM`", lambda terminal: terminal.signal(signal.SIGTERM), is_restored=True),
        ended("closed terminal", lambda terminal: terminal.hang_up(), is_restored=False),
    ]

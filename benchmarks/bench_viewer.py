"""What does the viewer do beside less, lnav, VisiData, Toolong and bare Textual programs?

All of them in one run, in turns, in terminals of 120x40 and 80x24, on the same synthetic steps: 1,000,000
of them as a trace for `spectrace view` and as JSON lines for its peers, and 10,000,000 as a trace. Peers are
taken from the path: less, lnav, `vd` (pip install visidata), `tl` (pip install toolong, which wants another
Textual: an environment of its own); tmux for one row. Needs pyte. `--write` puts the result into README.md.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

from measure import has_room, machine, options, scratch
from synthetic import BATCH, write_json_lines, write_long
from viewer_checks import Check, all_checks
from viewer_runs import Bench
from viewer_targets import LONG, OURS, SHORT, TENTH, all_targets, figures, verdicts
from viewers import Program, floors, needle_row, peers, spectrace_view, visidata

README = Path(__file__).with_name("README.md")
BEGIN, END = "<!-- bench_viewer: begin -->", "<!-- bench_viewer: end -->"
STEPS = 1_000_000
SHORT_STEPS = 1_000
ROW_BYTES = 130


def main() -> None:
    """Prints the tables."""
    parser = options(__doc__)
    parser.add_argument("--write", action="store_true", help="put the tables into benchmarks/README.md")
    parser.add_argument("--rounds", type=int, metavar="N", help="rounds, 5 where not given")
    arguments = parser.parse_args()
    steps = STEPS // 10 if arguments.quick else STEPS
    rounds = arguments.rounds or (1 if arguments.quick else 5)
    with scratch() as folder:
        if not has_room(folder, 13 * steps * ROW_BYTES):
            raise SystemExit(f"{10 * steps:,} steps need {13 * steps * ROW_BYTES * 1.5 / 1e9:.1f} GB of disk")
        before = os.getloadavg()[0]
        page = _measured(folder, steps, rounds, before)
    print("\n".join(page))
    if arguments.write:
        text = README.read_text(encoding="utf-8")
        README.write_text(with_section(text, "\n".join(page)), encoding="utf-8")


def with_section(text: str, section: str) -> str:
    """A page with the text between the two markers replaced.

    Raises:
        SystemExit: the page has not the two markers, once each and in this order.
    """
    head, found, rest = text.partition(BEGIN)
    old, closed, tail = rest.partition(END)
    if not found or not closed or BEGIN in old + tail or END in head + tail:
        raise SystemExit(f"README.md must have {BEGIN} and after it {END}, once each")
    return f"{head}{BEGIN}\n{section.strip()}\n{END}{tail}"


def _measured(folder: Path, steps: int, rounds: int, before: float) -> list[str]:
    steps = steps // BATCH * BATCH
    viewers = _traces(folder, steps)
    lines, fewer = folder / "steps.jsonl", folder / "fewer.jsonl"
    write_json_lines(lines, steps, needle_row(steps))
    tenth = steps // 10 // BATCH * BATCH
    write_json_lines(fewer, tenth, needle_row(tenth))
    others = [*peers(lines, steps, fewer, tenth), *floors()]
    whole = visidata(lines, "visidata", steps)
    others = [replace(one, name=TENTH) if one.name == "visidata" else one for one in others]
    missing = [_name(one) for one in others if not one.is_installed]
    for name in missing:
        print(f"!!! {name} is not installed: its cells stay empty", file=sys.stderr, flush=True)
    programs = [*viewers.values(), *(one for one in others if one.is_installed)]
    bench = Bench(folder)
    _tell("warming up")
    for program in programs:
        bench.warm_up(program)
    for number in range(rounds):
        _tell(f"round {number + 1} of {rounds}")
        _round(bench, programs if number % 2 == 0 else programs[::-1])
    if whole.is_installed:
        _tell("VisiData loads every step")
        bench.attempt(bench.whole, whole)
    _tell("checks")
    checks = all_checks(bench, viewers[OURS], 2 if rounds < 5 else 20)
    return _page(bench, [*programs], missing, checks, (before, os.getloadavg()[0]), steps, rounds)


def _traces(folder: Path, steps: int) -> dict[str, Program]:
    found = {}
    for name, rows in ((OURS, steps), (LONG, 10 * steps), (SHORT, SHORT_STEPS // BATCH * BATCH)):
        path = folder / f"{rows}.spectrace"
        write_long(path, rows, needle_row(rows))
        found[name] = spectrace_view(path, name, rows)
    return found


def _round(bench: Bench, programs: list[Program]) -> None:
    """Everything once, so that a machine that is slow for a while is slow for all."""
    for program in programs:
        if program.name in (SHORT, LONG):
            bench.attempt(bench.first_screen, program)
    for program in programs:
        if program.name != SHORT:
            bench.attempt(bench.walk, program)
    for program in programs:
        if program.presses and program.name not in (SHORT, LONG):
            bench.attempt(bench.small, program)
            bench.attempt(bench.slow, program)
    for program in programs:
        if program.name == LONG:
            bench.attempt(bench.navigation, program)
            bench.attempt(bench.keys_while_searching, program)
        if program.name in (OURS, "less", "Textual lines"):
            bench.attempt(bench.inside_tmux, program)
    bench.idle([one for one in programs if one.name != SHORT])


def _page(
    bench: Bench,
    programs: list[Program],
    missing: list[str],
    checks: list[Check],
    load: tuple[float, float],
    steps: int,
    rounds: int,
) -> list[str]:
    versions = ", ".join(dict.fromkeys(_versioned(one) for one in programs))
    return [
        "### The viewer beside its peers (`bench_viewer.py`)",
        "",
        f"{machine()} {versions}. Load {load[0]:.1f} before and {load[1]:.1f} after. Medians of {rounds} "
        f"rounds in turns, {steps:,} steps; processor and memory are those of the process and what it "
        "started; a key is done with its last byte.",
        "",
        *figures(bench.samples, missing),
        "",
        *verdicts(all_targets(bench.samples), checks),
        *([""] if bench.failures else []),
        *(f"* {failure}" for failure in bench.failures),
    ]


def _name(program: Program) -> str:
    return "visidata" if program.name == TENTH else program.name


def _versioned(program: Program) -> str:
    named = replace(program, name="spectrace" if program.name in (OURS, LONG, SHORT) else _name(program))
    return named.version


def _tell(words: str) -> None:
    print(f"{words} ...", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()

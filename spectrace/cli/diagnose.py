"""`spectrace diagnose`: the causes found, cleared, and not checked, in one screen of plain words."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

import spectrace
from spectrace.analysis.diagnosis import diagnose
from spectrace.analysis.diagnosis.conclusion import (
    answered,
    causes,
    cleared_of,
    nothing_found,
    smallness,
    telling,
)
from spectrace.analysis.diagnosis.what_now import what_now
from spectrace.analysis.diagnosis.words import words_of
from spectrace.cli.arguments import TRACE, json_option
from spectrace.cli.output import print_json, print_lines, progress, shown
from spectrace.cli.verdicts import cleared_lines, finding_lines, not_checked_lines, simulated_lines, wrapped
from spectrace.format.figures import count_of, number
from spectrace.format.reader import STATES
from spectrace.format.text import visible

if TYPE_CHECKING:
    from spectrace import Trace
    from spectrace.analysis.diagnosis import Diagnosis


@click.command("diagnose")
@click.argument("traces", metavar="TRACE...", type=TRACE, nargs=-1, required=True)
@click.option(
    "--control",
    type=TRACE,
    metavar="TRACE",
    help="A second run of the same prompts, known to be right, or a control that record --control made.",
)
@click.option("--full", is_flag=True, help="Say of every cause what was seen, or why it was not checked.")
@json_option("one JSON object, always in full")
def command(traces: tuple[Path, ...], control: Path | None, full: bool, as_json: bool) -> None:
    """Name the cause of a bad acceptance, or clear the causes it is not.

    Each finding is certain (the record contradicts itself), strong (statistics over enough steps) or a
    hint. Every share is printed with its 95 % interval and its n. The exit code is 0 whether or not
    something is found.

    Several TRACEs are the files of one run: its ranks, or the segments of a flight recorder.
    """
    with spectrace.open(traces) as trace:
        with progress("reading", len(trace.steps)) as show:
            if control is None:
                found = diagnose(trace, on_progress=show)
            else:
                with spectrace.open(control) as other:
                    found = diagnose(trace, control=other, on_progress=show)
        if as_json:
            print_json({**found.to_mapping(), "state": trace.state, "problems": list(trace.problems)})
        else:
            print_lines(_text(found, trace, full=full))


# --- as text ---------------------------------------------------------------------------------------

_FINDINGS = 2
"""Findings said in words on one screen: the first whole, the next in a sentence, more by name."""


def _text(found: Diagnosis, trace: Trace, *, full: bool) -> Iterator[str]:
    yield from _head(found, trace, full=full)
    yield ""
    named = causes(found)
    shown_whole = named if full else named[:1]
    for finding in shown_whole:
        yield from finding_lines(finding, with_evidence=True, brief=not full)
    for finding in named[len(shown_whole) : _FINDINGS]:
        start = f"also {finding.strength.value}: {visible(finding.id)}: "
        yield from wrapped(start, visible(finding.summary))
    if not full and len(named) > _FINDINGS:
        yield from wrapped("also: ", ", ".join(visible(finding.id) for finding in named[_FINDINGS:]))
    if not named:
        yield from wrapped("", nothing_found(found))
    if sentence := what_now(found, trace.run, shown(trace.paths[0])):
        yield from wrapped("next: ", sentence)
    small = smallness(found)
    if small is not None:
        yield from wrapped(f"hint: {small.id}: ", visible(small.summary, limit=1000))
    if found.look_first and (full or not named):
        yield from wrapped("look first at: ", ", ".join(map(words_of, found.look_first)))
    for item in found.counterfactuals if full else telling(found):
        yield from wrapped("what if: ", visible(item.summary, limit=1000))
    yield from _rest(found, full=full)


def _head(found: Diagnosis, trace: Trace, *, full: bool) -> Iterator[str]:
    measured = found.measured
    counts = f"{count_of(measured['proposals'], 'proposal')} of {count_of(measured['prompts'], 'prompt')}"
    yield from wrapped("", f"{shown(trace.paths[0])}: {counts}")
    yield from _file_lines(trace, full=full)
    if measured["proposals"]:
        length, rate = number(measured["accept_length"], 2), number(measured["acceptance_rate"].value)
        yield from wrapped("", f"accept length {length}; share of the draft tokens accepted {rate}")
        yield from wrapped("", f"alpha1, the first draft token accepted: {measured['alpha1']}")
        yield from simulated_lines(trace.run)


def _file_lines(trace: Trace, *, full: bool) -> Iterator[str]:
    """What a reader must know of the file itself: one line, in full one for each problem."""
    notes = []
    if trace.state != "closed":
        notes.append(STATES[trace.state])
    if lost := sum(gap.lost for gap in trace.gaps):
        notes.append(f"{count_of(lost, 'step')} lost")
    problems = [visible(problem) for problem in trace.problems]
    if problems and not full:
        more = f" (and {len(problems) - 1} more: --full)" if len(problems) > 1 else ""
        notes.append(f"problem: {problems[0]}{more}")
    if notes:
        yield from wrapped("the file: ", "; ".join(notes))
    for problem in problems if full else ():
        yield from wrapped("problem: ", problem)


# --- cleared and not checked -----------------------------------------------------------------------


def _rest(found: Diagnosis, *, full: bool) -> Iterator[str]:
    """Causes that are cleared and those that are open, each under a name of its own."""
    if full:
        if cleared := cleared_of(found):
            yield "cleared:"
            yield from cleared_lines(cleared)
        if found.not_checked:
            yield "could not be checked:"
            yield from not_checked_lines(found.not_checked)
        return
    names, others = (list(map(visible, words)) for words in answered(found))
    if names:
        yield from wrapped("cleared: ", ", ".join(names))
    if others:
        yield from wrapped("could not be checked: ", f"{', '.join(others)} (--full says why)")

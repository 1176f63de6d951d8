"""`spectrace diagnose`: the causes found, cleared, and not checked, in one screen of plain words."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import spectrace
from spectrace.analysis.diagnosis import diagnose
from spectrace.cli.arguments import TRACE, json_option
from spectrace.cli.output import has_colour, number, print_json, print_lines, progress, say, shown
from spectrace.format.text import visible

if TYPE_CHECKING:
    from spectrace.analysis.diagnosis import Cleared, Diagnosis, Finding, NotChecked

_COLOURS = {"certain": "red", "strong": "yellow", "hint": "cyan"}
_EVIDENCE_LINES = 6
_WIDTH = 100
"""Longest line, whatever the terminal."""


@click.command("diagnose")
@click.argument("traces", metavar="TRACE...", type=TRACE, nargs=-1, required=True)
@click.option(
    "--control", type=TRACE, metavar="TRACE", help="A run of the same prompts that is known to be right."
)
@json_option("one JSON object")
def command(traces: tuple[Path, ...], control: Path | None, as_json: bool) -> None:
    """Name the cause of a bad acceptance, or clear the causes it is not.

    Each finding is certain (the record contradicts itself), strong (statistics over enough steps) or a
    hint. Every share is printed with its 95 % interval and its n. The exit code is 0 whether or not
    something is found.

    Several TRACEs are the files of one run: its ranks, or the segments of a flight recorder.
    """
    with spectrace.open(list(traces) if len(traces) > 1 else traces[0]) as trace:
        with progress("reading", len(trace.steps)) as show:
            if control is None:
                found = diagnose(trace, on_progress=show)
            else:
                with spectrace.open(control) as other:
                    found = diagnose(trace, control=other, on_progress=show)
        if as_json:
            print_json(found.to_mapping())
        else:
            print_lines(_text(found, shown(traces[0])))
        for problem in trace.problems:
            say(f"problem: {visible(problem)}")


# --- as text ---------------------------------------------------------------------------------------


def _text(found: Diagnosis, name: str) -> Iterator[str]:
    yield from _head(found, name)
    yield ""
    for at, finding in enumerate(found.findings):
        yield from _finding(finding, is_first=at == 0)
    if not found.findings:
        yield "Nothing found. That is no proof of health: see what could not be checked."
    if found.look_first:
        yield from _wrapped("look first at: ", ", ".join(found.look_first))
    for item in found.counterfactuals:
        yield from _wrapped("what if: ", item.summary)
    accused = {_rule(finding.id) for finding in found.findings}
    cleared = [item for item in found.cleared if _rule(item.id) not in accused]
    if cleared:
        yield ""
        yield from _wrapped("cleared: ", ", ".join(_cleared(cleared)))
    if found.not_checked:
        yield ""
        yield from _wrapped("could not be checked: ", "; ".join(_not_checked(found.not_checked)))
        yield from _wrapped("", "--json says of each how to get what is missing.")


def _head(found: Diagnosis, name: str) -> Iterator[str]:
    measured = found.measured
    proposals, prompts = number(measured["proposals"]), number(measured["prompts"])
    yield from _wrapped("", f"{name}: {proposals} proposals from {prompts} prompts")
    if measured["proposals"]:
        length, rate = number(measured["accept_length"], 2), number(measured["acceptance_rate"].value)
        yield from _wrapped("", f"accept length {length}, acceptance rate {rate} of the drafted tokens")
        yield from _wrapped("", f"alpha1, first token accepted: {measured['alpha1']}")


def _finding(finding: Finding, *, is_first: bool) -> Iterator[str]:
    """The first finding in full, the others without their evidence."""
    label = finding.strength.value
    text = click.style(label, fg=_COLOURS[label], bold=True) if has_colour() else label
    yield f"{text}: {visible(finding.id)}"
    yield from _wrapped("  ", visible(finding.summary))
    if is_first and label != "hint":
        lines = [(key, line) for key, value in finding.evidence.items() if (line := _value(value))]
        for key, line in lines[:_EVIDENCE_LINES]:
            yield from _wrapped(f"  {visible(key).replace('_', ' ')}: ", line, indent="    ")
    if finding.steps:
        steps = ", ".join(number(step) for step in finding.steps)
        yield from _wrapped("  first steps: ", steps, indent="    ")
    yield from _wrapped("  next: ", visible(finding.advice), indent="    ")


def _value(value: Any) -> str:
    """A piece of evidence as text; empty when it says nothing."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (int, float)):
        return number(value)
    if isinstance(value, Mapping):
        return ", ".join(f"{visible(str(k)).replace('_', ' ')} {_value(v)}" for k, v in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_value, value[:16]))
    return "" if value is None else visible(str(value), limit=200)


def _rule(id_: str) -> str:
    return id_.partition("/")[0]


def _cleared(cleared: Sequence[Cleared]) -> Iterator[str]:
    """Each rule once, with what its first answer saw."""
    first = {_rule(item.id): item for item in reversed(cleared)}
    for rule, item in reversed(first.items()):
        yield f"{visible(rule)} ({visible(item.summary)})"


def _not_checked(items: Sequence[NotChecked]) -> Iterator[str]:
    """Each rule once, with its reasons; rules that lack the same share an entry."""
    by_rule: dict[str, list[str]] = {}
    for item in items:
        reasons = by_rule.setdefault(_rule(item.id), [])
        reasons += [item.reason] if item.reason not in reasons else []
    by_reasons: dict[str, list[str]] = {}
    for rule, reasons in by_rule.items():
        by_reasons.setdefault(", ".join(reasons), []).append(rule)
    for text, rules in by_reasons.items():
        yield f"{visible(', '.join(rules))} ({visible(text)})"


def _wrapped(start: str, text: str, *, indent: str = "  ") -> Iterable[str]:
    """Text in lines that fit the terminal."""
    width = min(shutil.get_terminal_size().columns, _WIDTH)
    return textwrap.wrap(
        text, width, initial_indent=start, subsequent_indent=indent, break_on_hyphens=False
    ) or [start]

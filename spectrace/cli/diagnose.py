"""`spectrace diagnose`: the causes found, cleared, and not checked, in one screen of plain words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

import spectrace
from spectrace.analysis.diagnosis import diagnose
from spectrace.cli.arguments import TRACE, json_option
from spectrace.cli.output import number, print_json, print_lines, progress, say, shown
from spectrace.cli.verdicts import finding_lines, wrapped
from spectrace.format.text import visible

if TYPE_CHECKING:
    from spectrace.analysis.diagnosis import Cleared, Diagnosis, NotChecked


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
    with spectrace.open(traces) as trace:
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
        is_telling = at == 0 and finding.id != "workload/too-small"
        yield from finding_lines(finding, with_evidence=is_telling)
    if not found.findings:
        yield "Nothing found. That is no proof of health: see what could not be checked."
    if found.look_first:
        yield from wrapped("look first at: ", ", ".join(found.look_first))
    for item in found.counterfactuals:
        yield from wrapped("what if: ", visible(item.summary, limit=1000))
    accused = {_rule(finding.id) for finding in found.findings}
    cleared = [item for item in found.cleared if _rule(item.id) not in accused]
    if cleared:
        yield ""
        yield from wrapped("cleared: ", ", ".join(_cleared(cleared)))
    if found.not_checked:
        yield ""
        yield from wrapped("could not be checked: ", "; ".join(_not_checked(found.not_checked)))
        yield from wrapped("", "--json says of each how to get what is missing.")


def _head(found: Diagnosis, name: str) -> Iterator[str]:
    measured = found.measured
    proposals, prompts = number(measured["proposals"]), number(measured["prompts"])
    yield from wrapped("", f"{name}: {proposals} proposals from {prompts} prompts")
    if measured["proposals"]:
        length, rate = number(measured["accept_length"], 2), number(measured["acceptance_rate"].value)
        yield from wrapped("", f"accept length {length}, acceptance rate {rate} of the drafted tokens")
        yield from wrapped("", f"alpha1, first token accepted: {measured['alpha1']}")


def _rule(id_: str) -> str:
    return id_.partition("/")[0]


def _cleared(cleared: Sequence[Cleared]) -> Iterator[str]:
    """Each rule once, with what its first answer saw."""
    first = {_rule(item.id): item for item in reversed(cleared)}
    for rule, item in reversed(first.items()):
        yield f"{visible(rule, limit=120)} ({visible(item.summary, limit=1000)})"


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
        yield f"{visible(', '.join(rules), limit=1000)} ({visible(text, limit=1000)})"

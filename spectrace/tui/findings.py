"""The findings of `spectrace diagnose` as places to go to."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spectrace.format.text import visible
from spectrace.tui.loader import Loader

if TYPE_CHECKING:
    from spectrace.analysis.diagnosis import Diagnosis, Finding

_CLIFF = "window"
"""The rule that looks for a length at which the draft stops working."""
_PAGES = {
    "tap-layer": "taps",
    "tap-form": "taps",
    "vocab-map": "vocabulary",
    "tokenizer": "vocabulary",
    "tree": "tree",
    "weights": "",
}
"""Rule -> id of the page that shows what it found, where it is not the step; "" = no page does."""


def page_of(finding: Finding) -> str:
    """Id of the page that shows a finding, "" where none does."""
    # Not above: it brings every rule along, and that takes longer than the first screen.
    from spectrace.analysis.diagnosis.words import rule_of

    return _PAGES.get(rule_of(finding.id), "step" if finding.steps else "")


def shown_on(finding: Finding) -> str:
    """Which key opens the page that shows a finding, in words; "" where none does."""
    from spectrace.tui.pages import PAGES

    key = next((page.key for page in PAGES if page.id == page_of(finding)), "")
    return f"{key} shows it" if key else ""


def said_of(finding: Finding) -> str:
    """A finding in the status row: its name, and which key shows it."""
    return ": ".join(filter(None, (visible(finding.id, limit=60), shown_on(finding))))


@dataclass(frozen=True, slots=True)
class Findings:
    """What was found, by step."""

    diagnosis: Diagnosis
    total: int
    """Steps of the trace when it was made."""
    rows: tuple[int, ...]
    """Numbers of the steps that a finding names, ascending."""

    def next_row(self, row: int, count: int, *, forward: bool) -> int | None:
        """The step `count` places after a row, or before it."""
        at = bisect_right(self.rows, row) + count - 1 if forward else bisect_left(self.rows, row) - count
        return self.rows[at] if 0 <= at < len(self.rows) else None

    def words_of(self, row: int) -> str:
        """The findings that name a step."""
        return "; ".join(said_of(finding) for finding in self.diagnosis.findings if row in finding.steps)

    def wrong_in(self, row: int) -> list[str]:
        """What is wrong in a step, by the findings that name it."""
        return [
            f"{visible(finding.id, limit=60)}: {visible(witness.words, limit=200)}"
            for finding in self.diagnosis.findings
            for witness in finding.witnesses
            if witness.step == row
        ]

    def cliff(self) -> tuple[int | None, str]:
        """The first step beyond the length at which acceptance falls, and what is said of it."""
        from spectrace.analysis.diagnosis.words import rule_of

        for finding in self.diagnosis.findings:
            if rule_of(finding.id) == _CLIFF:
                return min(finding.steps, default=None), visible(finding.summary)
        for cleared in self.diagnosis.cleared:
            if rule_of(cleared.id) == _CLIFF:
                return None, f"no cliff: {visible(cleared.summary)}"
        reasons = (item.reason for item in self.diagnosis.not_checked if rule_of(item.id) == _CLIFF)
        return None, f"a cliff could not be looked for: {visible(next(reasons, 'no rule answered'))}"


def findings_of(diagnosis: Diagnosis, total: int) -> Findings:
    """The findings of a diagnosis by step.

    Args:
        diagnosis: what the rules said.
        total: steps of the trace.
    """
    rows = {row for finding in diagnosis.findings for row in finding.steps if 0 <= row < total}
    return Findings(diagnosis, total, tuple(sorted(rows)))


def known_findings(loader: Loader) -> Findings | None:
    """What a screen has asked for already, without waiting for it; None before."""
    made = loader.known("diagnosis")
    return None if made is None else findings_of(made[1], made[0])


def find(loader: Loader) -> Findings:
    """Asks every rule, of as many steps as the overview does.

    Raises:
        Stopped: nobody waits any more.
    """
    from spectrace.tui.pages.outcomes import diagnosis_of

    with loader.opened_again() as trace:
        return findings_of(diagnosis_of(loader, trace), len(trace))

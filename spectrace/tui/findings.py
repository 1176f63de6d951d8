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
        named = [finding for finding in self.diagnosis.findings if row in finding.steps]
        return "; ".join(f"{visible(f.id)}: {visible(f.summary)}" for f in named)

    def cliff(self) -> tuple[int | None, str]:
        """The first step beyond the length at which acceptance falls, and what is said of it."""
        # Not above: it brings every rule along, and that takes longer than the first screen.
        from spectrace.analysis.diagnosis.words import rule_of

        for finding in self.diagnosis.findings:
            if rule_of(finding.id) == _CLIFF:
                return _first(finding), visible(finding.summary)
        for cleared in self.diagnosis.cleared:
            if rule_of(cleared.id) == _CLIFF:
                return None, f"no cliff: {visible(cleared.summary)}"
        reasons = (item.reason for item in self.diagnosis.not_checked if rule_of(item.id) == _CLIFF)
        return None, f"a cliff could not be looked for: {visible(next(reasons, 'no rule answered'))}"


def find(loader: Loader) -> Findings:
    """Asks every rule, of as many steps as the overview does.

    Raises:
        Stopped: nobody waits any more.
    """
    from spectrace.tui.pages.outcomes import diagnosis_of

    with loader.opened_again() as trace:
        total = len(trace)
        diagnosis = diagnosis_of(loader, trace)
    rows = {row for finding in diagnosis.findings for row in finding.steps if 0 <= row < total}
    return Findings(diagnosis, total, tuple(sorted(rows)))


def _first(finding: Finding) -> int | None:
    return min(finding.steps, default=None)

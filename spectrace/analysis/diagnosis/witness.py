"""What the first steps of a finding show of it: the recorded value that is wrong, and what it should be.

Worked out from the finding's evidence and the step alone, so that the findings of a pack have it too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from spectrace.analysis.diagnosis.verdict import Finding, Witness
from spectrace.format.records import Step

_MOST_STEPS = 5
_MOST_VALUES = 16
AT_FIRST = "cache_less_committed_at_the_first_step"
"""Evidence of a draft's cache: what its length was less the committed length when the request began."""
USUALLY = "cache_less_committed_usually"
"""Evidence of a target's cache: the same in the steps that are in order."""


def with_witnesses(finding: Finding, step_of: Callable[[int], Step | None]) -> Finding:
    """The finding with what its steps show.

    Args:
        finding: as a rule made it.
        step_of: a step by its number, None when it is damaged or not there.
    """
    steps = ((number, step_of(number)) for number in finding.steps[:_MOST_STEPS])
    found = [one for number, step in steps if step is not None for one in _shown(finding, number, step)]
    return replace(finding, witnesses=found) if found else finding


def _shown(finding: Finding, number: int, step: Step) -> Iterator[Witness]:
    for field, value, should_be in (
        ("draft_kv_length", step.draft_kv_length, _cache(finding, AT_FIRST, step)),
        ("target_kv_length", step.target_kv_length, _cache(finding, USUALLY, step)),
        ("draft_positions", _known(step.draft_positions), _positions(finding, step)),
    ):
        if value is not None and should_be is not None and value != should_be:
            yield Witness(step=number, field=field, value=value, should_be=should_be)


def _cache(finding: Finding, name: str, step: Step) -> int | None:
    """Length that a cache should have; None for findings about something else."""
    offset = finding.evidence.get(name)
    return None if type(offset) is not int else step.position + offset


def _positions(finding: Finding, step: Step) -> list[int] | None:
    """Positions the draft should be run at: each one more than the one before, moved where all are off."""
    given = _known(step.draft_positions)
    if finding.id != "positions/shifted" or not given or step.parents is not None:
        return None
    shift, start = finding.evidence.get("shift"), given[0]
    if "steps_off" in finding.evidence:  # most steps are in order: these tell where the others belong
        usual = next(iter(finding.evidence.get("first_position_less_committed") or ()), None)
        if not re.fullmatch(r"-?[0-9]{1,9}", str(usual)):
            return None
        start = step.position + int(str(usual))
    elif type(shift) is int:
        start -= shift
    return list(range(start, start + len(given)))


def _known(values: Sequence[int | None] | None) -> list[int] | None:
    given = list(values or ())[:_MOST_VALUES]
    numbers = [value for value in given if value is not None]
    return numbers if len(numbers) == len(given) and given else None

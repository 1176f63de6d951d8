"""What a second trace of the same prompts adds."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from spectrace import Trace
from spectrace.analysis.diagnosis import Diagnosis, diagnose

Imported = Callable[..., Trace]


def worth(diagnosis: Diagnosis) -> list[str]:
    """Ids of findings that are more than a hint."""
    return [finding.id for finding in diagnosis.findings if finding.strength != "hint"]


def accepted_less(rich: Any) -> Any:
    """Make the same requests accepted less often at the first token."""
    worse = copy.deepcopy(rich)
    for step in worse.steps:
        if step["step"] % 2 and step["num_accepted"]:
            step |= {
                "num_accepted": 0,
                "num_accepted_reported": 0,
                "target_ids": [639] * 4,
                "target_ranks": [2] * 3,
                "emitted_ids": [639],
                "processor_tokens": 1,
                "mask": ["on"],
            }
    worse.run["reported"] = {}
    return worse


def test_the_same_run_twice_differs_in_nothing(rich: Any, imported: Imported) -> None:
    """Equal texts clear the tie, equal acceptance clears the regression."""
    one, other = (imported(rich.run, rich.steps, rich.others) for _ in range(2))
    diagnosis = diagnose(one, control=other)
    assert worth(diagnosis) == []
    assert {"numeric-tie", "drift/regression"} <= {item.id for item in diagnosis.cleared}


def test_less_acceptance_on_the_same_prompts_is_a_regression(rich: Any, imported: Imported) -> None:
    """The header fields that differ are listed."""
    worse = accepted_less(rich)
    worse.run["engine"] = {"name": "loop", "version": "2"}
    diagnosis = diagnose(
        imported(worse.run, worse.steps, worse.others), control=imported(rich.run, rich.steps, rich.others)
    )
    assert worth(diagnosis) == ["drift/regression"]
    assert diagnosis.findings[0].evidence["differing_fields"] == ["engine.version"]


def test_a_regression_is_not_named_where_a_fault_explains_it(rich: Any, imported: Imported) -> None:
    """A structural fault stands alone, with the control's acceptance beside it."""
    worse = accepted_less(rich)
    for step in worse.steps:
        step["draft_positions"] = [p + 3 for p in step["draft_positions"]]
    diagnosis = diagnose(
        imported(worse.run, worse.steps, worse.others), control=imported(rich.run, rich.steps, rich.others)
    )
    assert worth(diagnosis) == ["positions/shifted"]
    assert diagnosis.findings[0].evidence["alpha1_of_control"].trials == 240


@pytest.mark.parametrize(("is_worse", "expected"), [(True, ["weights/precision"]), (False, [])])
def test_precision_is_named_or_cleared_by_a_ladder(
    rich: Any, imported: Imported, is_worse: bool, expected: list[str]
) -> None:
    """Fewer bits with less acceptance name the precision, fewer bits with the same clear it."""
    low = accepted_less(rich) if is_worse else copy.deepcopy(rich)
    low.run["draft"]["quantization"] = "int4"
    diagnosis = diagnose(
        imported(low.run, low.steps, low.others), control=imported(rich.run, rich.steps, rich.others)
    )
    assert worth(diagnosis) == expected
    assert ("weights/precision" in {item.id for item in diagnosis.cleared}) is not is_worse


def test_texts_that_part_by_a_wide_gap_are_no_tie(rich: Any, imported: Imported) -> None:
    """The place is named, and where to look; nobody is accused."""
    other = copy.deepcopy(rich)
    step = next(s for s in other.steps if s["step"] == 5)
    step["emitted_ids"] = [*step["emitted_ids"][:-1], 600]
    step["target_ids"] = [
        *step["target_ids"][: step["num_accepted"]],
        600,
        *([1] * (3 - step["num_accepted"])),
    ]
    diagnosis = diagnose(
        imported(rich.run, rich.steps, rich.others), control=imported(other.run, other.steps, other.others)
    )
    assert worth(diagnosis) == []
    tie = next(item for item in diagnosis.cleared if item.id == "numeric-tie")
    assert "no tie" in tie.summary
    assert tie.evidence["gap"] == 4.0


def test_different_prompts_are_not_compared(rich: Any, imported: Imported) -> None:
    """Without a common prompt both rules say so."""
    other = copy.deepcopy(rich)
    for record in other.others:
        if record["record"] == "request":
            record["prompt_digest"] = "other" + record["prompt_digest"]
    diagnosis = diagnose(
        imported(rich.run, rich.steps, rich.others), control=imported(other.run, other.steps, other.others)
    )
    assert worth(diagnosis) == []
    assert {"numeric-tie", "drift/regression"} <= {item.id for item in diagnosis.not_checked}

"""Faults of real SGLang engines, each named from its trace alone."""

from __future__ import annotations

import pytest

from tests.recorders.serving_runs import Runs
from tests.recorders.sglang.faults import FAULTS

pytestmark = pytest.mark.engine


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_named_first(faulty: Runs, name: str) -> None:
    """The first finding is the fault that was made.

    What was not loaded holds what the memory held before, which may be no number: then that comes first.
    """
    names = faulty[name].findings
    if name == "midlayer-missing" and names[0] == "nonfinite/values":
        del names[0]
    assert names[0] == FAULTS[name][1]

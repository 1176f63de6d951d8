"""Something goes wrong beside, beneath or inside a recording: the run goes on, the trace says what it lacks.

The faults are those of `benchmarks/reliability`, whose table shows what was measured; here stands what must
hold.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from benchmarks.reliability.faults import FAULTS, Fault
from benchmarks.reliability.outcome import Nursery, Outcome, folder_for

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="faults of Linux"),
]


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    """A process to fork hosts from."""
    made = Nursery()
    yield made
    made.close()


def happened(fault: Fault, nursery: Nursery, tmp_path: Path) -> Outcome:
    """What is left of one fault."""
    try:
        with folder_for(fault, tmp_path) as folder:
            return nursery.run(fault, folder)
    except OSError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_costs_steps_at_most_and_says_so(fault: Fault, nursery: Nursery, tmp_path: Path) -> None:
    """The host generates and ends as it would have; one warning at most; what can be read is true."""
    found = happened(fault, nursery, tmp_path)
    assert found.output != "DIFFERS", found.errors
    if fault.ends == 0 and fault.name != "left-open":
        assert found.output == "same"
    assert (found.ended, found.raised) == (fault.ends, fault.raises), found.errors
    assert len(found.warnings) == fault.warnings, found.warnings
    assert found.is_trace is fault.is_trace, found.state
    if fault.is_trace and fault.state:
        assert found.state == fault.state
    assert found.are_in_order
    assert found.lost >= 0
    if fault.is_whole:
        assert (found.lost, found.declared) == (0, 0)
    assert (found.refused is not None) is (fault.name == "two")
    if fault.is_declared:
        assert found.declared == found.lost > 0
    assert "Traceback" not in found.stats + found.repaired
    if fault.is_trace:
        assert found.repaired_steps == found.steps

"""What a diagnosis comes to, in the same words for the command, the viewer and the report."""

from __future__ import annotations

from pathlib import Path

import pytest

import spectrace
from spectrace.analysis.diagnosis.conclusion import answered, causes, nothing_found, telling
from spectrace.analysis.diagnosis.what_now import what_now


@pytest.mark.parametrize("name", ["eagle3", "draft-sampled", "prompt-lookup", "killed"])
def test_too_little_to_judge_by_is_no_cause(name: str, sample_traces: Path) -> None:
    """The sentence says that nothing was found, with how much is cleared and how much is open."""
    with spectrace.open(sample_traces / f"{name}.spectrace") as trace:
        found = spectrace.diagnose(trace)
    assert [finding.id for finding in found.findings] == ["workload/too-small"]
    assert causes(found) == []
    cleared, others = answered(found)
    assert f"no proof of health: {len(cleared)} cleared, {len(others)} could not be" in nothing_found(found)
    assert not set(cleared) & set(others)


def test_a_lookup_without_hits_is_told_what_a_lookup_needs(sample_traces: Path) -> None:
    """No fault of the engine is looked for: the text repeats too little."""
    with spectrace.open(sample_traces / "prompt-lookup.spectrace") as trace:
        said = what_now(spectrace.diagnose(trace), trace.run, "t")
    assert said is not None
    assert "0 of 26 times" in said
    assert "repeat themselves" in said
    assert "self-draft" not in said


def test_what_if_says_nothing_that_a_finding_says(sample_traces: Path) -> None:
    """The other reading of the map is the evidence of a finding about the map."""
    with spectrace.open(sample_traces / "eagle3-map-as-direct.spectrace") as trace:
        found = spectrace.diagnose(trace)
    assert any(item.name == "vocab-map-readings" for item in found.counterfactuals)
    assert all(item.name != "vocab-map-readings" for item in telling(found))


def test_a_shift_in_the_header_claims_no_match(sample_traces: Path) -> None:
    """Nothing was compared: the finding speaks of declared ids, of what they mean and what was captured."""
    with spectrace.open(sample_traces / "vllm-v1-layers-as-outputs.spectrace") as trace:
        first = spectrace.diagnose(trace).findings[0]
    assert (
        "ids (1, 3, 4) count layer outputs and mean B(2), B(4), B(5), but B(1), B(3), B(4)" in first.summary
    )
    assert first.evidence["declared_ids"] == [1, 3, 4]
    assert first.evidence["boundaries_meant"] == [2, 4, 5]
    assert not [name for name in first.evidence if "nearest" in name or "match" in name]


def test_no_number_of_the_evidence_is_a_bare_n(sample_traces: Path) -> None:
    """A count says of what it is one."""
    for path in sorted(sample_traces.glob("*.spectrace")):
        with spectrace.open(path) as trace:
            found = spectrace.diagnose(trace)
        for name, evidence in [
            *((item.id, item.evidence) for item in found.findings),
            *((item.id, item.evidence) for item in found.cleared),
        ]:
            assert "n" not in evidence, (path.name, name)

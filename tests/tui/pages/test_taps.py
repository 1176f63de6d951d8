"""The page of the taps shows a shifted layer, another form and a jump, and says what is missing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from spectrace.testing import write_trace
from tests.tui.pages.showing import flat, lines_of, shown


def test_shifted_layers_are_named(sample_traces: Path) -> None:
    """Each tap says which boundary it is and which one the draft expects."""
    text = flat("taps", sample_traces / "eagle3-taps-shifted.spectrace")
    assert "tap-layer/shifted" in text
    assert re.search(r"B\(2\) B\(2\) B\(3\) 1\.000 0\.9[0-7]", text)
    assert "looks like B(3), the draft expects B(2)" in text


def test_a_norm_is_seen_in_the_length(sample_traces: Path) -> None:
    """Normed states point the right way and are much shorter than the reference's."""
    text = flat("taps", sample_traces / "eagle3-taps-normed.spectrace")
    assert "tap-form/norm" in text
    assert re.search(r"B\(5\) B\(5\) B\(5\) (0\.999|1\.000) \1 1\.\d+ 1\d\.\d+ 0\.[01]\d", text)
    assert re.search(r"its length is 0\.[01]\d times the reference", text)


def test_healthy_taps_have_no_remark(sample_traces: Path) -> None:
    """Right boundary, right length: nothing is marked."""
    text = flat("taps", sample_traces / "eagle3.spectrace")
    assert re.search(r"B\(5\) B\(5\) B\(5\) 1\.000 1\.000 (1\d\.\d+) \1 1\.00", text)
    assert "looks like" not in text
    assert "^" not in text
    assert "float32" in text


def test_a_finding_about_the_state_fed_back_is_shown(sample_traces: Path) -> None:
    """What the overview says of states stands here too, beside the length at each depth."""
    text = shown("taps", sample_traces / "eagle3-feedback-normed.spectrace")
    assert "certain  tap-form/feedback-norm" in text
    assert "cleared  width: all states are 192 wide" in text
    assert "cleared  tap-form" not in text
    means = re.findall(r"^([1-4]) +\d+ +(\d+\.\d+)", text, re.MULTILINE)
    assert [depth for depth, _ in means] == ["1", "2", "3", "4"]
    assert float(means[0][1]) > 5 * float(means[1][1])


@pytest.mark.parametrize(
    "name", ["eagle3-feedback-normed", "eagle3-taps-normed", "eagle3-taps-shifted", "eagle3"]
)
def test_the_findings_about_states_are_those_of_the_overview(sample_traces: Path, name: str) -> None:
    """And no cleared line bears the name of one of them."""
    path = sample_traces / f"{name}.spectrace"
    here, there = (shown(page, path) for page in ("taps", "overview"))
    found = re.findall(r"^(?:certain|strong|hint) +(tap-\S+)", here, re.MULTILINE)
    assert found == re.findall(r"^(?:certain|strong|hint) +(tap-\S+)", there, re.MULTILINE)
    cleared = re.findall(r"^cleared  (\S+):", here, re.MULTILINE)
    assert not any(
        finding.endswith(name) or name in finding.split("/") for finding in found for name in cleared
    )


def test_a_jump_is_seen_and_led_to(tmp_path: Path) -> None:
    """One step with states eight times as long stands out, and Enter on its tap goes there."""
    steps = [
        {
            "step": at,
            "taps": [{"boundary": 3, "shape": [1, 8], "dtype": "f16", "rms": 8.0 if at == 7 else 1.0}],
        }
        for at in range(12)
    ]
    path = write_trace(tmp_path / "t.spectrace", steps)
    strips = [line for line in shown("taps", path).splitlines() if "█" in line]
    assert strips[0] == "B(3)    ▄▄▄▄▄▄▄█▄▄▄▄"
    assert "farthest from it at step 7: 8.00 times" in flat("taps", path)
    assert 7 in {line.row for line in lines_of("taps", path)}


def test_no_taps_says_what_brings_them(sample_traces: Path) -> None:
    """A trace without fingerprints names the recorder's option."""
    text = flat("taps", sample_traces / "minimal-v1.spectrace")
    assert "taps is not recorded: TransformersRecorder(taps=[...])" in text


def test_no_reference_says_what_brings_it(sample_traces: Path) -> None:
    """Without a reference forward no boundary is guessed."""
    text = flat("taps", sample_traces / "draft-greedy.spectrace")
    assert "No boundary can be matched: reference is not recorded: spectrace record --reference" in text


def test_values_that_are_no_numbers_are_counted(tmp_path: Path) -> None:
    """A tap with NaN is marked."""
    tap = {"boundary": 3, "shape": [1, 8], "dtype": "f16", "rms": float("nan"), "nonfinite": 4}
    path = write_trace(tmp_path / "t.spectrace", [{"taps": [tap]}, {"taps": [tap]}])
    assert "^ 2 rows with NaN or infinite values" in flat("taps", path)


def test_a_draft_of_tokens_is_meant_no_boundary(sample_traces: Path) -> None:
    """States that were fingerprinted are the target's: nothing is meant for the draft."""
    text = flat("taps", sample_traces / "draft-greedy.spectrace", width=120)
    assert "states of the target; the draft is fed tokens only" in text
    assert "meant" not in text
    assert "so boundaries" not in text


def test_captured_boundaries_that_are_not_those_meant_are_called_so(sample_traces: Path) -> None:
    """The header of a run that counts inputs for outputs."""
    text = flat("taps", sample_traces / "vllm-v1-layers-as-outputs.spectrace", width=120)
    assert "captured 1 3 4, not those meant" in text

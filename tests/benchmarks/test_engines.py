"""The table of engines, made of sample traces."""

from __future__ import annotations

from pathlib import Path

from benchmarks.engines.runs import Run
from benchmarks.engines.table import markdown

SAMPLES = Path(__file__).parents[2] / "sample_traces"


def rows(*names: str) -> list[list[str]]:
    """Cells of the rows of one method, the heading left out."""
    page = markdown([Run("eagle3", name, SAMPLES / f"{name}.spectrace") for name in names])
    lines = [line for line in page.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]


def test_engines_that_do_the_same() -> None:
    """Both runners of vLLM: every token, proposal, pick and decision is counted, and nothing differs."""
    first, second = rows("vllm-v1-eagle3", "vllm-v2-eagle3")
    assert first[1:6] == [""] * 5
    assert second[1:5] == ["192 of 192", "55 of 55", "192 of 192", "55 of 55"]
    assert second[5] == "B(2) 96, B(4) 96, B(5) 96"
    assert second[-1] == "nothing differs"


def test_engines_that_differ() -> None:
    """A head that is fed other layers: the same text, other proposals, other states."""
    _, second = rows("vllm-v1-eagle3", "vllm-v1-layers-as-outputs")
    same, compared = second[2].split(" of ")
    assert int(same) < int(compared)
    assert "proposals differ" in second[-1]
    assert "B(2) 96, B(4) 96, B(5) 96" not in second[5]

"""What recorders of serving engines share: events to steps, counts, header, and hooks that come off."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytestmark = pytest.mark.engine
torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from spectrace.format.items import Group  # noqa: E402
from spectrace_serving import reduction  # noqa: E402
from spectrace_serving.header import flags, misfits  # noqa: E402
from spectrace_serving.join import Joiner, grouped  # noqa: E402
from spectrace_serving.reduction import Fingerprints  # noqa: E402
from spectrace_serving.requests import Finished, Progress, Started  # noqa: E402
from spectrace_serving.rows import Rules  # noqa: E402
from spectrace_serving.settings import Settings  # noqa: E402
from spectrace_transformers.reduction import Pack, Workspace  # noqa: E402
from spectrace_vllm.recording import attach  # noqa: E402
from tests.recorders import vllm_fakes as fakes  # noqa: E402
from tests.recorders.vllm_records import PROMPTS  # noqa: E402

# --- events to steps ----------------------------------------------------------------------------------


@dataclass
class Batch:
    """An event: requests that each make a step."""

    requests: list[str]
    num_bytes: int = 7


class Steps(Joiner[Progress]):
    """One group for each request that goes on; remembers who was known at the end of a request."""

    def __init__(self) -> None:
        super().__init__(Rules(started_ns=0, boundaries=None, is_simulated=False), Progress)
        self.known: list[set[str]] = []

    def join(self, event: Any) -> Iterator[Group]:
        """Takes the event apart."""
        if isinstance(event, Finished):
            self.known.append(set(self.requests))
            return
        for at, request in self.going_on(event.requests):
            yield 1, {"request": request.facts.request, "at": at}


def started(name: str) -> Started:
    """A request has come."""
    return Started(request=name, prefix_hit_length=0, is_greedy=True, stop_ids=frozenset(), max_tokens=None)


@given(st.lists(st.lists(st.sampled_from("abc"), unique=True), max_size=6), st.integers(0, 6))
def test_each_step_is_taken_once_and_in_order(batches: list[list[str]], at: int) -> None:
    """Whether the writer looks in between or only at the end; afterwards nothing waits."""
    joiner = Steps()
    for name in "ab":
        joiner.put(started(name))
    taken: list[Group] = []
    for number, names in enumerate(batches):
        joiner.put(Batch(names))
        if number == at:
            taken += joiner.take()
    taken += joiner.take()
    expected = [(name, row) for names in batches for row, name in enumerate(names) if name != "c"]
    assert [(fields["request"], fields["at"]) for _, fields in taken] == expected
    assert joiner.take() == []
    assert joiner.num_bytes == 0


def test_a_request_is_known_while_its_end_is_told_and_not_after() -> None:
    """What is held back of it can still be joined; a later event of its name makes no step."""
    joiner = Steps()
    for event in (started("a"), started("b"), Finished(["a", "never came"]), Batch(["a", "b"])):
        joiner.put(event)
    assert [fields["request"] for _, fields in joiner.take()] == ["b"]
    assert joiner.known == [{"a", "b"}]
    assert set(joiner.requests) == {"b"}


def test_a_request_that_is_over_makes_no_step() -> None:
    """An engine that runs ahead goes on behind the end of a text."""
    joiner = Steps()
    joiner.put(started("a"))
    joiner.put(Batch(["a"]))
    assert len(joiner.take()) == 1
    joiner.requests["a"].advance([5], "length")
    joiner.put(Batch(["a"]))
    assert joiner.take() == []


@given(st.lists(st.none() | st.integers(0, 9)))
def test_rows_are_grouped_and_none_is_lost(rows: list[int | None]) -> None:
    """Each row is in the group of its key, in its order; what came to nothing is in none."""
    groups = [list(group) for group in grouped(rows, lambda row: row % 3)]
    keys = [{row % 3 for row in group} for group in groups]
    assert all(len(key) == 1 for key in keys)
    assert len({key for own in keys for key in own}) == len(groups)
    for group in groups:
        assert group == [row for row in rows if row is not None and row % 3 == group[0] % 3]
    assert sum(map(len, groups)) == len([row for row in rows if row is not None])


# --- numbers that are none ----------------------------------------------------------------------------

HUGE = float(np.finfo(np.float32).max)
VALUES = st.sampled_from([0.0, -1.5, HUGE, -HUGE, float("inf"), float("-inf"), float("nan")])


@given(
    st.integers(1, 4).flatmap(
        lambda size: st.lists(st.lists(VALUES, min_size=8, max_size=8), min_size=size, max_size=size)
    )
)
def test_values_that_are_no_numbers_are_counted(rows: list[list[float]]) -> None:
    """Row by row, NaN and both infinities; numbers so large that their sum is infinite are numbers."""
    taken, pack = torch.tensor([rows]), Pack(torch.device("cpu"))
    Fingerprints(torch.device("cpu")).add(pack, taken)
    assert pack.send()()["tap_nonfinite"].tolist() == [(~np.isfinite(np.array(rows))).sum(1).tolist()]


# --- header -------------------------------------------------------------------------------------------


def test_flags_are_words_and_numbers() -> None:
    """None and objects are left out; where a draft norms stands among them; torch too."""
    found = flags(
        {"method": "eagle3", "rate": 0.5, "depth": 3, "on": False, "none": None, "object": object()},
        SimpleNamespace(norm_output=True, fc_norm=None),
    )
    assert found.pop("torch") == torch.__version__
    assert found == {"method": "eagle3", "rate": 0.5, "depth": 3, "on": False, "norm_output": True}


def test_each_misfit_stands_under_a_name_of_its_own() -> None:
    """With what is to be done; without misfits nothing is missing."""
    assert misfits(["a is not there", "b takes (c)"], "do this") == {
        "hook 0": "a is not there; do this",
        "hook 1": "b takes (c); do this",
    }
    assert misfits([], "do this") == {}


# --- hooks that come off ------------------------------------------------------------------------------


def test_closing_twice_changes_nothing(tmp_path: Path) -> None:
    """The second call writes nothing and puts nothing back over what came in between."""
    runner = fakes.V1Runner(PROMPTS)
    recording = attach(fakes.FakeWorker(runner), Settings(out=tmp_path))
    assert recording is not None
    for _ in range(3):
        runner.step()
    recording.close()
    data = recording.writer.path.read_bytes()
    runner._sample = somebody = lambda *_: None  # type: ignore[method-assign]
    recording.close()
    assert runner._sample is somebody
    assert recording.writer.path.read_bytes() == data


def test_a_function_of_the_object_itself_is_put_back(tmp_path: Path) -> None:
    """Where something else has wrapped it before, that stays; where nothing has, the class's shows again."""
    runner = fakes.V1Runner(PROMPTS)
    original = runner.execute_model

    def wrapped(scheduler_output: Any, *args: Any) -> None:
        original(scheduler_output, *args)

    vars(runner)["execute_model"] = wrapped
    recording = attach(fakes.FakeWorker(runner), Settings(out=tmp_path))
    assert recording is not None
    assert runner.execute_model is not wrapped
    assert "_sample" in vars(runner)
    recording.close()
    assert vars(runner)["execute_model"] is wrapped
    assert "_sample" not in vars(runner)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("num_rows", [0, 1, 37])
def test_rows_are_reduced_a_part_at_a_time(
    dtype: str, num_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch too large for one go gives what it gives in one, and no buffer is larger than a part."""
    logits = torch.randn(num_rows, 1000, generator=torch.Generator().manual_seed(0))
    logits[num_rows // 2 : num_rows // 2 + 1, 5] = float("nan")
    logits = logits.to(getattr(torch, dtype))
    rows = torch.arange(num_rows).flip(0)
    chosen = logits[rows, rows].unsqueeze(1)

    def reduced(workspace: Workspace) -> dict[str, Any]:
        found = reduction.row_values(logits, workspace, "rows", has_mean=True)
        found["better"] = reduction.num_better(logits, rows, chosen, workspace, "rows")
        return found

    whole, small = reduced(Workspace()), Workspace()
    monkeypatch.setattr(reduction, "VALUES_AT_ONCE", 5000)
    for name, values in reduced(small).items():
        assert torch.equal(values.nan_to_num(-1), whole[name].nan_to_num(-1)), name
    assert small.rows("rows", (0, 1000), logits.device).untyped_storage().nbytes() <= 4 * 5000
    expected = (logits[rows].float() > chosen.float()).sum(-1)
    assert torch.equal(whole["better"].long(), expected)

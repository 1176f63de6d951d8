"""What the READMEs promise of every step and header of both serving engines, on stand-ins for them."""

from __future__ import annotations

import hashlib
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.engine
torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from safetensors.torch import save_file  # noqa: E402

from spectrace_serving.checkpoint import find_checkpoint, parameter_lists  # noqa: E402
from spectrace_serving.settings import Settings  # noqa: E402
from spectrace_vllm.recording import attach  # noqa: E402
from tests.recorders import sglang_records, vllm_fakes, vllm_records  # noqa: E402
from tests.recorders.serving_traces import by_request, header  # noqa: E402


@pytest.fixture(params=["V1", "V2", "chain", "tree"])
def recorded(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Any, Path]:
    """The draft of a stand-in, and the trace of some steps of two requests."""
    if request.param in ("V1", "V2"):
        runner: Any = vllm_records.RUNNERS[request.param == "V2"](vllm_records.PROMPTS)
        drafter = getattr(runner, "drafter", None) or runner.speculator
        return drafter.model, vllm_records.record(runner, tmp_path)
    live = sglang_records.scheduler(1 if request.param == "chain" else 2)
    return live.drafter.draft_runner.model, sglang_records.record(live, tmp_path)


def test_a_step_says_where_and_when_it_ran(recorded: tuple[Any, Path]) -> None:
    """Row and length of its batch, engine step, and times that follow one another."""
    requests = by_request(recorded[1])
    for row, steps in enumerate(requests.values()):
        assert [step.engine_step for step in steps] == list(range(len(steps)))
        for step, *others in zip(steps, *requests.values()):
            assert step.batch_row == row
            assert step.max_batch_length == max(other.target_kv_length for other in others)
            assert step.verify_ns > 0
        for step in steps[1:]:
            assert step.step_ns >= step.draft_ns + step.verify_ns > step.verify_ns
        for before, after in pairwise(steps[1:]):
            assert before.started_ns + before.step_ns <= after.started_ns


def test_both_sides_leave_five_choices(recorded: tuple[Any, Path]) -> None:
    """Of the target at the root and after each draft token, of the draft at each draft token; best first."""
    for step in (step for steps in by_request(recorded[1]).values() for step in steps):
        for tops, size in ((step.target_top, len(step.target_ids)), (step.draft_top, len(step.proposal_ids))):
            assert len(tops or ()) == size
            for top in tops or ():
                values = [value for _, value in top]
                assert len(top) == 5
                assert values == sorted(values, reverse=True)


def test_the_drafts_weights_have_digests(recorded: tuple[Any, Path]) -> None:
    """Each is of the bytes that are loaded; the target's head stands beside them."""
    draft, path = recorded
    found = dict(header(path).draft.fingerprints)
    assert found.pop("target.lm_head.weight").digest != found["lm_head.weight"].digest
    weights = {name: weight for name, weight in draft.named_parameters() if weight.is_floating_point()}
    assert set(found) == set(weights)
    for name, weight in weights.items():
        data = weight.detach().numpy().tobytes()
        assert found[name].digest == f"sha256:{hashlib.sha256(data).hexdigest()}"


def test_a_step_that_a_limit_cuts_says_so(tmp_path: Path) -> None:
    """Where accepted tokens are all that is left of it: the last is the draft's own."""
    runner = vllm_fakes.V1Runner(vllm_records.PROMPTS)
    runner.world.sampling["a-00000000"] = vllm_fakes.sampling(max_tokens=4)
    live = sglang_records.scheduler()
    live.requests[0].sampling_params.max_new_tokens = 4
    paths = (vllm_records.record(runner, tmp_path / "vllm"), sglang_records.record(live, tmp_path / "sglang"))
    for path, name in zip(paths, ("a-00000000", "a")):
        steps = by_request(path)[name]
        assert ["truncated" in (step.flags or ()) for step in steps] == [False, True]
        assert (steps[-1].final_kind, steps[-1].num_accepted, steps[-1].num_accepted_reported) == (
            "draft", 3, 3
        )  # fmt: skip


def test_weights_without_a_source_or_a_place_are_named(tmp_path: Path) -> None:
    """By the checkpoint's names; fused parameters are looked for part by part, shared ones not at all."""
    draft = torch.nn.Module()
    draft.model = torch.nn.Module()
    draft.model.fc = torch.nn.Linear(4, 2, bias=False)
    draft.model.embed_tokens = torch.nn.Embedding(3, 2)
    draft.model.layers = torch.nn.ModuleList([torch.nn.Module()])
    draft.model.layers[0].qkv_proj = torch.nn.Linear(2, 6, bias=False)
    names = (
        "midlayer.q_proj.weight",
        "midlayer.v_proj.weight",
        "fc.weight",
        "fc.bias",
        "embed_tokens.weight",
    )
    save_file({name: torch.zeros(2, 2) for name in names}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text("{}")
    checkpoint = find_checkpoint(str(tmp_path), None)
    assert checkpoint is not None
    assert parameter_lists(checkpoint, draft, ["embed_tokens"]) == {
        "missing": ["layers.0.k_proj.weight"],
        "unexpected": ["fc.bias"],
    }


def test_another_rank_records_nothing(tmp_path: Path) -> None:
    """Only one holds the logits and decides; the others leave no file."""
    worker = vllm_fakes.FakeWorker(vllm_fakes.V1Runner(vllm_records.PROMPTS))
    worker.rank = 1
    assert attach(worker, Settings(out=tmp_path)) is None
    assert not list(tmp_path.iterdir())

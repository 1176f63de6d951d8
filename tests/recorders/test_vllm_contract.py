"""The vLLM recorder against stand-ins for both runners: runs wherever torch does, vLLM or not."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytestmark = pytest.mark.engine
torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from tests.recorders import vllm_fakes as fakes  # noqa: E402
from tests.recorders.serving_fakes import EOS, OFFSET, VOCAB, target_logits  # noqa: E402
from tests.recorders.serving_traces import by_request, header  # noqa: E402
from tests.recorders.vllm_records import PROMPTS, RUNNERS, record  # noqa: E402


@pytest.fixture(params=RUNNERS, ids=("V1", "V2"))
def runner(request: pytest.FixtureRequest) -> Any:
    """A runner with two requests."""
    return request.param(PROMPTS)


def test_what_the_engine_emits_is_in_the_trace(runner: Any, tmp_path: Path) -> None:
    """Every token that a runner samples is an emitted token of a step, in order."""
    path = record(runner, tmp_path)
    steps = by_request(path)
    for name, prompt in PROMPTS.items():
        emitted = [token for step in steps[name] for token in step.emitted_ids]
        assert emitted == runner.world.texts[name][len(prompt) :][: len(emitted)]
        assert len(emitted) >= 6


def test_a_proposal_is_joined_with_its_verification(runner: Any, tmp_path: Path) -> None:
    """Raw ids, mapped ids, positions and the draft's certainty stand beside the decision that followed."""
    steps = by_request(record(runner, tmp_path))["a-00000000"]
    assert steps[0].proposal_ids == ()
    assert steps[0].flags == ("prefill",)
    for before, step in pairwise(steps):
        assert len(step.proposal_ids) == fakes.K
        assert [raw + OFFSET for raw in step.draft_ids] == list(step.proposal_ids)
        assert all(value == pytest.approx(-0.0156, abs=0.01) for value in step.draft_logprobs)
        assert [top[0][0] for top in step.draft_top] == list(step.draft_ids)
        assert step.position == before.position + len(before.emitted_ids)
        assert step.draft_inputs[0]["rms"] == pytest.approx(1.0)
        assert len(step.draft_positions) == fakes.K


def test_acceptance_is_counted_from_the_ids(runner: Any, tmp_path: Path) -> None:
    """The first difference between proposal and target ends the accepted prefix, and names the last token."""
    for steps in by_request(record(runner, tmp_path)).values():
        for step in steps[1:]:
            agree = [a == b for a, b in zip(step.proposal_ids, step.target_ids)]
            accepted = agree.index(False) if False in agree else len(agree)
            assert step.num_accepted == accepted == step.num_accepted_reported
            assert step.final_kind == ("bonus" if accepted == fakes.K else "corrected")
            assert [rank == 1 for rank in step.target_ranks] == agree
            assert step.target_kv_length == step.position


def test_the_logits_are_those_before_sampling(runner: Any, tmp_path: Path) -> None:
    """Samplers overwrite the logits in place; the trace holds what the model said."""
    step = by_request(record(runner, tmp_path))["b-11111111"][1]
    logits = target_logits(torch.tensor([step.emitted_ids[0] - 1]))[0]
    assert step.target_top[0][0][1] == pytest.approx(logits.log_softmax(-1).max().item(), abs=1e-5)
    assert step.target_gaps[0] == pytest.approx(logits.topk(2).values.diff().neg().item(), abs=1e-5)


def test_states_fed_to_the_draft_are_fingerprinted(runner: Any, tmp_path: Path) -> None:
    """One row per boundary for the last committed token, more for a prompt, at the boundaries in use."""
    path = record(runner, tmp_path)
    steps = by_request(path)["a-00000000"]
    assert [tap.boundary for tap in steps[1].taps] == [2, 4, 5]
    assert {tap.position for tap in steps[1].taps} == {steps[1].position - 1}
    assert [tap.position for tap in steps[0].taps if tap.boundary == 4] == [0, 1, 2, 3]
    assert all(len(tap.projections) == 32 for tap in steps[1].taps)
    assert list(header(path).taps.boundaries) == [2, 4, 5]


def test_both_runners_give_the_same_steps(tmp_path: Path) -> None:
    """The same decisions, recorded through V1 and through V2, are the same steps."""
    texts = [by_request(record(cls(PROMPTS), tmp_path / cls.__name__)) for cls in RUNNERS]
    for name in PROMPTS:
        for one, other in zip(*(found[name] for found in texts), strict=True):
            for field in (
                "proposal_ids",
                "draft_ids",
                "emitted_ids",
                "target_ids",
                "target_ranks",
                "position",
            ):
                assert getattr(one, field) == getattr(other, field)


def test_a_text_ends_where_the_scheduler_ends_it(runner: Any, tmp_path: Path) -> None:
    """Tokens behind a limit and steps behind the end, which vLLM throws away, are not committed here."""
    runner.world.sampling["a-00000000"] = fakes.sampling(max_tokens=4)
    steps = by_request(record(runner, tmp_path))["a-00000000"]
    assert sum(len(step.emitted_ids) for step in steps) == 4
    assert steps[-1].stop == "length"


def test_the_end_of_text_ends_it(runner: Any, tmp_path: Path) -> None:
    """The token that ends a text is the last that is committed."""
    runner.world.texts["a-00000000"] = [56, 57, 58]
    steps = by_request(record(runner, tmp_path))["a-00000000"]
    assert steps[-1].stop == "eos"
    assert steps[-1].emitted_ids[-1] == EOS


def test_requests_are_sampled(runner: Any, tmp_path: Path) -> None:
    """Every second request: the other one leaves nothing in the trace."""
    assert set(by_request(record(runner, tmp_path, every=2))) == {"a-00000000"}


def test_a_preempted_request_goes_on(runner: Any, tmp_path: Path) -> None:
    """A request that the scheduler names again as new keeps its numbers, and its limit."""
    scheduled = runner.world.scheduled

    def again() -> Any:
        first = scheduled()
        if runner.world.num_steps == 3:
            first.scheduled_new_reqs = [
                SimpleNamespace(
                    req_id="a-00000000",
                    prompt_token_ids=[1, 2, 3, 11],
                    sampling_params=fakes.sampling(),
                    num_computed_tokens=0,
                )
            ]
        return first

    runner.world.scheduled = again
    steps = by_request(record(runner, tmp_path))["a-00000000"]
    assert [step.step for step in steps] == list(range(6))


def test_ids_alone(runner: Any, tmp_path: Path) -> None:
    """SPECTRACE_CAPTURE=ids keeps tokens and decisions, and neither probabilities nor states."""
    step = by_request(record(runner, tmp_path, is_full=False))["a-00000000"][2]
    assert step.target_ids is not None
    assert [raw + OFFSET for raw in step.draft_ids] == list(step.proposal_ids)
    assert step.target_logprobs is None
    assert step.draft_logprobs is None
    assert step.taps is None


def test_a_hook_that_does_not_fit_is_in_the_header(runner: Any, tmp_path: Path) -> None:
    """What is missing, why, and what to do: the log of a server is seldom at hand beside its trace."""
    drafter = getattr(runner, "drafter", None) or runner.speculator
    name = "set_inputs_first_pass" if hasattr(runner, "drafter") else "propose"
    function = getattr(drafter, name)
    setattr(drafter, name, lambda *args, **kwargs: function(*args, **kwargs))
    missing = header(record(runner, tmp_path)).capture.unavailable["hook 0"]
    assert re.search(rf"{name} takes \(args, kwargs\), expected .*newer spectrace-tui", missing)


def test_a_graph_that_hides_the_draft_is_said(runner: Any, tmp_path: Path) -> None:
    """Where the draft's forwards do not pass the hooks, the header names what is missing, and why."""
    drafter = getattr(runner, "drafter", None) or runner.speculator
    drafter.model.compute_logits = lambda read: torch.nn.functional.one_hot(read + 1, VOCAB).float()
    runner.vllm_config.model_config.enforce_eager = False
    path = record(runner, tmp_path)
    capture = header(path).capture
    assert capture.mode == "graph"
    assert "graph capture" in capture.unavailable["draft_ids"]
    assert by_request(path)["a-00000000"][1].proposal_ids


def test_logits_that_are_made_elsewhere_are_no_graph(runner: Any, tmp_path: Path) -> None:
    """Logits that pass no hook though nothing is captured are missing for another reason."""
    drafter = getattr(runner, "drafter", None) or runner.speculator
    drafter.model.compute_logits = lambda read: torch.nn.functional.one_hot(read + 1, VOCAB).float()
    path = record(runner, tmp_path)
    capture = header(path).capture
    assert capture.mode == "eager"
    assert "no hook looks" in capture.unavailable["draft_ids"]
    assert len(by_request(path)["a-00000000"][1].draft_positions) == fakes.K


def test_one_forward_for_all_depths(tmp_path: Path) -> None:
    """Parallel drafting: the rows of one forward are told apart, request by request and depth by depth."""
    runner = fakes.V1Runner(PROMPTS)
    drafter = runner.drafter.model

    def draft(model: Any, batch: Any, rows: Any) -> Any:
        last = torch.tensor([runner.world.texts[name][-1] for name in batch.req_ids])
        read = (last[:, None] + torch.arange(fakes.K)).reshape(-1)  # [B * K]
        proposal = drafter.compute_logits(read).argmax(-1).view(-1, fakes.K)
        runner.world.drafts = dict(zip(batch.req_ids, proposal.tolist()))
        return proposal

    runner.world.draft = draft  # type: ignore[method-assign]
    for steps in by_request(record(runner, tmp_path)).values():
        for step in steps[1:]:
            assert [raw + OFFSET for raw in step.draft_ids] == list(step.proposal_ids)
            assert [top[0][0] for top in step.draft_top] == list(step.draft_ids)


def test_a_synthetic_acceptance_is_flagged(tmp_path: Path) -> None:
    """Acceptance that is drawn and not decided is marked in the header and in every step."""
    runner = fakes.V2Runner(PROMPTS)
    runner.vllm_config.speculative_config.rejection_sample_method = "synthetic"
    path = record(runner, tmp_path)
    assert header(path).verification.rule == "synthetic"
    assert header(path).verification.lossless is False
    assert "simulated" in by_request(path)["a-00000000"][1].flags

"""What must hold in every trace of a greedy run of vLLM, whatever the method. Compares; runs nothing."""

from __future__ import annotations

from typing import Any

from tests.recorders.serving_runs import Outcome


def check_run(outcome: Outcome, plain: Outcome) -> None:
    """Everything below, for a run and the same prompts without speculation."""
    check_lossless(outcome, plain)
    check_emitted(outcome)
    check_reported(outcome)
    check_steps(outcome)


def check_lossless(outcome: Outcome, plain: Outcome) -> None:
    """Recording and speculating change no token."""
    tokens = {name: output["token_ids"] for name, output in outcome.outputs.items()}
    assert tokens == {name: output["token_ids"] for name, output in plain.outputs.items()}


def check_emitted(outcome: Outcome) -> None:
    """The committed tokens of all steps are what vLLM returned, no more and no less."""
    for name, output in outcome.outputs.items():
        emitted = [token for step in outcome.steps[name] for token in step.emitted_ids]
        assert emitted == output["token_ids"]


def check_reported(outcome: Outcome) -> None:
    """VLLM's own metrics, step by step: drafted, and accepted before the scheduler cuts."""
    for name, output in outcome.outputs.items():
        steps = [step for step in outcome.steps[name] if step.proposal_ids]
        assert [len(step.proposal_ids) for step in steps] == output["drafted"]
        assert [step.num_accepted_reported for step in steps] == output["accepted"]


def check_steps(outcome: Outcome) -> None:
    """Numbers, positions, ids and the greedy rule of every step."""
    for name, steps in outcome.steps.items():
        position = len(outcome.outputs[name]["prompt_ids"])
        assert [step.step for step in steps] == list(range(len(steps)))
        for step in steps:
            assert step.position == position
            position += len(step.emitted_ids)
            _check_step(step)


def _check_step(step: Any) -> None:
    proposal, emitted, accepted = step.proposal_ids, step.emitted_ids, step.num_accepted
    assert emitted[:accepted] == proposal[:accepted]
    assert step.target_ids[: len(emitted)] == emitted
    assert len(step.target_ids) == len(proposal) + 1
    if accepted < min(len(proposal), len(emitted)):
        assert proposal[accepted] != step.target_ids[accepted]
    for reached in range(min(accepted + 1, len(proposal), len(emitted))):
        is_pick = proposal[reached] == step.target_ids[reached]
        if step.target_ranks is not None and step.target_gaps[reached] > 0:
            assert (step.target_ranks[reached] == 1) == is_pick
    for values in (step.draft_logprobs, step.target_logprobs):
        assert values is None or all(value <= 1e-5 for value in values)

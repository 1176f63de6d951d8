"""What must hold in every trace of a greedy run of SGLang, whatever the method. Compares; runs nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from tests.recorders.serving_runs import Outcome


def check_run(outcome: Outcome) -> None:
    """Everything below."""
    check_emitted(outcome)
    check_reported(outcome)
    check_steps(outcome)


def check_lossless(outcome: Outcome, plain: Outcome) -> None:
    """Recording and speculating change no token of the same prompts, of which a plain run writes more."""
    texts = outcome.texts
    assert texts == [text[: len(own)] for text, own in zip(plain.texts, texts)]


def check_emitted(outcome: Outcome) -> None:
    """The committed tokens of all steps are what SGLang returned, no more and no less."""
    for name, output in outcome.outputs.items():
        assert [token for step in outcome.steps[name] for token in step.emitted_ids] == output["token_ids"]
        assert outcome.steps[name][-1].stop == {"length": "length", "stop": "eos"}[output["finish_reason"]]


def check_reported(outcome: Outcome) -> None:
    """SGLang's own counts: rounds, accepted tokens, and how often how many were accepted."""
    for name, output in outcome.outputs.items():
        steps = [step for step in outcome.steps[name] if not is_prefill(step)]
        assert len(steps) == output["spec_verify_ct"]
        accepted = [step.num_accepted_reported for step in steps]
        assert sum(accepted) == output["spec_num_correct_drafts"]
        histogram = output["spec_correct_drafts_histogram"]
        assert Counter(accepted) == Counter({n: count for n, count in enumerate(histogram) if count})


def check_steps(outcome: Outcome) -> None:
    """Numbers, positions, ids and the greedy rule of every step."""
    for name, steps in outcome.steps.items():
        position = outcome.outputs[name]["prompt_tokens"]
        assert [step.step for step in steps] == list(range(len(steps)))
        for step in steps:
            assert step.position == position == step.target_kv_length
            position += len(step.emitted_ids)
            _check_step(step)


def _check_step(step: Any) -> None:
    parents, emitted = parents_of(step), step.emitted_ids
    path = list(step.accepted_nodes) if step.parents is not None else list(range(step.num_accepted))
    assert len(path) == step.num_accepted <= len(emitted)
    assert [step.proposal_ids[node] for node in path] == list(emitted[: len(path)])
    assert [parents[node] for node in path] == [-1, *path[:-1]][: len(path)]
    assert len(step.target_ids) == len(step.proposal_ids) + 1
    assert all(-1 <= parent < node for node, parent in enumerate(parents))
    # The target's pick behind the root and each node of the path is what was committed there.
    rows = [0, *(node + 1 for node in path)]
    assert [step.target_ids[row] for row in rows][: len(emitted)] == list(emitted)
    if len(emitted) > len(path):
        last = path[-1] if path else -1
        children = [step.proposal_ids[node] for node, parent in enumerate(parents) if parent == last]
        assert emitted[len(path)] not in children
    for node, parent in enumerate(parents):
        if step.target_ranks is not None and step.target_gaps[parent + 1] > 0:
            is_pick = step.proposal_ids[node] == step.target_ids[parent + 1]
            assert (step.target_ranks[node] == 1) == is_pick
    for values in (step.draft_logprobs, step.target_logprobs):
        assert values is None or all(value <= 1e-5 for value in values)


def is_prefill(step: Any) -> bool:
    """Whether a step read a prompt."""
    return "prefill" in (step.flags or ())


def parents_of(step: Any) -> Sequence[int]:
    """Parents of a step's nodes; a chain leaves them out."""
    return step.parents if step.parents is not None else range(-1, len(step.proposal_ids) - 1)

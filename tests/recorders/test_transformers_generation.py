"""Generation is untouched by the recorder, and the trace tells what generation did.

What a trace should hold is derived without the recorder: from the tokens themselves, and from a streamer,
to which transformers hands the prompt once and then the committed tokens of each step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.engine


class StepLengths:
    """A streamer that notes how many tokens each step commits."""

    def __init__(self) -> None:
        self.lengths: list[int] = []

    def put(self, value: Any) -> None:
        """One call for the prompt, then one per step."""
        self.lengths.append(value.numel())

    def end(self) -> None:
        """Nothing to do."""


def _new_tokens(way: Any, output: Any) -> list[int]:
    return output[0, way.input_ids.shape[1] :].tolist()  # type: ignore[no-any-return]


def test_output_and_random_state_are_those_of_a_run_without_the_recorder(
    way: Any, recorded: Callable[..., Any]
) -> None:
    """With the same seed the same tokens come out and the same random number comes next."""
    expected, random = way.generate(), torch.rand(1)
    found = []
    recorded(way.target, lambda: found.extend([way.generate(), torch.rand(1)]))
    assert torch.equal(found[0], expected)
    assert torch.equal(found[1], random)


def test_greedy_output_is_that_of_plain_generation(way: Any, recorded: Callable[..., Any]) -> None:
    """Recorded greedy speculation gives, token by token, what the target gives alone.

    Before 5.18 prompt lookup may exceed the length it was given by a few tokens, recorder or not.
    """
    if way.is_sampled:
        pytest.skip("sampled tokens depend on how random numbers are used")
    found = []
    recorded(way.target, lambda: found.append(way.generate()))
    expected = way.generate_unassisted()
    assert torch.equal(found[0][:, : expected.shape[1]], expected)


def test_steps_and_lengths_are_those_a_streamer_sees(way: Any, recorded: Callable[..., Any]) -> None:
    """One step per call of a streamer in a run without the recorder, with as many tokens."""
    plain = StepLengths()
    way.generate(streamer=plain)
    trace = recorded(way.target, way.generate)
    assert [len(step.emitted_ids) for step in trace] == plain.lengths[1:]
    assert trace.counts.steps == len(plain.lengths) - 1


def test_emitted_tokens_of_all_steps_are_the_generated_text(way: Any, recorded: Callable[..., Any]) -> None:
    """Joined in order, what the steps committed is what `generate` returned after the prompt."""
    outputs: list[Any] = []
    trace = recorded(way.target, lambda: outputs.append(way.generate()))
    emitted = [token for step in trace for token in step.emitted_ids]
    assert emitted == _new_tokens(way, outputs[0])
    positions = [step.position for step in trace]
    lengths = [len(step.emitted_ids) for step in trace]
    start = way.input_ids.shape[1]
    assert positions == [start + sum(lengths[:i]) for i in range(len(lengths))]
    assert [step.step for step in trace] == list(range(len(lengths)))


def test_accepted_counts_follow_from_the_ids(way: Any, recorded: Callable[..., Any]) -> None:
    """Accepted is the common prefix of proposal and emitted; the target's own token comes after it."""
    trace = recorded(way.target, way.generate)
    assert trace.counts.drafted > 0
    for step in trace:
        n, drafted = step.num_accepted, len(step.proposal_ids)
        assert 0 <= n <= drafted
        assert step.emitted_ids[:n] == step.proposal_ids[:n]
        if step.final_kind == "draft":
            assert len(step.emitted_ids) == n
            assert step.stop is not None
            assert "truncated" in step.flags
            continue
        assert len(step.emitted_ids) == n + 1
        if drafted == 0:
            assert step.final_kind == "none"
        elif n == drafted:
            assert step.final_kind == "bonus"
        else:
            assert step.emitted_ids[n] != step.proposal_ids[n]
            sampled = way.is_sampled and not way.name.startswith("lookup")
            assert step.final_kind == ("recovered" if sampled else "corrected")


def test_some_drafts_are_accepted_and_some_rejected(zoo: Any, recorded: Callable[..., Any]) -> None:
    """The models of these tests make both outcomes happen, or the other tests would say little."""
    for name in ("draft", "draft_sampled", "lookup", "early_exit"):
        counts = recorded(zoo.target, zoo.way(name).generate).counts
        assert 0 < counts.accepted < counts.drafted
        assert counts.rejected > 0


def test_the_first_step_is_a_prefill_with_a_proposal(zoo: Any, recorded: Callable[..., Any]) -> None:
    """Transformers verifies the first proposal in the forward that reads the prompt: both are told."""
    trace = recorded(zoo.target, zoo.way("draft").generate)
    assert [step.flags for step in trace if step.flags and "prefill" in step.flags] == [("prefill",)]
    assert "prefill" in trace.steps[0].flags
    assert len(trace.steps[0].proposal_ids) == 4


def test_length_stops_the_last_step_only(way: Any, recorded: Callable[..., Any]) -> None:
    """A run cut by max_new_tokens says so once, at its end."""
    trace = recorded(way.target, way.generate)
    assert [step.stop for step in trace] == [None] * (len(trace.steps) - 1) + ["length"]


@pytest.mark.parametrize("name", ["draft", "lookup", "early_exit"])
def test_end_of_text_stops_the_last_step_only(name: str, zoo: Any, recorded: Callable[..., Any]) -> None:
    """Whichever token of the text is declared its end, the trace ends there and says why."""
    way = zoo.way(name)
    for token in sorted(set(_new_tokens(way, way.generate())))[:5]:
        outputs: list[Any] = []

        def run(token: int = token, outputs: list[Any] = outputs) -> None:
            outputs.append(way.generate(eos_token_id=token))

        trace = recorded(way.target, run)
        tokens = _new_tokens(way, outputs[0])
        assert [t for step in trace for t in step.emitted_ids] == tokens
        assert tokens.index(token) == len(tokens) - 1
        assert [step.stop for step in trace][-1] == "eos"
        assert all(step.stop is None for step in trace.steps[:-1])
        last = trace.steps[-1]
        assert last.emitted_ids[: last.num_accepted] == last.proposal_ids[: last.num_accepted]


def test_calls_are_requests_and_may_follow_each_other(zoo: Any, recorded: Callable[..., Any]) -> None:
    """Every generate call in the block is a request with steps of its own, numbered from 0."""
    way = zoo.way("draft")
    trace = recorded(way.target, lambda: [way.generate(), way.generate()])
    assert list(trace.requests.names) == ["r0", "r1"]
    by_request = [[s for s in trace if s.request == name] for name in ("r0", "r1")]
    assert [s.step for s in by_request[0]] == [s.step for s in by_request[1]]
    assert [s.emitted_ids for s in by_request[0]] == [s.emitted_ids for s in by_request[1]]


def test_plain_generation_leaves_no_step(zoo: Any, recorded: Callable[..., Any]) -> None:
    """A call without speculation works inside the block as outside, and records nothing."""
    way = zoo.way("draft")
    outputs: list[Any] = []
    trace = recorded(zoo.target, lambda: outputs.append(way.generate_unassisted()))
    assert torch.equal(outputs[0], way.generate_unassisted())
    assert len(trace.steps) == 0
    assert trace.state == "closed"


def test_returned_scores_and_hidden_states_are_those_of_a_run_without_the_recorder(
    zoo: Any, recorded: Callable[..., Any]
) -> None:
    """The richest form of output holds the same tensors."""
    way = zoo.way("draft_sampled")
    rich = {"return_dict_in_generate": True, "output_scores": True, "output_logits": True}
    expected = way.generate(output_hidden_states=True, **rich)
    outputs: list[Any] = []
    recorded(way.target, lambda: outputs.append(way.generate(output_hidden_states=True, **rich)))
    found = outputs[0]
    for name in ("scores", "logits"):
        pairs = zip(getattr(found, name), getattr(expected, name), strict=True)
        assert all(torch.equal(a, b) for a, b in pairs)
    for a, b in zip(found.hidden_states, expected.hidden_states, strict=True):
        assert all(torch.equal(x, y) for x, y in zip(a, b, strict=True))

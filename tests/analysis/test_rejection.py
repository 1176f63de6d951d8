"""What became of each draft token: chains, trees, cut steps and malformed arrays."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spectrace.analysis.rejection import accepted_path, node_states, rejected_state
from spectrace.format.records import Step
from spectrace.testing import make_step

TREE = {
    # Two roots; under the first two children, under the second of these one more.
    "proposal_ids": [10, 20, 11, 12, 13],
    "parents": [-1, -1, 0, 0, 3],
}


def statuses(step: Step) -> list[str]:
    """The statuses of a step in order."""
    return [state.status for state in node_states(step)]


def test_a_chain_is_accepted_up_to_its_first_rejection() -> None:
    """What follows the rejected token was not reached, whatever the target says there."""
    step = make_step(
        proposal_ids=[5, 6, 7, 8],
        num_accepted=2,
        emitted_ids=[5, 6, 99],
        target_ids=[5, 6, 99, 8, 1],
        draft_ids=[1, 2, 3, None],
    )
    assert statuses(step) == ["accepted", "accepted", "rejected", "not_reached"]
    refused = rejected_state(node_states(step))
    assert refused is not None
    assert (refused.index, refused.token_id, refused.draft_id) == (2, 7, 3)
    assert (refused.pick_id, refused.wanted_id) == (99, 99)
    assert [state.wanted_id for state in node_states(step)] == [None, None, 99, None]


def test_a_sampled_token_is_what_was_committed_not_the_pick() -> None:
    """Rejection sampling commits a recovered token that need not be the target's first choice."""
    step = make_step(proposal_ids=[5], num_accepted=0, emitted_ids=[42], target_ids=[7, 8])
    (state,) = node_states(step)
    assert (state.pick_id, state.wanted_id) == (7, 42)


def test_full_acceptance_ends_with_the_bonus_token() -> None:
    """The bonus token is a state of its own, behind the draft tokens."""
    step = make_step(proposal_ids=[5, 6], num_accepted=2, emitted_ids=[5, 6, 99], target_ids=[5, 6, 99])
    assert statuses(step) == ["accepted", "accepted", "bonus"]
    own = node_states(step)[-1]
    assert (own.index, own.depth, own.parent, own.token_id, own.pick_id) == (2, 2, 1, 99, 99)
    assert rejected_state(node_states(step)) is None


def test_a_prefill_has_the_targets_token_only() -> None:
    """A step without proposal accepts and rejects nothing."""
    assert statuses(make_step(proposal_ids=[], num_accepted=0, emitted_ids=[99])) == ["target"]
    assert statuses(make_step(proposal_ids=[], num_accepted=0, emitted_ids=[])) == []


@pytest.mark.parametrize("stop", ["eos", "length"])
def test_a_step_cut_inside_its_accepted_tokens_refused_nothing(stop: str) -> None:
    """After an accepted end-of-sequence token the rest of the proposal was never judged."""
    step = make_step(proposal_ids=[5, 2, 7], num_accepted=2, emitted_ids=[5, 2], stop=stop)
    assert statuses(step) == ["accepted", "accepted", "not_reached"]


def test_a_tree_tells_the_accepted_path_from_its_siblings() -> None:
    """A sibling of an accepted node was passed over; children of the last accepted node were rejected."""
    step = make_step(
        **TREE,
        num_accepted=2,
        accepted_nodes=[0, 3],
        emitted_ids=[10, 12, 99],
        target_ids=[10, 12, 1, 2, 99, 3],
    )
    states = node_states(step)
    assert [state.status for state in states] == [
        "accepted",
        "passed_over",
        "passed_over",
        "accepted",
        "rejected",
    ]
    assert [state.depth for state in states] == [0, 0, 1, 1, 2]
    assert (states[4].pick_id, states[4].wanted_id) == (99, 99)
    assert states[2].pick_id == 12


def test_a_trees_path_is_found_from_the_committed_tokens() -> None:
    """Without `accepted_nodes` the path is walked along what was emitted."""
    step = make_step(**TREE, num_accepted=3, emitted_ids=[10, 12, 13, 99])
    assert accepted_path(step) == (0, 3, 4)
    assert statuses(step)[-1] == "bonus"


def test_a_tree_rejected_at_its_root_rejects_every_root() -> None:
    """With nothing accepted each root was refused and its children were not reached."""
    step = make_step(**TREE, num_accepted=0, accepted_nodes=[], emitted_ids=[99])
    assert statuses(step) == ["rejected", "rejected", "not_reached", "not_reached", "not_reached"]


@given(
    proposal=st.lists(st.integers(0, 9), max_size=6),
    parents=st.none() | st.lists(st.integers(-3, 9), max_size=6),
    accepted=st.integers(-2, 9),
    nodes=st.none() | st.lists(st.integers(-2, 9), max_size=6),
    emitted=st.lists(st.integers(0, 9), max_size=7),
    picks=st.none() | st.lists(st.integers(0, 9), max_size=7),
)
def test_malformed_arrays_give_one_state_per_draft_token(
    proposal: Sequence[int],
    parents: Sequence[int] | None,
    accepted: int,
    nodes: Sequence[int] | None,
    emitted: Sequence[int],
    picks: Sequence[int] | None,
) -> None:
    """Whatever a file holds, each draft token has a state and at most one token follows them."""
    optional = {"parents": parents, "accepted_nodes": nodes, "target_ids": picks}
    given_fields = {name: value for name, value in optional.items() if value is not None}
    step = make_step(proposal_ids=proposal, num_accepted=accepted, emitted_ids=emitted, **given_fields)
    states = node_states(step)
    assert [state.token_id for state in states[: len(proposal)]] == list(proposal)
    assert len(states) - len(proposal) in (0, 1)
    assert sum(state.status == "accepted" for state in states) <= len(proposal)


def test_a_parent_that_is_not_known_is_the_root() -> None:
    """A tree with holes in its parents and its path is read as far as it goes."""
    step = make_step(
        proposal_ids=[5, 6, 7],
        parents=[None, 0, None],
        accepted_nodes=[None, 1],
        num_accepted=2,
        emitted_ids=[5, 6, 9],
    )
    states = node_states(step)
    assert [state.parent for state in states[:3]] == [-1, 0, -1]
    assert [state.status for state in states[:2]] == ["accepted", "accepted"]

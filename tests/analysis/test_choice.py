"""Where the target's choice stood with the draft: by hand for a chain, a tree and a wrong map."""

from __future__ import annotations

import pytest

from spectrace.analysis.alternatives import rank_words
from spectrace.analysis.choice import DraftVocabulary, choice_after, wanted_path
from spectrace.format.records import Draft, Run, Target, VocabMap
from spectrace.testing import make_step

REDUCED = Run(
    method="eagle3",
    target=Target(vocab_size=10),
    vocab_map=VocabMap(d2t=[0, 0, 1, 4], t2d=[0, 1, 3, 7]),
)
"""Draft ids 0, 1, 2, 3 mean 0, 1, 3, 7."""
TOP = [[[2, -0.5], [3, -1.0], [0, -3.0]]]


@pytest.mark.parametrize(
    ("wanted", "kind", "place"),
    [
        (3, "proposed", 1),
        (7, "in_top", 2),
        (0, "in_top", 3),
        (1, "below_top", None),
        (5, "outside_vocabulary", None),
    ],
)
def test_every_place_a_choice_can_have(wanted: int, kind: str, place: int | None) -> None:
    """Proposed, second, third, not among the recorded ones, and not expressible."""
    step = make_step(proposal_ids=[3], draft_ids=[2], target_ids=[wanted, 0], draft_top=TOP)
    choice = choice_after(step, -1, DraftVocabulary(REDUCED))
    assert (choice.kind, choice.place) == (kind, place)


def test_a_wrong_map_does_not_hide_a_right_draft() -> None:
    """The draft's id 3 means 7; sent as 4, it is reported as misread."""
    step = make_step(proposal_ids=[4], draft_ids=[3], target_ids=[7, 0], draft_top=TOP)
    choice = choice_after(step, -1, DraftVocabulary(REDUCED))
    assert (choice.place, choice.misread_as) == (2, 4)


def test_nothing_is_guessed_without_alternatives_or_map() -> None:
    """Unknown is unknown: no top, no map, no pick."""
    step = make_step(proposal_ids=[3], target_ids=[7, 0])
    assert choice_after(step, -1, DraftVocabulary(REDUCED)).kind == "unknown"
    topped = make_step(proposal_ids=[3], target_ids=[7, 0], draft_top=TOP)
    assert choice_after(topped, -1, DraftVocabulary(Run(method="eagle3"))).kind == "unknown"
    assert choice_after(make_step(), -1, DraftVocabulary(REDUCED)).token_id is None


def test_behind_the_last_token_nothing_was_drafted() -> None:
    """A bonus token has no place in the draft's eyes."""
    step = make_step(proposal_ids=[3], target_ids=[3, 7])
    assert choice_after(step, 0, DraftVocabulary(REDUCED)).kind == "beyond"


def test_a_sampled_token_is_placed_instead_of_the_pick() -> None:
    """What was committed counts, where it is given."""
    step = make_step(proposal_ids=[3], target_ids=[3, 0], draft_top=TOP)
    assert choice_after(step, -1, DraftVocabulary(REDUCED), 7).place == 2


@pytest.mark.parametrize(
    ("run", "is_shared"),
    [
        (Run(method="ngram"), True),
        (Run(method="eagle3"), False),
        (Run(method="eagle3", vocab_map=VocabMap(applied="identity")), True),
        (Run(method="eagle3", target=Target(vocab_size=9), draft=Draft(head_rows=9)), True),
        (REDUCED, False),
    ],
)
def test_which_drafts_share_the_vocabulary(run: Run, is_shared: bool) -> None:
    """By method, by the header's word, or by size; never beside a table."""
    assert DraftVocabulary(run).is_shared is is_shared


def test_the_wanted_path_follows_the_tree() -> None:
    """Root 3, its child 1, then a token that no child holds."""
    step = make_step(
        proposal_ids=[0, 3, 1, 7], parents=[-1, -1, 1, 1], target_ids=[3, 9, 1, 5, 9], num_accepted=2
    )
    path = wanted_path(step, DraftVocabulary(REDUCED))
    assert [(choice.node, choice.token_id) for choice in path] == [(1, 3), (2, 1), (None, 5)]
    assert path[-1].kind == "beyond"


def test_what_sampling_had_cut_has_no_place() -> None:
    """Log-probabilities of minus infinity stand in no order: none of them is the second best."""
    top = [[[1, -0.1], [0, float("-inf")], [2, float("-inf")]]]
    step = make_step(proposal_ids=[3], target_ids=[0, 0], draft_top=top)
    choice = choice_after(step, -1, DraftVocabulary(Run(method="draft_model")))
    assert (choice.kind, choice.num_top) == ("below_top", 1)


def test_a_token_that_sampling_had_cut_has_no_rank() -> None:
    """A tie of all that was cut would read as second best."""
    step = make_step(proposal_ids=[5], target_ranks=[2], target_logprobs=[float("-inf")])
    assert rank_words(step, 0) == "cut"
    assert rank_words(make_step(proposal_ids=[5], target_ranks=[2]), 0) == "2"

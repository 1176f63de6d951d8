"""Steps out of counts: sums are kept, whatever is laid out."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from spectrace.importing.counting import rounds_of_histogram, rounds_of_lists, steps_of

HISTOGRAMS = st.dictionaries(st.integers(0, 9), st.integers(0, 40), max_size=6)


@given(HISTOGRAMS, st.integers(0, 12), st.data())
def test_a_histogram_keeps_its_sums(histogram: dict[int, int], more: int, data: st.DataObject) -> None:
    """Steps, accepted and drafted tokens are those of the source, and no step accepts more than it drafts."""
    steps, accepted = sum(histogram.values()), sum(a * n for a, n in histogram.items())
    most = max((a for a, n in histogram.items() if n), default=0) + more
    drafted = data.draw(st.integers(accepted, steps * most))
    for limit in (most, None):
        rounds = rounds_of_histogram(histogram, drafted, limit)
        assert (len(rounds.accepted), sum(rounds.accepted), sum(rounds.drafted)) == (steps, accepted, drafted)
        assert all(a <= d for a, d in zip(rounds.accepted, rounds.drafted))
        assert limit is None or max(rounds.drafted, default=0) <= limit
        assert not rounds.is_ordered
        if drafted >= accepted + histogram.get(0, 0):  # enough for one token in every step
            assert 0 not in rounds.drafted


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)).map(sorted)), st.integers(0, 99))
def test_lists_keep_their_order(pairs: list[list[int]], position: int) -> None:
    """Each step is that of the lists; positions go on without a gap."""
    rounds = rounds_of_lists([a for a, _ in pairs], [d for _, d in pairs])
    steps = list(steps_of(rounds, position))
    assert [(s["num_accepted"], len(s["proposal_ids"])) for s in steps] == [tuple(pair) for pair in pairs]
    for step in steps:
        assert step["position"] == position
        position += len(step["emitted_ids"])

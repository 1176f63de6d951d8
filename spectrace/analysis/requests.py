"""Which requests go badly: an order and a test over the groups of a breakdown. Reads nothing."""

from __future__ import annotations

from collections.abc import Iterable

from spectrace.analysis.acceptance import accept_length, alpha1
from spectrace.analysis.breakdown import Group
from spectrace.analysis.intervals import Share
from spectrace.format.counts import Counts


def worst_first(groups: Iterable[Group]) -> list[Group]:
    """Lowest accept length first; those without a proposal last."""

    def rank(group: Group) -> tuple[bool, float]:
        length = accept_length(group.counts)
        return length is None, length or 0

    return sorted(groups, key=rank)


def is_below(counts: Counts, whole: Counts) -> bool:
    """Whether the alpha1 of some steps lies below that of the run by more than chance (Wilson, 95 %).

    >>> run = Counts(proposals=1000, proposed_at=[1000], accepted_at=[800])
    >>> is_below(Counts(proposals=2, proposed_at=[2], accepted_at=[1]), run)
    False
    >>> is_below(Counts(proposals=60, proposed_at=[60], accepted_at=[20]), run)
    True
    """
    usual, first = alpha1(whole), Share(sum(counts.accepted_at[:1]), counts.proposals)
    return usual is not None and first.trials > 0 and first.high < usual

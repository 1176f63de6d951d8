"""What sampling had left to choose from at one place: the rest was cut, and has neither rank nor order."""

from __future__ import annotations

import math
from collections.abc import Sequence

from spectrace.analysis.rejection import item
from spectrace.format.records import Step


def uncut(top: Sequence[tuple[int, float]] | None) -> tuple[tuple[int, float], ...]:
    """The alternatives that sampling had left to it.

    What top-k or top-p had cut has the log-probability minus infinity, and no order among itself.

    >>> uncut([(599, 0.0), (1, float("-inf"))])
    ((599, 0.0),)
    """
    return tuple((token, logprob) for token, logprob in top or () if logprob != -math.inf)


def rank_words(step: Step, index: int) -> str:
    """Rank of a draft token under the target; "cut" where sampling had left it out, for that is no place.

    >>> from spectrace.testing import make_step
    >>> step = make_step(proposal_ids=[5, 6], target_ranks=[1, 2], target_logprobs=[0.0, float("-inf")])
    >>> rank_words(step, 0), rank_words(step, 1), rank_words(step, 2)
    ('1', 'cut', '-')
    """
    if item(step.target_logprobs, index) == -math.inf:
        return "cut"
    rank = item(step.target_ranks, index)
    return "-" if rank is None else f"{rank}"

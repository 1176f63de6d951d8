"""Acceptance of the newest steps beside that of the run: has it dropped while somebody watches?

Steps in, counts and a yes or no out; whoever follows a trace calls it.
"""

from __future__ import annotations

from collections import deque

from spectrace.analysis.intervals import Share
from spectrace.format.records import Step

WINDOW = 200
"""Proposals that are called recent."""
_FEWEST = 50
"""Proposals below which nothing is said."""


class Recent:
    """First tokens of the newest proposals: accepted or not.

    The first token of each proposal, and not every token, since what follows a refusal was never judged
    and tokens of one proposal are no independent trials.

    Args:
        window: proposals that are looked back at.

    >>> from spectrace.testing import make_step
    >>> recent = Recent(window=2)
    >>> for accepted in (1, 0, 0):
    ...     recent.add(make_step(proposal_ids=[7, 8], num_accepted=accepted))
    >>> recent.share.successes, recent.share.trials
    (0, 2)
    """

    def __init__(self, window: int = WINDOW) -> None:
        self._accepted: deque[bool] = deque(maxlen=window)

    def add(self, step: Step) -> None:
        """Takes the next step; one without a proposal counts for nothing."""
        if step.proposal_ids:
            self._accepted.append((step.num_accepted or 0) > 0)

    @property
    def share(self) -> Share:
        """Recent proposals whose first token was accepted."""
        return Share(sum(self._accepted), len(self._accepted))

    def has_dropped(self, run: Share) -> bool:
        """Whether the 95 % interval of the recent share lies wholly below that of the run.

        Args:
            run: the same share of the whole run.
        """
        recent = self.share
        return recent.trials >= _FEWEST and recent.high < run.low

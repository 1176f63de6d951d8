"""Is a text that parts from another a fault, or rounding? The rule is that of the diagnosis (numeric-tie)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spectrace.analysis.comparison.difference import Difference
from spectrace.analysis.diagnosis.control_texts import evidence, place_of
from spectrace.analysis.diagnosis.ties import is_tie, tie_limit
from spectrace.analysis.diagnosis.verification import is_greedy
from spectrace.analysis.rejection import item
from spectrace.format.records import Step

if TYPE_CHECKING:
    from spectrace.format.reader import Trace

TIE, NO_TIE, OFF_PICK, SAMPLED, UNKNOWN = "tie", "no_tie", "off_pick", "sampled", "unknown"
"""Verdicts. off_pick: a greedy run committed a token that its target did not pick."""
_WORST_FIRST = (OFF_PICK, NO_TIE, UNKNOWN, SAMPLED, TIE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fork:
    """The token at which two texts part; of several, the first of the worst verdict."""

    difference: Difference
    verdict: str
    """tie | no_tie | off_pick | sampled | unknown."""
    gap: float | None
    """First less second choice of the target there, in logits, in the first trace that recorded it."""
    limit: float
    """Largest gap taken for a tie, that of the coarser of the two compute types."""
    rank_of_other: int | None
    """Rank of the other trace's token where the gap was recorded, 1 = first."""
    picks: tuple[int | None, int | None]
    """What each target picked there."""
    was_draft: tuple[bool, bool]
    """Whether each committed an accepted draft token, not the target's own."""
    num_forks: int
    """Requests whose texts part."""
    judged: dict[str, int]
    """Verdict -> requests, of the first of them."""

    def to_mapping(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        at = self.difference.to_mapping()
        return {
            **{key: at[key] for key in ("request", "position", "token", "steps")},
            "ids": at["values"],
            "verdict": self.verdict,
            "gap": self.gap,
            "limit": self.limit,
            "rank_of_other": self.rank_of_other,
            "picks": list(self.picks),
            "was_draft": list(self.was_draft),
            "forks": self.num_forks,
            "judged": self.judged,
        }


def judge_forks(a: Trace, b: Trace, forks: Sequence[Difference], num_forks: int) -> Fork | None:
    """The verdict on the forks given; None without any.

    Args:
        a: trace A.
        b: trace B.
        forks: the first of them.
        num_forks: how many there are.
    """
    found = [_judged(a, b, fork, num_forks) for fork in forks]
    if not found:
        return None
    tally = {verdict: sum(fork.verdict == verdict for fork in found) for verdict in _WORST_FIRST}
    worst = min(found, key=lambda fork: _WORST_FIRST.index(fork.verdict))
    worst.judged.update({verdict: count for verdict, count in tally.items() if count})
    return worst


def _judged(a: Trace, b: Trace, fork: Difference, num_forks: int) -> Fork:
    numbers = fork.steps or (-1, -1)
    steps = _step(a, numbers[0]), _step(b, numbers[1])
    indices = [fork.position - (step.position if step is not None else fork.position) for step in steps]
    gap, rank = evidence(steps[0], indices[0], _id(fork, 1))
    if gap is None:
        gap, other_rank = evidence(steps[1], indices[1], _id(fork, 0))
        rank = rank if gap is None else other_rank
    limit = max(tie_limit(a.run), tie_limit(b.run))
    picks = _pick(steps[0], indices[0]), _pick(steps[1], indices[1])
    greedy = is_greedy(a.run), is_greedy(b.run)
    return Fork(
        difference=fork,
        verdict=_verdict(greedy, gap, rank, limit, [*zip(greedy, picks, ids_of(fork))]),
        gap=gap,
        limit=limit,
        rank_of_other=rank,
        picks=picks,
        was_draft=(_was_draft(steps[0], indices[0]), _was_draft(steps[1], indices[1])),
        num_forks=num_forks,
        judged={},
    )


def ids_of(fork: Difference) -> tuple[int | None, int | None]:
    """The two tokens at which texts part."""
    one, other = (None if value is None else int(value) for value in fork.values)
    return one, other


def _verdict(
    greedy: tuple[bool | None, bool | None],
    gap: float | None,
    rank: int | None,
    limit: float,
    committed: Sequence[tuple[bool | None, int | None, int | None]],
) -> str:
    """What a fork is.

    Args:
        greedy: whether each run is greedy, where its header says.
        gap: see `Fork`.
        rank: see `Fork.rank_of_other`.
        limit: see `Fork`.
        committed: of each trace, whether it is greedy, its target's pick and what it committed.
    """
    if False in greedy:
        return SAMPLED
    # A tie between two rounds of one target excuses a commit off its pick; a clear gap does not.
    clear = gap is None or not is_tie(gap, rank, limit)
    if clear and any(is_ and pick is not None and pick != own for is_, pick, own in committed):
        return OFF_PICK
    if None in greedy or gap is None:
        return UNKNOWN
    return NO_TIE if clear else TIE


def _step(trace: Trace, number: int) -> Step | None:
    return trace.steps.get(number) if 0 <= number < len(trace) else None


def _id(fork: Difference, side: int) -> int:
    found = ids_of(fork)[side]
    return -1 if found is None else found


def _pick(step: Step | None, index: int) -> int | None:
    place = None if step is None else place_of(step, index)
    return None if step is None or place is None else item(step.target_ids, place)


def _was_draft(step: Step | None, index: int) -> bool:
    return step is not None and 0 <= index < (step.num_accepted or 0)

"""Does acceptance depend on where in the batch, or on which rank, a request sits?

Requests differ from each other far more than rows do, so the two sides of a cut are compared by requests.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from spectrace.analysis.block import Block
from spectrace.analysis.diagnosis.facts import Facts
from spectrace.analysis.diagnosis.sample import MIN_PROMPTS, MIN_STEPS, PerRequest
from spectrace.analysis.diagnosis.verdict import Cleared, Finding, Outcome, Strength
from spectrace.analysis.intervals import Mean, Share
from spectrace.format.records import Run

_MAX_ROW = 4096
_BIN = 32
_FEW_ROWS = 64
"""Batches of so few rows are cut between any two of them."""
_VISIBLE = 0.15
"""Smallest difference of alpha1 worth a verdict."""
_Z = 3.29


class RowTally:
    """First-token acceptance by batch row and by rank, and the row and rank of each request."""

    FIELDS = (
        "request",
        "batch_row",
        "rank",
        "proposal_ids",
        "num_accepted",
        "flags",
        "emitted_ids",
        "parents",
    )

    def __init__(self, run: Run) -> None:
        self.by = {"batch_row": Places(), "rank": Places()}

    def add(self, block: Block) -> None:
        """Counts a block."""
        for name, places in self.by.items():
            places.add(block, name)


class Places:
    """Acceptance by a small number, such as a row."""

    def __init__(self) -> None:
        self.steps = np.zeros(_MAX_ROW, np.int64)
        self.first = np.zeros(_MAX_ROW, np.int64)
        self.sum_of_request = PerRequest()
        self.steps_of_request = PerRequest()
        self.first_of_request = PerRequest()

    def add(self, block: Block, path: str) -> None:
        """Counts a block."""
        found = block.scalar(path)
        if found is None:
            return
        rows = found.known & block.is_real
        place = np.clip(found.values, 0, _MAX_ROW - 1)
        hit = rows & (block.accepted > 0)
        self.steps += np.bincount(place[rows], minlength=_MAX_ROW)
        self.first += np.bincount(place[hit], minlength=_MAX_ROW)
        self.sum_of_request.add(block, place * rows)
        self.steps_of_request.add(block, rows)
        self.first_of_request.add(block, hit)

    @property
    def used(self) -> list[int]:
        """Places that any step was in."""
        found: list[int] = np.flatnonzero(self.steps).tolist()
        return found

    def side(self, low: int, high: int) -> tuple[Share, Mean]:
        """Places low <= p < high: their steps, and the alpha1 of the requests that sat there on average."""
        share = Share(int(self.first[low:high].sum()), int(self.steps[low:high].sum()))
        steps = self.steps_of_request.values
        seen = steps > 0
        where = self.sum_of_request.values[seen] / steps[seen]
        alphas = (self.first_of_request.values[seen] / steps[seen])[(where >= low) & (where < high)]
        return share, Mean(len(alphas), float(alphas.sum()), float((alphas * alphas).sum()))


def judge(facts: Facts) -> Iterator[Outcome]:
    """Rows, then ranks."""
    by = facts.of(RowTally).by
    yield from _cliff(facts, by["batch_row"])
    yield from _ranks(facts, by["rank"])


def _cliff(facts: Facts, places: Places) -> Iterator[Outcome]:
    used = places.used
    if not used:
        yield facts.not_recorded(
            "batch/row-cliff", "record the row of each request in the batch", "batch_row"
        )
        return
    if len(used) < 2:
        return
    last = used[-1] + 1
    cuts = range(1, last) if last <= _FEW_ROWS else range(_BIN, last, _BIN)
    best: tuple[float, int] | None = None
    for cut in cuts:
        low, high = _window(cut, last)
        if _differ(places, (low, cut), (cut, high)):
            (a, _), (b, _) = places.side(low, cut), places.side(cut, high)
            gap = abs((a.value or 0) - (b.value or 0))
            best = max(best or (gap, cut), (gap, cut))
    if best is None:
        yield Cleared(id="batch/row-cliff", summary=f"rows 0 to {used[-1]:,} are accepted alike")
        return
    low, high = _window(best[1], last)
    below, above = places.side(low, best[1]), places.side(best[1], high)
    yield Finding(
        id="batch/row-cliff",
        strength=Strength.STRONG,
        summary=f"Acceptance changes at batch row {best[1]:,}: {below[0].value:.2f} below it, "
        f"{above[0].value:.2f} from it on.",
        advice="Run the same prompts one at a time; look at padding and at kernels that treat rows in "
        "groups.",
        evidence={
            "row": best[1],
            "alpha1_below": below[0],
            "alpha1_from_there": above[0],
            "requests_below": below[1].count,
            "requests_from_there": above[1].count,
        },
    )


def _window(cut: int, last: int) -> tuple[int, int]:
    """Where a cut is judged: everything in a small batch, a bin each way in a large one."""
    return (0, last) if last <= _FEW_ROWS else (cut - _BIN, min(cut + _BIN, last))


def _differ(places: Places, one: tuple[int, int], other: tuple[int, int]) -> bool:
    (a, requests_a), (b, requests_b) = places.side(*one), places.side(*other)
    if min(a.trials, b.trials) < MIN_STEPS / 2 or min(requests_a.count, requests_b.count) < MIN_PROMPTS:
        return False
    gap = abs((a.value or 0) - (b.value or 0))
    return gap >= _VISIBLE and not a.overlaps(b, _Z) and not requests_a.overlaps(requests_b)


def _ranks(facts: Facts, places: Places) -> Iterator[Outcome]:
    used = places.used
    if not used:
        yield facts.not_recorded("batch/rank", "record the rank of each step", "rank")
        return
    if len(used) < 2:
        return
    shares = {rank: places.side(rank, rank + 1)[0] for rank in used}
    worst = min(used, key=lambda rank: shares[rank].value or 0)
    best = max(used, key=lambda rank: shares[rank].value or 0)
    if _differ(places, (worst, worst + 1), (best, best + 1)):
        yield Finding(
            id="batch/rank",
            strength=Strength.STRONG,
            summary=f"Acceptance depends on the rank: {shares[worst].value:.2f} on rank {worst}, "
            f"{shares[best].value:.2f} on rank {best}.",
            advice="Compare the draft's weights and head on the two ranks.",
            evidence={f"alpha1_rank_{rank}": shares[rank] for rank in used[:16]},
        )
    else:
        yield Cleared(id="batch/rank", summary=f"{len(used)} ranks are accepted alike")

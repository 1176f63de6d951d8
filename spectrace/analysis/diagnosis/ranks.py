"""Do all ranks of one run draft alike? Each loads the draft by itself, and may decide on its head by itself.

Ranks that share a model commit the same tokens and must propose the same; ranks that serve requests of their
own do not, and are told apart by what they committed. Weights that are split over ranks differ by right: only
what was loaded, and whether the head is the target's, is compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from spectrace.analysis.block import Block
from spectrace.analysis.diagnosis.draft_head import is_head_name
from spectrace.analysis.diagnosis.facts import Facts
from spectrace.analysis.diagnosis.verdict import Cleared, Finding, Outcome, Strength
from spectrace.analysis.intervals import Share
from spectrace.format.records import Run

_MAX_STEPS = 512
"""Steps kept of each rank."""
_MAX_RANKS = 64
_MIN_WITNESSES = 3
_SAME_RUN = 0.9
"""Share of equally named steps that must have committed the same for ranks to share a model."""
ID = "draft-head/ranks-disagree"


class _Kept(NamedTuple):
    row: int
    position: int
    proposal: tuple[int, ...]
    emitted: tuple[int, ...]


class RankTally:
    """First steps of each rank, by request and number."""

    FIELDS = ("request", "step", "rank", "position", "proposal_ids", "emitted_ids")

    def __init__(self, run: Run) -> None:
        self.steps: dict[int, dict[tuple[int, int], _Kept]] = {}

    def add(self, block: Block) -> None:
        """Keeps what is still wanted."""
        ranks, steps = block.scalar("rank"), block.scalar("step")
        if ranks is None or steps is None:
            return
        for rank in np.unique(ranks.values[ranks.known]).tolist():
            if rank not in self.steps and len(self.steps) >= _MAX_RANKS:
                continue
            own = self.steps.setdefault(rank, {})
            room = _MAX_STEPS - len(own)
            if room > 0:
                rows = np.flatnonzero(ranks.known & (ranks.values == rank) & (block.drafted > 0))[:room]
                for row, kept in _kept(block, rows):
                    own[int(block.requests[row]), int(steps.values[row])] = kept


def _kept(block: Block, rows: np.ndarray[Any, Any]) -> Iterator[tuple[int, _Kept]]:
    ids, emitted = block.columns["proposal_ids"], block.columns.get("emitted_ids")
    if ids.known is not None or emitted is None or emitted.known is not None:
        return
    ends = np.cumsum(block.emitted)
    for row in rows.tolist():
        start, length = int(block.starts[row]), int(block.drafted[row])
        committed = emitted.values[ends[row] - block.emitted[row] : ends[row]]
        yield (
            row,
            _Kept(
                row + block.first_row,
                int(block.positions[row]),
                tuple(ids.values[start : start + length].tolist()),
                tuple(committed.tolist()),
            ),
        )


def judge(facts: Facts) -> Iterator[Outcome]:
    """What the headers of the ranks say, then what they proposed."""
    headers = [run for run in facts.part_runs if isinstance(run.get("draft"), Mapping)]
    decisions = [_decision(run) for run in headers if _same_models(run, headers[0])]
    # What one rank does not say is no disagreement.
    if any(len({value for value in values if value is not None}) > 1 for values in zip(*decisions)):
        yield Finding(
            id="batch/rank",
            strength=Strength.CERTAIN,
            summary="The ranks of this run loaded the draft's head differently.",
            advice="Let one rank decide whether the head is loaded or shared, and tell the others.",
            evidence={"decisions": list(map(str, decisions[:16]))},
        )
        return
    yield from _proposals(facts)


def _same_models(run: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return all(_id(run, role) == _id(other, role) for role in ("draft", "target"))


def _id(run: Mapping[str, Any], role: str) -> Any:
    model = run.get(role)
    return model.get("id") if isinstance(model, Mapping) else None


def _decision(run: Mapping[str, Any]) -> tuple[tuple[str, ...] | None, bool | None]:
    """Head parameters the loader did not find, and whether the head has the target's weights."""
    draft = run["draft"]
    parameters, prints = draft.get("parameters"), draft.get("fingerprints")
    names = parameters.get("missing") if isinstance(parameters, Mapping) else None
    missing = None
    if isinstance(names, list):
        missing = tuple(sorted(name for name in names if isinstance(name, str) and is_head_name(name)))
    digests = {
        name: print_.get("digest")
        for name, print_ in (prints.items() if isinstance(prints, Mapping) else ())
        if isinstance(print_, Mapping) and "lm_head" in str(name)
    }
    own = {digest for name, digest in digests.items() if "target" not in name and digest}
    theirs = {digest for name, digest in digests.items() if "target" in name and digest}
    return missing, bool(own & theirs) if own and theirs else None


def _proposals(facts: Facts) -> Iterator[Outcome]:
    """The same step of the same request on two ranks."""
    ranks = _by_name(facts)
    alike = differ = others = 0
    steps: list[int] = []
    if len(ranks) < 2:
        return
    first, *rest = ranks
    for other in rest:
        for key in first.keys() & other.keys():
            one, two = first[key], other[key]
            if (one.position, one.emitted) != (two.position, two.emitted):
                others += 1
            elif one.proposal == two.proposal:
                alike += 1
            else:
                differ += 1
                steps.append(two.row)
    same = alike + differ
    if not same or same < _SAME_RUN * (same + others):
        return  # ranks with requests of their own
    if differ >= _MIN_WITNESSES:
        yield Finding(
            id="batch/rank",
            strength=Strength.CERTAIN,
            summary="Ranks that commit the same tokens propose different ones: their drafts differ.",
            advice="Compare the draft's head and embedding on the ranks; let one decide for all.",
            evidence={"steps_that_differ": Share(differ, same), "ranks": len(ranks)},
            steps=sorted(steps)[:5],
        )
    elif not differ:
        yield Cleared(id=ID, summary=f"{len(ranks)} ranks propose the same")


def _by_name(facts: Facts) -> list[dict[tuple[str, int], _Kept]]:
    """Steps of each rank by name of the request: each file numbers requests by itself."""
    found = []
    for kept in facts.of(RankTally).steps.values():
        names = facts.request_names(sorted({number for number, _ in kept}))
        found.append({(names[n], step): value for (n, step), value in kept.items() if n in names})
    return found

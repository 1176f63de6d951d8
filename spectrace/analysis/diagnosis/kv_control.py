"""What a control says about caches: prefix reuse, and the target's state behind a rejection.

Both look at the same prompts in two traces, up to the first token in which the texts differ. Bounded: the
first requests only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from spectrace.analysis.block import blocks
from spectrace.analysis.diagnosis.control_texts import MAX_TOKENS, Fork, first_names
from spectrace.analysis.diagnosis.facts import Facts
from spectrace.analysis.diagnosis.kv_state import StateTally
from spectrace.analysis.diagnosis.sample import MIN_PROMPTS
from spectrace.analysis.diagnosis.ties import tie_limit
from spectrace.analysis.diagnosis.verdict import Cleared, Finding, NotChecked, Outcome, Strength
from spectrace.analysis.diagnosis.verification import is_greedy
from spectrace.analysis.intervals import Share

if TYPE_CHECKING:
    from spectrace.format.reader import Trace

_MIN_FORKS = 3
_FAR = 4
"""Tie limits by which two gaps must differ: kernels add up in another order for another batch shape."""
_OFTEN, _RARELY = 0.05, 0.01
_MIN_PLACES = 20

Pairs = Sequence[tuple[str, str]]


def judge_prefix_reuse(facts: Facts, forks: Sequence[Fork], pairs: Pairs) -> Iterator[Outcome]:
    """Whether texts go wrong in those requests only that reused cached blocks."""
    hits = facts.of(StateTally).hits.values
    hit_of = {name: int(hits[number]) for number, name in facts.request_names(range(len(hits))).items()}
    if not is_greedy(facts.run) or not any(hit_of.get(name, 0) > 0 for name, _ in pairs):
        return
    limit = tie_limit(facts.run)
    wide = {fork.request for fork in forks if fork.gap is not None and fork.gap > limit}
    reused = [name for name, _ in pairs if hit_of.get(name, 0) > 0]
    fresh = [name for name, _ in pairs if hit_of.get(name) == 0]
    bad_reused, bad_fresh = (sum(name in wide for name in group) for group in (reused, fresh))
    evidence = {
        "wrong_with_reuse": Share(bad_reused, len(reused)),
        "wrong_without_reuse": Share(bad_fresh, len(fresh)),
    }
    id_ = "kv-state/prefix-reuse"
    if bad_reused >= _MIN_FORKS and not bad_fresh and len(fresh) >= MIN_PROMPTS:
        yield Finding(
            id="kv-state/poisoned",
            strength=Strength.STRONG,
            summary="Only requests that reused cached blocks produce other text than the control: "
            "prefix reuse hands out wrong state.",
            advice="Run those prompts with prefix caching off; look at what the draft or a recurrent layer "
            "caches.",
            evidence=evidence,
        )
    elif not bad_reused:
        yield Cleared(
            id=id_, summary="requests that reused cached blocks have the right text", evidence=evidence
        )


class _Place(NamedTuple):
    """The target's first choice at a place of the text."""

    pick: int
    gap: float
    row: int
    is_behind_rejection: bool


def judge_state(
    trace: Trace, control: Trace, facts: Facts, forks: Sequence[Fork], pairs: Pairs
) -> Iterator[Outcome]:
    """Whether the target's choice behind a rejection is that of a run that drafted nothing."""
    if control.counts.proposals or not facts.sample.proposals or not is_greedy(facts.run):
        return
    ends = {fork.request: fork.token for fork in forks}
    mine, theirs = _places(trace), _places(control)
    limit = _FAR * tie_limit(facts.run)
    seen = {True: 0, False: 0}
    far: dict[bool, list[int]] = {True: [], False: []}
    for name, other_name in pairs:
        a, b = mine.get(name, {}), theirs.get(other_name, {})
        start = min(b, default=0)
        for position in a.keys() & b.keys():
            if position - start < ends.get(name, MAX_TOKENS):
                behind = a[position].is_behind_rejection
                seen[behind] += 1
                is_far = (
                    abs(a[position].gap - b[position].gap) > limit or a[position].pick != b[position].pick
                )
                far[behind] += [a[position].row] if is_far else []
    id_ = "kv-state/behind-rejection"
    if seen[True] < _MIN_PLACES:
        yield NotChecked(
            id=id_,
            reason="too few common places behind a rejection",
            how="record target_ids and target_gaps in both runs of the same prompts",
        )
        return
    after, elsewhere = (Share(len(far[which]), seen[which]) for which in (True, False))
    evidence = {"differ_behind_rejection": after, "differ_elsewhere": elsewhere}
    if (after.value or 0) > _OFTEN and (elsewhere.value or 0) <= _RARELY:
        yield Finding(
            id="kv-state/not-trimmed",
            strength=Strength.CERTAIN,
            summary="Behind a rejection the target chooses from another state than a run without a draft: "
            "what was rejected is still in it.",
            advice="Roll the target's cache and recurrent state back to the committed text after each "
            "rejection.",
            evidence=evidence,
            steps=sorted(far[True])[:5],
        )
    else:
        yield Cleared(
            id=id_,
            summary="behind a rejection the target chooses as it does without a draft",
            evidence=evidence,
        )


def _places(trace: Trace) -> Mapping[str, dict[int, _Place]]:
    """Request -> committed length -> what the target chose there, of each step's first place."""
    names = first_names(trace)
    found: dict[str, dict[int, _Place]] = {}
    last: dict[int, bool] = {}
    fields = (
        "request",
        "position",
        "proposal_ids",
        "num_accepted",
        "emitted_ids",
        "target_ids",
        "target_gaps",
    )
    for block in blocks(trace, dict.fromkeys((*fields, "flags", "parents"))):
        picks, gaps = block.slots("target_ids"), block.slots("target_gaps")
        if picks is None or gaps is None:
            continue
        root = block.root_slots
        known = picks.known[root] & gaps.known[root]
        refused = (block.accepted < block.drafted) & ~block.is_cut
        wanted = np.isin(block.requests, list(names)) & ~block.flagged("dummy", "replay", "simulated")
        for row in np.flatnonzero(wanted).tolist():
            number = int(block.requests[row])
            own = found.setdefault(names[number], {})
            if known[row] and len(own) < MAX_TOKENS:
                slot = root[row]
                own[int(block.positions[row])] = _Place(
                    int(picks.values[slot]),
                    float(gaps.values[slot]),
                    row + block.first_row,
                    last.get(number, False),
                )
            last[number] = bool(refused[row])
    return found

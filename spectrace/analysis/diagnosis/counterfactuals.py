"""What would have been: the short section of answers that need no second run."""

from __future__ import annotations

from collections.abc import Iterator

from spectrace.analysis.diagnosis import cost, tree
from spectrace.analysis.diagnosis.facts import Facts
from spectrace.analysis.diagnosis.id_map import MapTally, Table
from spectrace.analysis.diagnosis.verdict import Counterfactual
from spectrace.analysis.diagnosis.verification import VerifierTally
from spectrace.analysis.intervals import Share


def counterfactuals(facts: Facts) -> Iterator[Counterfactual]:
    """Everything that the trace can answer."""
    yield from _other_reading(facts)
    yield from _ceiling(facts)
    yield from _expected(facts)
    yield from tree.counterfactual(facts)
    yield from cost.counterfactual(facts)


def _other_reading(facts: Facts) -> Iterator[Counterfactual]:
    tally, table = facts.of(MapTally), Table(facts.run)
    if table.offset is None or not tally.first:
        return
    shares = {name: tally.hit_share(name) for name in ("recorded", "offset", "direct")}
    yield Counterfactual(
        name="vocab-map-readings",
        summary="first draft tokens that meet the target's pick: "
        + ", ".join(f"{share.value or 0:.3f} {_WORDS[name]}" for name, share in shares.items()),
        evidence={f"alpha1_{name}": share for name, share in shares.items()},
        is_telling=max(share.value or 0 for share in shares.values())
        > (shares["recorded"].value or 0) + _FAR,
    )


_FAR = 0.05
"""Difference in rate that no longer looks like chance."""
_NEARLY_ALL = 0.98
_WORDS = {"recorded": "as recorded", "offset": "by offset", "direct": "read directly"}


def _ceiling(facts: Facts) -> Iterator[Counterfactual]:
    tally = facts.of(MapTally)
    if tally.picks:
        share = Share(tally.expressible, tally.picks)
        yield Counterfactual(
            name="draft-vocabulary-ceiling",
            summary=f"the draft's vocabulary holds {share.value or 0:.1%} of the target's picks: "
            "no greedy draft can be accepted more often at the first token",
            evidence={"expressible_picks": share},
            is_telling=(share.value or 0) < _NEARLY_ALL,
        )


def _expected(facts: Facts) -> Iterator[Counterfactual]:
    """Whose fault it is: what the recorded p and q promise against what was accepted."""
    tally = facts.of(VerifierTally)
    full = tally.overlap if tally.overlap.trials >= tally.full.trials else tally.full
    if tally.is_greedy and tally.agreement.trials:
        full = tally.agreement
    if not full.trials or full.rate is None or full.observed_rate is None:
        return
    is_far = abs(full.observed_rate - full.rate) > _FAR or tally.refuses_the_sure
    blame = "look at verifier, positions or state" if is_far else "the verifier does what it should"
    source = "picks" if full is tally.agreement else "probabilities"
    summary = (
        f"the verifier accepted {full.observed_rate:.3f} of the draft tokens that it judged, and by the "
        f"target's recorded {source} it should accept {full.rate:.3f}: {blame}"
    )
    evidence = {"observed": Share(full.observed, full.trials), "expected": full.rate}
    if tally.ignoring.trials and not tally.is_greedy:
        evidence["expected_ignoring_q"] = tally.ignoring.rate
    yield Counterfactual(name="expected-acceptance", summary=summary, evidence=evidence, is_telling=is_far)

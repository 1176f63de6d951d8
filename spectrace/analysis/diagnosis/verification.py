"""Does the verifier accept what its rule allows, and only that?

Greedy: every accepted token must be the target's own pick, and every refused one must not. Sampling: the
observed acceptance against what each rule expects from the recorded p and q. A rule declared lossy is
reported, not flagged. Near-ties of the compute type excuse a pick.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from spectrace.analysis.block import Block, Values
from spectrace.analysis.diagnosis.calibration import judge_calibration
from spectrace.analysis.diagnosis.facts import Facts
from spectrace.analysis.diagnosis.output_law import judge_law
from spectrace.analysis.diagnosis.sample import MIN_STEPS, Witnesses
from spectrace.analysis.diagnosis.ties import tie_limit
from spectrace.analysis.diagnosis.verdict import Cleared, Finding, NotChecked, Outcome, Strength
from spectrace.analysis.expectation import Expected, by_full_rule, ignoring_q
from spectrace.analysis.intervals import Share
from spectrace.format.columns import Array
from spectrace.format.records import Run

_Z = 3.29
"""Two-sided 99.9 %: a band of 95 % would accuse one healthy run in twenty."""
_MORE = 0.05
"""Log p less log q from which a token counts as likelier under the target."""
_MIN_SURE, _SURE = 50, 0.99
_VISIBLE = 0.02
"""Smallest difference in rate worth a verdict, whatever the number of trials."""


class VerifierTally:
    """Picks against decisions, and observed against expected acceptance."""

    FIELDS = (
        "proposal_ids", "parents", "num_accepted", "emitted_ids", "flags", "target_ids", "target_ranks",
        "target_gaps", "target_logprobs", "draft_logprobs", "overlaps",
    )  # fmt: skip

    def __init__(self, run: Run) -> None:
        self.is_greedy = is_greedy(run)
        self.limit = tie_limit(run)
        self.judged = 0
        """Decisions whose pick or rank is known."""
        self.unjustified = Witnesses()
        self.refused = Witnesses()
        """The target's own pick was refused."""
        self.own_token = Witnesses()
        """The token committed after the accepted ones is not the target's pick."""
        self.full, self.ignoring, self.overlap = Expected(), Expected(), Expected()
        self.sure = self.sure_accepted = 0
        """Judged tokens that the target finds likelier than the draft does, and those accepted of them."""
        self.sure_refused = Witnesses()
        self.refused_drawn = Witnesses()
        """Sampling: the token that was just refused is committed in its own place."""
        self.refusals = 0
        self.agreement = Expected()
        """Greedy: the pick is the draft token or is not; the observed acceptance in the same places."""

    def add(self, block: Block) -> None:
        """Counts a block."""
        if self.is_greedy:
            self._greedy(block)
        elif self.is_greedy is False:
            self._sampled(block)

    # --- greedy ------------------------------------------------------------------------------

    def _greedy(self, block: Block) -> None:
        # Without parents a tree looks like a chain; only rows that commit what a chain would are judged.
        reached = block.chain_reached & block.looks_like_chain[block.token_rows]
        ids, slots = block.tokens("proposal_ids"), block.chain_slots
        gaps, picks, ranks = (
            block.slots("target_gaps"),
            block.slots("target_ids"),
            block.tokens("target_ranks"),
        )
        if ids is None or (picks is None and ranks is None):
            return
        # A gap that is not recorded excuses nothing.
        clear = (
            np.ones(len(slots), bool) if gaps is None else ~(gaps.known & (gaps.values <= self.limit))[slots]
        )
        differs, agrees, known = _picked(ids, slots, picks, ranks)
        far = (
            known
            & differs
            & (clear if ranks is None else clear | (ranks.known & (ranks.values > 2))[: len(slots)])
        )
        accepted = block.token_accepted
        self.judged += int((reached & known).sum())
        self.agreement.add(agrees[reached & known].astype(float), accepted[reached & known])
        self.unjustified.note_tokens(block, reached & accepted[: len(slots)] & far)
        self.refused.note_tokens(block, reached & ~accepted & known & agrees & clear)
        self._own(block, picks, gaps)

    def _own(self, block: Block, picks: Values | None, gaps: Values | None) -> None:
        """The target's own token at the end of a chain."""
        if picks is None:
            return
        rows = block.is_real & ~block.is_tree & block.looks_like_chain & ~block.is_cut
        own = block.element("emitted_ids", block.accepted)
        if own is None:
            return
        slots = np.minimum(block.own_slots, len(picks.values) - 1)
        rows = rows & own.known & picks.known[slots] & (block.emitted == block.accepted + 1)
        clear = (
            np.ones(block.num_rows, bool)
            if gaps is None
            else ~(gaps.known & (gaps.values <= self.limit))[slots]
        )
        self.own_token.note(block, rows & clear & (own.values != picks.values[slots]))

    # --- sampling ----------------------------------------------------------------------------

    def _sampled(self, block: Block) -> None:
        self._drawn_again(block)
        reached, accepted = block.chain_reached, block.token_accepted
        p, q, overlaps = (block.tokens(n) for n in ("target_logprobs", "draft_logprobs", "overlaps"))
        if p is not None:
            at = reached & p.known
            self.ignoring.add(ignoring_q(p.values[at]), accepted[at])
            if q is not None:
                at = at & q.known
                self.full.add(by_full_rule(p.values[at], q.values[at]), accepted[at])
                self._sure(block, at & (p.values - q.values > _MORE), accepted)
        if overlaps is not None:
            at = reached & overlaps.known
            self.overlap.add(overlaps.values[at], accepted[at])

    def _drawn_again(self, block: Block) -> None:
        """What is refused has p < q, so max(p - q, 0) is 0 there; struck out of p it has no chance either."""
        ids, own = block.tokens("proposal_ids"), block.element("emitted_ids", block.accepted)
        if ids is None or own is None or not len(ids.values):
            return
        rows = block.is_real & ~block.is_tree & block.looks_like_chain & (block.accepted < block.drafted)
        rows &= own.known & (block.emitted == block.accepted + 1)
        at = np.minimum(block.starts + block.accepted, len(ids.values) - 1)
        self.refusals += int(rows.sum())
        self.refused_drawn.note(block, rows & (own.values == ids.values[at]))

    def _sure(self, block: Block, tokens: Array, accepted: Array) -> None:
        """The full rule accepts with certainty where p exceeds q."""
        self.sure += int(tokens.sum())
        self.sure_accepted += int((tokens & accepted).sum())
        self.sure_refused.note_tokens(block, tokens & ~accepted)

    @property
    def refuses_the_sure(self) -> bool:
        """Tokens that min(1, p/q) always accepts are refused too often for rounding."""
        share = Share(self.sure_accepted, self.sure)
        return self.sure >= _MIN_SURE and share.high < _SURE


def is_greedy(run: Run) -> bool | None:
    """Whether the target's pick is its first choice; None where the header does not say."""
    rule = None if run.verification is None else run.verification.rule
    temperature = None if run.sampling is None else run.sampling.temperature
    if run.verification is not None and run.verification.lossless is False:
        return None
    if rule == "greedy":
        return True
    if temperature is not None and rule in (None, "match", "rejection_sampling", "target_only", "block"):
        return temperature == 0
    return False if rule == "rejection_sampling" else None


def _picked(
    ids: Values, slots: Array, picks: Values | None, ranks: Values | None
) -> tuple[Array, Array, Array]:
    """[tokens] the pick differs, it agrees, and whether that is known."""
    if picks is not None and picks.known[slots].any():
        known = picks.known[slots]
        same = picks.values[slots] == ids.values
        return known & ~same, known & same, known
    if ranks is None:
        nothing = np.zeros(len(slots), bool)
        return nothing, nothing, nothing
    return ranks.known & (ranks.values > 1), ranks.known & (ranks.values == 1), ranks.known


# --- verdict -----------------------------------------------------------------------------------


def judge(facts: Facts) -> Iterator[Outcome]:
    """Greedy contradictions, or observed against expected acceptance, then the confidence gate."""
    tally, declared = facts.of(VerifierTally), facts.run.verification
    if declared is not None and declared.lossless is False:
        yield NotChecked(
            id="verification",
            reason=f"the rule {declared.rule or 'in use'} is declared lossy: what it accepts is its own "
            "affair",
        )
    elif tally.is_greedy is None:
        yield facts.not_recorded(
            "verification",
            "the header must name the rule and the temperature",
            "verification.rule",
            "sampling.temperature",
        )
    elif tally.is_greedy:
        yield from _greedy_verdict(facts, tally)
    else:
        yield from _sampled_verdict(facts, tally)
    yield from _gate(facts)


def _greedy_verdict(facts: Facts, tally: VerifierTally) -> Iterator[Outcome]:
    if not tally.judged:
        yield facts.not_recorded(
            "verification", "record the target's pick at each position", "target_ids", "target_ranks"
        )
        return
    for witnesses, id_, summary, advice in (
        (
            tally.unjustified,
            "verification/unjustified-accept",
            "Greedy verification accepted draft tokens that are not the target's pick.",
            "Compare ids, not probabilities, at temperature 0; look at the first of these steps.",
        ),
        (
            tally.refused,
            "verification/biased",
            "Greedy verification refused draft tokens that are the target's own pick.",
            "Check that pick and draft token are compared at the same index.",
        ),
        (
            tally.own_token,
            "verification/biased",
            "The token committed after the accepted ones is not the target's pick there.",
            "Take the target's pick at index num_accepted, not at K or at 0.",
        ),
    ):
        if witnesses:
            yield Finding(
                id=id_,
                strength=Strength.CERTAIN,
                summary=summary,
                advice=advice,
                evidence={
                    "steps_affected": witnesses.count,
                    "decisions_judged": tally.judged,
                    "tie_limit": tally.limit,
                },
                steps=witnesses.steps,
            )
    if not (tally.unjustified or tally.refused or tally.own_token):
        yield Cleared(
            id="verification",
            summary=f"all {tally.judged:,} decisions follow the target's picks",
            evidence={"decisions_judged": tally.judged},
        )


def _sampled_verdict(facts: Facts, tally: VerifierTally) -> Iterator[Outcome]:
    rule = None if facts.run.verification is None else facts.run.verification.rule
    full = tally.overlap if tally.overlap.trials >= tally.full.trials else tally.full
    if rule not in (None, "rejection_sampling", "block") or not full.trials:
        yield (
            facts.not_recorded(
                "verification", "record log p and log q of the draft tokens", "overlaps", "draft_logprobs"
            )
            if not full.trials
            else NotChecked(
                id="verification",
                reason=f"what the rule {rule} accepts cannot be computed from p and q alone",
            )
        )
        return
    if full.trials < MIN_STEPS:
        yield NotChecked(
            id="verification",
            reason=f"{full.trials:,} tokens that the target looked at are too few for a rate, "
            f"{MIN_STEPS} are needed",
        )
        return
    found: list[Outcome] = [_drawn_again(tally)] if tally.refused_drawn else []
    found += _rate_verdict(tally, full)
    if not any(isinstance(outcome, Finding) for outcome in found):
        found = list(judge_calibration(facts)) or found
    yield from found
    yield from judge_law(facts)


def _rate_verdict(tally: VerifierTally, full: Expected) -> Iterator[Outcome]:
    rate = full.observed / full.trials
    evidence = {
        "observed": Share(full.observed, full.trials),
        "expected_by_full_rule": full.rate,
        "expected_ignoring_q": tally.ignoring.rate,
    }
    if tally.sure:
        evidence["accepted_where_p_exceeds_q"] = Share(tally.sure_accepted, tally.sure)
    is_usual = full.explains(rate, _Z) or abs(rate - (full.rate or 0.0)) < _VISIBLE
    if is_usual and not tally.refuses_the_sure:
        yield Cleared(
            id="verification",
            summary=f"observed {rate:.3f}, expected {full.rate:.3f} by the full rule",
            evidence=evidence,
        )
    elif tally.ignoring.trials >= MIN_STEPS and tally.ignoring.explains(
        tally.ignoring.observed_rate or 0.0, _Z
    ):
        yield Finding(
            id="verification/q-not-used",
            strength=Strength.STRONG,
            summary="Tokens are accepted with probability p, not min(1, p/q): the draft's distribution is "
            "ignored. "
            "The output law stays right, acceptance is thrown away.",
            advice="Hand the draft's probabilities to the sampler, or draft greedily.",
            evidence=evidence,
            steps=tally.sure_refused.steps,
        )
    else:
        yield Finding(
            id="verification/biased",
            strength=Strength.STRONG,
            summary="Observed acceptance fits no verification rule with the recorded p and q.",
            advice="Check that p and q are those the sampler compared: same temperature, same processors, "
            "same position.",
            evidence=evidence,
            steps=tally.sure_refused.steps,
        )


def _drawn_again(tally: VerifierTally) -> Finding:
    return Finding(
        id="verification/biased",
        strength=Strength.CERTAIN,
        summary="Tokens that were just refused are committed in the same place: the recovered token is drawn "
        "from p, not from what is left of it.",
        advice="Draw the recovered token from max(p - q, 0), normalised.",
        evidence={"refused_and_committed": Share(tally.refused_drawn.count, tally.refusals)},
        steps=tally.refused_drawn.steps,
    )


def _gate(facts: Facts) -> Iterator[Outcome]:
    sample, speculation = facts.sample, facts.run.speculation
    wanted = None if speculation is None else speculation.num_draft_tokens
    if not wanted or not sample.is_enough:
        return
    mean_length, rate = sample.drafted / sample.proposals, sample.acceptance_rate
    if rate.value is not None and rate.value > 0.98 and mean_length < wanted / 2:
        yield Finding(
            id="verification/confidence-gate",
            strength=Strength.HINT,
            summary="Nearly everything proposed is accepted because little is proposed: "
            "a confidence gate at work, no sign of a good draft.",
            advice="Judge by accept length and time, and try a lower confidence threshold.",
            evidence={"acceptance_rate": rate, "mean_proposed": mean_length, "num_draft_tokens": wanted},
        )

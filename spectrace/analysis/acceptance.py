"""How much of what was drafted was accepted: accept length, rates, and the same per position.

Takes `Counts`, which add up over requests, files and ranks, and makes every ratio from them. The word
*accept length* lives here only; records store `num_accepted`. No ratio of zero things: None.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from spectrace.format.counts import Counts
from spectrace.format.figures import number
from spectrace.format.records import Run


def accept_length(counts: Counts) -> float | None:
    """Tokens per proposal, the target's own token included: 1 + accepted / proposals.

    Every proposal is granted the target's own token, also one that a stop cut short; see
    `emitted_per_proposal` for what was really committed.

    Source: vLLM ``vllm/v1/spec_decode/metrics.py``, "Mean acceptance length"
    (1 + num_accepted_tokens / num_drafts); speculators ``scripts/evaluate/perf_utils.py`` alike.

    Args:
        counts: of one or more requests; steps without a proposal, such as a prefill, do not count.

    Returns:
        Tokens, from 1 to 1 + K; None without any proposal.

    >>> accept_length(Counts(proposals=2, drafted=8, accepted=6))  # 2 of 4, then 4 of 4
    4.0
    """
    accepted = accept_length_without_bonus(counts)
    return None if accepted is None else 1 + accepted


def accept_length_without_bonus(counts: Counts) -> float | None:
    """Draft tokens accepted per proposal: accepted / proposals.

    Source: what EAGLE's ``evaluate_posterior`` returns per step as ``accept_length``, averaged.

    >>> accept_length_without_bonus(Counts(proposals=2, drafted=8, accepted=6))
    3.0
    """
    return _ratio(counts.accepted, counts.proposals)


def emitted_per_proposal(counts: Counts) -> float | None:
    """Tokens really committed per proposal; below accept length where EOS or a length limit cut a step.

    Source: SGLang ``test/srt/test_eagle_infer.py`` (completion_tokens / spec_verify_ct) and SpecForge
    (num_output_tokens / num_verify_tokens), here over steps with a proposal only.

    >>> emitted_per_proposal(Counts(proposals=2, drafted=8, accepted=6, emitted_by_proposals=7))
    3.5
    """
    return _ratio(counts.emitted_by_proposals, counts.proposals)


def acceptance_rate(counts: Counts) -> float | None:
    """Share of the draft tokens that were accepted, 0..1: accepted / drafted.

    Source: vLLM ``vllm/v1/spec_decode/metrics.py``, "Avg Draft acceptance rate", which prints per cent.

    >>> acceptance_rate(Counts(proposals=2, drafted=8, accepted=6))
    0.75
    """
    return _ratio(counts.accepted, counts.drafted)


def acceptance_rate_by_depth(counts: Counts) -> float | None:
    """Share of the positions that could have been accepted, 0..1: accepted / longest paths drafted.

    Of a chain the same as `acceptance_rate`; of a tree, whose nodes compete for one position, larger.

    >>> acceptance_rate_by_depth(Counts(proposals=1, drafted=6, accepted=2, proposed_at=[1, 1, 1]))
    0.6666666666666666
    """
    return _ratio(counts.accepted, sum(counts.proposed_at))


def alpha1(counts: Counts) -> float | None:
    """Share of the proposals whose first token was accepted, 0..1.

    The one number that does not depend on how many tokens are drafted. Source: alpha of Leviathan et
    al. 2023 (arXiv 2211.17192, definition 3.1), estimated at the first position.

    >>> alpha1(Counts(proposals=4, accepted_at=[3, 1]))
    0.75
    """
    return _ratio(_at(counts.accepted_at, 0), counts.proposals)


def own_count(counts: Counts) -> str:
    """What the engine counted, in words; "" where it is not recorded or says the same.

    Source: vLLM counts what its verifier accepted (``v1/core/sched/scheduler.py``), before it cuts a text at
    a stop or at its longest length; a trace counts what was committed.

    >>> cut = Counts(proposals=2, drafted=8, accepted=4, emitted_by_proposals=5)
    >>> cut.add(Counts(steps_reported=2, accepted_reported=6))
    >>> own_count(cut)
    "6 of 8 accepted (accept length 4.000): 2 more, in steps cut at a text's end"
    """
    more = counts.accepted_reported - counts.accepted
    if not (counts.steps_reported and counts.proposals and more):
        return ""
    was_cut = counts.emitted_by_proposals < counts.accepted + counts.proposals
    why = "in steps cut at a text's end" if more > 0 and was_cut else "see `spectrace diagnose`"
    return f"{own_numbers(counts)}: {number(abs(more))} {'more' if more > 0 else 'fewer'}, {why}"


def own_numbers(counts: Counts) -> str:
    """The engine's own count and the accept length by it, in words; "" where it is not recorded."""
    if not (counts.steps_reported and counts.proposals):
        return ""
    length = number(1 + counts.accepted_reported / counts.proposals)
    return f"{number(counts.accepted_reported)} of {number(counts.drafted)} accepted (accept length {length})"


def is_simulated(run: Run) -> bool:
    """Whether the engine accepted at rates that it was given, whatever the two models said.

    Source: vLLM's speculative setting ``rejection_sample_method="synthetic"``.
    """
    return run.verification is not None and run.verification.rule == "synthetic"


def sampled(run: Run) -> str | None:
    """Which part of the engine's requests was recorded: ``1/2``, or a share; None where all were.

    Source: the recorders of serving engines, which keep what they were asked for among the flags.
    """
    flags = {} if run.engine is None else run.engine.flags
    asked = str(flags.get("SPECTRACE_SAMPLE", ""))
    return asked if re.fullmatch(r"1/[1-9][0-9]{0,8}|0\.[0-9]{1,18}", asked) else None


SIMULATED_SENTENCE = "Acceptance is simulated: the engine accepted at rates that it was given."
SIMULATED_NOTE = (
    f"{SIMULATED_SENTENCE} These steps are counted, as the engine's own counters count them, and no cause is "
    "looked for in them."
)
"""What is said wherever numbers of such a run are shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionCounts:
    """What happened at one position of the proposals (tree: at one depth)."""

    position: int
    """From 0."""
    proposals: int
    """Steps with a proposal, whatever its length."""
    proposed: int
    """Of these, steps that proposed a token here."""
    reached: int
    """Of these, steps that accepted every position before."""
    accepted: int
    """Of these, steps that accepted this position too."""

    @property
    def unconditional(self) -> float | None:
        """Accepted / proposals. Source: vLLM "Per-position acceptance rate" (accepted / num_drafts)."""
        return _ratio(self.accepted, self.proposals)

    @property
    def given_proposed(self) -> float | None:
        """Accepted / proposed: not pulled down by proposals that were shorter."""
        return _ratio(self.accepted, self.proposed)

    @property
    def conditional(self) -> float | None:
        """c_j, accepted / reached: P(accept j given that all before were accepted and j was proposed)."""
        return _ratio(self.accepted, self.reached)


def per_position(counts: Counts) -> tuple[PositionCounts, ...]:
    """One entry per position that any step proposed a token at.

    Three steps: accepted 2 of 2, 0 of 2, and 1 of 1. The last never proposed position 1, so c_1 is 1 of 1.

    >>> counts = Counts(proposals=3, proposed_at=[3, 2], reached_at=[3, 1], accepted_at=[2, 1])
    >>> [(p.unconditional, p.given_proposed, p.conditional) for p in per_position(counts)][1]
    (0.3333333333333333, 0.5, 1.0)
    """
    return tuple(
        PositionCounts(
            position=position,
            proposals=counts.proposals,
            proposed=proposed,
            reached=_at(counts.reached_at, position),
            accepted=_at(counts.accepted_at, position),
        )
        for position, proposed in enumerate(counts.proposed_at)
    )


@dataclass(frozen=True, slots=True)
class Metric:
    """A number with its name and, in plain words, how it is made."""

    name: str
    formula: str
    value: Callable[[Counts], float | None]


BY_DEPTH = Metric(
    "acceptance_rate_by_depth", "accepted / longest paths of the trees", acceptance_rate_by_depth
)
"""Says something of its own for trees only."""

METRICS: tuple[Metric, ...] = (
    Metric("accept_length", "1 + accepted / proposals", accept_length),
    Metric("accept_length_without_bonus", "accepted / proposals", accept_length_without_bonus),
    Metric("emitted_per_proposal", "emitted / proposals, after EOS and limits", emitted_per_proposal),
    Metric("acceptance_rate", "accepted / drafted", acceptance_rate),
    BY_DEPTH,
    Metric("alpha1", "first token accepted / proposals", alpha1),
)
"""Every acceptance metric of a whole run, in the order in which they are shown."""


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _at(tally: Sequence[int], position: int) -> int:
    return tally[position] if position < len(tally) else 0

"""`diagnose`: reads a trace once, asks every rule, and puts the most likely cause first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from spectrace.analysis.acceptance import accept_length, per_position
from spectrace.analysis.diagnosis.carried import Carried, carried
from spectrace.analysis.diagnosis.control import (
    judge_forks,
    judge_metrics,
    judge_precision,
    judge_regression,
)
from spectrace.analysis.diagnosis.control_runs import NO_DRAFT, control_of
from spectrace.analysis.diagnosis.control_texts import forks, same_prompts
from spectrace.analysis.diagnosis.counterfactuals import counterfactuals
from spectrace.analysis.diagnosis.facts import Facts, collect
from spectrace.analysis.diagnosis.kv_control import judge_prefix_reuse, judge_state
from spectrace.analysis.diagnosis.metrics import CountTally
from spectrace.analysis.diagnosis.rules import RULES
from spectrace.analysis.diagnosis.signature import look_first
from spectrace.analysis.diagnosis.verdict import (
    Cleared,
    Diagnosis,
    Finding,
    NotChecked,
    Outcome,
    Strength,
)
from spectrace.analysis.diagnosis.witness import with_witnesses
from spectrace.analysis.diagnosis.words import rule_of
from spectrace.analysis.intervals import Share

if TYPE_CHECKING:
    from spectrace.format.reader import Trace

_ORDER = (Strength.CERTAIN, Strength.STRONG, Strength.HINT)
_ABOUT_NUMBERS = ("nonfinite", "trace", "metrics", "cost", "workload", "reporting", "drift")
"""Rules whose findings are no fault of the engine's structure."""


_ABOUT_THE_WHOLE = ("metrics",)
"""Rules that compare with what the engine said of the whole run."""


def diagnose(
    trace: Trace,
    *,
    control: Trace | None = None,
    on_progress: Callable[[int], None] | None = None,
    first_steps: int | None = None,
) -> Diagnosis:
    """Why acceptance is what it is: causes found, causes cleared, causes that could not be checked.

    Args:
        trace: an open trace; read once, in bounded memory.
        control: a trace of the same prompts from a run that is known to be right, or from another engine.
        on_progress: told how many steps have been read.
        first_steps: judge about so many steps of the trace and leave the rest unread; None for all.

    Returns:
        The findings, most certain first, with their evidence. Nothing found is not proof of health: see
        ``not_checked``.
    """
    facts = collect(trace, _tallies(), on_progress, first_steps)
    if control is not None:
        facts = _with_baseline(facts, control)
    packed = carried(facts.run_mapping)
    outcomes = list(_ask(facts, packed))
    if first_steps is not None and first_steps < len(trace):
        outcomes = list(_of_the_first(outcomes, first_steps))
    for run in (trace, control):
        shown = None if run is None else control_of(run)
        # A packed control brings its own verdict along.
        if shown is not None and all(outcome.id != shown.id for outcome in outcomes):
            outcomes.append(shown)
    if control is not None:
        outcomes += list(_against(trace, facts, control, outcomes))
    else:
        outcomes += [
            NotChecked(
                id=id_, reason="needs a second trace of the same prompts", how="give it with --control"
            )
            for id_ in ("numeric-tie", "drift/regression")
            if all(outcome.id != id_ for outcome in outcomes)
        ]
    findings = [
        with_witnesses(outcome, trace.steps.get) for outcome in outcomes if isinstance(outcome, Finding)
    ]
    first = look_first(facts)
    is_part = packed is not None and packed.is_part
    return Diagnosis(
        findings=sorted(findings, key=lambda finding: _ORDER.index(finding.strength)),
        cleared=[outcome for outcome in outcomes if isinstance(outcome, Cleared)],
        not_checked=sorted(
            (outcome for outcome in outcomes if isinstance(outcome, NotChecked)),
            key=lambda item: _place(first, item.id),
        ),
        counterfactuals=list(counterfactuals(facts)) if packed is None else packed.counterfactuals,
        measured=packed.measured if packed is not None and is_part else measured(facts),
        look_first=first,
    )


def _with_baseline(facts: Facts, control: Trace) -> Facts:
    """The time per token of a control without a draft, where the trace has none of its own."""
    baseline = control.run.baseline
    if control.run.control != NO_DRAFT or baseline is None or facts.run.baseline is not None:
        return facts
    run = replace(facts.run, baseline=baseline)
    return replace(facts, run=run, run_mapping={**facts.run_mapping, "baseline": dict(baseline)})


def _tallies() -> list[type]:
    return [kind for rule in RULES for kind in rule.tallies]


def _ask(facts: Facts, packed: Carried | None) -> Iterator[Outcome]:
    """Every rule's answers, those withheld that a fault found before makes worthless.

    Rules that a packed trace cannot answer are not asked; what they said before it was packed stands.
    """
    given = {} if packed is None else dict(packed.outcomes)
    fault: Finding | None = None
    is_numeric = True
    for rule in RULES:
        is_given = packed is not None and packed.stands_for(rule.id)
        answers = list(given.pop(rule.id, ()) if is_given else rule.judge(facts))
        if not is_numeric and rule.is_statistical and not is_given:
            yield from _withheld(answers, "the trace holds values that are no numbers")
            continue
        if fault is not None and rule.after_structural and not is_given:
            yield from _withheld(answers, f"left open while {fault.id} stands, which may explain it")
            continue
        yield from answers
        for answer in answers:
            if isinstance(answer, Finding) and answer.strength is not Strength.HINT:
                if answer.id.startswith("nonfinite/"):
                    is_numeric = False
                if not answer.id.startswith(_ABOUT_NUMBERS):
                    fault = fault or answer


def _against(trace: Trace, facts: Facts, control: Trace, outcomes: list[Outcome]) -> Iterator[Outcome]:
    """What the control adds."""
    other = collect(control, _tallies())
    common = same_prompts(trace, control)
    pairs = len(common)
    parted = list(forks(trace, control))
    yield from judge_forks(facts, parted, pairs)
    yield from judge_prefix_reuse(facts, parted, common)
    yield from judge_state(trace, control, facts, parted, common)
    by_formula = list(judge_metrics(facts, other))
    yield from by_formula
    by_bits = list(judge_precision(facts, other))
    yield from by_bits
    faults = [
        o
        for o in [*outcomes, *by_formula, *by_bits]
        if isinstance(o, Finding) and o.strength is not Strength.HINT
    ]
    answers = judge_regression(facts, other, pairs)
    yield from _withheld(answers, f"{faults[0].id} explains it") if faults else answers
    for at, outcome in enumerate(outcomes):
        if isinstance(outcome, Finding) and outcome.id.startswith(
            ("tap-layer/", "draft-head/", "positions/")
        ):
            evidence = {**outcome.evidence, "alpha1_of_control": other.sample.alpha1}
            outcomes[at] = replace(outcome, evidence=evidence)


def _withheld(answers: Iterable[Outcome], reason: str) -> Iterator[Outcome]:
    """The answers of a rule with every finding turned into *could not be checked*."""
    for answer in answers:
        if isinstance(answer, Finding):
            yield NotChecked(id=answer.id, reason=reason)
        else:
            yield answer


def _of_the_first(outcomes: Iterable[Outcome], first_steps: int) -> Iterator[Outcome]:
    """The answers where only the first steps were read, less those that need all."""
    for outcome in outcomes:
        is_about_all = outcome.id.startswith(_ABOUT_THE_WHOLE)
        reason = f"only the first {first_steps:,} steps were read"
        yield from _withheld([outcome], reason) if is_about_all else [outcome]


def _place(first: Iterable[str], id_: str) -> int:
    rules = list(first)
    rule = rule_of(id_)
    return rules.index(rule) if rule in rules else len(rules)


def measured(facts: Facts) -> dict[str, Any]:
    """The acceptance that is to be explained, in the numbers of every other command."""
    tally = facts.of(CountTally)
    counts = tally.counts
    return {
        "steps": facts.num_steps,
        "proposals": counts.proposals,
        "prompts": facts.num_prompts,
        "accept_length": accept_length(counts),
        "acceptance_rate": Share(counts.accepted, counts.drafted),
        "alpha1": tally.alpha1,
        "conditional": [Share(entry.accepted, entry.reached) for entry in per_position(counts)[:16]],
    }

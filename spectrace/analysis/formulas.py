"""The visible list of formulas by which engines and tools state acceptance, each with who uses it.

One place for all of them, so that a number printed elsewhere can be matched to the formula that gives it.
Takes sums and counts no step; which sums a reader has decides which formulas have a value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from spectrace.analysis import acceptance
from spectrace.format.columns import Array
from spectrace.format.counts import Counts
from spectrace.format.records import Run


class RequestSums(NamedTuple):
    """Sums of each request that has a proposal, all [requests]."""

    proposals: Array
    drafted: Array
    accepted: Array
    emitted: Array
    """Tokens committed by steps with a proposal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sums:
    """What formulas are made of."""

    counts: Counts
    nominal: int | None = None
    """Draft tokens of a whole proposal as the header declares them, a tree's nodes."""
    counted: int | None = None
    """Tokens by the engine's own count of accepted ones, the target's included, also behind the end."""
    requests: RequestSums | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Formula:
    """A number that somebody prints."""

    name: str
    formula: str
    """How it is made, in the words of `Counts`."""
    used_by: str
    """Who prints it, under which name."""
    value: Callable[[Sums], float | None]
    remark: str = ""
    """How it differs from the usual one."""
    is_rate: bool = False
    """A share in 0..1, which many print per cent."""


def nominal_tokens(run: Run) -> int | None:
    """Draft tokens of a whole proposal as the header declares them.

    >>> from spectrace.format.records import Speculation
    >>> nominal_tokens(Run(speculation=Speculation(num_draft_tokens=4)))
    4
    """
    if run.speculation is None:
        return None
    tree = run.speculation.tree
    nodes = None if tree is None else tree.num_nodes
    return run.speculation.num_draft_tokens if nodes is None else nodes


def mean_accept_length(requests: RequestSums | None) -> float | None:
    """Mean of the requests' 1 + accepted / proposals, each request weighing the same.

    >>> import numpy as np
    >>> mean_accept_length(RequestSums(*map(np.array, ([100, 900], [400, 3600], [300, 900], [400, 1800]))))
    3.0
    """
    without = _mean(requests, "accepted", "proposals")
    return None if without is None else 1 + without


def _mean(requests: RequestSums | None, part: str, whole: str) -> float | None:
    if requests is None:
        return None
    parts, wholes = getattr(requests, part), getattr(requests, whole)
    used = wholes > 0
    return float((parts[used] / wholes[used]).mean()) if used.any() else None


def _ratio(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None


def _unless(value: float | None, usual: str, sums: Sums) -> float | None:
    """The value, None where it is the usual one and says nothing of its own."""
    plain: float | None = getattr(acceptance, usual)(sums.counts)
    return None if value is None or plain is None or abs(value - plain) < 1e-12 else value


FORMULAS: tuple[Formula, ...] = (
    Formula(
        name="accept_length",
        formula="1 + accepted / proposals",
        used_by="vLLM (v1/spec_decode/metrics.py, mean acceptance length; of what its verifier accepted), "
        "TensorRT-LLM (acceptanceLength), llama.cpp (mean length), speculators",
        value=lambda sums: acceptance.accept_length(sums.counts),
    ),
    Formula(
        name="accept_length_without_bonus",
        formula="accepted / proposals",
        used_by="EAGLE (evaluate_posterior), transformers (num_matches), each averaged over steps",
        value=lambda sums: acceptance.accept_length_without_bonus(sums.counts),
        remark="vLLM's mean acceptance length counts the target's own token (the bonus); this one does not",
    ),
    Formula(
        name="emitted_per_proposal",
        formula="emitted / proposals, nothing after EOS or a limit",
        used_by="SpecForge (num_output_tokens / num_verify_tokens), SGLang's tests",
        value=lambda sums: acceptance.emitted_per_proposal(sums.counts),
        remark="it counts what was committed; vLLM's grants every proposal the target's own token, also one "
        "that the end of the text cut short",
    ),
    Formula(
        name="all_emitted_per_proposal",
        formula="emitted by all steps / proposals",
        used_by="SGLang (spec_accept_length = completion_tokens / spec_verify_ct)",
        value=lambda sums: _ratio(sums.counts.emitted, sums.counts.proposals),
        remark="tokens of steps without a proposal, such as a prefill's first, are counted too",
    ),
    Formula(
        name="emitted_per_step",
        formula="emitted / steps, those without a proposal included",
        used_by="home-made loops: tokens / target forwards",
        value=lambda sums: _ratio(sums.counts.emitted, sums.counts.steps),
        remark="steps without a proposal, such as prefills, pull it down; vLLM's leaves them out",
    ),
    Formula(
        name="accept_length_as_counted",
        formula="1 + accepted by the engine's own count / proposals",
        used_by="vLLM (mean acceptance length), which counts before it cuts a text at its end",
        value=lambda sums: _unless(_ratio(sums.counted, sums.counts.proposals), "accept_length", sums),
        remark="accepted tokens that were cut at the end of a text, by max_tokens or EOS, are counted",
    ),
    Formula(
        name="accept_length_mean_of_requests",
        formula="mean over requests of 1 + accepted / proposals",
        used_by="AIPerf, Model-Optimizer's profile, benchmarks that average per prompt",
        value=lambda sums: mean_accept_length(sums.requests),
        remark="each request weighs the same; vLLM's is pooled, so long requests weigh more",
    ),
    Formula(
        name="accept_length_without_bonus_mean_of_requests",
        formula="mean over requests of accepted / proposals",
        used_by="benchmarks that average per prompt and leave the bonus out",
        value=lambda sums: _mean(sums.requests, "accepted", "proposals"),
        remark="each request weighs the same, and the target's own token is not counted",
    ),
    Formula(
        name="emitted_per_proposal_mean_of_requests",
        formula="mean over requests of emitted / proposals",
        used_by="averages of SGLang's per-request spec_accept_length",
        value=lambda sums: _mean(sums.requests, "emitted", "proposals"),
        remark="each request weighs the same, and nothing after the end is counted",
    ),
    Formula(
        name="acceptance_rate",
        formula="accepted / drafted, of a tree every node",
        used_by="vLLM (draft acceptance rate), llama.cpp (draft_n_accepted / draft_n), AIPerf",
        value=lambda sums: acceptance.acceptance_rate(sums.counts),
        is_rate=True,
    ),
    Formula(
        name="acceptance_rate_as_counted",
        formula="accepted by the engine's own count / drafted",
        used_by="vLLM (draft acceptance rate), which counts before it cuts a text at its end",
        value=lambda sums: _unless(
            None
            if sums.counted is None
            else _ratio(sums.counted - sums.counts.proposals, sums.counts.drafted),
            "acceptance_rate",
            sums,
        ),
        remark="accepted tokens that were cut at the end of a text, by max_tokens or EOS, are counted",
        is_rate=True,
    ),
    Formula(
        name="acceptance_rate_by_depth",
        formula="accepted / drafted, of a tree its longest path",
        used_by="papers on trees",
        value=lambda sums: _unless(acceptance.acceptance_rate_by_depth(sums.counts), "acceptance_rate", sums),
        remark="a tree counts as its longest path, not as all its nodes",
        is_rate=True,
    ),
    Formula(
        name="acceptance_rate_of_declared",
        formula="accepted / (proposals x declared draft tokens)",
        used_by="SGLang (spec_accept_rate: verify_ct x (num_draft_tokens - 1))",
        value=lambda sums: _ratio(sums.counts.accepted, sums.counts.proposals * (sums.nominal or 0)),
        remark="a proposal counts as whole also where it was shorter; vLLM divides by what was drafted",
        is_rate=True,
    ),
    Formula(
        name="acceptance_rate_mean_of_requests",
        formula="mean over requests of accepted / drafted",
        used_by="AIPerf, benchmarks that average per prompt",
        value=lambda sums: _mean(sums.requests, "accepted", "drafted"),
        remark="each request weighs the same; vLLM's is pooled",
        is_rate=True,
    ),
    Formula(
        name="alpha1",
        formula="first token accepted / proposals",
        used_by="vLLM (per-position acceptance rate, position 0), the alpha of Leviathan et al. 2023",
        value=lambda sums: acceptance.alpha1(sums.counts),
        is_rate=True,
    ),
)
"""Every formula of a whole run, in the order in which they are offered.

Sources: vLLM ``vllm/v1/spec_decode/metrics.py``; SGLang ``meta_info`` of a response; TensorRT-LLM
``specDecodingStats``; llama.cpp ``tools/server`` timings and PR 24536; EAGLE ``eagle/model/utils.py``;
SpecForge and speculators benchmark scripts; AIPerf, *Per-request speculative-decoding acceptance*."""

_POSITIONS = 16
_KINDS = (
    ("unconditional", "accepted / proposals", "vLLM, llama.cpp (per position)"),
    ("given_proposed", "accepted / proposed here", "few; short proposals do not pull it down"),
    ("conditional", "accepted / proposals that accepted all before", "papers, Model-Optimizer's profile"),
)


def position_formulas(counts: Counts) -> Iterator[Formula]:
    """The three rates of each of the first positions, the very first being alpha1.

    >>> counts = Counts(proposals=4, proposed_at=[4, 4], reached_at=[4, 2], accepted_at=[2, 1])
    >>> [(f.name, f.value(Sums(counts=counts))) for f in position_formulas(counts)][-1]
    ('position_1_conditional', 0.5)
    """
    for entry in acceptance.per_position(counts)[1:_POSITIONS]:
        for kind, formula, used_by in _KINDS:
            value: float | None = getattr(entry, kind)
            yield Formula(
                name=f"position_{entry.position}_{kind}",
                formula=f"position {entry.position}: {formula}",
                used_by=used_by,
                value=lambda _, value=value: value,  # type: ignore[misc]
                is_rate=True,
            )


# --- matching --------------------------------------------------------------------------------------


class Given(NamedTuple):
    """A number as somebody printed it."""

    value: float
    digits: int
    """Digits behind the point."""
    is_per_cent: bool = False

    def is_(self, computed: float) -> bool:
        """Whether a value gives it, rounded to its digits."""
        return abs(self.value - computed) <= 0.5 * 10.0**-self.digits + 1e-9


class Match(NamedTuple):
    """A formula beside the number."""

    formula: Formula
    value: float
    is_per_cent: bool
    """The number is 100 times the value."""


class Explanation(NamedTuple):
    """Which formulas give a number."""

    given: Given
    matches: Sequence[Match]
    nearest: Sequence[Match]
    """Where none does: those that come nearest, if any comes near."""
    usual: Sequence[Match]
    """What vLLM prints over the same steps, accept length and acceptance rate by the engine's own count."""


def read_number(text: str) -> Given | None:
    """A number as typed, with the digits it was printed to; None when it is none.

    >>> read_number("46.7%")
    Given(value=46.7, digits=1, is_per_cent=True)
    """
    found = re.fullmatch(r"([0-9]{1,9})(?:\.([0-9]{0,12}))? ?(%?)", text.strip(), re.ASCII)
    if found is None:
        return None
    whole, decimals, sign = found.group(1), found.group(2) or "", found.group(3)
    return Given(float(f"{whole}.{decimals or 0}"), len(decimals), bool(sign))


def explain(given: Given, sums: Sums) -> Explanation:
    """The formulas that give a number, a rate also per cent; the nearest where none does.

    Args:
        given: the number.
        sums: of the run that it is said of.

    >>> sums = Sums(counts=Counts(proposals=100, drafted=400, accepted=131))
    >>> [match.formula.name for match in explain(Given(1.31, 2), sums).matches]
    ['accept_length_without_bonus']
    """
    offered = list(_offered(given, sums, FORMULAS))
    matches = [match for match in offered if given.is_(_as_given(match))]
    matches += [m for m in _offered(given, sums, position_formulas(sums.counts)) if given.is_(_as_given(m))]
    near = [m for m in offered if abs(given.value - _as_given(m)) <= _NEAR * max(given.value, _as_given(m))]
    by_distance = sorted(near, key=lambda match: abs(given.value - _as_given(match)))
    by_name = {match.formula.name: match for match in offered}
    usual = [by_name.get(f"{name}_as_counted", by_name[name]) for name in _USUAL if name in by_name]
    return Explanation(given, matches, [] if matches else by_distance[:3], usual)


_NEAR = 0.25
"""Relative distance beyond which a formula does not come near a number."""
_USUAL = ("accept_length", "acceptance_rate")


def _offered(given: Given, sums: Sums, formulas: Iterator[Formula] | Sequence[Formula]) -> Iterator[Match]:
    for formula in formulas:
        value = formula.value(sums)
        if value is None or (given.is_per_cent and not formula.is_rate):
            continue
        yield Match(formula, value, formula.is_rate and (given.is_per_cent or given.value > 1))


def _as_given(match: Match) -> float:
    return 100 * match.value if match.is_per_cent else match.value

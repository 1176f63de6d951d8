"""The visible list of faults: name, what it breaks, which finding must name it, how it is injected."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from benchmarks.faults import draft_run, id_map, loops, processing, taps, verifying, weights
from benchmarks.faults.rig import Rig
from benchmarks.faults.verifying import TEMPERATURE, TREE

Record = Callable[[Rig, Path], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault, injected in code."""

    name: str
    breaks: str
    """One sentence."""
    expected: tuple[str, ...]
    """Finding ids that name it."""
    kind: Literal["structural", "statistical"] = "structural"
    """Whether one record contradicts itself, or many records together are unlikely."""
    record: Record
    control: Record | None = None
    """Where one trace cannot tell: the run it is compared with."""


def _structural(name: str, breaks: str, expected: str, record: Record, **more: Any) -> Fault:
    return Fault(name=name, breaks=breaks, expected=tuple(expected.split()), record=record, **more)


def _statistical(name: str, breaks: str, expected: str, record: Record, **more: Any) -> Fault:
    return Fault(
        name=name, breaks=breaks, expected=tuple(expected.split()), kind="statistical", record=record, **more
    )


def _decoder(**options: Any) -> Record:
    """The reference decoder with options, among them its own faults."""
    return lambda rig, out: rig.eagle3(out, **options)


def _healthy(rig: Rig, out: Path) -> None:
    rig.eagle3(out)


_MAP = (
    _structural(
        "map-read-direct",
        "the offsets of d2t are used as target ids",
        "vocab-map/offset-read-as-direct",
        _decoder(map_as_direct=True),
    ),
    _structural(
        "map-absolute",
        "d2t was exported as target ids, the engine adds it to the draft id",
        "vocab-map/absolute-table",
        id_map.absolute,
    ),
    _structural(
        "map-missing",
        "the checkpoint has no d2t, draft ids are taken for target ids",
        "vocab-map/missing",
        id_map.missing,
    ),
    _structural("map-not-applied", "d2t is loaded and never used", "vocab-map/missing", id_map.not_applied),
    _structural("map-stale", "d2t is another training run's, t2d is not", "vocab-map/stale", id_map.stale),
    _structural(
        "map-of-another-file",
        "ids are mapped by the table of another folder than the header's",
        "vocab-map/stale",
        id_map.from_another_file,
    ),
    _statistical(
        "map-stale-pair",
        "d2t and t2d are both another training run's and agree with each other",
        "vocab-map/stale",
        id_map.stale_pair,
    ),
    _structural("map-ramp", "d2t is a buffer's default 0, 1, 2, ...", "vocab-map/ramp-default", id_map.ramp),
    _structural(
        "map-out-of-range",
        "d2t is made for a target with a larger vocabulary",
        "vocab-map/out-of-range",
        id_map.out_of_range,
    ),
    _structural(
        "tokenizer-other",
        "the draft model has another tokenizer, ids are passed on as they are",
        "tokenizer/mismatch",
        id_map.other_tokenizer,
    ),
    _statistical(
        "tokenizer-unseen",
        "the same, and the trace holds no text of the draft's",
        "tokenizer/mismatch",
        id_map.unseen_tokenizer,
    ),
)

_WEIGHTS = (
    _structural(
        "head-not-loaded",
        "the draft's LM head stays random, the loader names it",
        "draft-head/not-loaded",
        _decoder(random_head=True),
    ),
    _statistical(
        "head-random",
        "the draft's LM head is random, the loader says nothing",
        "draft-head/not-loaded",
        weights.random_head,
    ),
    _structural("head-constant", "the draft's LM head is zero", "draft-head/constant", weights.constant_head),
    _structural(
        "head-overwritten",
        "the draft's LM head is the target's, with all its rows",
        "draft-head/overwritten",
        weights.overwritten_head,
    ),
    _structural(
        "embeddings-random",
        "the draft's embeddings are neither loaded nor shared, the loader names them",
        "draft-head/not-loaded",
        weights.random_embeddings,
    ),
    _structural(
        "midlayer-dropped",
        "the draft's transformer layer is left out, the loader names its weights",
        "weights/not-loaded",
        _decoder(no_midlayer=True),
    ),
    _structural(
        "attention-blank",
        "the draft's attention weights are zero, the loader says nothing",
        "weights/not-loaded",
        weights.blank_layer,
    ),
    _statistical(
        "weights-int3",
        "the draft's matrices are rounded to 3 bits with one scale each; beside a run in full precision",
        "weights/precision",
        weights.three_bits,
        control=_healthy,
    ),
)

_TAPS = (
    _structural(
        "taps-shifted-down",
        "every tap is taken one boundary too low",
        "tap-layer/shifted",
        _decoder(tap_shift=-1),
    ),
    _structural(
        "taps-shifted-up",
        "every tap is taken one boundary too high",
        "tap-layer/shifted",
        _decoder(tap_shift=1),
    ),
    _structural("taps-permuted", "the taps are joined in another order", "tap-form/order", taps.permuted),
    _structural(
        "taps-normed",
        "the taps are taken after the target's final norm",
        "tap-form/norm",
        _decoder(normed_taps=True),
    ),
    _structural("taps-rotated", "the states are those of a rotated target", "tap-form/rotated", taps.rotated),
    _structural(
        "taps-without-residual",
        "what a layer adds is taken for its output",
        "tap-form/residual",
        taps.without_residual,
    ),
    _structural(
        "taps-mlp-only",
        "what a layer's MLP adds is taken for the layer's output",
        "tap-form/unknown tap-form/residual",
        taps.mlp_only,
    ),
    _structural(
        "taps-stale-rows",
        "after a rejection the draft reads the state of another token again",
        "tap-form/stale-rows",
        taps.stale_rows,
    ),
    _structural(
        "taps-one-row-late",
        "each token goes with the state of the token before its own",
        "tap-form/stale-rows",
        taps.one_row_late,
    ),
    _structural(
        "taps-wrong-after-prompt",
        "the prompt's states are right, later ones come from one boundary higher",
        "tap-form/prefill-decode",
        taps.wrong_after_prompt,
    ),
)

_DRAFT = (
    _statistical(
        "residual-swapped",
        "the residual of the draft's layer is the normed state where the raw one is meant",
        "tap-form/feedback-norm tap-form/unknown",
        draft_run.swapped_residual,
    ),
    _statistical(
        "feedback-swapped",
        "the state is fed back after the final norm where it is meant before",
        "tap-form/feedback-norm",
        _decoder(swapped_feedback_norm=True),
    ),
    _structural(
        "tokens-unshifted",
        "the draft reads token P beside the state of P, where token P + 1 belongs",
        "positions/shifted",
        draft_run.with_rows(draft_run.Unshifted),
    ),
    _structural(
        "positions-late",
        "the draft's own tokens are run one position late",
        "positions/shifted",
        _decoder(position_shift=1),
    ),
    _structural(
        "positions-frozen",
        "all draft tokens of a step are run at one position",
        "positions/shifted",
        draft_run.with_rows(draft_run.Frozen),
    ),
    _structural(
        "positions-drift",
        "positions are counted up, rejected tokens included",
        "positions/shifted",
        draft_run.with_rows(draft_run.Drifting),
    ),
    _structural(
        "rope-theta",
        "the draft runs with another rotary base than its checkpoint says",
        "positions/rotary-config",
        draft_run.other_theta,
    ),
    _structural(
        "window-undeclared",
        "the draft sees the last 8 tokens only, its checkpoint declares no window",
        "window/length",
        draft_run.windowed,
    ),
    _structural(
        "window-evicted",
        "the draft's cache keeps the last 8 rows only",
        "window/length",
        draft_run.with_rows(draft_run.Evicting),
    ),
    _structural(
        "window-gated",
        "beyond 56 tokens the drafter hands out placeholders",
        "window/gated",
        draft_run.gated,
    ),
    _structural(
        "draft-kv-kept",
        "rejected tokens stay in the draft's cache",
        "kv-state/not-trimmed",
        _decoder(keep_draft_kv=True),
    ),
    _structural(
        "draft-kv-over-trimmed",
        "twice as many rows as were rejected are cut from the draft's cache",
        "kv-state/over-trimmed",
        draft_run.with_rows(draft_run.OverTrimmed),
    ),
    _statistical(
        "draft-kv-poisoned",
        "one request in four finds garbage in its prompt's rows of the draft's cache",
        "kv-state/poisoned",
        draft_run.poisoned,
    ),
    _structural("draft-nan", "one row of the draft's LM head is NaN", "nonfinite/values", draft_run.nan_head),
)

_VERIFIER = (
    _structural(
        "target-kv-long",
        "the first rejected row of each step stays in the target's cache",
        "kv-state/target-length",
        verifying.with_cache(verifying.OffCache),
    ),
    _structural(
        "target-kv-short",
        "after each rejection the last accepted row is cut from the target's cache too",
        "kv-state/target-length",
        verifying.with_cache(verifying.ShortCache),
    ),
    _statistical(
        "sampler-ignores-q",
        "draft tokens are accepted with p, not p / q",
        "verification/q-not-used",
        verifying.with_verifier(verifying.ignoring_q, temperature=TEMPERATURE),
    ),
    _statistical(
        "acceptance-biased",
        "draft tokens are accepted with 2 p / q",
        "verification/biased",
        verifying.with_verifier(verifying.twice_as_often, 40, temperature=1.2),
    ),
    _structural(
        "recovered-from-p",
        "the recovered token is drawn from p, not from what is left of it",
        "verification/biased",
        verifying.with_verifier(verifying.recovers_from_p, temperature=TEMPERATURE),
    ),
    _statistical(
        "temperature-skipped",
        "the verifier compares with the target's distribution before temperature (0.5)",
        "verification/biased",
        verifying.with_verifier(verifying.without_temperature, 40, temperature=0.5),
    ),
    _statistical(
        "draft-hotter-than-q",
        "draft tokens are drawn at twice the temperature that q is computed at",
        "verification/biased",
        verifying.hot_draft,
    ),
    _structural(
        "gate-reversed",
        "drafting stops where the draft is sure and goes on where it is not",
        "verification/confidence-gate",
        verifying.with_gate(lambda q: q > 0.9),
    ),
    _structural(
        "bonus-wrong",
        "the pick after the last draft token is committed, however many were accepted",
        "verification/biased",
        verifying.with_verifier(verifying.wrong_bonus),
    ),
    _structural(
        "accept-unjustified",
        "the first draft token is accepted unchecked",
        "verification/unjustified-accept",
        verifying.with_verifier(verifying.first_unchecked),
    ),
    _structural(
        "accept-one-less",
        "the last token that the target agrees with is refused",
        "verification/biased",
        verifying.with_verifier(verifying.one_less),
    ),
    _structural(
        "tree-path-jumps",
        "the accepted path takes any node of the next depth",
        "tree/not-ancestor",
        verifying.with_verifier(verifying.by_depth_only, plan=TREE),
    ),
    _structural(
        "tree-mask",
        "a node sees every node of the depths above it",
        "tree/mask tree/not-ancestor",
        verifying.sees_siblings,
    ),
    _structural(
        "tree-cut-short",
        "only the first node of an accepted path is retrieved",
        "tree/worse-than-chain",
        verifying.with_verifier(verifying.only_one, plan=TREE),
    ),
)

_LOOP = (
    _structural(
        "penalty-under-applied",
        "the penalty's memory is fed one token a step",
        "processors/under-applied",
        lambda rig, out: processing.penalised(rig, out, processing.LazyDecoder),
    ),
    _structural(
        "mask-late",
        "a grammar's mask is set once a step, not from the token behind the boundary",
        "processors/mask-skipped",
        lambda rig, out: processing.grammar(rig, out, processing.GrammarDecoder),
    ),
    _statistical(
        "mask-on-target-only",
        "a grammar masks the target's logits and not the draft's",
        "processors/draft-unaware",
        processing.draft_unaware,
    ),
    _statistical(
        "batch-row",
        "from row 4 of a batch of 8 on the draft's logits are noisy",
        "batch/row-cliff",
        lambda rig, out: loops.batch(rig, out, 4),
    ),
    _structural(
        "metric-without-bonus",
        "the engine prints accepted / proposals as its accept length",
        "metrics/formula",
        loops.printed(loops.without_bonus),
    ),
    _structural(
        "metric-mean-of-requests",
        "the engine prints the mean of the requests' accept lengths",
        "metrics/formula",
        loops.printed(loops.mean_of_requests),
    ),
    _structural(
        "count-holds-own-token",
        "the engine's count of accepted tokens holds the target's own",
        "metrics/formula",
        _decoder(recorder=loops.adding(loops.own_token_counted)),
    ),
    _structural(
        "logprobs-raw",
        "the engine hands out log-probabilities from before temperature",
        "reporting/logprob",
        _decoder(temperature=0.6, decoder=loops.Remembering, recorder=loops.adding(loops.raw_logprobs)),
    ),
    _statistical(
        "draft-decays",
        "the draft's LM head loses a little with every step of a long day",
        "drift/over-time",
        lambda rig, out: loops.uptime(rig, out, 0.006),
    ),
    _statistical(
        "text-repeats",
        "prompts that repeat one question and its answer, texts that may not end",
        "workload/degenerate",
        loops.repetition,
    ),
    _structural(
        "tie-benign",
        "nothing: a run in bfloat16 whose text parts from that of another K by rounding",
        "numeric-tie/benign",
        loops.in_half(4),
        control=loops.in_half(1),
    ),
)

FAULTS: tuple[Fault, ...] = (*_MAP, *_WEIGHTS, *_TAPS, *_DRAFT, *_VERIFIER, *_LOOP)

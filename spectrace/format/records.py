"""The records of a trace: the names shared by recorders, files, analysis and JSON lines.

Header records are frozen dataclasses; `Step` is a read-only view of one row of columns, so that a
trace of millions of steps costs nothing until a field is asked for. Missing is None, never zero.
No I/O here and no arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar, overload

from spectrace.format.fields import FIELDS

SCHEMA = 1
"""Number of the record names and meanings; changes only when one is renamed or redefined."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorder:
    """What wrote the trace."""

    name: str | None = None
    version: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """What ran the models."""

    name: str | None = None
    """transformers, vllm, sglang, ..."""
    version: str | None = None
    runner: str | None = None
    """Which of the engine's loops ran, where it has several."""
    flags: Mapping[str, Any] = field(default_factory=dict)
    """Launch settings that bear on speculation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The model whose distribution is kept."""

    id: str | None = None
    revision: str | None = None
    vocab_size: int | None = None
    num_layers: int | None = None
    hidden_size: int | None = None
    dtype: str | None = None
    quantization: str | None = None
    max_length: int | None = None
    """Longest sequence in tokens the model declares."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """What the loader said of the draft's parameter names."""

    missing: Sequence[str] | None = None
    unexpected: Sequence[str] | None = None
    unused: Sequence[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """A weight tensor, small enough to compare."""

    shape: Sequence[int] | None = None
    rms: float | None = None
    digest: str | None = None
    """``sha256:`` and the SHA-256 of the tensor's bytes, hex."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """Whatever proposes: a model, a head or an n-gram lookup."""

    id: str | None = None
    revision: str | None = None
    vocab_size: int | None = None
    head_rows: int | None = None
    """Rows of the draft's LM head; differs from `vocab_size` for a reduced vocabulary."""
    hidden_size: int | None = None
    num_layers: int | None = None
    dtype: str | None = None
    quantization: str | None = None
    max_length: int | None = None
    rope: Mapping[str, Any] | None = None
    """Rotary settings the engine used."""
    rope_declared: Mapping[str, Any] | None = None
    """Rotary settings the checkpoint declares."""
    window: int | None = None
    """Tokens that a layer of the draft sees at most, as run; 0 for all."""
    window_declared: int | None = None
    """The same as the checkpoint declares it; 0 for all."""
    parameters: Parameters | None = None
    fingerprints: Mapping[str, Fingerprint] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class VocabMap:
    """How draft ids become target ids."""

    d2t: Sequence[int] | None = None
    """Offsets [draft_vocab_size]: target id = draft id + d2t[draft id]."""
    t2d: Sequence[int] | None = None
    """Target ids the draft vocabulary holds, ascending."""
    source: str | None = None
    """checkpoint | file | missing."""
    applied: str | None = None
    """offset | direct | identity | none: how the engine read the table."""
    digest: str | None = None
    """``sha256:`` and the SHA-256 of d2t as little-endian int64, hex."""
    digest_expected: str | None = None
    """The same of the map the draft was trained with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Taps:
    """Which boundaries of the target the draft is fed with."""

    declared: Sequence[int] | None = None
    """Layer ids as the config writes them."""
    numbering: str | None = None
    """input | output: what a declared id L means, B(L) or B(L+1)."""
    origin: str | None = None
    """config | default | argument | guess."""
    boundaries: Sequence[int] | None = None
    """k of B(k), the residual stream after k layers, in the order captured."""
    order: Sequence[int] | None = None
    normed: bool | None = None
    """True when the final norm was applied before capture."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """The rule by which draft tokens were accepted."""

    rule: str | None = None
    """greedy | match | rejection_sampling | target_only | typical | block | synthetic | other."""
    lossless: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How the target's token was picked."""

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    seed: int | None = None
    processors: Sequence[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """Shape of a tree proposal."""

    topk: int | None = None
    depth: int | None = None
    num_nodes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Speculation:
    """How much was drafted."""

    num_draft_tokens: int | None = None
    tree: Tree | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokenizer:
    """The tokenizer both models were taken to share."""

    digest: str | None = None
    """``sha256:`` and the SHA-256, hex, of all tokens as the vocabulary writes them, by id, NUL-ended."""
    vocab_size: int | None = None
    bos_id: int | None = None
    eos_ids: Sequence[int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Capture:
    """What the recorder could and could not see."""

    mode: str | None = None
    """eager | graph | unknown."""
    unavailable: Mapping[str, str] = field(default_factory=dict)
    """Field name -> why it is missing."""
    text: bool | None = None
    """True when token texts and prompts were captured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The header: what ran, with what, and how it was recorded."""

    created: str | None = None
    """ISO 8601, UTC."""
    recorder: Recorder | None = None
    engine: Engine | None = None
    method: str | None = None
    """draft_model | ngram | early_exit | eagle | eagle2 | eagle3 | mtp | medusa | dflash | suffix | other."""
    target: Target | None = None
    draft: Draft | None = None
    vocab_map: VocabMap | None = None
    taps: Taps | None = None
    verification: Verification | None = None
    sampling: Sampling | None = None
    speculation: Speculation | None = None
    tokenizer: Tokenizer | None = None
    template_digest: str | None = None
    training: Mapping[str, Any] | None = None
    """What the draft's training reported, for example first_position_accuracy."""
    baseline: Mapping[str, Any] | None = None
    """token_ns: time per token with no speculation."""
    control: str | None = None
    """Of a control run its kind: self-draft (the target drafts for itself) | predictable-text | no-draft."""
    reported: Mapping[str, Any] | None = None
    """What the engine itself printed: accept_length, acceptance_rate, ..."""
    capture: Capture | None = None
    packed: Mapping[str, Any] | None = None
    """Of a trace that `spectrace pack` wrote: what was removed, and the verdicts of before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One prompt and everything generated from it."""

    request: str
    """Name, unique within the trace."""
    prompt_ids: Sequence[int] | None = None
    """Only when text capture is on."""
    segment_map: Any = None
    prompt_digest: str | None = None
    """``sha256:`` and the SHA-256 of the prompt's ids as little-endian int32, hex."""
    external_id: str | None = None
    """The name that whoever asked knows it by, where the engine calls it otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceRow:
    """Fingerprint of one boundary at one token of a reference forward."""

    position: int | None = None
    rms: float | None = None
    projections: Sequence[float] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """Fingerprints of one boundary, from one forward of the target over the prompt."""

    request: str | None = None
    """Whose prompt was read; None in traces of recorders that read the first prompt only and do not say."""
    boundary: int
    rows: Sequence[ReferenceRow] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Steps that were offered and are not in the file."""

    lost: int
    """Number of steps."""
    reason: str
    """disk full | queue full | too large | malformed | rotated | damaged | left out by pack."""


class Tap(Mapping[str, Any]):
    """One captured boundary of one step: a read-only object with its keys as attributes.

    ``boundary`` k of B(k) or ``index`` into the run's taps; ``position`` index of the token the row
    belongs to; ``shape`` and ``dtype`` of the tensor captured; ``rms`` root mean square of the row;
    ``nonfinite`` count of NaN and infinite values; ``projections`` [32] (see projections.py).
    """

    __slots__ = ("_keys",)

    def __init__(self, keys: Mapping[str, Any]) -> None:
        self._keys = keys

    def __getitem__(self, key: str) -> Any:
        return self._keys[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)

    def __getattr__(self, key: str) -> Any:
        if key.startswith("_"):
            raise AttributeError(key)
        return self._keys.get(key)

    def __repr__(self) -> str:
        return f"Tap({dict(self._keys)!r})"


class Rows(Protocol):
    """Where a `Step` finds its values: one list of row values per field."""

    def field(self, name: str) -> Sequence[Any] | None:
        """Values of one field, one per row; None when no row has it."""


class _Field(Generic[T]):
    """Reads one field of the row a `Step` points at."""

    __slots__ = ("name",)

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, step: None, owner: type) -> _Field[T]: ...
    @overload
    def __get__(self, step: Step, owner: type) -> T: ...
    def __get__(self, step: Step | None, owner: type) -> _Field[T] | T:
        if step is None:
            return self
        values = step._rows.field(self.name)
        return values[step._row] if values is not None else None  # type: ignore[return-value]


Ids = _Field[tuple[int | None, ...]]
OptionalInt = _Field["int | None"]
OptionalStr = _Field["str | None"]
OptionalInts = _Field["tuple[int, ...] | None"]
OptionalFloats = _Field["tuple[float, ...] | None"]
OptionalTop = _Field["tuple[tuple[tuple[int, float], ...], ...] | None"]


class Step:
    """One propose-verify-emit round of one request. K is the number of draft tokens proposed.

    *Not reached*: after a chain's first rejection, target values are conditioned on rejected
    tokens. They are kept, and nothing may count them as divergence.
    """

    __slots__ = ("_row", "_rows")

    def __init__(self, rows: Rows, row: int = 0) -> None:
        self._rows = rows
        self._row = row

    request: _Field[str] = _Field()
    """Name of the request."""
    step: _Field[int] = _Field()
    """Number within its request, from 0."""
    batch_row: OptionalInt = _Field()
    rank: OptionalInt = _Field()
    engine_step: OptionalInt = _Field()
    """Number of the engine's forward pass; equal for requests of one batch."""
    max_batch_length: OptionalInt = _Field()
    """Longest committed length in the batch, tokens."""
    position: _Field[int] = _Field()
    """Committed length before the step = index of the first token being verified."""
    draft_ids: _Field[tuple[int | None, ...] | None] = _Field()
    """[K] raw ids in the draft vocabulary, None where unknown."""
    proposal_ids: Ids = _Field()
    """[K] ids in the target vocabulary, None where they are dropped or unknown; () for a step without
    proposal, such as a prefill."""
    parents: OptionalInts = _Field()
    """[K] index of the parent node, -1 = root; None = chain."""
    draft_logprobs: OptionalFloats = _Field()
    """[K] log q of the proposed token, nats."""
    draft_entropy: OptionalFloats = _Field()
    """[K] entropy of q, nats."""
    draft_top: OptionalTop = _Field()
    """[K][m] (raw id, log q), best first."""
    draft_positions: OptionalInts = _Field()
    """[K] positions the draft was run at."""
    draft_inputs: _Field[tuple[Mapping[str, Any], ...] | None] = _Field()
    """Per depth, {rms, token_position}: of the state fed into the draft, and which token was beside it."""
    target_ids: OptionalInts = _Field()
    """[K+1] the target's own pick at the root and after each node."""
    target_logprobs: OptionalFloats = _Field()
    """[K] log p of the proposed token, after all processors."""
    target_ranks: OptionalInts = _Field()
    """[K] rank of the proposed token under the target, 1 = first."""
    target_gaps: OptionalFloats = _Field()
    """[K+1] first minus second choice, in logits."""
    target_top: OptionalTop = _Field()
    """[K+1][m] (id, log p), best first."""
    overlaps: OptionalFloats = _Field()
    """[K] sum over the vocabulary of min(p, q): expected acceptance."""
    logits_kind: OptionalStr = _Field()
    """raw | processed: which target logits the values above come from."""
    num_accepted: _Field[int] = _Field()
    """Draft tokens accepted, 0..K, never counting the target's own token."""
    num_accepted_reported: OptionalInt = _Field()
    """What the engine said."""
    accepted_nodes: OptionalInts = _Field()
    """The accepted path of a tree, node indices."""
    emitted_ids: Ids = _Field()
    """What was committed: the accepted tokens, then the target's own; None as in `proposal_ids`."""
    final_kind: OptionalStr = _Field()
    """bonus | recovered | corrected | draft | none."""
    stop: OptionalStr = _Field()
    """eos | length | stop_string."""
    segment: OptionalStr = _Field()
    """prompt | think | answer | tool | grammar | a free word; of the step's first token."""
    segment_boundary: OptionalInt = _Field()
    """Index within emitted_ids of the token that ends the segment."""
    draft_kv_length: OptionalInt = _Field()
    """Tokens in the draft's cache before it proposes."""
    target_kv_length: OptionalInt = _Field()
    """Tokens in the target's cache before it verifies."""
    prefix_hit_length: OptionalInt = _Field()
    """Tokens of the prompt that a prefix cache held."""
    mask: _Field[tuple[str, ...] | None] = _Field()
    """Per emitted position, on | off: grammar mask applied."""
    processor_tokens: OptionalInt = _Field()
    """How many tokens the stateful processors were fed."""
    taps: _Field[tuple[Tap, ...] | None] = _Field()
    """Hidden-state fingerprints, several rows per boundary in a prefill."""
    nonfinite: _Field[Mapping[str, Any] | None] = _Field()
    """{draft_logits, target_logits}: counts of NaN and infinite values."""
    draft_ns: OptionalInt = _Field()
    """Nanoseconds spent proposing."""
    verify_ns: OptionalInt = _Field()
    """Nanoseconds from the proposal to the decision."""
    step_ns: OptionalInt = _Field()
    """Nanoseconds of the whole step."""
    started_ns: OptionalInt = _Field()
    """Nanoseconds from the start of recording to the start of the step, monotonic clock."""
    flags: _Field[tuple[str, ...] | None] = _Field()
    """prefill | replay | dummy | truncated | simulated | summed (rounds of which only sums are known)."""
    extra: OptionalStr = _Field()
    """Unknown keys, as JSON text."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Step) and present_fields(self) == present_fields(other)

    def __hash__(self) -> int:
        return hash((self.request, self.step, self.emitted_ids))

    def __repr__(self) -> str:
        inner = ", ".join(f"{name}={value!r}" for name, value in present_fields(self).items())
        return f"Step({inner})"


def present_fields(step: Step) -> dict[str, Any]:
    """The fields a step has, in the order of `FIELDS`."""
    values = ((field.name, getattr(step, field.name)) for field in FIELDS)
    return {name: value for name, value in values if value is not None}


class _Held:
    """The values of one step, in memory."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._fields = fields

    def field(self, name: str) -> Sequence[Any] | None:
        return [self._fields.get(name)]


def held(step: Step) -> Step:
    """The same step with every field read now: it no longer needs its file."""
    return Step(_Held(present_fields(step)))

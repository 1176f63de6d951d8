"""The one table that says what of a trace leaves the machine: every field, kept, reduced or dropped.

An allow-list: what is not named here is dropped, fields that a newer spectrace knows included. Why token
ids are dropped and not renamed, and what the kept numbers still tell, is argued in SECURITY.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from spectrace.report import allowed
from spectrace.report import reduction as to

Action = Literal["kept", "reduced", "dropped"]
Include = Literal["", "text", "paths"]


@dataclass(frozen=True, slots=True)
class Rule:
    """What becomes of one field."""

    path: str
    """Field of `Step` by its column, or of a header record; ``*`` stands for any key."""
    action: Action
    note: str = ""
    """How it is reduced, or why it is dropped."""
    include: Include = ""
    """The option that keeps it as it is; empty: none does."""
    value: Callable[[Any], Any] = to.nothing
    """Of a header field: what is left of a value, None for nothing."""


def _kept(*paths: str) -> tuple[Rule, ...]:
    return tuple(Rule(path, "kept") for path in paths)


STEPS: tuple[Rule, ...] = (
    Rule("request", "reduced", "r0, r1, ... in order of appearance", "text"),
    *_kept("step", "batch_row", "rank", "engine_step", "max_batch_length", "position"),
    Rule("draft_ids", "dropped", "ids are text", "text"),
    Rule("proposal_ids", "reduced", "how many; the ids are text", "text"),
    *_kept("parents", "draft_logprobs", "draft_entropy"),
    Rule("draft_top.id", "dropped", "ids are text", "text"),
    Rule("draft_top.logprob", "dropped", "says little without its ids", "text"),
    *_kept("draft_positions", "draft_inputs.rms", "draft_inputs.token_position"),
    Rule("draft_inputs.extra", "dropped", "unknown fields"),
    Rule("target_ids", "dropped", "ids are text; target_ranks stays", "text"),
    *_kept("target_logprobs", "target_ranks", "target_gaps"),
    Rule("target_top.id", "dropped", "ids are text", "text"),
    Rule("target_top.logprob", "dropped", "says little without its ids; target_gaps stays", "text"),
    *_kept("overlaps"),
    Rule("logits_kind", "reduced", "known words", "text"),
    *_kept("num_accepted", "num_accepted_reported", "accepted_nodes"),
    Rule("emitted_ids", "reduced", "how many; the ids are text", "text"),
    Rule("final_kind", "reduced", "known words", "text"),
    Rule("stop", "reduced", "known words", "text"),
    Rule("segment", "reduced", "known words", "text"),
    *_kept("segment_boundary", "draft_kv_length", "target_kv_length", "prefix_hit_length"),
    Rule("mask", "reduced", "known words", "text"),
    *_kept("processor_tokens", "taps.boundary", "taps.index", "taps.position", "taps.shape"),
    Rule("taps.dtype", "reduced", "known words", "text"),
    Rule("taps.rms", "reduced", "not of prompt tokens and embeddings: they name the token", "text"),
    *_kept("taps.nonfinite"),
    Rule("taps.projections", "reduced", "as taps.rms, turned by a rotation that is thrown away", "text"),
    Rule("taps.extra", "dropped", "unknown fields"),
    *_kept("nonfinite.draft_logits", "nonfinite.target_logits"),
    Rule("nonfinite.extra", "dropped", "unknown fields"),
    *_kept("draft_ns", "verify_ns", "step_ns"),
    Rule("started_ns", "reduced", "whole milliseconds", "paths"),
    Rule("flags", "reduced", "known words", "text"),
    Rule("extra", "dropped", "unknown fields"),
)
"""One line per column of a step, in the order of `FIELDS`."""


def _header(value: Callable[[Any], Any], note: str, include: Include, *paths: str) -> tuple[Rule, ...]:
    action: Action = "kept" if not note else "reduced"
    return tuple(Rule(path, action, note, include, value) for path in paths)


_SIZES = ("vocab_size", "num_layers", "hidden_size", "max_length")

RUN: tuple[Rule, ...] = (
    *_header(to.day, "the day", "paths", "created"),
    *_header(to.word(allowed.ENGINES), "known names", "paths", "recorder.name", "engine.name"),
    *_header(to.version, "the public version number", "paths", "recorder.version", "engine.version"),
    *_header(to.word(allowed.RUNNERS), "known names", "paths", "engine.runner"),
    *_header(
        to.settings(allowed.FLAGS), "known settings with numbers or known words", "paths", "engine.flags"
    ),
    *_header(to.word(allowed.METHODS), "known words", "paths", "method"),
    *_header(to.model_name, "models of public publishers; other names may be paths", "paths", "target.id"),
    *_header(to.integer, "", "", *(f"target.{name}" for name in _SIZES)),
    *_header(to.word(allowed.DTYPES), "known words", "paths", "target.dtype", "target.quantization"),
    *_header(to.model_name, "models of public publishers; other names may be paths", "paths", "draft.id"),
    Rule("target.revision", "dropped", "free text", "paths"),
    Rule("draft.revision", "dropped", "free text", "paths"),
    *_header(to.integer, "", "", *(f"draft.{name}" for name in (*_SIZES, "head_rows"))),
    *_header(to.integer, "", "", "draft.window", "draft.window_declared"),
    *_header(to.word(allowed.CONTROLS), "known words", "paths", "control"),
    *_header(to.word(allowed.DTYPES), "known words", "paths", "draft.dtype", "draft.quantization"),
    *_header(
        to.settings(allowed.ROPE), "known settings with numbers", "paths", "draft.rope", "draft.rope_declared"
    ),
    *_header(
        to.parameter_names,
        "known parts of names, * for others",
        "paths",
        *(f"draft.parameters.{name}" for name in ("missing", "unexpected", "unused")),
    ),
    *_header(to.fingerprints, "shape, RMS, digest; names as above", "paths", "draft.fingerprints"),
    Rule("vocab_map.d2t", "dropped", "ids: which tokens the draft was trained for; verdicts stay", "text"),
    Rule("vocab_map.t2d", "dropped", "ids: which tokens the draft was trained for; verdicts stay", "text"),
    *_header(to.word(allowed.MAP_WORDS), "known words", "paths", "vocab_map.source", "vocab_map.applied"),
    *_header(to.digest, "well-formed digests", "paths", "vocab_map.digest", "vocab_map.digest_expected"),
    *_header(to.integers, "", "", "taps.declared", "taps.boundaries", "taps.order"),
    *_header(to.word(allowed.TAP_WORDS), "known words", "paths", "taps.numbering", "taps.origin"),
    *_header(to.boolean, "", "", "taps.normed"),
    *_header(to.word(allowed.VERIFICATION), "known words", "paths", "verification.rule"),
    *_header(to.boolean, "", "", "verification.lossless"),
    *_header(to.number, "", "", "sampling.temperature", "sampling.top_k", "sampling.top_p"),
    Rule("sampling.seed", "dropped", "with the prompt it makes the text again", "text"),
    *_header(to.words(allowed.PROCESSORS), "known names", "paths", "sampling.processors"),
    *_header(to.integer, "", "", "speculation.num_draft_tokens", "speculation.tree.topk"),
    *_header(to.integer, "", "", "speculation.tree.depth", "speculation.tree.num_nodes"),
    *_header(to.digest, "well-formed digests", "paths", "tokenizer.digest"),
    *_header(to.integer, "", "", "tokenizer.vocab_size"),
    Rule("tokenizer.bos_id", "dropped", "ids are text", "text"),
    Rule("tokenizer.eos_ids", "dropped", "ids are text", "text"),
    *_header(to.digest, "well-formed digests", "paths", "template_digest"),
    *_header(to.settings(allowed.REPORTED), "known numbers", "paths", "training", "baseline", "reported"),
    *_header(to.word(allowed.MODES), "known words", "paths", "capture.mode"),
    *_header(to.unavailable, "known fields; reasons in known words", "paths", "capture.unavailable"),
    *_header(to.boolean, "", "", "capture.text"),
    Rule("packed", "dropped", "made anew: what this pack removed, and the verdicts"),
)
"""One line per field of the run record, in its order; amendments are applied first."""

OTHERS: tuple[Rule, ...] = (
    Rule("request.request", "reduced", "r0, r1, ... in order of appearance", "text"),
    Rule("request.prompt_ids", "dropped", "ids are text", "text"),
    Rule("request.segment_map", "dropped", "free form", "text"),
    Rule("request.prompt_digest", "reduced", "prompt 0, prompt 1, ...: equal prompts stay equal", "text"),
    Rule("request.external_id", "dropped", "a name of the caller's", "text"),
    Rule("tokens.target", "dropped", "text", "text"),
    Rule("tokens.draft", "dropped", "text", "text"),
    Rule("reference.request", "dropped", "goes with its rows", "text"),
    Rule("reference.boundary", "dropped", "goes with its rows", "text"),
    Rule("reference.rows", "dropped", "fingerprints of prompt tokens name the tokens", "text"),
    Rule("gap.lost", "kept"),
    Rule("gap.reason", "reduced", "known words", "text"),
    Rule("end.totals", "reduced", "counted anew"),
    Rule("*", "dropped", "fields and records that this spectrace does not know"),
)
"""Everything else a file can hold."""


def reduced_run(run: Mapping[str, Any], include: frozenset[str]) -> dict[str, Any]:
    """What is left of a run record.

    Args:
        run: the record, amendments applied.
        include: options given: ``text``, ``paths``.
    """
    left: dict[str, Any] = {"schema": to.integer(run.get("schema"))}
    for rule in RUN:
        value = at_path(run, rule.path)
        if value is None or rule.path == "packed":
            continue
        found = value if rule.include in include else rule.value(value)
        if found is not None:
            _put(left, rule.path, found)
    return left


def changed_fields(run: Mapping[str, Any], left: Mapping[str, Any]) -> list[str]:
    """Fields of a run record that a reduction changed or dropped."""
    found = [rule.path for rule in RUN if rule.path != "packed"]
    return [
        path for path in found if (value := at_path(run, path)) is not None and value != at_path(left, path)
    ]


def is_as_it_was(path: str, include: frozenset[str]) -> bool:
    """Whether a field of a step or another record leaves the machine unchanged."""
    rule = BY_PATH.get(path)
    return rule is not None and (rule.action == "kept" or rule.include in include)


BY_PATH: dict[str, Rule] = {rule.path: rule for rule in (*STEPS, *RUN, *OTHERS)}


def at_path(mapping: Mapping[str, Any], path: str) -> Any:
    """The value under a path of keys; None when there is none."""
    value: Any = mapping
    for key in path.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _put(mapping: dict[str, Any], path: str, value: Any) -> None:
    *above, last = path.split(".")
    for key in above:
        mapping = mapping.setdefault(key, {})
    mapping[last] = value

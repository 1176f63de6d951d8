"""The switches of an EAGLE-3 draft, and what each engine does about them whatever the configuration says.

A switch that an engine does not know is off there, silently. Each rule names the source it was read in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spectrace.analysis.diagnosis.verdict import Cleared, Finding, Outcome, Strength
from spectrace.analysis.draft.engines import (
    EAGLE,
    LLAMA_CPP,
    SGLANG,
    SPECFORGE,
    SPECULATORS,
    TENSORRT_LLM,
    VLLM,
    Engine,
    vllm_view,
)
from spectrace.analysis.draft.facts import DraftFacts
from spectrace.checkpoint.config import Config

COLUMNS = (VLLM, SGLANG, TENSORRT_LLM, LLAMA_CPP, SPECULATORS, SPECFORGE, EAGLE)
"""Engines in the order of the table; both runners of vLLM load the same model class."""

SOURCES: Mapping[str, str] = {
    VLLM.name: "vllm/model_executor/models/llama_eagle3.py, LlamaModel.__init__; "
    "vllm/transformers_utils/configs/speculators/algos.py, update_eagle3; "
    "vllm/v1/worker/gpu/spec_decode/eagle/utils.py, _should_share",
    SGLANG.name: "sglang/srt/models/llama_eagle3.py, LlamaModel and LlamaForCausalLMEagle3; "
    "sglang/srt/models/llama.py, set_embed",
    TENSORRT_LLM.name: "tensorrt_llm/_torch/models/modeling_speculative.py, Eagle3DraftModel",
    LLAMA_CPP.name: "conversion/llama.py, LlamaModel; src/models/eagle3.cpp",
    SPECULATORS.name: "src/speculators/models/eagle3/config.py, Eagle3SpeculatorConfig",
    SPECFORGE.name: "specforge/modeling/draft/llama3_eagle.py, LlamaForCausalLMEagle3",
    EAGLE.name: "eagle/model/cnets.py, Model",
}
"""Engine -> where its rules below were read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlagRow:
    """One switch, as declared and as each engine sets it."""

    name: str
    declared: str
    """``yes``, ``no``, ``own``, ``target``; ``-`` where nothing is declared."""
    engines: tuple[str, ...]
    """Value per engine of `COLUMNS`; ``?`` was not read, ``other`` is another meaning of the same key."""
    finding: str
    """Id of the finding that a difference makes."""

    @property
    def differing(self) -> tuple[Engine, ...]:
        """Engines that set it otherwise than declared."""
        return tuple(
            engine
            for engine, value in zip(COLUMNS, self.engines, strict=True)
            if value not in (self.declared, "?", "other") and self.declared != "-"
        )

    def to_mapping(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "name": self.name,
            "declared": self.declared,
            "engines": {engine.name: value for engine, value in zip(COLUMNS, self.engines, strict=True)},
            "differing": [engine.name for engine in self.differing],
        }


def flag_rows(facts: DraftFacts) -> tuple[FlagRow, ...]:
    """The table of switches."""
    return tuple(
        FlagRow(
            name=name,
            declared=declared(facts),
            engines=tuple(rule(facts) for rule in rules),
            finding=finding,
        )
        for name, declared, rules, finding in _TABLE
    )


def judge_flags(facts: DraftFacts, rows: Sequence[FlagRow]) -> Iterator[Outcome]:
    """One hint per switch that a serving engine sets otherwise than declared."""
    if facts.kind != "eagle3":
        return
    agreed = []
    for row in rows:
        engines = [engine for engine in row.differing if engine.serves]
        if not engines:
            agreed.append(row.name)
            continue
        values = dict(zip(COLUMNS, row.engines, strict=True))
        places = ", ".join(f"{engine.label} ({values[engine]})" for engine in engines)
        yield Finding(
            id=row.finding,
            strength=Strength.HINT,
            summary=f"With {places}: {row.name} is not as the checkpoint has it ({row.declared}).",
            advice=_ADVICE.get(row.name, "Serve with an engine whose column agrees, or train without it."),
            evidence={"engines": [engine.name for engine in engines], "declared": row.declared},
        )
    if agreed:
        yield Cleared(id="tap-form", summary=f"every serving engine keeps {', '.join(agreed)}")


_ADVICE = {
    "embeddings": "Harmless where both are equal, as when training froze them; else pick another engine.",
    "lm_head": "Set tie_word_embeddings to false and draft_vocab_size to the rows of lm_head.",
}
"""What to do about a switch, where it is something particular."""


# --- rules -----------------------------------------------------------------------------------------

_Rule = Callable[[DraftFacts], str]


def _word(value: bool | None) -> str:
    return "-" if value is None else "yes" if value else "no"


def _either(config: Config, name: str) -> bool | None:
    """A switch wherever it stands, eagle_config first."""
    nested = config.flag("eagle_config", name)
    return config.flag(name) if nested is None else nested


def _no(facts: DraftFacts) -> str:
    return "no"


def _unread(facts: DraftFacts) -> str:
    return "?"


def _top(name: str) -> _Rule:
    """The switch at the top level of config.json, off by default."""
    return lambda facts: _word(bool(facts.raw.flag(name)))


def _in_vllm(name: str) -> _Rule:
    """The switch at the top level of what vLLM made of config.json."""
    return lambda facts: _word(bool(vllm_view(facts.raw).flag(name)))


def _declared(name: str) -> _Rule:
    """The switch wherever it stands."""
    return lambda facts: _word(_either(facts.raw, name))


def _declared_residual(facts: DraftFacts) -> str:
    """Absent from the speculators format it is off: the default of that library, not of vLLM's loader."""
    flag = _either(facts.raw, "norm_before_residual")
    return "no" if flag is None and facts.style == "speculators" else _word(flag)


def _declared_fc_norm(facts: DraftFacts) -> str:
    """The weights count too: a norm that was trained is meant to be used."""
    flag = _either(facts.raw, "fc_norm")
    return "yes" if facts.has("fc_norm.0") else _word(flag)


def _declared_norm_before_fc(facts: DraftFacts) -> str:
    flag = _either(facts.raw, "norm_before_fc")
    return "yes" if facts.has("input_norm") else _word(flag)


def _nested_first(facts: DraftFacts) -> str:
    return _word(bool(_either(vllm_view(facts.raw), "norm_before_fc")))


def _sglang_norm_before_fc(facts: DraftFacts) -> str:
    return _word(bool(_either(facts.raw, "norm_before_fc")))


def _nested_only(facts: DraftFacts) -> str:
    return _word(bool(facts.raw.flag("eagle_config", "norm_before_fc")))


def _sglang_fc_norm(facts: DraftFacts) -> str:
    return _word(bool(facts.raw.flag("fc_norm") or facts.raw.flag("use_aux_norm")))


def _trt_norm_output(facts: DraftFacts) -> str:
    config = facts.raw
    return _word(bool(config.flag("eagle_config", "return_hidden_post_norm") or config.flag("norm_output")))


def _other(facts: DraftFacts) -> str:
    """SpecForge: the same key means a norm in front of the LM head."""
    return "other" if facts.raw.has("norm_output") else "no"


def _declared_part(module: str) -> _Rule:
    """Whether the draft brings a part of its own; nothing is declared where no weights are there."""
    return lambda facts: "-" if not facts.tensors else "own" if facts.has(module) else "target"


def _own_if_present(module: str) -> _Rule:
    """The draft's own where the checkpoint has it, else the target's."""
    return lambda facts: "?" if not facts.tensors else "own" if facts.has(module) else "target"


def _own_width(facts: DraftFacts) -> bool:
    """The draft is narrower or wider than the target, so the target's embeddings do not fit."""
    return (
        facts.target_hidden is not None and facts.hidden is not None and facts.target_hidden != facts.hidden
    )


def _own_if_width_differs(facts: DraftFacts) -> str:
    return "own" if _own_width(facts) else "target"


def _eagle_embedding(facts: DraftFacts) -> str:
    return "own" if facts.raw.has("target_hidden_size") else "target"


def _sglang_head(facts: DraftFacts) -> str:
    if facts.raw.flag("tie_word_embeddings"):
        return "embed"
    return "own" if facts.raw.integer("draft_vocab_size") is not None else "target"


def _own(facts: DraftFacts) -> str:
    return "own"


_TABLE: tuple[tuple[str, _Rule, tuple[_Rule, ...], str], ...] = (
    (
        "norm_before_residual",
        _declared_residual,
        (
            _in_vllm("norm_before_residual"),
            _no,
            _no,
            _top("norm_before_residual"),
            _top("norm_before_residual"),
            _no,
            _no,
        ),
        "tap-form/residual",
    ),
    (
        "norm_before_fc",
        _declared_norm_before_fc,
        (
            _nested_first,
            _sglang_norm_before_fc,
            _nested_only,
            _sglang_norm_before_fc,
            _top("norm_before_fc"),
            _unread,
            _no,
        ),
        "tap-form/norm",
    ),
    (
        "fc_norm",
        _declared_fc_norm,
        (_in_vllm("fc_norm"), _sglang_fc_norm, _top("fc_norm"), _no, _top("fc_norm"), _top("fc_norm"), _no),
        "tap-form/norm",
    ),
    (
        "norm_output",
        _declared("norm_output"),
        (
            _in_vllm("norm_output"),
            _top("norm_output"),
            _trt_norm_output,
            _no,
            _top("norm_output"),
            _other,
            _no,
        ),
        "tap-form/feedback-norm",
    ),
    (
        "embeddings",
        _declared_part("embed_tokens"),
        (
            _own_if_present("embed_tokens"),
            _own_if_width_differs,
            _own_if_width_differs,
            _own_if_present("embed_tokens"),
            _unread,
            _own_if_width_differs,
            _eagle_embedding,
        ),
        "draft-head/overwritten",
    ),
    (
        "lm_head",
        _declared_part("lm_head"),
        (
            _own_if_present("lm_head"),
            _sglang_head,
            _own_if_present("lm_head"),
            _own_if_present("lm_head"),
            _own,
            _own,
            _own,
        ),
        "draft-head/overwritten",
    ),
)

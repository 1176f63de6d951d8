"""What an EAGLE-3 draft is made of. Names are canonical: ``layers.0`` for ``midlayer``."""

from __future__ import annotations

from spectrace.analysis.draft.facts import DraftFacts

_MLA_INPUT = "self_attn.kv_a_proj_with_mqa"


def missing_modules(facts: DraftFacts) -> tuple[str, ...]:
    """Those that no tensor belongs to."""
    return tuple(module for module in wanted_modules(facts) if not facts.has(module))


def wanted_modules(facts: DraftFacts) -> tuple[str, ...]:
    """Modules that every engine looks for, in the order of computation; others may be the target's."""
    wanted: list[str] = []
    config = facts.raw
    uses_taps = config.flag("eagle_config", "use_aux_hidden_state") is not False
    if uses_taps:
        wanted.append("fc")
    for layer in range(facts.num_layers):
        wanted += [f"layers.{layer}.{part}" for part in _layer_modules(facts, layer)]
    wanted.append("norm")
    return tuple(wanted)


def _layer_modules(facts: DraftFacts, layer: int) -> tuple[str, ...]:
    """Modules of one layer; whichever of several spellings is there counts."""
    own = f"layers.{layer}."
    attention: tuple[str, ...] = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
    if facts.has(own + "self_attn.qkv_proj"):
        attention = ("self_attn.qkv_proj",)
    elif facts.has(own + _MLA_INPUT):
        attention = (_MLA_INPUT, "self_attn.kv_b_proj")
    mlp: tuple[str, ...] = ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")
    if facts.has(own + "mlp.gate_up_proj"):
        mlp = ("mlp.gate_up_proj", "mlp.down_proj")
    elif facts.has(own + "mlp.experts"):
        mlp = ()
    first = ("input_layernorm", "hidden_norm")
    norms = first if layer == 0 else (first[0] if facts.has(own + first[0]) else first[1],)
    return (*norms, *attention, "self_attn.o_proj", "post_attention_layernorm", *mlp)

"""Weights that are missing, zero, not finite or misshapen; positions; tokenizers; hostile configurations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spectrace.analysis.diagnosis.verdict import Strength
from spectrace.analysis.draft.report import CheckReport, check_draft
from spectrace.checkpoint.config import Config
from spectrace.checkpoint.directory import open_checkpoint
from spectrace.checkpoint.records import Checkpoint, Tensor, Tokenizer, Values
from tests.checkpoint.building import (
    HIDDEN,
    bf16,
    head_tensors,
    llama_config,
    target_config,
    write_draft,
    write_model,
)


def check(folder: Path, target: dict[str, Any] | None = None) -> CheckReport:
    """A checkpoint on disk against the usual target."""
    theirs = Checkpoint(path=Path("target"), config=Config(target or target_config(32)), tensors={})
    return check_draft(open_checkpoint(folder, with_values=True), theirs)


def serious(report: CheckReport) -> dict[str, Strength]:
    """Findings that are more than a hint."""
    return {item.id: item.strength for item in report.findings if item.strength is not Strength.HINT}


def summary(report: CheckReport, name: str) -> str:
    """Sentence of the first finding of this id."""
    return next(item.summary for item in report.findings if item.id == name)


@pytest.mark.parametrize("layer", ["midlayer", "layers.0"])
def test_a_sound_draft_has_no_serious_finding(tmp_path: Path, layer: str) -> None:
    """In either naming."""
    report = check(write_draft(tmp_path, layer=layer))
    assert serious(report) == {}
    assert {"weights/not-loaded", "weights/shape", "nonfinite/values", "tap-form/width"} <= {
        c.id for c in report.cleared
    }


def test_the_storys_missing_layer_is_called_by_its_name(tmp_path: Path) -> None:
    """Without midlayer a draft proposes nothing that is accepted."""
    names = [name for name in head_tensors(8) if name.startswith("midlayer")]
    report = check(write_draft(tmp_path, changes=dict.fromkeys(names)))
    assert serious(report) == {"weights/not-loaded": Strength.CERTAIN}
    assert "transformer layer is missing" in summary(report, "weights/not-loaded")
    assert "midlayer.*" in summary(report, "weights/not-loaded")


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("fc.weight", "fc"),
        ("norm.weight", "norm"),
        ("midlayer.hidden_norm.weight", "layers.0.hidden_norm"),
        ("midlayer.self_attn.o_proj.weight", "layers.0.self_attn.o_proj"),
        ("midlayer.mlp.up_proj.weight", "layers.0.mlp.up_proj"),
    ],
)
def test_any_missing_part_is_named(tmp_path: Path, name: str, module: str) -> None:
    """One tensor left out is one part named."""
    report = check(write_draft(tmp_path, changes={name: None}))
    assert summary(report, "weights/not-loaded") == f"Missing from the draft: {module}."


def test_fused_and_mla_layers_are_whole_too(tmp_path: Path) -> None:
    """qkv_proj and gate_up_proj stand for their parts; so do the projections of a latent attention."""
    wide = head_tensors(8)
    fused: dict[str, Any] = {f"midlayer.self_attn.{kind}_proj.weight": None for kind in "qkv"}
    fused |= {"midlayer.self_attn.qkv_proj.weight": wide["midlayer.self_attn.q_proj.weight"]}
    fused |= {"midlayer.mlp.gate_proj.weight": None, "midlayer.mlp.up_proj.weight": None}
    fused |= {"midlayer.mlp.gate_up_proj.weight": wide["midlayer.mlp.up_proj.weight"]}
    assert serious(check(write_draft(tmp_path / "fused", changes=fused))) == {}
    latent: dict[str, Any] = {f"midlayer.self_attn.{kind}_proj.weight": None for kind in "qkv"}
    for name in ("kv_a_proj_with_mqa", "kv_b_proj"):
        latent[f"midlayer.self_attn.{name}.weight"] = wide["midlayer.self_attn.k_proj.weight"]
    assert serious(check(write_draft(tmp_path / "latent", changes=latent))) == {}


def test_a_head_that_is_missing_zero_or_the_targets_is_named(tmp_path: Path) -> None:
    """K02, as far as files tell."""
    assert serious(check(write_draft(tmp_path / "a", changes={"lm_head.weight": None}))) == {
        "draft-head/not-loaded": Strength.CERTAIN
    }
    zero = np.zeros((8, HIDDEN), np.uint16)
    assert serious(check(write_draft(tmp_path / "b", changes={"lm_head.weight": zero}))) == {
        "draft-head/not-loaded": Strength.CERTAIN
    }
    large = head_tensors(32)["lm_head.weight"]
    report = check(write_draft(tmp_path / "c", changes={"lm_head.weight": large}))
    assert serious(report)["draft-head/overwritten"] is Strength.CERTAIN
    assert "as large as the head of the target" in summary(report, "draft-head/overwritten")


def test_weights_that_were_never_written_are_named(tmp_path: Path) -> None:
    """All zero; a bias, or a map, may be."""
    zero = np.zeros((HIDDEN, HIDDEN), np.uint16)
    bias = np.zeros(HIDDEN, np.uint16)
    changes = {"midlayer.self_attn.o_proj.weight": zero, "midlayer.self_attn.o_proj.bias": bias}
    report = check(write_draft(tmp_path, changes=changes))
    assert summary(report, "weights/not-loaded").startswith(
        "Zero throughout: 1 tensor, midlayer.self_attn.o_proj.weight"
    )


def test_values_that_are_not_finite_are_counted(tmp_path: Path) -> None:
    """Two of them in one tensor."""
    norm = bf16(np.array([np.nan, np.inf] + [1.0] * (HIDDEN - 2)))
    report = check(write_draft(tmp_path, changes={"norm.weight": norm}))
    assert serious(report) == {"nonfinite/values": Strength.CERTAIN}
    finding = next(item for item in report.findings if item.id == "nonfinite/values")
    assert finding.evidence["nonfinite"] == {"norm.weight": 2}
    assert "every value was read" in finding.summary


def test_a_sample_is_called_a_sample() -> None:
    """What was not read is not cleared in silence, and not called zero."""
    values = {"norm.weight": Values(nonfinite=0, is_zero=True, bytes_read=1, bytes_total=4)}
    tensor = Tensor(name="norm.weight", dtype="F32", shape=(1,), file="x")
    report = check_draft(
        Checkpoint(path=Path("d"), config=Config(), tensors={"norm.weight": tensor}, values=values)
    )
    assert "25% of the values were read" in next(
        c.summary for c in report.cleared if c.id == "nonfinite/values"
    )
    assert not any("Zero throughout" in item.summary for item in report.findings)


@pytest.mark.parametrize(
    ("options", "target", "found"),
    [
        ({"taps": 2}, {}, "fc.weight is [16, 32]; 3 taps of a target 16 wide need [16, 48]"),
        ({}, {"hidden_size": 32}, "3 taps of a target 32 wide need [16, 96]"),
        ({"taps": 4}, {}, "fc.weight is [16, 64]"),
    ],
)
def test_a_width_that_fits_no_taps_is_certain(
    tmp_path: Path, options: dict[str, Any], target: dict[str, Any], found: str
) -> None:
    """Columns of fc are taps times the target's hidden size."""
    report = check(write_draft(tmp_path, **options), target_config(32, **target))
    assert serious(report) == {"tap-form/width": Strength.CERTAIN}
    assert found in summary(report, "tap-form/width")


def test_a_declared_width_of_another_target_is_certain(tmp_path: Path) -> None:
    """target_hidden_size against the target's own."""
    report = check(write_draft(tmp_path, llama_config(32, 8, target_hidden_size=64)))
    assert "config.json says the target is 64 wide; this target is 16 wide" in summary(
        report, "tap-form/width"
    )


def test_a_draft_narrower_than_its_target_is_fine(tmp_path: Path) -> None:
    """With target_hidden_size and embeddings of its own."""
    config = llama_config(32, 8, target_hidden_size=32)
    own = {"embed_tokens.weight": head_tensors(32)["lm_head.weight"]}
    report = check(write_draft(tmp_path, config, own, target_hidden=32), target_config(32, hidden_size=32))
    assert serious(report) == {}


def test_four_declared_taps_need_four_chunks(tmp_path: Path) -> None:
    """The number of taps is that of the declared layers."""
    config = llama_config(32, 8, eagle_config={"eagle_aux_hidden_state_layer_ids": [1, 8, 15, 28]})
    assert "tap-form/width" not in serious(check(write_draft(tmp_path / "a", config, taps=4)))
    assert "tap-form/width" in serious(check(write_draft(tmp_path / "b", config)))


def test_shapes_of_another_model_are_certain(tmp_path: Path) -> None:
    """config.json of one, weights of the other."""
    report = check(write_draft(tmp_path, llama_config(32, 8, intermediate_size=99)))
    assert serious(report) == {"weights/shape": Strength.CERTAIN}
    assert "layers.0.mlp.gate_proj.weight is [24, 16], expected [99, 16]" in summary(report, "weights/shape")


def test_a_weight_of_one_axis_is_no_matrix(tmp_path: Path) -> None:
    """Whatever its size: fc takes rows and columns."""
    flat = {"fc.weight": head_tensors(8)["fc.weight"].reshape(-1)}
    finding = next(f for f in check(write_draft(tmp_path, changes=flat)).findings if f.id == "weights/shape")
    assert "fc.weight is [" in finding.summary


def test_packed_weights_without_their_declaration_are_certain(tmp_path: Path) -> None:
    """And a declaration without packed weights is a hint."""
    packed = {
        "midlayer.mlp.up_proj.weight_packed": np.ones((2, 2), np.int32),
        "midlayer.mlp.up_proj.weight": None,
    }
    assert serious(check(write_draft(tmp_path / "a", changes=packed))) == {
        "weights/precision": Strength.CERTAIN
    }
    report = check(
        write_draft(tmp_path / "b", llama_config(32, 8, quantization_config={"quant_method": "awq"}))
    )
    assert serious(report) == {}
    assert "weights/precision" in {item.id for item in report.findings}


def test_promised_tensors_that_are_nowhere_are_certain(tmp_path: Path) -> None:
    """An index that names more than the shards hold."""
    folder = write_draft(tmp_path)
    (folder / "model.safetensors").rename(folder / "model-1.safetensors")
    names = [*open_checkpoint(folder).tensors, "midlayer.lost.weight"]
    index = {"weight_map": dict.fromkeys(names, "model-1.safetensors")}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert "promises 1 tensor that no file holds" in summary(check(folder), "weights/not-loaded")


def test_a_language_model_as_draft_is_not_asked_for_a_head(tmp_path: Path) -> None:
    """No map, no fc, no layer: only values, positions and tokenizer are judged."""
    config = {"architectures": ["LlamaForCausalLM"], "vocab_size": 32, "hidden_size": 16}
    tensors = {"model.embed_tokens.weight": head_tensors(32)["lm_head.weight"]}
    report = check(write_model(tmp_path, config, tensors))
    assert report.facts.kind == "model"
    assert report.findings == []
    assert "weights/not-loaded" in {item.id for item in report.not_checked}
    assert "tap-layer" in {item.id for item in report.cleared}


def test_a_directory_with_a_config_alone_judges_the_layers(tmp_path: Path) -> None:
    """The tables of engines need no weights."""
    report = check(write_model(tmp_path, llama_config(32, 8), {}))
    assert {item.id for item in report.findings} == {"tap-layer/guessed"}
    assert {"weights", "vocab-map"} <= {item.id for item in report.not_checked}


# --- positions -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("draft", "target", "found"),
    [
        ({}, {}, set()),
        ({}, {"rope_theta": 5e5}, {"positions/rotary-config"}),
        ({}, {"rope_theta": None, "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"}}, set()),
        ({}, {"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, {"positions/rotary-config"}),
        ({"rope_scaling": {"type": "linear"}}, {"rope_scaling": {"rope_type": "linear"}}, set()),
        ({}, {"max_position_embeddings": 131072}, {"window/length"}),
        ({"max_position_embeddings": 4096}, {}, set()),
    ],
)
def test_rotary_settings_are_compared(
    tmp_path: Path, draft: dict[str, Any], target: dict[str, Any], found: set[str]
) -> None:
    """Old and new spelling read alike; what differs is a hint."""
    report = check(write_draft(tmp_path, llama_config(32, 8, **draft)), target_config(32, **target))
    names = {item.id for item in report.findings if item.id.startswith(("positions/", "window/"))}
    assert names == found
    assert serious(report) == {}


def test_two_bases_in_one_configuration_are_strong(tmp_path: Path) -> None:
    """One of them is read by transformers 4, the other by transformers 5."""
    config = llama_config(32, 8, rope_parameters={"rope_theta": 500000.0})
    assert serious(check(write_draft(tmp_path, config)))["positions/rotary-config"] is Strength.STRONG


# --- tokenizers ------------------------------------------------------------------------------------


def tokenizers(own: dict[int, str], theirs: dict[int, str] | None, **special: tuple[int, ...]) -> CheckReport:
    """A language model as draft, with these tokenizers."""
    config = Config({"architectures": ["LlamaForCausalLM"], "vocab_size": 32})
    first = Tokenizer(digest="a", texts=own, special_ids=special)
    second = None if theirs is None else Tokenizer(digest="b", texts=theirs, special_ids={"eos": (2,)})
    draft = Checkpoint(path=Path("d"), config=config, tensors={}, tokenizer=first)
    return check_draft(draft, Checkpoint(path=Path("t"), config=config, tensors={}, tokenizer=second))


def test_equal_ids_with_other_text_are_certain() -> None:
    """With the first of them."""
    report = tokenizers({0: "a", 1: "b", 2: "c"}, {0: "a", 1: "x", 2: "y"})
    finding = next(item for item in report.findings if item.id == "tokenizer/mismatch")
    assert finding.strength is Strength.CERTAIN
    assert (
        "2 of 3 ids stand for different text; id 1 is 'b' for the draft and 'x' for the target"
        in finding.summary
    )
    assert finding.evidence["ids"] == [1, 2]


def test_padding_is_benign() -> None:
    """Equal up to the smaller of the two (K12)."""
    report = tokenizers({0: "a", 1: "b"}, {0: "a", 1: "b", 2: "<pad>"})
    assert report.findings == []
    assert "1 ids only in one of the two" in next(
        c.summary for c in report.cleared if c.id == "tokenizer/mismatch"
    )


def test_another_end_is_a_hint() -> None:
    """The draft would never stop where the target does."""
    texts = {0: "a", 1: "b", 2: "c"}
    report = tokenizers(texts, texts, eos=(1,))
    assert [item.strength for item in report.findings] == [Strength.HINT]


def test_the_digest_is_that_of_a_trace() -> None:
    """SHA-256 of the tokens in the order of their ids, each ended by a NUL byte, as recorders write it."""
    report = tokenizers({0: "a", 1: "Ġb"}, None)
    assert report.draft_tokenizer is not None
    import hashlib

    assert report.draft_tokenizer.digest == "sha256:" + hashlib.sha256("a\0Ġb\0".encode()).hexdigest()


def test_coverage_counts_ids_words_and_ends(tmp_path: Path) -> None:
    """8 of 32 ids; of a text with 9 tokens 6; and an end that cannot be proposed is named."""
    theirs = Tokenizer(digest="b", texts={0: "a"}, special_ids={"eos": (31, 30), "bos": (0,)})
    target = Checkpoint(path=Path("t"), config=Config(target_config(32)), tensors={}, tokenizer=theirs)
    report = check_draft(open_checkpoint(write_draft(tmp_path)), target, None, {0: 5, 30: 1, 31: 3})
    assert report.coverage is not None
    assert (report.coverage.kept, report.coverage.of) == (8, 32)
    assert (report.coverage.counted, report.coverage.counted_of) == (6, 9)
    assert (report.coverage.tokens, report.coverage.tokens_of) == (1, 1)
    assert report.coverage.missing_special == {"eos": (31,)}


def test_ids_beyond_the_embeddings_are_strong(tmp_path: Path) -> None:
    """Tokens were added to the tokenizer of a target whose table did not grow."""
    theirs = Tokenizer(digest="b", texts={0: "a", 40: "<new>"}, special_ids={})
    table = Tensor(name="model.embed_tokens.weight", dtype="BF16", shape=(32, 16), file="x")
    target = Checkpoint(
        path=Path("t"),
        config=Config(target_config(32)),
        tensors={"model.embed_tokens.weight": table},
        tokenizer=theirs,
    )
    report = check_draft(open_checkpoint(write_draft(tmp_path)), target)
    finding = next(item for item in report.findings if item.id == "tokenizer/mismatch")
    assert finding.strength is Strength.STRONG
    assert "ids up to 40, its embeddings 32 rows" in finding.summary


def test_rows_that_do_not_fit_the_vocabulary_are_a_hint(tmp_path: Path) -> None:
    """Embeddings against config.json, config.json against the target."""
    short = {"embed_tokens.weight": head_tensors(30)["lm_head.weight"]}
    report = check(write_draft(tmp_path, changes=short), target_config(40))
    sentences = [item.summary for item in report.findings if item.id == "tokenizer/mismatch"]
    assert any("embed_tokens has 30 rows" in sentence for sentence in sentences)
    assert any("vocab_size 32, the target has 40" in sentence for sentence in sentences)


# --- hostile configurations ------------------------------------------------------------------------

KEYS = (
    *llama_config(32, 8),
    "eagle_aux_hidden_state_layer_ids",
    "eagle_config",
    "dflash_config",
    "transformer_layer_config",
    "speculators_config",
    "speculators_model_type",
    "target_layer_ids",
    "layer_ids",
    "target_hidden_size",
    "text_config",
    "rope_parameters",
    "rope_scaling",
    "factor",
    "norm_before_fc",
    "quantization_config",
    "head_dim",
    "eos_token_id",
)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.integers(-3, 40),
    st.floats(),
    st.sampled_from(["eagle3", "dflash", "Eagle3Speculator", "\x1b[31m", "", "\ud800"]),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.sampled_from(KEYS), inner, max_size=4)
    ),
    max_leaves=12,
)
CONFIGS = st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=10)


@given(draft=CONFIGS, target=st.none() | CONFIGS, with_weights=st.booleans())
def test_no_configuration_is_an_exception(draft: dict[str, Any], target: Any, with_weights: bool) -> None:
    """Any type at any key: every check answers something, and the answer is JSON."""
    shapes = {name: array.shape for name, array in head_tensors(8).items()} if with_weights else {}
    tensors = {name: Tensor(name=name, dtype="BF16", shape=shape, file="x") for name, shape in shapes.items()}
    own = Checkpoint(path=Path("d"), config=Config(draft), tensors=tensors)
    theirs = None if target is None else Checkpoint(path=Path("t"), config=Config(target), tensors={})
    report = check_draft(own, theirs)
    assert json.dumps(report.to_mapping())
    assert report.taps

"""Checkpoints in every naming and every style of config are read alike; what does not fit is a sentence."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from spectrace.errors import CheckpointError

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from safetensors.torch import save_file  # noqa: E402

from spectrace_eagle3 import Chain, Eagle3Decoder, load_draft  # noqa: E402
from tests.recorders.eagle3_zoo import (  # noqa: E402
    config_json,
    kept_ids,
    random_target,
    random_weights,
    write_draft,
)

pytestmark = pytest.mark.engine

PROMPT = [5, 17, 42, 8, 30]


def _speculators(**more: Any) -> dict[str, Any]:
    """The same draft as `config_json`, in the format of speculators."""
    flat = config_json()
    layer = {key: value for key, value in flat.items() if key not in ("architectures", "draft_vocab_size")}
    return {
        "architectures": ["Eagle3Speculator"],
        "speculators_model_type": "eagle3",
        "draft_vocab_size": 40,
        "norm_before_residual": False,
        "transformer_layer_config": layer,
        **more,
    }


def _logits(folder: Path) -> Any:
    """All logits that a draft gives in a few rounds."""
    with Eagle3Decoder(random_target(), load_draft(folder, random_target()), Chain(3)) as decoder:
        rounds = list(decoder.rounds(PROMPT, 8))
    return torch.cat([done.proposal.logits for done in rounds if done.proposal is not None])


def test_both_namings_of_the_same_weights_give_the_same_draft_bit_by_bit(tmp_path: Path) -> None:
    """EAGLE's `midlayer.*` and speculators' `layers.0.*` differ in names only."""
    weights = random_weights(config_json())
    eagle = write_draft(tmp_path / "eagle", config_json(), weights)
    other = write_draft(tmp_path / "speculators", _speculators(), weights, naming="layers.0")
    assert torch.equal(_logits(eagle), _logits(other))


def test_a_pickle_gives_the_same_draft(tmp_path: Path) -> None:
    """EAGLE's own checkpoints are pytorch_model.bin; they are read without running what is in them."""
    weights = random_weights(config_json())
    safe = write_draft(tmp_path / "safe", config_json(), weights)
    pickled = write_draft(tmp_path / "pickled", config_json(), {})
    (pickled / "model.safetensors").unlink()
    named = {name.replace("layers.0", "midlayer"): tensor for name, tensor in weights.items()}
    torch.save(named, pickled / "pytorch_model.bin")
    assert torch.equal(_logits(safe), _logits(pickled))


def test_a_sharded_checkpoint_gives_the_same_draft(tmp_path: Path) -> None:
    """Tensors spread over two files with an index are one draft."""
    weights = random_weights(config_json())
    whole = write_draft(tmp_path / "whole", config_json(), weights)
    sharded = write_draft(tmp_path / "sharded", config_json(), {})
    (sharded / "model.safetensors").unlink()
    names = sorted(weights)
    places = {name: f"model-0000{1 + (i % 2)}-of-00002.safetensors" for i, name in enumerate(names)}
    for file in set(places.values()):
        save_file(
            {name: weights[name].contiguous() for name in names if places[name] == file}, sharded / file
        )
    (sharded / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    assert torch.equal(_logits(whole), _logits(sharded))


@pytest.mark.parametrize(
    ("config", "argument", "boundaries", "numbering", "origin"),
    [
        (config_json(), None, (2, 3, 3), None, "default"),
        (config_json(eagle_aux_hidden_state_layer_ids=[1, 3, 5]), None, (1, 3, 5), "input", "config"),
        (_speculators(eagle_aux_hidden_state_layer_ids=[0, 3, 6]), None, (0, 3, 6), "input", "config"),
        (
            config_json(eagle_config={"eagle_aux_hidden_state_layer_ids": [1, 3, 5]}),
            None,
            (2, 4, 6),
            "output",
            "config",
        ),
        (config_json(eagle_aux_hidden_state_layer_ids=[1, 3, 5]), (4, 2, 1), (4, 2, 1), "input", "argument"),
    ],
)
def test_layer_ids_mean_what_their_place_says(
    tmp_path: Path,
    config: dict[str, Any],
    argument: tuple[int, ...] | None,
    boundaries: tuple[int, ...],
    numbering: str | None,
    origin: str,
) -> None:
    """Top-level ids are inputs of layers, nested ones outputs; without any the defaults of EAGLE hold."""
    folder = write_draft(tmp_path / "draft", config, random_weights(config_json()))
    taps = load_draft(folder, random_target(), argument).taps
    assert (taps.boundaries, taps.numbering, taps.origin) == (boundaries, numbering, origin)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (config_json(), (False, False, False, False)),
        (config_json(norm_before_residual=True, norm_output=True), (True, False, False, True)),
        ({**_speculators(), "norm_before_residual": None}, (True, False, False, False)),
        (config_json(norm_before_fc=True), (False, True, False, False)),
        (config_json(eagle_config={"norm_before_fc": True}), (False, True, False, False)),
        (config_json(use_aux_norm=True), (False, False, True, False)),
        (config_json(fc_norm=True), (False, False, True, False)),
    ],
)
def test_flags_are_found_where_they_stand(
    tmp_path: Path, config: dict[str, Any], expected: tuple[bool, ...]
) -> None:
    """Flat, nested and speculators configs; in the last, norm_before_residual is true unless it says not."""
    folder = write_draft(tmp_path / "draft", config, random_weights(config))
    draft = load_draft(folder, random_target())
    read = draft.head.config
    found = (read.norm_before_residual, read.norm_before_fc, read.fc_norm, read.norm_output)
    assert found == expected
    assert draft.missing == draft.unexpected == ()


def test_a_norm_that_only_the_weights_tell_of_is_used(tmp_path: Path) -> None:
    """fc_norm is on where config.json is silent and the checkpoint has its weights, old names included."""
    weights = random_weights(config_json(fc_norm=True))
    for number, old in enumerate(("aux_norm_low", "aux_norm_mid", "aux_norm_high")):
        weights[f"{old}.weight"] = weights.pop(f"fc_norm.{number}.weight")
    draft = load_draft(write_draft(tmp_path / "draft", config_json(), weights), random_target())
    assert draft.head.config.fc_norm
    assert draft.missing == draft.unexpected == ()


def test_embeddings_and_head_come_from_the_target_where_the_draft_has_none(tmp_path: Path) -> None:
    """A draft over the whole vocabulary without LM head runs with the target's, and says so."""
    config = config_json(draft_vocab_size=100)
    weights = random_weights(config)
    for name in ("lm_head.weight", "d2t", "t2d"):
        del weights[name]
    draft = load_draft(write_draft(tmp_path / "draft", config, weights), random_target())
    assert draft.shared == ("embed_tokens.weight", "lm_head.weight")
    assert draft.missing == ()
    assert torch.equal(draft.head.lm_head.weight, random_target().lm_head.weight)
    assert (draft.vocab.applied, draft.vocab.source) == ("identity", None)


def test_own_embeddings_are_used(tmp_path: Path) -> None:
    """Embeddings in the checkpoint win over the target's."""
    own = torch.randn(100, 32)
    weights = {**random_weights(config_json()), "embed_tokens.weight": own}
    draft = load_draft(write_draft(tmp_path / "draft", config_json(), weights), random_target())
    assert draft.shared == ()
    assert torch.equal(draft.head.embed_tokens.weight, own)


def test_what_is_missing_or_has_no_place_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A draft without its transformer layer runs on random values, loudly, and the same in every run."""
    weights = {name: w for name, w in random_weights(config_json()).items() if "layers.0" not in name}
    folder = write_draft(tmp_path / "draft", config_json(), {**weights, "strange.weight": torch.ones(2)})
    with caplog.at_level(logging.WARNING, logger="spectrace"):
        draft = load_draft(folder, random_target())
    assert len(draft.missing) == 10
    assert all(name.startswith("layers.0.") for name in draft.missing)
    assert draft.unexpected == ("strange.weight",)
    assert "layers.0.self_attn.q_proj.weight" in caplog.text
    assert torch.equal(_logits(folder), _logits(folder))


def test_without_a_map_raw_ids_are_target_ids(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """That is what engines do, and the trace can tell it from a map that is there."""
    weights = {name: w for name, w in random_weights(config_json()).items() if name not in ("d2t", "t2d")}
    draft = load_draft(write_draft(tmp_path / "draft", config_json(), weights), random_target())
    assert (draft.vocab.applied, draft.vocab.source) == ("identity", "missing")
    assert draft.vocab.table.tolist() == list(range(40))
    assert "no d2t for 40 of 100 ids" in caplog.text


def test_offsets_are_added(tmp_path: Path) -> None:
    """A raw id and its offset give the target id; the mask marks the same ids."""
    folder = write_draft(tmp_path / "draft", config_json(), random_weights(config_json()))
    vocab = load_draft(folder, random_target()).vocab
    assert vocab.table.tolist() == kept_ids().tolist() == list(vocab.t2d or ())
    assert (vocab.applied, vocab.source) == ("offset", "checkpoint")


@pytest.mark.parametrize(
    ("name", "change", "sentence"),
    [
        ("d2t", lambda t: t[:30], "tensor d2t: holds 30 offsets; the draft's LM head has 40 rows"),
        ("d2t", lambda t: t + 60, "tensor d2t: raw id 20 maps to 101, the target has 100 ids"),
        ("d2t", lambda t: t.float(), "tensor d2t: holds float32 [40], not a list of int64"),
        ("fc.weight", lambda t: t[:, :90], "tensor fc.weight: takes 90 values, no multiple of"),
        ("fc.weight", lambda t: t[0], "tensor fc.weight: has shape [96], not rows and columns"),
        ("fc.weight", lambda t: t.to(torch.int8), "tensor fc.weight: is int8; quantized drafts are not run"),
        ("lm_head.weight", lambda t: t[0, 0], "tensor lm_head.weight: has shape [], not rows and columns"),
        ("lm_head.weight", lambda t: t[:0], "tensor lm_head.weight: has shape [0, 32]"),
        ("fc.weight", lambda t: t[:, :64], "fc takes 2 taps, 3 are there by default: (2, 3, 3)"),
        (
            "layers.0.mlp.up_proj.weight",
            lambda t: t[:40],
            "tensor layers.0.mlp.up_proj.weight: has shape [40, 32], config.json asks for [48, 32]",
        ),
    ],
)
def test_what_does_not_fit_is_a_sentence(tmp_path: Path, name: str, change: Any, sentence: str) -> None:
    """The folder, the tensor and what is wrong with it are named."""
    weights = random_weights(config_json())
    weights[name] = change(weights[name])
    folder = write_draft(tmp_path / "draft", config_json(), weights)
    with pytest.raises(CheckpointError) as error:
        load_draft(folder, random_target())
    assert str(error.value).startswith(str(folder))
    assert sentence in str(error.value)


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({"hidden_size": 32}, "config.json does not say intermediate_size, num_attention_heads, vocab_size"),
        (config_json(eagle_config={"use_aux_hidden_state": False}), "a draft without fc is not EAGLE-3"),
        (config_json(eagle_aux_hidden_state_layer_ids=[1, 2, 9]), "boundary 9 (declared) does not exist"),
        (config_json(num_hidden_layers=10**9), "config.json says 1,000,000,000 layers"),
        (config_json(num_hidden_layers=60, intermediate_size=10**9), "config.json asks for [1000000000, 32]"),
        (config_json(num_attention_heads=7), "not a multiple of the number of attention heads"),
        (config_json(head_dim=10**9), "config.json asks for [4000000000, 64]"),
        (config_json(hidden_act="none"), "describes no draft that can be built (KeyError: 'none')"),
        (config_json(rms_norm_eps="x"), "refused by transformers: Field 'rms_norm_eps' expected float"),
        (config_json(rope_scaling={"rope_type": "none"}), "describes no draft that can be built"),
        (config_json(hidden_size=64), "is missing, and the target's are 32 wide"),
    ],
)
def test_a_config_that_cannot_run_is_a_sentence(
    tmp_path: Path, config: dict[str, Any], sentence: str
) -> None:
    """What config.json lacks, or asks for in vain, is named."""
    folder = write_draft(tmp_path / "draft", config, random_weights(config_json()))
    with pytest.raises(CheckpointError) as error:
        load_draft(folder, random_target())
    assert sentence in str(error.value)


def test_no_size_of_a_config_takes_memory_that_the_tensors_do_not_fill(tmp_path: Path) -> None:
    """Layers that no tensor belongs to are random, but not without bound; shared embeddings need no room."""
    weights = random_weights(config_json())
    layerless = {name: value for name, value in weights.items() if not name.startswith("layers.")}
    huge = write_draft(tmp_path / "huge", config_json(intermediate_size=10**9), layerless)
    with pytest.raises(CheckpointError, match="values that are not there"):
        load_draft(huge, random_target())
    wide = write_draft(tmp_path / "wide", config_json(vocab_size=10**12), weights)
    assert load_draft(wide, random_target()).missing == ()


def test_a_folder_without_weights_is_no_draft(tmp_path: Path) -> None:
    """A config alone would draft at random; a GGUF file is named as not read."""
    folder = write_draft(tmp_path / "draft", config_json(), random_weights(config_json()))
    (folder / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match="holds no weights that can be read"):
        load_draft(folder, random_target())
    (folder / "model.gguf").write_bytes(b"GGUF")
    with pytest.raises(CheckpointError, match="GGUF files are not read"):
        load_draft(folder, random_target())

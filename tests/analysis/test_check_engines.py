"""What each engine makes of one and the same configuration: boundaries, switches, names of weights.

Expectations are written down from the sources that the rules name (release or commit in `SOURCES`), style by
style; n is the target's number of layers, and B(k) the state after k of them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spectrace.analysis.diagnosis.verdict import Strength
from spectrace.analysis.draft import flags, loading, taps
from spectrace.analysis.draft.report import CheckReport, check_draft
from spectrace.checkpoint.config import Config
from spectrace.checkpoint.directory import open_checkpoint
from spectrace.checkpoint.records import Checkpoint
from tests.checkpoint.building import (
    head_tensors,
    llama_config,
    speculators_config,
    target_config,
    write_draft,
)

IDS = "eagle_aux_hidden_state_layer_ids"

SOURCES = {
    "vLLM V1": ("0.33.0", "vllm/v1/worker/gpu_model_runner.py, _get_eagle3_aux_layers_from_config"),
    "vLLM V2": ("0.33.0", "eagle3_utils.py, get_eagle3_aux_layers_from_config"),
    "SGLang": ("0.5.23", "spec_aux_hidden_state.py, _resolve_eagle_aux_hidden_state"),
    "TensorRT-LLM": ("00679c66", "tensorrt_llm/_torch/speculative/eagle3.py"),
    "llama.cpp": ("0c1e57098", "conversion/llama.py and src/models/eagle3.cpp"),
    "speculators": ("c05b95b", "src/speculators/models/eagle3/config.py"),
    "SpecForge": ("a6b6b02", "specforge/modeling/target/eagle3_target_model.py"),
    "EAGLE": ("cb7e084", "eagle/model/modeling_llama_kv.py"),
}
"""Engine -> version and place that the rule was read in."""

ENGINES = tuple(SOURCES)


def nested(ids: list[int] | None, **more: Any) -> dict[str, Any]:
    """As SpecForge and Model-Optimizer write it: ids are outputs of layers."""
    inner: dict[str, Any] = {"use_aux_hidden_state": True, **more}
    return llama_config(32, 8, eagle_config=inner if ids is None else {**inner, IDS: ids})


def report_of(config: dict[str, Any], target: dict[str, Any] | None, tensors: Any = None) -> CheckReport:
    """The check of a configuration, with or without a target and tensors."""
    draft = Checkpoint(path=Path("draft"), config=Config(config), tensors=tensors or {})
    if target is None:
        return check_draft(draft)
    return check_draft(draft, Checkpoint(path=Path("target"), config=Config(target), tensors={}))


LLAMA = target_config(32, 32)
DEEPSEEK = target_config(32, 61, architectures=["DeepseekV3ForCausalLM"], model_type="deepseek_v3")
GLM_LITE = target_config(32, 47, architectures=["Glm4MoeLiteForCausalLM"])
GPT_OSS = target_config(32, 36, architectures=["GptOssForCausalLM"], model_type="gpt_oss")
KIMI = {
    "architectures": ["KimiK25ForConditionalGeneration"],
    "text_config": {"num_hidden_layers": 61, "hidden_size": 16, "vocab_size": 32},
}
MINIMAX_VL = {
    "architectures": ["MiniMaxM3SparseForConditionalGeneration"],
    "text_config": {"num_hidden_layers": 62, "hidden_size": 16, "vocab_size": 32},
}

USUAL = (2, 16, 29)
"""B(2), B(n // 2), B(n - 3) of 32 layers."""

STYLES: dict[str, tuple[dict[str, Any], dict[str, Any], tuple[tuple[int, ...], ...]]] = {
    # name: (config.json, target, boundaries in the order of ENGINES)
    "EAGLE's own, no ids anywhere": (llama_config(32, 8), LLAMA, (USUAL,) * 8),
    "speculators, the usual ids": (speculators_config(32, 8, **{IDS: [2, 16, 29]}), LLAMA, (USUAL,) * 8),
    "speculators, ids of its own": (
        speculators_config(32, 8, **{IDS: [4, 12, 30]}),
        LLAMA,
        ((4, 12, 30), (4, 12, 30), USUAL, USUAL, (4, 12, 30), (4, 12, 30), USUAL, USUAL),
    ),
    "eagle_config, the usual ids": (
        nested([1, 15, 28]),
        LLAMA,
        ((1, 15, 28), USUAL, USUAL, USUAL, USUAL, USUAL, USUAL, USUAL),
    ),
    "eagle_config, ids of its own": (
        nested([5, 20, 30]),
        LLAMA,
        ((5, 20, 30), USUAL, (6, 21, 31), USUAL, USUAL, USUAL, (6, 21, 31), USUAL),
    ),
    "eagle_config without ids": (nested(None), LLAMA, (USUAL,) * 8),
    "top level, not ascending": (
        llama_config(32, 8, **{IDS: [29, 2, 16]}),
        LLAMA,
        (USUAL, USUAL, USUAL, USUAL, (29, 2, 16), (29, 2, 16), USUAL, USUAL),
    ),
    "top level and eagle_config": (
        {**nested([1, 15, 28]), IDS: [3, 16, 29]},
        LLAMA,
        ((3, 16, 29), (3, 16, 29), USUAL, USUAL, (3, 16, 29), (3, 16, 29), USUAL, USUAL),
    ),
    "eagle_config.layer_ids, which only vLLM V2 reads": (
        nested(None, layer_ids=[4, 12, 30]),
        LLAMA,
        (USUAL, (4, 12, 30), USUAL, USUAL, USUAL, USUAL, USUAL, USUAL),
    ),
    "a DeepSeek target, first id 1": (
        nested([1, 29, 57]),
        DEEPSEEK,
        ((1, 29, 57), *((2, 30, 58),) * 7),
    ),
    "a DeepSeek target, first id 2": (
        nested([2, 30, 58]),
        DEEPSEEK,
        (
            (2, 30, 58),
            (2, 30, 58),
            (2, 30, 58),
            (2, 30, 58),
            (2, 30, 58),
            (2, 30, 58),
            (3, 31, 59),
            (2, 30, 58),
        ),
    ),
    "a Kimi target hands on to DeepSeek": (
        nested([3, 30, 57]),
        KIMI,
        (
            (3, 30, 57),
            (2, 30, 58),
            (3, 30, 57),
            (2, 30, 58),
            (2, 30, 58),
            (2, 30, 58),
            (4, 31, 58),
            (2, 30, 58),
        ),
    ),
    "a GLM lite target, first id 2": (
        nested([2, 22, 43]),
        GLM_LITE,
        (
            (2, 22, 43),
            (2, 23, 44),
            (2, 22, 43),
            (2, 23, 44),
            (2, 23, 44),
            (2, 23, 44),
            (3, 23, 44),
            (2, 23, 44),
        ),
    ),
    "a gpt-oss target, last id n": (
        nested([1, 18, 36]),
        GPT_OSS,
        (
            (1, 18, 36),
            (2, 18, 33),
            (1, 18, 36),
            (2, 18, 33),
            (2, 18, 33),
            (2, 18, 33),
            (2, 19, 37),
            (2, 18, 33),
        ),
    ),
    "a gpt-oss target, last id below n": (
        nested([1, 17, 32]),
        GPT_OSS,
        ((1, 17, 32), *((2, 18, 33),) * 7),
    ),
    "a MiniMax VL target without ids": (
        llama_config(32, 8),
        MINIMAX_VL,
        ((2, 31, 59), (2, 31, 59), (3, 32, 60), *((2, 31, 59),) * 5),
    ),
    "a Llama target's last layer, which SGLang never captures": (
        nested([1, 15, 31]),
        LLAMA,
        ((1, 15, 31), USUAL, (2, 16), USUAL, USUAL, USUAL, (2, 16, 32), USUAL),
    ),
}


@pytest.mark.parametrize("style", STYLES)
def test_every_engine_feeds_what_its_source_says(style: str) -> None:
    """One configuration, eight engines, the boundaries of each."""
    config, target, expected = STYLES[style]
    rows = report_of(config, target).taps
    assert tuple(row.engine.name for row in rows) == ENGINES
    assert {row.engine.name: row.choice.boundaries for row in rows} == dict(
        zip(ENGINES, expected, strict=True)
    )


@pytest.mark.parametrize("name", ENGINES)
def test_every_rule_names_where_it_was_read(name: str) -> None:
    """Version, path and symbol, in the table and in the JSON."""
    version, place = SOURCES[name]
    rule = next(rule for rule in taps.RULES if rule.engine.name == name)
    assert version in rule.engine.version
    assert place in rule.source
    row = next(row for row in report_of(llama_config(32, 8), LLAMA).taps if row.engine.name == name)
    assert row.to_mapping()["source"] == rule.source


def test_the_other_tables_name_their_sources_too() -> None:
    """Switches and names of weights, engine by engine."""
    assert set(flags.SOURCES) == {engine.name for engine in flags.COLUMNS}
    assert all(".py" in source or ".cpp" in source for source in flags.SOURCES.values())
    assert {rule.engine for rule in loading.RULES} == set(flags.COLUMNS)
    assert all(rule.source for rule in loading.RULES)


def test_block_drafts_count_outputs() -> None:
    """dflash_config means outputs to all; an eagle_config beside it hides it from vLLM V1."""
    config = llama_config(
        32, 8, architectures=["DFlashDraftModel"], dflash_config={"target_layer_ids": [1, 9, 17]}
    )
    rows = {row.engine.name: row.choice for row in report_of(config, LLAMA).taps}
    assert {rows[name].boundaries for name in ("vLLM V1", "vLLM V2", "SGLang", "llama.cpp")} == {(2, 10, 18)}
    hidden = {**config, "eagle_config": {"use_aux_hidden_state": True}}
    rows = {row.engine.name: row.choice for row in report_of(hidden, LLAMA).taps}
    assert rows["vLLM V1"].boundaries == USUAL
    assert rows["vLLM V2"].boundaries == (2, 10, 18)


@pytest.mark.parametrize(
    ("keys", "boundaries"),
    [
        ({"dspark_target_layer_ids": [1, 9]}, (2, 10)),
        ({"dspark_target_layer_ids": [1, 9], "model_type": "deepseek_v41"}, (1, 9)),
        ({"target_layer_ids": [1, 9]}, (2, 10)),
    ],
)
def test_vllm_v2_reads_the_keys_of_dspark(keys: dict[str, Any], boundaries: tuple[int, ...]) -> None:
    """Outputs, but for deepseek_v41, whose ids are inputs."""
    rows = {row.engine.name: row.choice for row in report_of(llama_config(32, 8, **keys), LLAMA).taps}
    assert rows["vLLM V2"].boundaries == boundaries


def test_a_draft_without_taps_gets_the_final_state() -> None:
    """use_aux_hidden_state false: vLLM and SGLang feed the normed final state, and nothing is guessed."""
    report = report_of(nested(None, use_aux_hidden_state=False), LLAMA)
    rows = {row.engine.name: row.choice for row in report.taps}
    assert {rows[name].words for name in ("vLLM V1", "vLLM V2", "SGLang")} == {"final state, normed"}
    assert "tap-layer/guessed" not in {f.id for f in report.findings if f.summary.startswith("config.json")}


def test_without_a_target_the_default_stays_a_formula() -> None:
    """Explicit ids need no target; the default and the range do."""
    report = report_of(nested([1, 15, 28]), None)
    rows = {row.engine.name: row.choice for row in report.taps}
    assert rows["SGLang"].boundaries == USUAL
    assert (rows["vLLM V2"].boundaries, rows["vLLM V2"].words) == (None, "B(2) B(n//2) B(n-3)")
    assert "tap-layer/out-of-range" in {item.id for item in report.not_checked}


# --- verdicts --------------------------------------------------------------------------------------


def tap_findings(config: dict[str, Any], target: dict[str, Any] | None = LLAMA) -> dict[str, list[str]]:
    """Id -> sentences of findings about layers."""
    found: dict[str, list[str]] = {}
    for item in report_of(config, target).findings:
        if item.id.startswith(("tap-layer/", "tap-form/order")):
            found.setdefault(item.id, []).append(item.summary)
    return found


def test_guessed_layers_are_a_hint() -> None:
    """No ids: every engine guesses, which is said before any number is seen (K03)."""
    assert list(tap_findings(llama_config(32, 8))) == ["tap-layer/guessed"]


def test_an_engine_that_ignores_the_list_is_named_with_its_guess() -> None:
    """SGLang and TensorRT-LLM do not read the top level."""
    sentence = tap_findings(speculators_config(32, 8, **{IDS: [4, 12, 30]}))["tap-layer/guessed"][0]
    assert "SGLang 0.5.23 (default)" in sentence
    assert "TensorRT-LLM (argument only)" in sentence
    assert "declared is B(4) B(12) B(30)" in sentence


def test_without_a_target_a_default_is_left_open() -> None:
    """What depends on the number of layers may be what is declared: the answer is to give the target."""
    report = report_of(speculators_config(32, 8, **{IDS: [2, 4, 5]}), None)
    finding = next(item for item in report.findings if item.id == "tap-layer/guessed")
    assert finding.advice.startswith("Give --target: the number of layers is unknown")
    assert "other layers" not in finding.summary
    with_target = report_of(speculators_config(32, 8, **{IDS: [2, 4, 5]}), LLAMA)
    finding = next(item for item in with_target.findings if item.id == "tap-layer/guessed")
    assert "--target" not in finding.advice


def test_an_engine_that_is_a_layer_early_is_named_with_the_shift() -> None:
    """The runner V1 of vLLM takes eagle_config's outputs for inputs."""
    report = report_of(nested([1, 15, 28]), LLAMA)
    finding = next(item for item in report.findings if item.id == "tap-layer/shifted")
    assert finding.strength is Strength.HINT
    assert finding.evidence["engines"] == ["vLLM V1"]
    assert finding.evidence["shift"] == -1


def test_two_lists_that_contradict_each_other_are_strong() -> None:
    """The same numbers in both places mean different layers; one less in eagle_config means the same."""
    both = {**nested([2, 16, 29]), IDS: [2, 16, 29]}
    assert "two lists that mean different layers" in tap_findings(both)["tap-layer/shifted"][0]
    assert not any(
        "two lists" in s
        for s in tap_findings({**nested([1, 15, 28]), IDS: [2, 16, 29]}).get("tap-layer/shifted", [])
    )


@pytest.mark.parametrize(
    ("config", "word"),
    [(llama_config(32, 8, **{IDS: [1, 15, 28]}), "earlier"), (nested([2, 16, 29]), "later")],
)
def test_the_usual_layers_in_the_other_numbering_are_a_hint(config: dict[str, Any], word: str) -> None:
    """(1, n/2-1, n-4) where ids are inputs, (2, n/2, n-3) where they are outputs."""
    assert any(
        f"means one layer {word}" in sentence for sentence in tap_findings(config)["tap-layer/shifted"]
    )


@pytest.mark.parametrize(
    ("config", "boundary"),
    [
        (llama_config(32, 8, **{IDS: [2, 16, 33]}), "B(33)"),
        (llama_config(32, 8, **{IDS: [-1, 16, 29]}), "B(-1)"),
        (nested([1, 15, 32]), "B(33)"),
    ],
)
def test_layers_that_the_target_lacks_are_certain(config: dict[str, Any], boundary: str) -> None:
    """B(n) is the last there is, B(0) the embeddings."""
    report = report_of(config, LLAMA)
    finding = next(item for item in report.findings if item.id == "tap-layer/out-of-range")
    assert finding.strength is Strength.CERTAIN
    assert boundary in finding.summary


def test_a_layer_that_sglang_never_captures_is_a_hint() -> None:
    """B(n) of a Llama target: one tap too few."""
    sentences = tap_findings(nested([1, 15, 31]))["tap-layer/out-of-range"]
    assert "never captures B(32)" in sentences[0]


def test_an_order_that_engines_lose_is_a_hint() -> None:
    """Ascending in vLLM; llama.cpp keeps the order of the list."""
    assert "tap-form/order" in tap_findings(llama_config(32, 8, **{IDS: [29, 2, 16]}))


@pytest.mark.parametrize("ids", ["2,16,29", [2, "16"], [2.5], {"a": 1}, [True, 2, 3], [2**40]])
def test_a_list_that_is_none_is_said_to_be_none(ids: Any) -> None:
    """And is not taken for a guess."""
    report = report_of(llama_config(32, 8, **{IDS: ids}), LLAMA)
    assert any(IDS in item.reason for item in report.not_checked)
    assert not any("declares no layer ids" in item.summary for item in report.findings)


# --- switches --------------------------------------------------------------------------------------


def switches(config: dict[str, Any], tensors: Any = None) -> dict[str, tuple[str, dict[str, str]]]:
    """Switch -> (as declared, engine -> value)."""
    rows = report_of(config, LLAMA, tensors).flags
    return {
        row.name: (row.declared, dict(zip((e.name for e in flags.COLUMNS), row.engines, strict=True)))
        for row in rows
    }


@pytest.mark.parametrize(
    ("config", "declared", "on"),
    [
        (speculators_config(32, 8, norm_before_residual=True), "yes", {"vLLM", "llama.cpp", "speculators"}),
        (llama_config(32, 8, norm_before_residual=True), "yes", {"vLLM", "llama.cpp", "speculators"}),
        (speculators_config(32, 8, norm_before_residual=None), "no", {"vLLM"}),
        (llama_config(32, 8), "-", set()),
    ],
)
def test_norm_before_residual(config: dict[str, Any], declared: str, on: set[str]) -> None:
    """Half of the engines lack it; vLLM switches it on where a speculators file leaves it out."""
    found, engines = switches(config)["norm_before_residual"]
    assert found == declared
    assert {name for name, value in engines.items() if value == "yes"} == on


@pytest.mark.parametrize(
    ("config", "on"),
    [
        (nested(None, norm_before_fc=True), {"vLLM", "SGLang", "TensorRT-LLM", "llama.cpp"}),
        (llama_config(32, 8, norm_before_fc=True), {"vLLM", "SGLang", "llama.cpp", "speculators"}),
    ],
)
def test_norm_before_fc_is_looked_for_in_two_places(config: dict[str, Any], on: set[str]) -> None:
    """TensorRT-LLM reads eagle_config only; the others eagle_config first."""
    declared, engines = switches(config)["norm_before_fc"]
    assert declared == "yes"
    assert {name for name, value in engines.items() if value == "yes"} == on


def test_fc_norm() -> None:
    """llama.cpp and EAGLE lack it; SGLang also knows its older name."""
    _, engines = switches(llama_config(32, 8, fc_norm=True))["fc_norm"]
    assert {name for name, value in engines.items() if value == "no"} == {"llama.cpp", "EAGLE"}
    _, engines = switches(llama_config(32, 8, use_aux_norm=True))["fc_norm"]
    assert {name for name, value in engines.items() if value == "yes"} == {"SGLang"}


def test_norm_output_means_something_else_to_specforge() -> None:
    """There it is a norm in front of the LM head; TensorRT-LLM has a second name for it."""
    _, engines = switches(llama_config(32, 8, norm_output=True))["norm_output"]
    assert engines["SpecForge"] == "other"
    assert {name for name, value in engines.items() if value == "no"} == {"llama.cpp", "EAGLE"}
    _, engines = switches(nested(None, return_hidden_post_norm=True))["norm_output"]
    assert {name for name, value in engines.items() if value == "yes"} == {"TensorRT-LLM"}


def test_embeddings_and_head_are_shared_differently(tmp_path: Path) -> None:
    """The draft's embeddings are kept by vLLM and llama.cpp only; a tied head is a trap of SGLang."""
    own = write_draft(
        tmp_path,
        llama_config(32, 8, tie_word_embeddings=True),
        {"embed_tokens.weight": head_tensors(32)["lm_head.weight"]},
    )
    found = switches(llama_config(32, 8, tie_word_embeddings=True), open_checkpoint(own).tensors)
    declared, engines = found["embeddings"]
    assert declared == "own"
    assert {name for name, value in engines.items() if value == "own"} == {"vLLM", "llama.cpp"}
    assert found["lm_head"][1]["SGLang"] == "embed"
    assert found["lm_head"][1]["vLLM"] == "own"


def test_a_switch_that_a_serving_engine_ignores_is_a_hint() -> None:
    """With the id that a trace would give it."""
    config = speculators_config(32, 8, norm_before_residual=True, norm_output=True, fc_norm=True)
    found = {
        item.id: item.evidence["engines"]
        for item in report_of(config, LLAMA).findings
        if item.id.startswith("tap-form/")
    }
    assert found["tap-form/residual"] == ["SGLang", "TensorRT-LLM"]
    assert found["tap-form/feedback-norm"] == ["llama.cpp"]
    assert found["tap-form/norm"] == ["llama.cpp"]


# --- names of weights ------------------------------------------------------------------------------


def fates(folder: Path) -> dict[str, tuple[int, int]]:
    """Engine -> how many tensors it silently skips, and how many make it stop."""
    report = check_draft(open_checkpoint(folder))
    return {row.rule.engine.name: (len(row.skipped), len(row.refused)) for row in report.loading}


def test_names_of_eagle_are_taken_by_all(tmp_path: Path) -> None:
    """midlayer.* is renamed where it must be."""
    assert set(fates(write_draft(tmp_path)).values()) == {(0, 0)}


def test_layers_0_is_no_layer_to_eagle_and_specforge(tmp_path: Path) -> None:
    """They know midlayer.* only, and run on a random layer."""
    found = fates(write_draft(tmp_path, layer="layers.0"))
    assert {name for name, (skipped, _) in found.items() if skipped == 10} == {"EAGLE", "SpecForge"}
    assert sum(skipped + refused for skipped, refused in found.values()) == 20


@pytest.mark.parametrize(("layer", "lacking"), [("midlayer", set()), ("layers.0", {"EAGLE", "SpecForge"})])
def test_each_engine_says_what_it_looks_for_and_does_not_find(
    tmp_path: Path, layer: str, lacking: set[str]
) -> None:
    """By its own name of the layer: a tensor under another name is as good as none."""
    report = check_draft(open_checkpoint(write_draft(tmp_path, layer=layer)))
    rows = {row.rule.engine.name: row for row in report.loading}
    assert {name for name, row in rows.items() if row.lacking} == lacking
    for name in lacking:
        assert "midlayer.mlp.up_proj" in rows[name].lacking
        assert len(rows[name].lacking) == 10
    assert "layers.0.self_attn.o_proj" in rows["vLLM"].looks_for
    assert "midlayer.self_attn.o_proj" in rows["EAGLE"].looks_for


def test_norms_of_queries_and_keys_are_lost_on_some(tmp_path: Path) -> None:
    """Of a Qwen3 draft: skipped by SGLang without a word, a stop in vLLM unless the class is Qwen3's."""
    norms = {f"midlayer.self_attn.{kind}_norm.weight": head_tensors(8)["norm.weight"][:4] for kind in "qk"}
    found = fates(write_draft(tmp_path / "llama", changes=norms))
    assert found["SGLang"] == (2, 0)
    assert found["vLLM"] == (0, 2)
    assert found["llama.cpp"] == (0, 2)
    config = llama_config(32, 8, architectures=["Eagle3Qwen3ForCausalLM"])
    assert fates(write_draft(tmp_path / "qwen", config, norms))["vLLM"] == (0, 0)


def test_norms_that_are_not_switched_on_are_dropped(tmp_path: Path) -> None:
    """input_norm without norm_before_fc: vLLM and SGLang drop it silently; with the switch they use it."""
    norm = {"input_norm.weight": head_tensors(8)["fc.weight"][0]}
    found = fates(write_draft(tmp_path / "off", changes=norm))
    assert (found["vLLM"], found["SGLang"]) == ((1, 0), (1, 0))
    found = fates(write_draft(tmp_path / "on", llama_config(32, 8, norm_before_fc=True), norm))
    assert (found["vLLM"], found["SGLang"]) == ((0, 0), (0, 0))


def test_model_in_front_is_one_too_many_for_some(tmp_path: Path) -> None:
    """Added by vLLM itself, which then stops; SGLang takes both."""
    changes: dict[str, Any] = {}
    for name, array in head_tensors(8, layer="layers.0").items():
        changes[name.replace("layers.0", "midlayer")] = None
        changes[name] = None
        changes[name if name == "lm_head.weight" else f"model.{name}"] = array
    found = fates(write_draft(tmp_path, changes=changes))
    assert found["vLLM"][1] == 12
    assert found["SGLang"] == (0, 0)


def test_sglang_has_two_classes(tmp_path: Path) -> None:
    """A speculators architecture is not among them."""
    report = check_draft(open_checkpoint(write_draft(tmp_path, speculators_config(32, 8), layer="layers.0")))
    found = {row.rule.engine.name: row.unknown_class for row in report.loading}
    assert found["SGLang"] == "Eagle3Speculator"
    assert found["vLLM"] is None

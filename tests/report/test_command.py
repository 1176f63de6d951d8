"""The command in a report: made of the header alone, and one that the tools take."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

import spectrace
from spectrace.cli import main
from spectrace.format.headers import load
from spectrace.format.records import Run
from spectrace.report.command import command_line
from spectrace.report.redaction import reduced_run

RECORD: dict[str, Any] = {
    "recorder": {"name": "spectrace_eagle3"},
    "engine": {"name": "spectrace_eagle3", "flags": {"max_new_tokens": 24, "num_draft_tokens": 4}},
    "method": "eagle3",
    "target": {"dtype": "float32"},
    "sampling": {"temperature": 0.5, "top_k": 20, "seed": 3},
    "speculation": {"num_draft_tokens": 4},
}
SGLANG: dict[str, Any] = {
    "recorder": {"name": "spectrace_sglang"},
    "engine": {
        "name": "sglang",
        "flags": {
            "speculative_algorithm": "EAGLE3", "speculative_num_steps": 3, "speculative_eagle_topk": 4,
            "speculative_num_draft_tokens": 16, "disable_radix_cache": True, "chunked_prefill_size": -1,
            "speculative_use_rejection_sampling": True, "speculative_use_block_verification": True,
            "disable_overlap_schedule": False, "speculative_token_map": "/home/someone/map.pt",
        },
    },
    "capture": {"mode": "eager"},
}  # fmt: skip

VLLM: dict[str, Any] = {
    "recorder": {"name": "spectrace_vllm"},
    "engine": {
        "name": "vllm",
        "flags": {
            "method": "eagle3", "draft_sample_method": "probabilistic", "rejection_sample_method": "block",
            "disable_padded_drafter_batch": True, "prompt_lookup_max": 0, "max_num_seqs": 8,
        },
    },
    "method": "eagle3",
    "target": {"dtype": "bfloat16"},
    "speculation": {"num_draft_tokens": 3},
}  # fmt: skip


def words(run: dict[str, Any]) -> list[str]:
    """The command of a header, as a shell would split it."""
    return shlex.split(command_line(load(Run, run, print)) or "")


def test_record_is_put_together_again() -> None:
    """What was asked for stands in it as options; of the paths there are names in capitals."""
    assert words(RECORD) == shlex.split(
        "spectrace record --target TARGET --draft DRAFT --num-draft-tokens 4 --prompts PROMPTS "
        "--max-new-tokens 24 --temperature 0.5 --top-k 20 --seed 3 --dtype float32 -o run.spectrace"
    )


@pytest.mark.parametrize(
    ("fields", "has", "has_not"),
    [
        ({"method": "ngram"}, "--prompt-lookup 4", "--draft"),
        ({"method": "early_exit", "draft": {"num_layers": 2}}, "--early-exit 2", "--draft"),
        ({"control": "self-draft"}, "--control self-draft", "--draft"),
        ({"control": "predictable-text"}, "--control predictable-text --draft DRAFT", "--prompts"),
        ({"speculation": {"tree": {"topk": 8, "depth": 5, "num_nodes": 32}}}, "--tree 8,5,32", "--tree None"),
        ({"baseline": {"token_ns": 7}}, "--compare-baseline", "--chat"),
    ],
)
def test_each_kind_of_run_has_its_option(fields: dict[str, Any], has: str, has_not: str) -> None:
    """Prompt lookup, early exit, controls, trees and the comparison."""
    found = words(RECORD | fields)
    assert has in " ".join(found)
    assert has_not not in found


def test_sglangs_server_in_its_own_words() -> None:
    """Switches without a value, settings with theirs, and no path of the machine."""
    found = " ".join(words(SGLANG))
    assert found.startswith("SPECTRACE_OUT=traces python -m sglang.launch_server --model-path TARGET")
    assert "--speculative-eagle-topk 4 --speculative-num-draft-tokens 16 --disable-radix-cache" in found
    assert "overlap" not in found
    assert "someone" not in found
    assert "--chunked-prefill-size -1 --speculative-use" in found
    assert found.endswith(" --disable-cuda-graph")


def test_vllms_server_in_its_own_words(sample_traces: Path) -> None:
    """The configuration of speculation is the JSON that vLLM takes."""
    with spectrace.open(sample_traces / "vllm-v1-eagle3.spectrace") as trace:
        found = words(trace.run_mapping)
    config = json.loads(found[found.index("--speculative-config") + 1])
    assert config["model"] == "DRAFT"
    assert (config["method"], config["num_speculative_tokens"]) == ("eagle3", 3)
    assert "--no-enable-prefix-caching" in found


ASKED = {"SPECTRACE_CAPTURE": "ids", "SPECTRACE_SAMPLE": "1/2", "SPECTRACE_MAX_BYTES": 500_000_000}


@pytest.mark.parametrize("header", [VLLM, SGLANG])
def test_what_the_environment_asked_for_is_asked_again(header: dict[str, Any]) -> None:
    """Level, choice and budget stand before the command, out of a pack too; the default is not said."""
    engine = header["engine"]
    asked = header | {"engine": engine | {"flags": engine["flags"] | ASKED}}
    for run in (asked, reduced_run(asked, frozenset())):
        expected = (
            "SPECTRACE_OUT=traces SPECTRACE_CAPTURE=ids SPECTRACE_SAMPLE=1/2 SPECTRACE_MAX_BYTES=500000000"
        )
        assert " ".join(words(run)).startswith(f"{expected} python -m ")
    assert words(header)[1] == "python"


@pytest.mark.parametrize(("asked", "mode", "has"), [(True, "eager", True), (False, "eager", False)])
def test_eager_is_asked_for_where_it_was(asked: bool, mode: str, has: bool) -> None:
    """A device without graphs captures none, whatever was asked for."""
    run = VLLM | {"engine": {"flags": {"enforce_eager": asked}}, "capture": {"mode": mode}}
    assert ("--enforce-eager" in words(run)) is has


def vllm(method: str, **flags: Any) -> dict[str, Any]:
    """A header of vLLM's recorder; what a trace calls the method is another matter."""
    name = {"ngram_gpu": "ngram", "dspark": "other", "custom_class": "other"}.get(method, method)
    return VLLM | {"method": name, "engine": {"flags": {"method": method, **flags}}}


def speculative_config(run: dict[str, Any]) -> Any:
    """What vLLM is given to speculate with."""
    found = words(run)
    return json.loads(found[found.index("--speculative-config") + 1])


@pytest.mark.parametrize("method", ["eagle3", "medusa", "dflash", "dspark", "draft_model", "custom_class"])
def test_a_method_with_a_model_names_one(method: str) -> None:
    """Under vLLM's own word for it, also where a trace has none."""
    expected = {"method": method, "model": "DRAFT", "num_speculative_tokens": 3}
    assert speculative_config(vllm(method)) == expected


@pytest.mark.parametrize("method", ["ngram", "ngram_gpu", "suffix", "mtp"])
def test_a_method_without_a_model_names_none(method: str) -> None:
    """A lookup, and a draft that is a part of the target."""
    assert speculative_config(vllm(method)) == {"method": method, "num_speculative_tokens": 3}


def test_settings_of_suffix_decoding_are_repeated() -> None:
    """Depth, factor and threshold decide how much is proposed."""
    flags = {"suffix_decoding_max_tree_depth": 12, "suffix_decoding_min_token_prob": 0.25}
    assert speculative_config(reduced_run(vllm("suffix", **flags), frozenset())).items() >= flags.items()


def test_rates_of_acceptance_are_repeated_as_numbers() -> None:
    """Also out of a pack; a list of words is no setting."""
    flags = {"synthetic_acceptance_rates": [1.0, 0.6, 0.0]}
    for run in (vllm("eagle3", **flags), reduced_run(vllm("eagle3", **flags), frozenset())):
        assert speculative_config(run).items() >= flags.items()
    assert "rates" not in str(words(vllm("eagle3", synthetic_acceptance_rates=["anna"])))


def test_sglangs_block_verification_is_asked_for() -> None:
    """It is a switch of its own beside that of rejection sampling."""
    found = words(SGLANG)
    assert "--speculative-use-block-verification" in found
    assert "--speculative-use-rejection-sampling" in found


def test_a_word_that_no_engine_has_is_not_repeated_when_redacted() -> None:
    """Known words of an engine pass; another may be a name or a path."""
    secret = {"draft_sample_method": "anna", "rejection_sample_method": "/home/anna/rule"}
    run = reduced_run(vllm("anna_method", **secret), frozenset())
    assert "anna" not in (command_line(load(Run, run, print)) or "")
    assert "other" not in words(run)[words(run).index("--speculative-config") + 1]


@pytest.mark.parametrize(
    "run", [RECORD, SGLANG, VLLM, vllm("dspark"), RECORD | {"control": "self-draft", "method": "eagle3"}]
)
def test_what_is_redacted_says_the_same_but_for_the_seed(run: dict[str, Any]) -> None:
    """Every setting that makes the command stays in a pack; the seed would make the text again."""
    kept = words(reduced_run(run, frozenset()))
    assert " ".join(kept) == " ".join(words(run)).replace("--seed 3 ", "")


def test_a_strangers_settings_are_quoted() -> None:
    """Whatever a header says, the line is one command with quoted words; what is too long is left out."""
    evil = "x; rm -rf ~ `id` $(id) \n"
    flags = {"max_new_tokens": evil, "num_draft_tokens": "y" * 500}
    found = words(RECORD | {"engine": {"flags": flags}, "control": "'; id '"})
    assert evil in found
    assert "'; id '" in found
    assert not any("yyy" in word for word in found)


def test_nothing_is_made_up(tmp_path: Path) -> None:
    """A program that recorded itself, and an empty header, have no command; the report says so."""
    assert command_line(Run()) is None
    assert words({**RECORD, "engine": {"flags": {}}}) == []
    out = tmp_path / "a.md"
    path = Path(__file__).parents[2] / "sample_traces/minimal-v1.spectrace"
    assert main(["report", str(path), "-o", str(out)]) == 0
    assert "does not tell which command" in out.read_text()

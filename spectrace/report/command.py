"""The command that recorded a trace, put together again from what its header says.

A trace stores settings and no command line, since a command line holds paths and prompts: TARGET, DRAFT and
PROMPTS stand for those. Settings are a stranger's: each is quoted for a shell, the writers escape the rest.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from spectrace.format.records import Run, Sampling
from spectrace.report.reduction import OTHER

MAX_VALUE = 64
"""Longest setting that is repeated, characters."""
MAX_RATES = 64
"""Longest list of numbers that is repeated."""
_ASKED = ("SPECTRACE_CAPTURE", "SPECTRACE_SAMPLE", "SPECTRACE_MAX_BYTES")
"""What a recorder inside an engine is told by the environment."""
_RECORDED = ("spectrace_transformers", "spectrace_eagle3")
_VLLM = ("max_num_seqs", "max_num_batched_tokens", "tensor_parallel_size", "pipeline_parallel_size")
_WITHOUT_DRAFT = ("ngram", "ngram_gpu", "suffix", "mtp")
"""Methods of vLLM that load no model of their own."""
_VLLM_SWITCHES = ("enable_prefix_caching", "async_scheduling")
_VLLM_SPECULATION = (
    "draft_sample_method", "rejection_sample_method", "synthetic_acceptance_rates",
    "disable_padded_drafter_batch", "parallel_drafting", "prompt_lookup_max", "prompt_lookup_min",
    "suffix_decoding_max_tree_depth", "suffix_decoding_max_cached_requests",
    "suffix_decoding_max_spec_factor", "suffix_decoding_min_token_prob", "dspark_draft_topk",
)  # fmt: skip
_SGLANG = (
    "speculative_num_steps", "speculative_eagle_topk", "speculative_num_draft_tokens",
    "speculative_attention_mode", "attention_backend", "disable_overlap_schedule", "disable_radix_cache",
    "chunked_prefill_size", "max_running_requests", "tp_size", "pp_size", "dp_size",
    "speculative_use_rejection_sampling", "speculative_use_block_verification",
    "speculative_accept_threshold_single", "speculative_accept_threshold_acc",
    "speculative_ngram_max_trie_depth", "speculative_ngram_min_bfs_breadth",
    "speculative_ngram_max_bfs_breadth", "speculative_ngram_match_type",
)  # fmt: skip


def command_line(run: Run) -> str | None:
    """The command as a shell takes it, in one line; None where the header does not say enough.

    Args:
        run: the header, redacted where that is wanted.
    """
    recorder = run.recorder.name if run.recorder is not None else None
    if recorder == "spectrace_vllm":
        return f"{_environment(_flags(run))} {shlex.join(_vllm(run, _flags(run)))}"
    if recorder == "spectrace_sglang":
        return f"{_environment(_flags(run))} {shlex.join(_sglang(run, _flags(run)))}"
    if recorder in _RECORDED and "max_new_tokens" in _flags(run):
        return shlex.join(_record(run, _flags(run)))
    return "spectrace import FILE -o run.spectrace" if recorder == "spectrace" else None


def _environment(flags: Mapping[str, Any]) -> str:
    """Where to record, and what of it where that was said."""
    asked = [f"{name}={shlex.quote(str(flags[name]))}" for name in _ASKED if _is_setting(flags.get(name))]
    return " ".join(["SPECTRACE_OUT=traces", *asked])


def _flags(run: Run) -> Mapping[str, Any]:
    """Settings that can be repeated."""
    given = run.engine.flags if run.engine is not None else {}
    return {name: value for name, value in given.items() if _is_setting(value) or _are_rates(value)}


def _is_setting(value: Any) -> bool:
    is_short = isinstance(value, str) and 0 < len(value) <= MAX_VALUE
    return is_short or type(value) in (bool, int, float)


def _are_rates(value: Any) -> bool:
    is_list = isinstance(value, (list, tuple)) and 0 < len(value) <= MAX_RATES
    return is_list and all(type(item) in (int, float) for item in value)


def _record(run: Run, flags: Mapping[str, Any]) -> Iterator[str]:
    """`spectrace record`."""
    yield from ("spectrace", "record", "--target", "TARGET")
    yield from _option("--control", run.control)
    speculation, draft = run.speculation, run.draft
    if run.method == "ngram" and speculation is not None:
        yield from _option("--prompt-lookup", speculation.num_draft_tokens)
    elif run.method == "early_exit" and draft is not None:
        yield from _option("--early-exit", draft.num_layers)
    elif run.control not in ("self-draft", "no-draft"):
        yield from ("--draft", "DRAFT")
    tree = None if speculation is None else speculation.tree
    if tree is not None:
        yield from ("--tree", f"{tree.topk},{tree.depth},{tree.num_nodes}")
    yield from _option("--num-draft-tokens", flags.get("num_draft_tokens"))
    if run.control != "predictable-text":
        yield from ("--prompts", "PROMPTS")
    yield from _option("--max-new-tokens", flags.get("max_new_tokens"))
    yield from _sampled(run.sampling)
    yield from _option("--dtype", None if run.target is None else run.target.dtype)
    if flags.get("chat") is True:
        yield "--chat"
    if run.baseline:
        yield "--compare-baseline"
    yield from ("-o", "run.spectrace")


def _sampled(sampling: Sampling | None) -> Iterator[str]:
    if sampling is not None and sampling.temperature:
        for name in ("temperature", "top_k", "top_p", "seed"):
            yield from _option(f"--{name.replace('_', '-')}", getattr(sampling, name) or None)


def _vllm(run: Run, flags: Mapping[str, Any]) -> Iterator[str]:
    """The server of vLLM, in its own words."""
    yield from ("python", "-m", "vllm.entrypoints.openai.api_server", "--model", "TARGET")
    if run.method is not None:
        method = flags.get("method", run.method)
        settings: dict[str, Any] = {} if method == OTHER else {"method": method}
        if method not in _WITHOUT_DRAFT:
            settings["model"] = "DRAFT"
        if run.speculation is not None:
            settings["num_speculative_tokens"] = run.speculation.num_draft_tokens
        settings |= {name: flags[name] for name in _VLLM_SPECULATION if flags.get(name)}
        yield from ("--speculative-config", json.dumps(settings))
    yield from _option("--dtype", None if run.target is None else run.target.dtype)
    for name in _VLLM:
        yield from _option(f"--{name.replace('_', '-')}", flags.get(name))
    for name in _VLLM_SWITCHES:
        if isinstance(flags.get(name), bool):
            yield f"--{'' if flags[name] else 'no-'}{name.replace('_', '-')}"
    is_eager = run.capture is not None and run.capture.mode == "eager"
    if flags.get("enforce_eager", is_eager) is True:
        yield "--enforce-eager"


def _sglang(run: Run, flags: Mapping[str, Any]) -> Iterator[str]:
    """The server of SGLang, in its own words."""
    yield from ("python", "-m", "sglang.launch_server", "--model-path", "TARGET")
    yield from _option("--dtype", None if run.target is None else run.target.dtype)
    if isinstance(algorithm := flags.get("speculative_algorithm"), str):
        yield from ("--speculative-algorithm", algorithm)
        if algorithm.upper() not in ("NGRAM", "UNO"):
            yield from ("--speculative-draft-model-path", "DRAFT")
    for name in _SGLANG:
        yield from _option(f"--{name.replace('_', '-')}", flags.get(name))
    if run.capture is not None and run.capture.mode == "eager":
        yield "--disable-cuda-graph"


def _option(name: str, value: Any) -> Iterator[str]:
    """An option with its value; a switch without; nothing where there is no value, or only a stand-in."""
    if value is True:
        yield name
    elif value not in (False, OTHER) and _is_setting(value):
        yield from (name, str(value))

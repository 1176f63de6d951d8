"""Runs scenarios on real engines of SGLang, one after the other in one process: importing it costs most.

    python child.py MODELS OUT SCENARIO...

Writes OUT/SCENARIO/outputs.json (what SGLang returned, by request) beside the trace. Run as a script: pytest
itself never imports SGLang. But for one scenario its scheduler and detokenizer are forked, not started anew,
and so need no import of their own; a CPU allows it.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

os.environ |= {
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "SGLANG_USE_CPU_ENGINE": "1",
    "TRITON_DEFAULT_BACKEND": "cpu",
    "TRITON_INTERPRET": "1",
    "VLLM_USE_V2_MODEL_RUNNER": "1",  # asked for by the interpreter's installation; nothing of vLLM runs
}
_RECORDER = "SPECTRACE_"
_starts = ["fork"]
"""How SGLang's processes start; by itself it starts them anew."""


def main(models: Path, out: Path, names: list[str]) -> None:
    """Runs the named scenarios."""
    _prepare()
    start = multiprocessing.set_start_method
    multiprocessing.set_start_method = lambda *_, **__: start(_starts[0], force=True)
    from tests.recorders.sglang.faults import FAULTS, scenario
    from tests.recorders.sglang.scenarios import SCENARIOS

    _load_plugins(out)
    for name in names:
        started = time.monotonic()
        run(models, out / name, scenario(name) if name in FAULTS else SCENARIOS[name])
        sys.stdout.write(f"{name}: {time.monotonic() - started:.1f} s\n")
        sys.stdout.flush()


def _prepare() -> None:
    """Makes a process able to run SGLang on a CPU."""
    from tests.recorders.sglang.cpu_kernels import install as install_kernels
    from tests.recorders.triton_interpreter import install as install_interpreter

    install_interpreter()
    install_kernels()
    _use_full_masks()


def _load_plugins(out: Path) -> None:
    """Lets SGLang find its plugins, which it does once per process: the first run may be one without."""
    import_module("sglang.srt.managers.scheduler")  # as in every process that has one
    from sglang.srt.plugins import load_plugins

    os.environ["SPECTRACE_OUT"] = str(out)
    load_plugins()


def _use_full_masks() -> None:
    """Masks of trees as the interpreted attention reads them; SGLang's backend for a CPU wants others."""
    from sglang.kernels.ops.speculative.spec_tree import TreeMaskMode
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    name = "sglang.srt.speculative.eagle_utils.default_tree_mask_mode"
    HookRegistry.register(name, lambda: TreeMaskMode.FULL_MASK, HookType.REPLACE)
    # Of a lookup's proposals SGLang writes such masks for any device but a CPU.
    import_module("sglang.srt.speculative.ngram_worker")._is_cpu = False  # type: ignore[attr-defined]


def run(models: Path, folder: Path, scenario: Any) -> None:
    """Runs one scenario."""
    import sglang

    from tests.recorders.serving_runs import prompts

    folder.mkdir(parents=True)
    for variable in [name for name in os.environ if name.startswith(_RECORDER)]:
        del os.environ[variable]
    if scenario.is_recorded:
        os.environ |= {"SPECTRACE_OUT": str(folder), **scenario.environment}
    _starts[0] = "spawn" if scenario.is_spawned else "fork"
    undo = globals()[scenario.patch]() if scenario.patch else None
    speculative = dict(scenario.speculative)
    if scenario.draft is not None:
        speculative["speculative_draft_model_path"] = str(models / scenario.draft)
    arguments: dict[str, Any] = {
        "model_path": str(models / scenario.target),
        "attention_backend": "triton" if speculative else "torch_native",
        "context_length": 256,
        "device": "cpu",
        "disable_cuda_graph": True,
        "disable_overlap_schedule": True,
        "disable_radix_cache": True,
        "dtype": "float32",
        "grammar_backend": "none",
        "log_level": "warning",
        "max_running_requests": 8,
        "max_total_tokens": 4096,
        "mem_fraction_static": 0.3,
        "random_seed": 0,
        "sampling_backend": "pytorch",
        "skip_server_warmup": True,
    }
    engine = sglang.Engine(**{**arguments, **speculative, **scenario.engine})
    started = time.monotonic()
    found = engine.generate(
        prompt=prompts(scenario),
        sampling_params={"temperature": 0, "max_new_tokens": scenario.num_tokens},
    )
    seconds = time.monotonic() - started
    if scenario.is_recorded:
        _wait_for_trace(folder, sum(len(output["output_ids"]) for output in found))
    engine.shutdown()
    if undo is not None:
        undo()
    requests = {output["meta_info"]["id"]: _described(output) for output in found}
    (folder / "outputs.json").write_text(json.dumps({"seconds": seconds, "requests": requests}))


def _wait_for_trace(folder: Path, num_tokens: int) -> None:
    """Lets the recorder write what SGLang has returned, since a shutdown kills it: ten seconds at most."""
    import spectrace
    from tests.recorders.serving_traces import trace_of

    ends = time.monotonic() + 10
    while time.monotonic() < ends:
        with spectrace.open(trace_of(folder)) as trace:
            if sum(len(step.emitted_ids) for step in trace) >= num_tokens:
                return
        time.sleep(0.05)


def _described(output: Any) -> dict[str, Any]:
    """One request as SGLang returned it."""
    info = output["meta_info"]
    return {
        "text": output["text"],
        "token_ids": output["output_ids"],
        "prompt_tokens": info["prompt_tokens"],
        "finish_reason": info["finish_reason"]["type"],
        **{name: value for name, value in info.items() if name.startswith("spec_")},
    }


# --- patches ---------------------------------------------------------------------------------------


def break_hook() -> Any:
    """Makes what the recorder does with the target's logits fail."""
    follow: Any = import_module("spectrace_sglang.follow")
    original = follow.add_target

    def broken(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("broken on purpose")

    follow.add_target = broken
    return lambda: setattr(follow, "add_target", original)


if __name__ == "__mp_main__":  # in a process that was started anew
    _prepare()
if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])

"""Runs scenarios on real engines of vLLM, one after the other in one process, since importing it costs most.

    python child.py MODELS OUT SCENARIO...

Writes OUT/SCENARIO/outputs.json (what vLLM returned, by request) beside the trace. Run as a script: pytest
itself never imports vLLM.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from functools import cache
from pathlib import Path
from typing import Any

os.environ |= {
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "VLLM_CPU_CI_ENV": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
}
os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
_RECORDER = "SPECTRACE_"


def main(models: Path, out: Path, names: list[str]) -> None:
    """Runs the named scenarios."""
    if os.environ.get("TRITON_INTERPRET"):
        from tests.recorders.triton_interpreter import install

        install()
    import vllm  # noqa: F401  (slow: said so that the times below make sense)
    from vllm.model_executor.models import registry
    from vllm.platforms.cpu import CpuPlatform

    from tests.recorders.vllm.faults import FAULTS, scenario
    from tests.recorders.vllm.scenarios import SCENARIOS

    # vLLM inspects each architecture in a process of its own, which imports vLLM again.
    registry._run_in_subprocess = lambda function: function()
    # Once per process is enough; the second scan of all modules trips over numba's.
    CpuPlatform.register_triton_kernel_overrides = classmethod(
        cache(CpuPlatform.register_triton_kernel_overrides.__func__)  # type: ignore[arg-type]
    )
    for name in names:
        started = time.monotonic()
        run(models, out / name, scenario(name) if name in FAULTS else SCENARIOS[name])
        sys.stdout.write(f"{name}: {time.monotonic() - started:.1f} s\n")
        sys.stdout.flush()


def run(models: Path, folder: Path, scenario: Any) -> None:
    """Runs one scenario."""
    from vllm import LLM, SamplingParams
    from vllm.distributed import cleanup_dist_env_and_memory

    from tests.recorders.serving_runs import prompts

    folder.mkdir(parents=True)
    for variable in [name for name in os.environ if name.startswith(_RECORDER)]:
        del os.environ[variable]
    if scenario.is_recorded:
        os.environ |= {"SPECTRACE_OUT": str(folder), **scenario.environment}
        from spectrace_vllm import register

        register()
        register()
    undo = globals()[scenario.patch]() if scenario.patch else None
    arguments: dict[str, Any] = {
        "model": str(models / scenario.target),
        "dtype": "float32",
        "enforce_eager": True,
        "max_model_len": 256,
        "max_num_seqs": 8,
        "max_num_batched_tokens": 512,
        "enable_prefix_caching": False,
        "kv_cache_memory_bytes": 64 << 20,
        "disable_log_stats": False,
        "seed": 0,
    }
    if scenario.speculative is not None:
        speculative = dict(scenario.speculative)
        if (models / speculative.get("model", "/nowhere")).exists():
            speculative["model"] = str(models / speculative["model"])
        arguments |= {"speculative_config": speculative, "per_request_spec_decode_metrics": "detailed"}
    llm = LLM(**{**arguments, **scenario.engine})
    sampling = SamplingParams(**{"temperature": 0.0, "max_tokens": 32, **scenario.sampling})
    started = time.monotonic()
    outputs = llm.generate(prompts(scenario), sampling, use_tqdm=False)
    seconds = time.monotonic() - started
    llm.llm_engine.engine_core.shutdown()
    if undo is not None:
        undo()
    del llm
    gc.collect()
    cleanup_dist_env_and_memory()
    found = {output.request_id: _described(output) for output in outputs}
    (folder / "outputs.json").write_text(json.dumps({"seconds": seconds, "requests": found}))


def _described(output: Any) -> dict[str, Any]:
    """One request as vLLM returned it."""
    best = output.outputs[0]
    metrics = getattr(best, "spec_decode_metrics", None)
    return {
        "prompt_ids": list(output.prompt_token_ids),
        "token_ids": list(best.token_ids),
        "finish_reason": best.finish_reason,
        "accepted": list(metrics.per_step_accepted) if metrics else [],
        "drafted": list(metrics.per_step_drafted) if metrics else [],
    }


# --- patches ---------------------------------------------------------------------------------------


def break_hook() -> Any:
    """Makes what the recorder does with the target's logits fail."""
    from importlib import import_module

    v1: Any = import_module("spectrace_vllm.v1")
    original = v1.add_target

    def broken(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("broken on purpose")

    v1.add_target = broken
    return lambda: setattr(v1, "add_target", original)


def schedule_ahead() -> Any:
    """Turns asynchronous scheduling on, which vLLM switches off on a CPU."""
    from vllm.platforms.cpu import CpuPlatform

    original = CpuPlatform.check_and_update_config.__func__

    def check_and_update_config(cls: Any, config: Any) -> None:
        original(cls, config)
        config.scheduler_config.async_scheduling = True

    CpuPlatform.check_and_update_config = classmethod(check_and_update_config)
    return lambda: setattr(CpuPlatform, "check_and_update_config", classmethod(original))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])

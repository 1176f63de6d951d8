"""What does recording cost vLLM? Time in the hooks per engine step, and runs with and without in turns.

One engine in this process, 8 requests, K = 3, the bundled EAGLE-3 pair on a CPU. Needs an environment with
vLLM: `make test-engines` builds one, then `build/engines/bin/python benchmarks/bench_vllm.py`.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

os.environ |= {
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "VLLM_CPU_CI_ENV": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
}
REQUESTS, TOKENS, K = 8, 96, 3


def main(rounds: int) -> None:
    """Prints one line per capture level."""
    from vllm import LLM, SamplingParams

    from spectrace_demo import eagle3_path, prompts, target_path
    from spectrace_demo.export import export
    from spectrace_serving.guard import Guard
    from spectrace_serving.settings import Settings
    from spectrace_vllm.recording import attach

    folder = Path(tempfile.mkdtemp(prefix="spectrace-bench-"))
    for source in (target_path(), eagle3_path()):
        export(source, folder / source.name)
    llm = LLM(
        model=str(folder / "target"),
        dtype="float32",
        enforce_eager=True,
        max_model_len=256,
        max_num_seqs=REQUESTS,
        enable_prefix_caching=False,
        kv_cache_memory_bytes=64 << 20,
        seed=0,
        speculative_config={
            "method": "eagle3",
            "model": str(folder / "eagle3"),
            "num_speculative_tokens": K,
        },
    )
    worker = llm.llm_engine.engine_core.engine_core.model_executor.driver_worker.worker
    sampling = SamplingParams(temperature=0.0, max_tokens=TOKENS, ignore_eos=True)
    texts = list(prompts())[:REQUESTS]

    def generate() -> tuple[float, float]:
        """Wall time and processor time of one batch, seconds."""
        wall, busy = time.perf_counter(), time.process_time()
        llm.generate(texts, sampling, use_tqdm=False)
        return time.perf_counter() - wall, time.process_time() - busy

    hooked = _Timed(Guard.__call__)
    Guard.__call__ = hooked.method()  # type: ignore[method-assign]
    generate()
    levels = {"ids": False, "full": True}
    ratios: dict[str, list[tuple[float, float]]] = {name: [] for name in levels}
    hooks: dict[str, list[float]] = {name: [] for name in levels}
    for turn in range(rounds):
        for name, is_full in levels.items():
            plain = generate()
            recording = attach(worker, Settings(out=folder / f"{name}{turn}", is_full=is_full))
            assert recording is not None
            hooked.seconds = 0.0
            recorded = generate()
            hooks[name].append(1e3 * hooked.seconds / (recording.engine_step + 1))
            recording.close()
            ratios[name].append((recorded[0] / plain[0], recorded[1] / plain[1]))
            path = recording.writer.path
            if turn == 0:
                print(f"{name}: {path.stat().st_size:,} bytes, {recording.engine_step + 1} engine steps")
    for name in levels:
        wall, busy = (statistics.median(pair[at] for pair in ratios[name]) for at in (0, 1))
        print(
            f"{name}: {statistics.median(hooks[name]):.3f} ms in the hooks per engine step, "
            f"wall x{wall:.3f}, processor x{busy:.3f} (median of {rounds} pairs)"
        )


class _Timed:
    """Adds up the engine thread's processor time in a method."""

    def __init__(self, method: Callable[..., Any]) -> None:
        self._method = method
        self.seconds = 0.0

    def method(self) -> Callable[..., Any]:
        def timed(*args: Any) -> Any:
            if threading.current_thread() is not threading.main_thread():
                return self._method(*args)  # the writer's thread reduces
            started = time.thread_time()
            try:
                return self._method(*args)
            finally:
                self.seconds += time.thread_time() - started

        return timed


if __name__ == "__main__":
    if find_spec("vllm") is None:
        print("vllm is not installed here, so nothing was measured; see this file's first lines")
    else:
        main(3 if "--quick" in sys.argv else 15)

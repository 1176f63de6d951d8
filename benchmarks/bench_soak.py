"""Does an hour of recording leave memory, descriptors and threads as they were?

An hour's worth of steps, not an hour: at 20 ms a step and 8 requests at a time, 1,440,000 steps. A real run
of the bundled pair is taken apart once; then its tensors go through the recorder's own hooks and wrappers
again and again, as fast as the recorder takes them, eight requests in turns. Memory is looked at after every
hundredth.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from measure import Results, has_room, memory_mb, options, scratch

STEPS = 1_440_000
REQUESTS_AT_ONCE = 8
LOOKS = 100
BYTES_A_STEP = 1_600


def main() -> None:
    """Prints the table."""
    parser = options(__doc__)
    steps = STEPS // 20 if parser.parse_args().quick else STEPS
    import torch

    torch.set_num_threads(1)
    results = Results(f"An hour of steps through the transformers recorder: {steps:,}")
    with scratch() as folder:
        if not has_room(folder, steps * BYTES_A_STEP):
            raise SystemExit("not enough room for the trace")
        _measure(results, folder / "run.spectrace", steps)


@dataclass(slots=True)
class Moment:
    """What one real step handed to the recorder."""

    drafted: tuple[tuple[Any, ...], dict[str, Any], Any]
    """Arguments of `get_candidates`, and what it returned."""
    states: list[tuple[Any, Any]] = field(default_factory=list)
    """Layer and its output."""
    output: Any = None
    committed: tuple[tuple[Any, ...], dict[str, Any]] = ((), {})
    """Arguments of `update_candidate_strategy`."""


class Tape:
    """A real run of the bundled pair: plays its moments as a candidate generator and a model would.

    Args:
        model: the target.
        draft: the draft.
        prompt: inputs of `generate`.
    """

    def __init__(self, model: Any, draft: Any, prompt: Any) -> None:
        import bundled

        self.model = model
        self.moments: list[Moment] = []
        self.given: dict[str, Any] = {}
        self._original = model._get_candidate_generator
        handles = [layer.register_forward_hook(self._saw_layer) for layer in model.model.layers]
        handles.append(model.register_forward_hook(self._saw_output))
        model._get_candidate_generator = self._noting
        bundled.generate(model, prompt, {"assistant_model": draft})
        for handle in handles:
            handle.remove()
        # From now on a call is given a generator that plays the tape; the recorder wraps it like any other.
        model._get_candidate_generator = lambda **_: Player(self)

    def _noting(self, *args: Any, **kwargs: Any) -> Any:
        generator = self._original(*args, **kwargs)
        self.given = dict(kwargs)
        get, update = generator.get_candidates, generator.update_candidate_strategy

        def get_candidates(*args: Any, **kwargs: Any) -> Any:
            result = get(*args, **kwargs)
            self.moments.append(Moment((args, kwargs, result)))
            return result

        def update_candidate_strategy(*args: Any, **kwargs: Any) -> Any:
            self.moments[-1].committed = args, kwargs
            return update(*args, **kwargs)

        generator.get_candidates = get_candidates
        generator.update_candidate_strategy = update_candidate_strategy
        return generator

    def _saw_layer(self, layer: Any, _args: Any, output: Any) -> None:
        self.moments[-1].states.append((layer, output))

    def _saw_output(self, _model: Any, _args: Any, output: Any) -> None:
        self.moments[-1].output = type(output)(logits=output.logits)  # its cache goes on growing

    def play(self) -> Any:
        """One request, a step at every turn."""
        player = self.model._get_candidate_generator(**self.given)
        for moment in self.moments:
            args, kwargs, _ = moment.drafted
            player.get_candidates(*args, **kwargs)
            for layer, output in moment.states:
                for hook in layer._forward_hooks.values():
                    hook(layer, (), output)
            for hook in self.model._forward_hooks.values():
                hook(self.model, (), moment.output)
            args, kwargs = moment.committed
            player.update_candidate_strategy(*args, **kwargs)
            yield


class Player:
    """Looks like the candidate generator of one call."""

    def __init__(self, tape: Tape) -> None:
        self._moments = iter(tape.moments)

    def get_candidates(self, *_: Any, **__: Any) -> Any:
        """What was drafted."""
        return next(self._moments).drafted[2]

    def update_candidate_strategy(self, *_: Any, **__: Any) -> None:
        """Nothing to learn."""


@dataclass(slots=True)
class Look:
    """How the process is at one moment."""

    steps: int
    resident_mb: float
    descriptors: int
    threads: int


def _look(steps: int) -> Look:
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    return Look(steps, memory_mb("self", "VmRSS"), descriptors, threading.active_count())


def _measure(results: Results, path: Path, steps: int) -> None:
    import bundled
    import torch

    import spectrace
    import spectrace_demo
    import spectrace_transformers

    model, tokenizer = bundled.load(spectrace_demo.target_path())
    draft = bundled.bundled_draft()
    bundled.fix_proposals(draft)
    tape = Tape(model, draft, bundled.encoded(tokenizer)[0])
    looks: list[Look] = []
    start, work = time.perf_counter(), time.thread_time()
    with (
        torch.inference_mode(),
        spectrace_transformers.record(path, model, tokenizer=tokenizer, strict=True),
    ):
        running = [tape.play() for _ in range(REQUESTS_AT_ONCE)]
        for number in range(steps):
            at = number % REQUESTS_AT_ONCE
            if next(running[at], running) is running:
                running[at] = tape.play()
                next(running[at])
            if (number + 1) % (steps // LOOKS) == 0:
                looks.append(_look(number + 1))
    wall, work = time.perf_counter() - start, time.thread_time() - work
    first, last = looks[LOOKS // 10 - 1], looks[-1]
    slope = np.polyfit(
        [x.steps for x in looks[LOOKS // 10 :]], [x.resident_mb for x in looks[LOOKS // 10 :]], 1
    )
    with spectrace.open(path) as trace:
        lost, stored, requests = sum(gap.lost for gap in trace.gaps), len(trace), len(trace.requests)
        if trace.state != "closed" or stored + lost != steps or trace.problems:
            raise SystemExit(f"the trace is {trace.state}, {stored:,} steps, {lost:,} lost, {trace.problems}")
    results.note(
        "time; processor time of the recorded thread a step", f"{wall:.0f} s; {work / steps * 1e3:.3f} ms"
    )
    results.note(
        "steps stored, lost; requests; size", f"{stored:,}, {lost:,}; {requests:,}; {path.stat().st_size:,}"
    )
    grown = last.resident_mb - first.resident_mb
    results.note("resident memory at 10 % / at 100 %", f"{first.resident_mb:.1f} / {last.resident_mb:.1f} MB")
    results.at_most("resident memory, growth from 10 % to 100 %", grown, 10, "{:.1f} MB")
    results.at_most("its slope from 10 % on, MB a million steps", slope[0] * 1e6, 10, "{:.2f}")
    most = max(look.descriptors for look in looks), max(look.threads for look in looks)
    results.note("descriptors, threads: at 10 %", f"{first.descriptors}, {first.threads}")
    results.at_most(
        "descriptors, threads more than that, at most",
        max(most[0] - first.descriptors, most[1] - first.threads),
        0,
        "{}",
    )


if __name__ == "__main__":
    main()

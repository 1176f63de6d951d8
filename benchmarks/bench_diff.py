"""What does `spectrace diff` cost on long traces?

Two live traces of the same requests and texts, as two versions of a draft leave them: every other proposal
differs behind what was accepted. And two whose texts part, as two engines leave them. Each pair is compared
in a process of its own: seconds of the whole command, processor time, largest resident memory.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from measure import Results, has_room, options, scratch
from synthetic import VOCAB_SIZE, Array, Arrays, K, SyntheticEngine, write_live

_CHANGED = 0.2
"""Chance that a draft token which is not accepted is another in the second trace."""
_FORKS_AT = 0.01
"""Chance that a step of the second trace commits another token of the target's own."""


class OtherDraft(SyntheticEngine):
    """The same run with another draft: texts, picks and counts are the same."""

    def _tokens(self, accepted: Array) -> Arrays:
        found = super()._tokens(accepted)
        others = np.random.default_rng(self._engine_step)
        changed = (others.random((self.batch, K)) < _CHANGED) & (np.arange(K) >= accepted[:, None])
        found["proposal_ids"] = np.where(changed, VOCAB_SIZE - 1, found["proposal_ids"])
        return found


class OtherEngine(SyntheticEngine):
    """The same run until a text parts; what follows is another text."""

    def _tokens(self, accepted: Array) -> Arrays:
        found = super()._tokens(accepted)
        others = np.random.default_rng(self._engine_step)
        ids, lengths = found["emitted_ids"]
        ids[(np.cumsum(lengths) - 1)[others.random(self.batch) < _FORKS_AT]] = VOCAB_SIZE - 1
        return found


def main() -> None:
    """Prints the table."""
    arguments = options(__doc__).parse_args()
    million = 100_000 if arguments.quick else 1_000_000
    results = Results("Comparing long traces")
    with scratch() as folder:
        if not has_room(folder, 1 << 30):
            print("needs 1 GB of free disk")
            return
        one = folder / "a.spectrace"
        write_live(one, million)
        for name, engine in (("another draft", OtherDraft), ("texts that part", OtherEngine)):
            other = folder / f"{engine.__name__}.spectrace"
            write_live(other, million, engine=engine())
            wall, processor, resident = measured(one, other)
            results.at_most(f"2 x {million:,} steps, {name}: seconds", wall, 5.0)
            results.note(f"2 x {million:,} steps, {name}: seconds of processor time", f"{processor:.2f}")
            results.note(f"2 x {million:,} steps, {name}: MB resident", f"{resident:.0f}")


def measured(one: Path, other: Path) -> tuple[float, float, float]:
    """Seconds, seconds of processor time and megabytes of one command, the traces being in the page cache."""
    start = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "spectrace", "diff", "--json", str(one), str(other)], stdout=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"spectrace diff ended with {process.returncode}")
    unit = 1e6 if sys.platform == "darwin" else 1e6 / 1024
    return time.perf_counter() - start, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / unit


if __name__ == "__main__":
    main()

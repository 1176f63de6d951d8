"""What does `spectrace diagnose` cost on long traces?

Live traces as a recorder leaves them, of a million steps and of more, and one with every field a recorder can
give. Each is diagnosed in a process of its own: seconds of the whole command and the largest resident memory.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from measure import Results, has_room, options, scratch
from synthetic import write_live


def main() -> None:
    """Prints the table."""
    arguments = options(__doc__).parse_args()
    million = 100_000 if arguments.quick else 1_000_000
    results = Results("Diagnosing long traces")
    with scratch() as folder:
        if not has_room(folder, 3 << 30):
            print("needs 3 GB of free disk")
            return
        once = measured(folder, million, full=False)
        results.at_most(f"{million:,} steps: seconds", once[0], 3.0)
        results.at_most(f"{million:,} steps: MB resident", once[1], 500, "{:.0f}")
        thrice = measured(folder, 3 * million, full=False)
        results.at_most("three times as many steps: times longer", thrice[0] / once[0], 3.3)
        results.at_most("three times as many steps: MB more", thrice[1] - once[1], 50, "{:.0f}")
        rich = measured(folder, million // 4, full=True)
        results.note(f"{million // 4:,} steps with every field: seconds", f"{rich[0]:.2f}")
        results.at_most("with every field: MB resident", rich[1], 500, "{:.0f}")


def measured(folder: Path, rows: int, *, full: bool) -> tuple[float, float]:
    """Seconds and megabytes of one command, the trace being in the page cache."""
    trace = folder / "long.spectrace"
    trace.unlink(missing_ok=True)
    write_live(trace, rows, full=full)
    start = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "spectrace", "diagnose", "--json", str(trace)], stdout=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"spectrace diagnose ended with {process.returncode}")
    unit = 1e6 if sys.platform == "darwin" else 1e6 / 1024
    return time.perf_counter() - start, usage.ru_maxrss / unit


if __name__ == "__main__":
    main()

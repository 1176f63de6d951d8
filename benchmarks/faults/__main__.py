"""Command line of the fault matrix."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from benchmarks.faults import matrix
from benchmarks.faults.faults import Fault
from benchmarks.faults.table import markdown

HERE = Path(__file__).parent


def main() -> None:
    """Runs what was chosen and prints the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.faults", description=__doc__)
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME", help="beginnings of names")
    parser.add_argument("--seeds", type=int, default=3, help="runs of each fault")
    parser.add_argument("--healthy-seeds", type=int, default=1, help="runs of each healthy case")
    parser.add_argument(
        "--keep",
        type=Path,
        metavar="DIR",
        help="keep the traces here; those that are there are not made again",
    )
    parser.add_argument("--write", action="store_true", help="put the table into RESULTS.md")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = chosen.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        results = []
        for case in matrix.chosen(chosen.only):
            seeds = chosen.seeds if isinstance(case, Fault) else chosen.healthy_seeds
            for seed in range(seeds):
                result = matrix.run(case, seed, folder)
                listed = ", ".join(f"{id_} ({strength})" for strength, id_ in result.findings) or "nothing"
                line = f"{result.name} {seed}: {result.verdict}; {listed} [{result.seconds:.0f} s]"
                print(line, file=sys.stderr, flush=True)
                results.append(result)
    page = markdown(results)
    print(page)
    if chosen.write:
        (HERE / "RESULTS.md").write_text(f"{_preface()}\n{page}", encoding="utf-8")


def _preface() -> str:
    """What RESULTS.md says before the first table: written by hand, and kept."""
    text = (HERE / "RESULTS.md").read_text(encoding="utf-8")
    return text.partition("\n| what | count")[0].rstrip() + "\n"


if __name__ == "__main__":
    main()

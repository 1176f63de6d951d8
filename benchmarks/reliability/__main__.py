"""Command line: lets the faults happen and prints the table."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from benchmarks.reliability.faults import FAULTS
from benchmarks.reliability.outcome import Nursery, folder_for
from benchmarks.reliability.table import HEAD, rows

PAGE = Path(__file__).parents[2] / "recorders" / "RELIABILITY.md"
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"


def main() -> None:
    """Runs what was chosen."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reliability", description=__doc__)
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME", help="names of faults")
    parser.add_argument("--runs", type=int, default=3, help="of each fault")
    parser.add_argument("--write", action="store_true", help=f"put the table into {PAGE.name}")
    chosen = parser.parse_args()
    nursery = Nursery()
    outcomes = []
    for fault in FAULTS:
        if chosen.only and fault.name not in chosen.only:
            continue
        for _ in range(chosen.runs):
            with tempfile.TemporaryDirectory() as scratch:
                Path(scratch).chmod(0o755)
                try:
                    with folder_for(fault, Path(scratch)) as folder:
                        outcomes.append(nursery.run(fault, folder))
                except OSError as error:
                    print(f"{fault.name}: left out: {error}", file=sys.stderr)
                    continue
            print(rows(outcomes[-1:])[0], file=sys.stderr, flush=True)
    nursery.close()
    table = "\n".join([HEAD, *rows(outcomes)])
    print(table)
    if chosen.write:
        before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
        after = rest.partition(END)[2]
        PAGE.write_text(f"{before}{BEGIN}\n\n{table}\n\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()

"""Command line of the fault matrix."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks.faults import matrix
from benchmarks.faults.table import markdown

HERE = Path(__file__).parent


def main() -> None:
    """Runs what was chosen and prints the table; a whole run also writes RESULTS.md."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.faults", description=__doc__)
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME", help="beginnings of names")
    parser.add_argument("--seeds", type=int, default=3, help="runs of each case")
    parser.add_argument("--resume", type=Path, metavar="FILE", help="keep results here, and go on from there")
    parser.add_argument("--write", action="store_true", help="write RESULTS.md")
    chosen = parser.parse_args()
    known = {} if chosen.resume is None else matrix.stored(chosen.resume)
    results = []
    for case in matrix.chosen(chosen.only):
        for seed in range(chosen.seeds):
            result = known.get((case.name, seed))
            if result is None:
                result = matrix.run(case, seed)
                if chosen.resume is not None:
                    matrix.append(chosen.resume, result)
            listed = ", ".join(f"{id_} ({strength})" for strength, id_ in result.findings) or "nothing"
            print(f"{case.name} {seed}: {result.verdict}; {listed}", file=sys.stderr, flush=True)
            results.append(result)
    page = markdown(results)
    print(page)
    if chosen.write:
        text = (HERE / "PREFACE.md").read_text(encoding="utf-8") + "\n" + page
        (HERE / "RESULTS.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()

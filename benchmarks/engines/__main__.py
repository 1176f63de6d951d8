"""Command line: runs the engines that are installed here, compares their traces, prints the table."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from benchmarks.engines import runs
from benchmarks.engines.table import markdown

HERE = Path(__file__).parent


def main() -> None:
    """Runs what is not there yet and prints the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.engines", description=__doc__)
    parser.add_argument(
        "--keep", type=Path, metavar="DIR", help="keep the runs here; those that are there are not made again"
    )
    parser.add_argument(
        "--trace",
        nargs=3,
        action="append",
        default=[],
        metavar=("METHOD", "ENGINE", "TRACE"),
        help="one more trace of the same prompts: eagle3, draft_model, ngram",
    )
    parser.add_argument("--write", action="store_true", help="put the table into RESULTS.md")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        found = runs.make(chosen.keep or Path(scratch))
        found += [runs.Run(method, engine, Path(trace)) for method, engine, trace in chosen.trace]
        page = markdown(found)
    print(page)
    if chosen.write:
        (HERE / "RESULTS.md").write_text(f"{_preface()}\n{page}", encoding="utf-8")


def _preface() -> str:
    """What RESULTS.md says before the table: written by hand, and kept."""
    return (HERE / "RESULTS.md").read_text(encoding="utf-8").partition("\n### ")[0].rstrip() + "\n"


if __name__ == "__main__":
    main()

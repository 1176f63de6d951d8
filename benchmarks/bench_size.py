"""How large is a trace?

Live (as recorded) and packed (`spectrace repair --compact`) against the same records as JSON lines through
gzip: 1,000,000 synthetic steps, the same with everything a recorder captures, and a real run of the bundled
models. Needs transformers for the last; without it, says so.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

from measure import Results, options, scratch
from synthetic import write_live

import spectrace
from spectrace.format.jsonl import export_lines
from spectrace.format.repair import repair


def main() -> None:
    """Prints the table."""
    arguments = options(__doc__).parse_args()
    rows = 50_000 if arguments.quick else 1_000_000
    results = Results("Size")
    _measure(results, f"{rows:,} lean synthetic steps", lambda path: write_live(path, rows))
    some = rows // 20
    _measure(results, f"{some:,} full synthetic steps", lambda path: write_live(path, some, full=True))
    try:
        from bundled import record_demo
    except ImportError as error:
        results.note("real run of the bundled models", f"not measured: {error}")
        return
    _measure(results, "real run of the bundled models", record_demo)


def _measure(results: Results, what: str, write: Callable[[Path], None]) -> None:
    with scratch() as folder:
        live, packed = folder / "live.spectrace", folder / "packed.spectrace"
        write(live)
        repair(live, packed, compact=True)
        lines = _gzipped_lines(live, folder / "lines.gz")
        with spectrace.open(live) as trace:
            steps = len(trace.steps)
        sizes = {"live": live.stat().st_size, "packed": packed.stat().st_size, "JSON lines": lines}
    each = " / ".join(f"{size / steps:.0f}" for size in sizes.values())
    results.note(f"{what}: bytes a step, {' / '.join(sizes)} through gzip -6", f"{each} ({steps:,} steps)")
    results.at_most(f"{what}: live / gzip", sizes["live"] / lines, 0.6)
    results.at_most(f"{what}: packed / gzip", sizes["packed"] / lines, 0.45)


def _gzipped_lines(trace: Path, out: Path) -> int:
    """Bytes of what ``spectrace export | gzip -6`` writes."""
    with spectrace.open(trace) as steps, gzip.open(out, "wt", compresslevel=6, encoding="ascii") as file:
        for line in export_lines(steps):
            file.write(line + "\n")
    return out.stat().st_size


if __name__ == "__main__":
    main()

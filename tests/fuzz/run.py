"""Fuzzes the doors of `targets.py` with coverage for a given time: `python tests/fuzz/run.py 60 [TARGET]`.

Needs atheris (`pip install atheris`); `make fuzz` brings it. Each target runs in a process of its own, from
the committed corpus; what it finds on the way is thrown away, an input that fails is kept and named.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
CORPUS = Path(__file__).parent / "corpus"
MAX_LENGTH = 16_384
"""Longest input tried, bytes."""
MEMORY_MB = 1024
SLOW_SECONDS = 20


def fuzz(name: str, arguments: list[str]) -> None:
    """Fuzzes one target in this process; never returns."""
    import atheris

    with atheris.instrument_imports(include=["spectrace"]):
        from tests.fuzz.targets import TARGETS
    atheris.Setup([sys.argv[0], *arguments], TARGETS[name])
    atheris.Fuzz()


def main(seconds: int, names: list[str]) -> int:
    """Fuzzes each target for its share of the time.

    Returns:
        Exit code: 1 when an input failed.
    """
    failed = 0
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            grown = shutil.copytree(CORPUS / name, Path(folder) / "corpus")
            options = [
                f"-max_total_time={max(1, seconds // len(names))}",
                f"-max_len={MAX_LENGTH}",
                f"-rss_limit_mb={MEMORY_MB}",
                f"-timeout={SLOW_SECONDS}",
                f"-artifact_prefix={Path.cwd()}/fuzz-{name}-",
                "-print_final_stats=1",
            ]
            command = [sys.executable, __file__, "--one", name, *options, str(grown)]
            sys.stderr.write(f"fuzzing {name}\n")
            failed |= subprocess.run(command, cwd=folder, check=False).returncode
    return int(bool(failed))


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    if sys.argv[1:2] == ["--one"]:
        fuzz(sys.argv[2], sys.argv[3:])
    chosen = sys.argv[2:] or sorted(path.name for path in CORPUS.iterdir())
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 60, chosen))

"""`pack`: the zip that is attached to an issue, and what it says of itself.

Its members are made from the redacted trace alone, so that nothing in them can say more than that does. The
zip holds no name, time or comment of this machine.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import spectrace
from spectrace.analysis.diagnosis import Diagnosis, diagnose
from spectrace.errors import RecorderError
from spectrace.format.columns import Array
from spectrace.format.reader import Trace
from spectrace.format.text import visible
from spectrace.report.document import document
from spectrace.report.markdown import markdown
from spectrace.report.redacting import Redacted, redact
from spectrace.report.redaction import OTHERS, RUN, STEPS, Rule
from spectrace.report.selecting import asked_for, telling, thinned

MEMBER = "trace.spectrace"
_TIME = (1980, 1, 1, 0, 0, 0)
_TRIES = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """What a pack holds."""

    size: int
    """Bytes of the zip."""
    redacted: Redacted
    include: frozenset[str]


def pack(
    trace: Trace,
    out: Path,
    *,
    name: str,
    include: frozenset[str] = frozenset(),
    around: int | None = None,
    request: str | None = None,
    max_bytes: int = 24_000_000,
    on_progress: Callable[[int], None] | None = None,
) -> Packed:
    """Writes the zip.

    Args:
        trace: the source.
        out: file to create.
        name: what the zip will be called, for the commands in its report.
        include: ``text``, ``paths``: what is kept that is dropped by default.
        around: keep this step and those near it only.
        request: keep the steps of this request only.
        max_bytes: largest zip; steps are left out until it fits.
        on_progress: told how many steps have been read.

    Raises:
        RecorderError: not even a few steps fit, or the file cannot be written.
        UsageError: there is no such step or request.
    """
    wanted = asked_for(trace, around=around, request=request)
    found = diagnose(trace, on_progress=on_progress)
    everything: Array = np.ones(len(trace), bool) if wanted is None else wanted
    first = telling(trace, found)
    # A live trace packs to about two fifths; what is far too large is not even tried whole.
    share = min(1.0, 5.0 * max_bytes / max(1, trace.size_bytes))
    keep = wanted if share == 1.0 else thinned(everything, first, share)
    for _ in range(_TRIES):
        done = _written(trace, out, found, include, keep, name)
        size = out.stat().st_size
        if size <= max_bytes:
            return Packed(size=size, redacted=done, include=include)
        out.unlink()
        share *= min(0.9 * max_bytes / size, 0.7)
        keep = thinned(everything, first, share)
    raise RecorderError(f"{name}: {max_bytes:,} bytes are too few for this trace, whatever is left out")


def _written(
    trace: Trace, out: Path, found: Diagnosis, include: frozenset[str], keep: Array | None, name: str
) -> Redacted:
    with tempfile.TemporaryDirectory(prefix="spectrace-") as folder:
        inner = Path(folder) / MEMBER
        done = redact(trace, inner, found, include=include, keep=keep)
        with spectrace.open(inner) as packed:
            removed = list(removed_lines(done, include))
            report = markdown(document(packed, name=name, removed=removed))
            environment = environment_text(packed.run_mapping)
        members = {
            "report.md": report,
            "environment.txt": environment,
            "manifest.json": json.dumps(manifest(done, include), indent=2) + "\n",
        }
        with zipfile.ZipFile(out, "x") as archive:
            with archive.open(_info(MEMBER, zipfile.ZIP_STORED), "w") as member, inner.open("rb") as file:
                shutil.copyfileobj(file, member, 1 << 20)
            for member_name, text in members.items():
                archive.writestr(_info(member_name, zipfile.ZIP_DEFLATED), text)
    return done


def _info(name: str, compression: int) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, _TIME)
    info.compress_type = compression
    info.external_attr = 0o100644 << 16
    return info


# --- what it says of itself ------------------------------------------------------------------------


def removed_lines(done: Redacted, include: frozenset[str]) -> Iterator[str]:
    """What was dropped or reduced and why, one sentence per field that was there."""
    for rule in _acting(include):
        count = done.removed.get(rule.path, 0)
        if count:
            yield f"{rule.path}: {count:,} values {rule.action}: {rule.note}"
    yield (
        "every prompt, token text, reference row and unknown field: dropped"
        if "text" not in include
        else ("unknown fields: dropped")
    )


def manifest(done: Redacted, include: frozenset[str]) -> dict[str, Any]:
    """What was kept, reduced and dropped, as plain values."""
    return {
        "made_by": f"spectrace {spectrace.__version__}",
        "source": {"sha256": done.source_sha256, "steps": done.source_steps},
        "steps": done.steps,
        "steps_left_out": done.source_steps - done.steps,
        "include": sorted(include),
        "fields": [
            {
                "field": rule.path,
                "action": "kept" if rule.include in include else rule.action,
                "how": rule.note,
                **({"values": done.removed[rule.path]} if rule.path in done.removed else {}),
            }
            for rule in (*RUN, *STEPS, *OTHERS)
        ],
    }


def _acting(include: frozenset[str]) -> Iterator[Rule]:
    return (rule for rule in (*STEPS, *RUN) if rule.action != "kept" and rule.include not in include)


def environment_text(run: dict[str, Any]) -> str:
    """What the header says of the machine and the models, one line per fact."""
    lines = list(_facts({key: value for key, value in run.items() if key not in ("packed", "draft")}, ""))
    draft = {k: v for k, v in (run.get("draft") or {}).items() if k != "fingerprints"}
    return "\n".join([*lines, *_facts(draft, "draft.")]) + "\n"


def _facts(value: dict[str, Any], path: str) -> Iterator[str]:
    for key, item in value.items():
        if isinstance(item, dict):
            yield from _facts(item, f"{path}{key}.")
        elif not isinstance(item, list) or len(item) <= 32:
            text = json.dumps(item, default=str)  # a header may hold bytes
            yield f"{visible(path + str(key), limit=120)}: {visible(text, limit=200)}"

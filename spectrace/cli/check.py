"""`spectrace check`: a draft checkpoint judged without running it, and without torch."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from spectrace.analysis.draft.report import CheckReport, check_draft
from spectrace.checkpoint.directory import open_checkpoint, open_table
from spectrace.checkpoint.files import read_object
from spectrace.cli.arguments import json_option
from spectrace.cli.check_text import report_lines
from spectrace.cli.output import print_json, print_lines, progress, say, shown
from spectrace.errors import CheckpointError, UsageError
from spectrace.format.text import visible

if TYPE_CHECKING:
    from spectrace.checkpoint.records import Checkpoint, Fault

_DIRECTORY = click.Path(path_type=Path, readable=False)  # the check itself says what cannot be read
_FREQUENCIES_LIMIT = 64 << 20
_TARGET_WEIGHTS = ("embed_tokens.weight", "lm_head.weight")
_SHOWN_FAULTS = 8


@click.command("check")
@click.argument("draft", metavar="DRAFT", type=_DIRECTORY)
@click.option(
    "--target", type=_DIRECTORY, metavar="T", help="Directory of the target; its config.json is enough."
)
@click.option(
    "--vocab-mapping",
    "mapping",
    type=_DIRECTORY,
    metavar="DIR",
    help="Compare the map with those in DIR: a training run's folder, or another checkpoint.",
)
@click.option(
    "--token-frequencies",
    "counted",
    type=_DIRECTORY,
    metavar="FILE",
    help="JSON object {target id: count}: how much of a text the draft's ids cover.",
)
@json_option("one JSON object")
def command(
    draft: Path, target: Path | None, mapping: Path | None, counted: Path | None, as_json: bool
) -> int:
    """Judge a draft checkpoint without running it.

    DRAFT is a model directory. Answers which causes are found, cleared, or cannot be checked: the vocabulary
    map, missing weights, the layers each engine would feed, norms, rotary settings, tokenizer. Then come the
    tables.

    The exit code is 0 whether or not something is found, and 1 where a file is damaged.
    """
    with progress("reading", None) as show:
        own = open_checkpoint(_there(draft), with_values=True, on_progress=show)
    theirs = None if target is None else open_checkpoint(_there(target), ending=_TARGET_WEIGHTS)
    others, faults = (None, ()) if mapping is None else open_table(_there(mapping))
    report = check_draft(own, theirs, others, None if counted is None else _frequencies(_there(counted)))
    problems = [*own.faults, *(theirs.faults if theirs else ()), *faults]
    if as_json:
        print_json(_mapping(own, theirs, report, problems))
    else:
        print_lines(_text(own, theirs, report, problems))
    for line in _sentences(problems):
        say(line)
    return 1 if any(fault.needs is None for fault in problems) else 0


def _there(path: Path) -> Path:
    """A path that names something, if only a broken link.

    Raises:
        UsageError: it does not.
    """
    if not os.path.lexists(path):
        raise UsageError(f"{shown(path)}: does not exist")
    return path


def _frequencies(path: Path) -> dict[int, int]:
    """Target id -> count.

    Raises:
        CheckpointError: the file is no such object.
    """
    found: dict[int, int] = {}
    for key, value in read_object(path, _FREQUENCIES_LIMIT).items():
        is_id = key.isdecimal() and key.isascii() and len(key) < 10
        if not is_id or not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**63:
            raise CheckpointError(path, f"{visible(key, limit=40)}: expected a token id and a count")
        found[int(key)] = value
    return found


def _sentences(faults: list[Fault]) -> Iterator[str]:
    """One sentence per file that could not be read, or per tensor of it."""
    for fault in faults[:_SHOWN_FAULTS]:
        tensor = "" if fault.tensor is None else f"tensor {visible(fault.tensor, limit=80)}: "
        yield f"spectrace: {shown(fault.file)}: {tensor}{visible(fault.what)}"
    if len(faults) > _SHOWN_FAULTS:
        yield f"spectrace: and {len(faults) - _SHOWN_FAULTS:,} more like these; --json lists all"


def _text(
    own: Checkpoint, theirs: Checkpoint | None, report: CheckReport, faults: list[Fault]
) -> Iterator[str]:
    names = {"draft": shown(own.path), "target": None if theirs is None else shown(theirs.path)}
    return report_lines(report, names, files=own.files, unread=own.unread, num_faults=len(faults))


def _mapping(
    own: Checkpoint, theirs: Checkpoint | None, report: CheckReport, faults: list[Fault]
) -> dict[str, Any]:
    return {
        "path": str(own.path),
        "target_path": None if theirs is None else str(theirs.path),
        "files": list(own.files),
        "unread": list(own.unread),
        "problems": [
            {"file": fault.file, "tensor": fault.tensor, "what": fault.what, "needs": fault.needs}
            for fault in faults
        ],
        **report.to_mapping(),
    }

"""Which recorder runs which models: the one place of the command line that names engines.

Reads a draft's config and nothing else of a model; imports no engine.
"""

from __future__ import annotations

import os
from pathlib import Path

from spectrace.analysis.draft.facts import gather
from spectrace.checkpoint.directory import open_checkpoint
from spectrace.cli.output import shown
from spectrace.errors import CheckpointError, RecorderError, UsageError

TRANSFORMERS = "transformers"
EAGLE3 = "eagle3"


def extra_of(engine: str) -> str:
    """The extra of the package that installs what an engine needs."""
    return TRANSFORMERS if engine == EAGLE3 else engine


def engine_for(draft: Path | None) -> str:
    """The recorder that runs a draft: transformers has no EAGLE.

    Args:
        draft: its folder; None where something else proposes.
    """
    if draft is None:
        return TRANSFORMERS
    try:
        kind = gather(open_checkpoint(draft), None).kind
    except CheckpointError:
        return TRANSFORMERS  # which says what is wrong with it
    return EAGLE3 if kind == "eagle3" else TRANSFORMERS


def model_folder(given: str) -> Path:
    """The folder of a model.

    Args:
        given: as typed.

    Raises:
        UsageError: there is no such folder; a name of the Hugging Face Hub gets the line that fetches it.
        RecorderError: there is, and it holds no model.
    """
    folder = Path(given)
    if not folder.is_dir() and os.path.lexists(folder):
        raise RecorderError(f"{shown(given)}: is no folder that can be read")
    if not folder.is_dir():
        raise UsageError(
            f"{shown(given)}: no such folder; spectrace downloads nothing, this does: "
            f"hf download NAME --local-dir FOLDER"
        )
    if not (folder / "config.json").is_file():
        raise RecorderError(f"{shown(given)}: holds no config.json, so it is not a model's folder")
    return folder

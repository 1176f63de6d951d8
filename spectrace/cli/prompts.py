"""Prompts from the command line and from files, and those of the predictable control."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import click

from spectrace.cli.output import shown
from spectrace.errors import UsageError

_PROMPT_LINES = (".jsonl", ".ndjson")

PREDICTABLE = (
    " ".join(f"{number}," for number in range(1, 41)),
    "red green blue " * 12,
    "The cat sat on the mat. " * 8,
    "once upon a time there was a king, " * 6,
    "\n".join(f"line {number}: all is well" for number in range(1, 13)),
    "yes no yes no " * 12,
)
"""Texts whose continuation nobody can miss: counting, and the same words again and again."""


def prompts_given(texts: Sequence[str], file: str | None) -> list[str]:
    """Every prompt that was given, those of the file last.

    Args:
        texts: from the command line.
        file: a line each, or ``-``.

    Raises:
        UsageError: there is none, or the file is not what it should be.
    """
    prompts = [*texts, *([] if file is None else _read_prompts(file))]
    if not prompts:
        raise UsageError("give a prompt: --prompt TEXT, or --prompts FILE with a line each")
    return prompts


def _read_prompts(file: str) -> list[str]:
    is_json = Path(file).suffix in _PROMPT_LINES
    try:
        with click.open_file(file, encoding="utf-8") as lines:
            return [
                _json_prompt(file, number, line) if is_json else line.rstrip("\r\n")
                for number, line in enumerate(lines, 1)
                if line.strip()
            ]
    except UnicodeDecodeError:
        raise UsageError(f"{shown(file)}: is not UTF-8 text") from None


def _json_prompt(file: str, line_number: int, line: str) -> str:
    try:
        found = json.loads(line)
    except (json.JSONDecodeError, RecursionError):
        found = None
    prompt = found.get("prompt") if isinstance(found, dict) else None
    if not isinstance(prompt, str):
        name = shown(file)
        raise UsageError(f'{name}: line {line_number:,} must be an object with a text "prompt"')
    return prompt

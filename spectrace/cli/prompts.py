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
    " ".join(["1, 2, 3, 4, 5,"] * 10),
    " ".join(["red green blue"] * 12),
    " ".join(["The cat sat on the mat."] * 8),
    " ".join(["once upon a time there was a king,"] * 6),
    "all is well\n" * 12,
    " ".join(["yes no"] * 16),
)
"""Texts that say the same again and again; none ends in a space, which would be a token of its own."""


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
    for prompt in prompts:
        if any("\ud800" <= letter <= "\udfff" for letter in prompt):
            source = "--prompt" if prompt in texts else f"--prompts {shown(file or '-')}"
            raise UsageError(f"{source}: a prompt is not text: it holds bytes or halves of letters")
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

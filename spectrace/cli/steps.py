"""`spectrace steps`: one line per step, as text or as JSON lines, streaming from the file."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import click

import spectrace
from spectrace.analysis.rejection import node_states
from spectrace.analysis.where import NAMES, parse_where
from spectrace.cli.arguments import TRACE, json_option
from spectrace.cli.output import has_colour, print_lines, say, shown
from spectrace.errors import UsageError
from spectrace.format.jsonl import json_line, step_object
from spectrace.format.text import visible

if TYPE_CHECKING:
    from spectrace import Step, Trace

Numbered = tuple[int, "Step"]

GLYPHS = {
    "accepted": "=",
    "rejected": "x",
    "passed_over": "-",
    "not_reached": "·",
    "bonus": "+",
    "target": "+",
}
"""What became of a token -> the sign before it."""
_COLOURS = {"=": "green", "x": "red", "+": "cyan"}
_MAX_TOKENS = 1000
"""Most tokens of a step that a line shows."""
_MAX_TEXT = 40
"""Characters shown of one token or request name."""


@click.command("steps", epilog=f"Names in an expression: {', '.join(NAMES)}.")
@click.argument("path", metavar="TRACE", type=TRACE)
@click.option("--where", "expression", metavar="EXPR", help="Only steps that fulfil EXPR.")
@click.option("--request", metavar="R", help="Only steps of this request, by its name or its external_id.")
@click.option("--limit", type=click.IntRange(min=0), metavar="N", help="At most N steps.")
@json_option("JSON lines, as export does")
def command(
    path: Path, expression: str | None, request: str | None, limit: int | None, as_json: bool
) -> None:
    """Print one line per step.

    Columns: number of the step in the trace, request, number within the request, position, accepted/proposed,
    then the tokens: = accepted, x the first rejected, · not reached, - passed over in a tree, + the target's
    own. Tokens are texts in quotes where the trace holds them, else ids.

    \b
    EXPR compares fields with numbers and quoted texts:
      accepted < 2 and position > 2048
      final_kind == "corrected" and not "prefill" in flags
      stop or 1 <= drafted <= 3
      "cmpl-8e" in request and 1234 in emitted_ids    # a part of a text, one of a list
    A field alone is true when it is there and neither zero nor empty. A value that a step lacks, such as
    accepted where nothing was proposed, fits != and not in only.
    """  # noqa: D301 (click wants a real backspace)
    try:
        where = None if expression is None else parse_where(expression)
    except UsageError as error:
        raise UsageError(f"--where: {error}") from None
    with spectrace.open(path) as trace:
        steps = numbered_steps(trace)
        if request is not None:
            named = _named(trace, request)
            if not named:
                raise UsageError(f"no request {visible(request)} in {shown(path)}")
            steps = (pair for pair in steps if pair[1].request in named)
        if where is not None:
            steps = (pair for pair in steps if where.matches(pair[1]))
        steps = islice(steps, None if limit is None else min(limit, sys.maxsize))
        if as_json:
            print_lines(json_line(step_object(step)) for _, step in steps)
        else:
            show = line_printer(trace)
            print_lines(show(number, step) for number, step in steps)
        for problem in trace.problems:
            say(f"problem: {visible(problem)}")


def _named(trace: Trace, request: str) -> frozenset[str]:
    """Names of the requests that are meant: the one of that name, else those of that external_id."""
    if trace.requests.get(request) is not None:
        return frozenset([request])
    return frozenset(one.request for one in trace.requests if one.external_id == request)


def numbered_steps(trace: Trace) -> Iterator[Numbered]:
    """Every whole step with its number in the trace; damaged ones leave a hole in the numbers."""
    base = 0
    for part in trace.parts:
        for chunk in part.chunks():
            for row in range(chunk.num_rows):
                yield base + chunk.first_row + row, chunk.step(row)
        base += part.num_rows


def line_printer(trace: Trace) -> Callable[[int, Step], str]:
    """A function that makes the line of a step; everything out of the file is shown as visible text."""
    width, colour = len(f"{max(len(trace.steps) - 1, 0):,}"), has_colour()

    def show(number: int, step: Step) -> str:
        fields = (
            f"{number:>{width},}",
            visible(step.request, limit=_MAX_TEXT).ljust(8),
            f"{step.step:>4}",
            f"{step.position:>6}",
            f"{step.num_accepted}/{len(step.proposal_ids)}".rjust(5),
            "(sums of a request)" if "summed" in (step.flags or ()) else _tokens(trace, step, colour),
            *(f"[{visible(word, limit=_MAX_TEXT)}]" for word in (step.final_kind, step.stop) if word),
        )
        return "  ".join(fields).rstrip()

    return show


def _tokens(trace: Trace, step: Step, colour: bool) -> str:
    """The tokens of a step, the first thousand, and the target's own after a refusal."""
    states = node_states(step)
    tokens = [_shown(trace, GLYPHS[s.status], s.token_id, colour) for s in states[:_MAX_TOKENS]]
    if len(states) > _MAX_TOKENS:
        tokens.append(f"... and {len(states) - _MAX_TOKENS:,} more (--json has all)")
    own = next((state for state in states if state.status == "rejected"), None)
    if own is not None and own.wanted_id is not None:
        tokens.append(_shown(trace, "+", own.wanted_id, colour))
    return " ".join(tokens)


def _shown(trace: Trace, glyph: str, token_id: int | None, colour: bool) -> str:
    text = None if token_id is None else trace.token_text(token_id)
    if text is not None:
        quoted = visible(text, limit=_MAX_TEXT).replace('"', '\\"')
        text = f'"{quoted}"'
    token = glyph + (text or ("?" if token_id is None else str(token_id)))
    if colour and glyph in _COLOURS:
        return click.style(token, fg=_COLOURS[glyph])
    return click.style(token, dim=True) if colour else token

"""`spectrace probe`: runs a draft alone on given or recorded text, beside every way of doing it wrong.

Found by the entry points `spectrace.probes`; no engine is imported here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import click

import spectrace
from spectrace.analysis.intervals import Share
from spectrace.analysis.probing import ProbeRow, best_row
from spectrace.cli.arguments import TRACE, json_option
from spectrace.cli.output import number, print_json, print_lines, progress, shown, table
from spectrace.cli.record import EAGLE3, TRANSFORMERS, engine_for, model_folder, prompts_given
from spectrace.errors import EngineNotInstalled, RecorderError, UsageError
from spectrace.format.records import Step

GROUP = "spectrace.probes"
_GREEDY = "greedy"
Chain = tuple[int, list[int], list[float]]
"""Committed length, proposed ids, log q of each."""


@click.command("probe")
@click.argument("path", metavar="[TRACE]", type=TRACE, required=False)
@click.option("--target", required=True, metavar="DIR", help="Folder of the target model.")
@click.option("--draft", required=True, metavar="DIR", help="Folder of the EAGLE-3 draft.")
@click.option("--prompt", "texts", multiple=True, metavar="TEXT", help="A text to read; may be given again.")
@click.option(
    "--prompts",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True),
    metavar="FILE",
    help='One text per line; in a .jsonl file {"prompt": ...}.',
)
@click.option(
    "--depth",
    type=click.IntRange(1, 16),
    default=3,
    show_default=True,
    metavar="D",
    help="Tokens drafted one after the other.",
)
@click.option(
    "--dtype",
    type=click.Choice(["auto", "float32", "bfloat16", "float16"]),
    default="auto",
    show_default=True,
    help="auto: as the checkpoint says.",
)
@click.option("--device", metavar="NAME", help="cpu, cuda, cuda:1, mps.  [default: a GPU where there is one]")
@json_option("the counts as one JSON object")
def command(
    path: Path | None,
    target: str,
    draft: str,
    texts: tuple[str, ...],
    prompts: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Run a draft alone, and count how often it is right.

    The stand-alone test: the target reads a text, the draft drafts after every position of it from the true
    tokens, and the table says how often its token is the target's. Each further line is the same with one
    thing done differently: map, layers, norms, token, position, the draft's own layer left out.

    \b
    spectrace probe --target T --draft EAGLE3 --prompts texts.txt
    spectrace probe run.spectrace --target T --draft EAGLE3

    With a TRACE of greedy chains the texts are those of the trace, and the column "recorded" says how many of
    the tokens that were proposed there each line proposes too: the best line is what the engine did.
    """  # noqa: D301 (click wants a real backspace)
    folders = {"target": model_folder(target), "draft": model_folder(draft)}
    if engine_for(folders["draft"]) != EAGLE3:
        raise RecorderError(
            f"{shown(draft)}: is no EAGLE-3 draft; other drafts are models that run by themselves"
        )
    given = prompts_given(texts, prompts) if texts or prompts else []
    recorded = [] if path is None else _recorded(path)
    if not given and not recorded:
        raise UsageError("give a TRACE, --prompt TEXT or --prompts FILE")
    with progress("probing", None) as show:
        found = _probe()(
            prompts=given, recorded=recorded, on_progress=lambda done, _: show(done), **folders, **options
        )
    if as_json:
        print_json({**found, "best": best_row([_row(row) for row in found["rows"]])})
    else:
        print_lines(_lines(found))


def _probe() -> Any:
    for entry in entry_points(group=GROUP):
        if entry.name == EAGLE3:
            try:
                return entry.load()
            except ImportError as error:
                raise EngineNotInstalled("eagle3", TRANSFORMERS) from error
    raise UsageError("no probe is installed; type: pip install spectrace-tui")


# --- what was recorded -----------------------------------------------------------------------------


def _recorded(path: Path) -> list[tuple[list[int], int, list[Chain]]]:
    """Text, length of the prompt and proposals of every request whose prompt is in the trace."""
    with spectrace.open(path) as trace:
        is_greedy = trace.run.verification is not None and trace.run.verification.rule == _GREEDY
        tree = trace.run.speculation is not None and trace.run.speculation.tree is not None
        steps: dict[str, list[Step]] = {}
        for step in trace:
            steps.setdefault(step.request, []).append(step)
        found = []
        for request in trace.requests:
            if request.prompt_ids is None:
                continue
            own = sorted(steps.get(request.request, ()), key=lambda step: step.position)
            ids = [*request.prompt_ids, *(id_ for step in own for id_ in step.emitted_ids if id_ is not None)]
            chains: list[Chain] = [
                (
                    step.position,
                    [i for i in step.proposal_ids if i is not None],
                    list(step.draft_logprobs or ()),
                )
                for step in own
                if is_greedy and not tree
            ]
            found.append((ids, len(request.prompt_ids), chains))
    if not found:
        raise RecorderError(f"{shown(path)}: holds no prompts, so there is no text to read")
    return found


# --- what is said ----------------------------------------------------------------------------------


def _lines(found: Mapping[str, Any]) -> Iterator[str]:
    rows = [_row(row) for row in found["rows"]]
    best = best_row(rows)
    is_recorded = rows[0].same.trials > 0
    heads = [
        "",
        *(f"depth {d + 1}" for d in range(len(rows[0].right))),
        *(["recorded"] if is_recorded else []),
    ]
    yield from table(heads, [_cells(row, at == best, is_recorded) for at, row in enumerate(rows)])
    first = rows[0].right[0]
    yield ""
    yield (
        f"right at depth 1 as this decoder runs it: {number(first.value)} "
        f"({number(first.low)}-{number(first.high)}), {first.successes:,} of {first.trials:,}"
    )
    if found["declared_accuracy"] is not None:
        yield f"its training reported {number(float(found['declared_accuracy']))}"
    yield _verdict(rows, best, is_recorded)


def _row(row: Mapping[str, Any]) -> ProbeRow:
    right = tuple(Share(hits, trials) for hits, trials in row["right"])
    return ProbeRow(row["name"], right, Share(*row["same"]), row["apart"])


def _cells(row: ProbeRow, is_best: bool, is_recorded: bool) -> list[str]:
    shares = [*row.right, *([row.same] if is_recorded else [])]
    return [f"{'*' if is_best else ' '} {row.name}", *(number(share.value) for share in shares)]


def _verdict(rows: Sequence[ProbeRow], best: int | None, is_recorded: bool) -> str:
    if best is None:
        return "none of these is what the recorded run did"
    if is_recorded:
        same = rows[best].same
        counts = f"{same.successes:,} of {same.trials:,} proposed tokens"
        apart = "" if rows[best].apart is None else f", log q apart by {number(rows[best].apart, 4)}"
        return f"* what the recorded run did: {rows[best].name}, {counts}{apart}"
    if best == 0:
        return "* nothing else does better"
    return f"* does better: {rows[best].name}"

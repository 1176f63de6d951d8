"""`spectrace probe`: runs a draft alone on given or recorded text, beside every way of doing it wrong.

Found by the entry points `spectrace.probes`; no engine is imported here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import click

import spectrace
from spectrace.analysis.intervals import Share
from spectrace.analysis.probing import SAME_STATES, ProbeRow, best_row
from spectrace.cli.arguments import TRACE, json_option
from spectrace.cli.engines import EAGLE3, TRANSFORMERS, engine_for, model_folder
from spectrace.cli.output import print_json, print_lines, progress, shown, table
from spectrace.cli.prompts import prompts_given
from spectrace.cli.verdicts import wrapped
from spectrace.errors import EngineNotInstalled, RecorderError, UsageError
from spectrace.format.figures import number
from spectrace.format.records import Run, Step
from spectrace.format.text import visible

GROUP = "spectrace.probes"
_ACCURACY = "first_position_accuracy"
Proposal = tuple[int, list[int], list[int] | None, list[float]]
"""Committed length, proposed ids, parents in a tree, log q of each where it is known."""


@dataclass
class _Recording:
    """What a trace holds for a probe."""

    path: Path
    run: Run
    texts: list[tuple[str, list[int], int, list[Proposal]]] = field(default_factory=list)
    """Request, token ids, length of the prompt, proposals."""
    num_tokens: int = 0
    """Proposed tokens, those that cannot be replayed included."""

    def words(self, replayed: int) -> str:
        """What is replayed, as a sentence.

        Args:
            replayed: tokens.
        """
        told = f"recorded: of the {replayed:,} tokens that were proposed, how many a line proposes too"
        if any(parents is not None for text in self.texts for _, _, parents, _ in text[3]):
            told += "; trees are replayed path by path"
        if self.run.verification is not None and self.run.verification.rule == "rejection_sampling":
            told += "; they were drawn, so the same means the same log q"
        if self.num_tokens > replayed:
            lost = self.num_tokens - replayed
            told += f"; {lost:,} more cannot be replayed: they contradict themselves or the text"
        return told


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

    With a TRACE the texts are those of the trace, and the column "recorded" says how many of the tokens that
    were proposed there each line proposes too: the best line is what the engine did. Chains and trees, greedy
    and sampled, are replayed. Where `spectrace record --states N` wrote raw states beside the trace, the
    draft is judged on those too.
    """  # noqa: D301 (click wants a real backspace)
    folders = {"target": model_folder(target), "draft": model_folder(draft)}
    if engine_for(folders["draft"]) != EAGLE3:
        raise RecorderError(
            f"{shown(draft)}: is no EAGLE-3 draft; other drafts are models that run by themselves"
        )
    given = prompts_given(texts, prompts) if texts or prompts else []
    if path is None and not given:
        raise UsageError("give a TRACE, --prompt TEXT or --prompts FILE")
    recording = None if path is None else _recorded(path)
    if recording is not None:
        options |= {"recorded": recording.texts, "trace": recording.path, "run": recording.run}
    with progress("probing", None) as show:
        found = _probe()(prompts=given, on_progress=lambda done, _: show(done), **folders, **options)
    if as_json:
        print_json({**found, "best": best_row([_row(row) for row in found["rows"]])})
    else:
        print_lines(_lines(found, recording))


def _probe() -> Any:
    for entry in entry_points(group=GROUP):
        if entry.name == EAGLE3:
            try:
                return entry.load()
            except ImportError as error:
                raise EngineNotInstalled("eagle3", TRANSFORMERS) from error
    raise UsageError("no probe is installed; type: pip install spectrace-tui")


# --- what was recorded -----------------------------------------------------------------------------


def _recorded(path: Path) -> _Recording:
    """Text, length of the prompt and proposals of every request whose prompt is in the trace."""
    with spectrace.open(path) as trace:
        found = _Recording(path, trace.run)
        steps: dict[str, list[Step]] = {}
        for step in trace:
            steps.setdefault(step.request, []).append(step)
        for request in trace.requests:
            if request.prompt_ids is None:
                continue
            own = sorted(steps.get(request.request, ()), key=lambda step: step.position)
            new = [token for step in own for token in step.emitted_ids]
            ids = [token for token in (*request.prompt_ids, *new) if token is not None]
            if len(ids) < len(request.prompt_ids) + len(new):
                continue
            proposals = [_proposal(step) for step in own if step.proposal_ids]
            found.num_tokens += sum(len(step.proposal_ids) for step in own)
            sound = [proposal for proposal in proposals if proposal is not None]
            found.texts.append((request.request, ids, len(request.prompt_ids), sound))
    if not found.texts:
        raise RecorderError(f"{shown(path)}: holds no prompts, so there is no text to read")
    return found


def _proposal(step: Step) -> Proposal | None:
    """A proposal to replay; None where its lists contradict each other."""
    ids = [token for token in step.proposal_ids if token is not None]
    logq = list(step.draft_logprobs or ())
    parents = None if step.parents is None else list(step.parents)
    if len(ids) < len(step.proposal_ids):
        return None
    if parents is not None and (
        len(parents) != len(ids) or not all(type(p) is int and -1 <= p < i for i, p in enumerate(parents))
    ):
        return None
    if len(logq) != len(ids) or any(value is None for value in logq):
        logq = []
    return step.position, ids, parents, logq


# --- what is said ----------------------------------------------------------------------------------


def _lines(found: Mapping[str, Any], recording: _Recording | None) -> Iterator[str]:
    rows = [_row(row) for row in found["rows"]]
    best = best_row(rows)
    is_recorded = rows[0].same.trials > 0
    depths = [str(d + 1) for d in range(len(rows[0].right))]
    heads = ["", f"{depths[0]} (95 %)", *depths[1:], *(["recorded"] if is_recorded else [])]
    yield from table(heads, [_cells(row, at == best, is_recorded) for at, row in enumerate(rows)])
    yield ""
    first = rows[0].right[0]
    which = "1" if len(depths) == 1 else f"1-{depths[-1]}"
    yield f"{which}: how often that token of a draft is the target's own choice, {first.trials:,} positions"
    if recording is not None and recording.num_tokens:
        yield from wrapped("", recording.words(rows[0].same.trials))
    yield f"right at once, as this decoder runs it: {_interval(first)}"
    in_trace = None if recording is None else (recording.run.training or {}).get(_ACCURACY)
    yield from _declared("its config.json", found["declared_accuracy"], first)
    if in_trace != found["declared_accuracy"]:
        yield from _declared("the trace", in_trace, first)
    if found["states"] is not None:
        yield from _states(found["states"])
    if found["other_weights"]:
        names = ", ".join(visible(name) for name in found["other_weights"][:4])
        yield from wrapped("", f"the recorded run had other weights than this checkpoint: {names}")
    yield from wrapped("", _verdict(rows, best, is_recorded, bool(found["other_weights"])))


def _interval(share: Share) -> str:
    """A share with its Wilson interval and its counts."""
    return (
        f"{number(share.value)} ({number(share.low)}-{number(share.high)}), "
        f"{share.successes:,} of {share.trials:,}"
    )


def _declared(source: str, accuracy: Any, measured: Share) -> Iterator[str]:
    """What a training reported beside what was measured, and what that means."""
    if not isinstance(accuracy, (int, float)) or isinstance(accuracy, bool) or not measured.trials:
        return
    words = f"training reported {number(float(accuracy))} ({source})"
    if accuracy > measured.high:
        yield from wrapped("", f"{words}: here it does worse; other text, or not fed as in training")
    elif accuracy < measured.low:
        yield f"{words}: here it does better"
    else:
        yield f"{words}: within the interval"


def _states(found: Mapping[str, Any]) -> Iterator[str]:
    """Accuracy on the raw states of the run, and what these states are."""
    fed, own = Share(*found["right"][0]), Share(*found["own"][0])
    yield f"on the states that the run fed it: {_interval(fed)}"
    yield f"on the target's states at the same tokens: {_interval(own)}"
    for at, tap in enumerate(found["taps"]):
        name = f"B({tap['boundary']})" + (" after the final norm" if tap["normed"] else "")
        is_it = tap["distance"] < SAME_STATES
        what = f"is {name}" if is_it else f"is no state of the target; nearest {name}"
        mark = "" if is_it and not tap["normed"] and tap["boundary"] == tap["declared"] else " *"
        apart = number(tap["distance"], 4)
        yield f"  tap {at + 1}, declared B({tap['declared']}): {what}, apart by {apart} of its size{mark}"


def _row(row: Mapping[str, Any]) -> ProbeRow:
    right = tuple(Share(hits, trials) for hits, trials in row["right"])
    return ProbeRow(row["name"], right, Share(*row["same"]), row["apart"])


def _cells(row: ProbeRow, is_best: bool, is_recorded: bool) -> list[str]:
    first = row.right[0]
    interval = f" ({number(first.low)}-{number(first.high)})" if first.trials else ""
    shares = [*row.right[1:], *([row.same] if is_recorded else [])]
    name = f"{'*' if is_best else ' '} {row.name}"
    return [name, f"{number(first.value)}{interval}", *(number(share.value) for share in shares)]


def _verdict(rows: Sequence[ProbeRow], best: int | None, is_recorded: bool, has_others: bool) -> str:
    if best is None:
        why = "; its other weights can be why" if has_others else ""
        return f"none of these is what the recorded run did{why}"
    if is_recorded:
        same = rows[best].same
        counts = f"{same.successes:,} of {same.trials:,} proposed tokens"
        apart = "" if rows[best].apart is None else f", log q apart by {number(rows[best].apart, 4)}"
        if best == 0:
            return f"* the recorded run did what this decoder does: {counts}{apart}"
        return f"* what the recorded run did: {rows[best].name}, {counts}{apart}"
    if best == 0:
        return "* nothing else does better"
    return f"* does better: {rows[best].name}"

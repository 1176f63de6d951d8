"""`spectrace record`: checks what was asked for, has an engine's recorder do it, says what came out.

Recorders are found by the entry points `spectrace.recorders`; each is one function `generate`. No engine is
imported here, and a wrong path or option is refused before one is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import click

import spectrace
from spectrace.analysis.draft.facts import gather
from spectrace.checkpoint.directory import open_checkpoint
from spectrace.cli.arguments import check_out, json_option, out_option, overwrite_option
from spectrace.cli.output import number, print_json, print_lines, progress, shown
from spectrace.cli.stats import summary
from spectrace.errors import CheckpointError, EngineNotInstalled, RecorderError, UsageError
from spectrace.format.text import visible

if TYPE_CHECKING:
    from spectrace import Trace

GROUP = "spectrace.recorders"
TRANSFORMERS = "transformers"
EAGLE3 = "eagle3"
_PROMPT_LINES = (".jsonl", ".ndjson")


class Generate(Protocol):
    """What the entry point of a recorder is: runs a generation and writes its trace."""

    def __call__(self, out: Path, prompts: Sequence[str], **options: Any) -> None:
        """See `spectrace_transformers.generation.generate` for the options."""


@click.command("record")
@click.option("--target", required=True, metavar="DIR", help="Folder of the target model.")
@click.option("--draft", metavar="DIR", help="Folder of the draft model.")
@click.option(
    "--prompt-lookup",
    type=click.IntRange(1),
    metavar="N",
    help="No draft: propose N tokens found in the text so far.",
)
@click.option(
    "--early-exit",
    type=click.IntRange(1),
    metavar="N",
    help="No draft: propose with the target's first N layers.",
)
@click.option("--prompt", "texts", multiple=True, metavar="TEXT", help="A prompt; may be given again.")
@click.option(
    "--prompts",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True),
    metavar="FILE",
    help='One prompt per line; in a .jsonl file {"prompt": ...}.',
)
@out_option()
@overwrite_option
@click.option(
    "--num-draft-tokens",
    type=click.IntRange(1),
    metavar="K",
    help="Tokens of every proposal.  [default: as the draft's generation config says]",
)
@click.option(
    "--max-new-tokens",
    type=click.IntRange(1),
    default=128,
    show_default=True,
    metavar="N",
    help="Tokens per prompt.",
)
@click.option(
    "--temperature",
    type=click.FloatRange(0),
    default=0.0,
    metavar="T",
    help="Sample with this temperature.  [default: 0, greedy]",
)
@click.option("--top-k", type=click.IntRange(1), metavar="N", help="Sample among the N best.  [default: all]")
@click.option(
    "--top-p",
    type=click.FloatRange(0, 1, min_open=True),
    metavar="P",
    help="Sample among the best that hold P.  [default: all]",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the sampling.")
@click.option(
    "--dtype",
    type=click.Choice(["auto", "float32", "bfloat16", "float16"]),
    default="auto",
    show_default=True,
    help="auto: as the checkpoint says.",
)
@click.option("--device", metavar="NAME", help="cpu, cuda, cuda:1, mps.  [default: a GPU where there is one]")
@click.option("--chat", is_flag=True, help="Wrap each prompt in the target's chat template.")
@click.option(
    "--compare-baseline", is_flag=True, help="Also run without speculation; compare time and greedy output."
)
@click.option(
    "--tree",
    metavar="TOPK,DEPTH,NODES",
    help="EAGLE-3: draft a dynamic tree instead of a chain.",
)
@click.option(
    "--reference",
    is_flag=True,
    help="EAGLE-3: record one plain forward of the target over the first text, at all layers.",
)
@click.option(
    "--engine",
    metavar="NAME",
    help="Recorder that runs the models.  [default: eagle3 for an EAGLE-3 draft, else transformers]",
)
@json_option("the summary as one JSON object")
def command(
    out: Path,
    target: str,
    draft: str | None,
    texts: tuple[str, ...],
    prompts: str | None,
    engine: str | None,
    tree: str | None,
    reference: bool,
    overwrite: bool,
    as_json: bool,
    **options: Any,
) -> int:
    """Run a target and a draft of your own, and record it.

    Models are folders as Hugging Face writes them (config.json, safetensors); nothing is ever downloaded.

    \b
    spectrace record --target T --draft D --prompt "Once upon a time" -o run.spectrace
    spectrace record --target T --prompt-lookup 8 --prompts prompts.txt -o run.spectrace
    spectrace record --target T --draft EAGLE3 --tree 8,5,32 --prompt "Once upon a time" -o run.spectrace

    With --compare-baseline the exit code is 1 when greedy output is not the same token by token; the trace is
    written all the same, and the first difference is named with the target's logit gap there. Near zero, the
    two tokens were a tie that rounding decided.
    """  # noqa: D301 (click wants a real backspace)
    proposers = [name for name in ("prompt_lookup", "early_exit") if options[name] is not None]
    if len(proposers) + (draft is not None) != 1:
        raise UsageError("give one of --draft, --prompt-lookup and --early-exit")
    if options["prompt_lookup"] is not None and options["num_draft_tokens"] is not None:
        raise UsageError("--prompt-lookup N says how many tokens: leave --num-draft-tokens out")
    shape = None if tree is None else _tree(tree)
    if shape is not None and options["num_draft_tokens"] is not None:
        raise UsageError("--tree says how many nodes: leave --num-draft-tokens out")
    check_out(out, overwrite=overwrite)
    given = prompts_given(texts, prompts)
    folders = {"target": model_folder(target), "draft": None if draft is None else model_folder(draft)}
    engine = engine or engine_for(folders["draft"])
    if engine == EAGLE3:
        options |= {"tree": shape, "reference": reference}
    elif shape is not None or reference:
        raise UsageError("--tree and --reference need an EAGLE-3 draft: --draft DIR or --engine eagle3")
    run(engine, out, given, overwrite=overwrite, **folders, **options)
    with spectrace.open(out) as trace:
        if as_json:
            print_json(summary(trace))
        else:
            print_lines(outcome(trace))
        return 1 if _difference(trace) else 0


def run(engine: str, out: Path, prompts: Sequence[str], **options: Any) -> None:
    """Has a recorder generate from prompts, with a progress bar.

    Args:
        engine: name of the recorder.
        out: trace to write.
        prompts: texts.
        options: passed on, see `Generate`.
    """
    generate = load_recorder(engine)
    runs = 2 if options.get("compare_baseline") else 1
    with progress("recording", len(prompts) * options["max_new_tokens"] * runs) as show:
        generate(out, prompts, on_progress=show, **options)


def load_recorder(engine: str) -> Generate:
    """The function of an installed recorder.

    Args:
        engine: its name.

    Raises:
        UsageError: there is none of this name.
        EngineNotInstalled: the engine's own packages are missing.
    """
    found: dict[str, EntryPoint] = {entry.name: entry for entry in entry_points(group=GROUP)}
    if engine not in found:
        names = ", ".join(sorted(found)) or "none; type: pip install spectrace-tui"
        raise UsageError(f"no recorder for {engine}; installed: {names}")
    try:
        generate: Generate = found[engine].load()
    except ImportError as error:
        raise EngineNotInstalled(engine, TRANSFORMERS if engine == EAGLE3 else engine) from error
    return generate


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
    if not folder.is_dir():
        raise UsageError(
            f"{shown(given)}: no such folder; spectrace downloads nothing, this does: "
            f"hf download NAME --local-dir FOLDER"
        )
    if not (folder / "config.json").is_file():
        raise RecorderError(f"{shown(given)}: holds no config.json, so it is not a model's folder")
    return folder


def outcome(trace: Trace) -> list[str]:
    """What a recording says at its end."""
    found = summary(trace)
    metrics, times, name = found["metrics"], found["times"], shown(trace.paths[-1])
    lines = [
        f"{name}: {number(found['counts']['steps'])} steps, {number(found['requests'])} requests, "
        f"{number(trace.size_bytes)} bytes",
        f"accept length {number(metrics['accept_length'])}, alpha1 {number(metrics['alpha1'])}",
    ]
    if times["speedup"] is not None:
        lines.append(f"{number(times['speedup'])} times as fast as without speculation")
    lines += _comparison(trace)
    lines += [f"problem: {visible(problem)}" for problem in trace.problems]
    return [*lines, f"next: spectrace view {name}"]


def _comparison(trace: Trace) -> list[str]:
    baseline = trace.run.baseline
    if baseline is None or "compared_tokens" not in baseline:
        return []
    found = _difference(trace)
    if found is None:
        tokens = number(baseline["compared_tokens"])
        return [f"greedy output is the same without speculation: {tokens} tokens compared"]
    ours, theirs = (_token(trace, found.get(key)) for key in ("with_speculation", "without"))
    gap = found.get("logit_gap")
    return [
        f"DIFFERENT greedy output: prompt {found.get('prompt')}, new token {found.get('token')} is "
        f"{ours} with speculation, {theirs} without",
        "one of the two ended there"
        if gap is None
        else f"there the target prefers its own token by {gap:.4g} logits; near zero is a tie",
    ]


def _difference(trace: Trace) -> Mapping[str, Any] | None:
    """The first greedy token that differs from plain generation."""
    found = (trace.run.baseline or {}).get("difference")
    return found if isinstance(found, Mapping) else None


def _token(trace: Trace, token_id: int | None) -> str:
    if token_id is None:
        return "the end"
    text = trace.token_text(token_id)
    return str(token_id) if text is None else f'{token_id} "{visible(text)}"'


def _tree(given: str) -> tuple[int, ...]:
    """Choices per node, depth and nodes: `8,5,32`."""
    numbers = given.split(",")
    if len(numbers) != 3 or not all(number.isdecimal() and int(number) > 0 for number in numbers):
        raise UsageError(f"--tree {shown(given)}: give three whole numbers TOPK,DEPTH,NODES, such as 8,5,32")
    return tuple(map(int, numbers))


# --- prompts ---------------------------------------------------------------------------------------


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

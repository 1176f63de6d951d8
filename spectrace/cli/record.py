"""`spectrace record`: checks what was asked for, has an engine's recorder do it, says what came out.

Recorders are found by the entry points `spectrace.recorders`; each is one function `generate`. No engine is
imported here, and a wrong path or option is refused before one is.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Protocol

import click

import spectrace
from spectrace.cli.arguments import check_out, json_option, out_option, overwrite_option
from spectrace.cli.engines import EAGLE3, engine_for, extra_of, model_folder
from spectrace.cli.limits import check_early_exit, device, temperature, top_p, tree_of
from spectrace.cli.output import print_json, print_lines, progress, say, shown
from spectrace.cli.prompts import PREDICTABLE, prompts_given
from spectrace.cli.record_text import difference, lost_sentence, outcome
from spectrace.cli.stats import summary
from spectrace.errors import EngineNotInstalled, RecorderError, UsageError
from spectrace.format.replacing import has_steps, old_kept, put_back
from spectrace.format.text import visible

GROUP = "spectrace.recorders"


class Generate(Protocol):
    """What the entry point of a recorder is: runs a generation and writes its trace."""

    def __call__(self, out: Path, prompts: Sequence[str], **options: Any) -> None:
        """See `spectrace_transformers.generation.generate` for the options."""


@click.command("record")
@click.option("--target", required=True, metavar="DIR", help="Folder of the target model.")
@click.option("--draft", metavar="DIR", help="Folder of the draft model.")
@click.option(
    "--prompt-lookup",
    type=click.IntRange(1, 1024),
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
    type=click.IntRange(1, 1024),
    metavar="K",
    help="Tokens of every proposal.  [default: as the draft's generation config says]",
)
@click.option(
    "--max-new-tokens",
    type=click.IntRange(1, 1 << 24),
    default=128,
    show_default=True,
    metavar="N",
    help="Tokens per prompt.",
)
@click.option(
    "--temperature",
    type=float,
    callback=temperature,
    default=0.0,
    metavar="T",
    help="Sample with this temperature.  [default: 0, greedy]",
)
@click.option(
    "--top-k",
    type=click.IntRange(1, (1 << 31) - 1),
    metavar="N",
    help="Sample among the N best.  [default: all]",
)
@click.option(
    "--top-p",
    type=float,
    callback=top_p,
    metavar="P",
    help="Sample among the best that hold P.  [default: all]",
)
@click.option(
    "--seed",
    type=click.IntRange(0, (1 << 63) - 1),
    default=0,
    metavar="N",
    show_default=True,
    help="Seed of the sampling.",
)
@click.option(
    "--dtype",
    type=click.Choice(["auto", "float32", "bfloat16", "float16"]),
    default="auto",
    show_default=True,
    help="auto: as the checkpoint says.",
)
@click.option(
    "--device",
    callback=device,
    metavar="NAME",
    help="cpu, cuda, cuda:1, mps.  [default: a GPU where there is one]",
)
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
    help="EAGLE-3: record one plain forward of the target over each text, at all layers.",
)
@click.option(
    "--states",
    type=click.IntRange(1, 1 << 31),
    metavar="N",
    help="EAGLE-3: also write the raw states of the first N steps, OUT.states.safetensors, for `probe`.",
)
@click.option(
    "--engine",
    metavar="NAME",
    help="Recorder that runs the models.  [default: eagle3 for an EAGLE-3 draft, else transformers]",
)
@click.option(
    "--control",
    type=click.Choice(["self-draft", "predictable-text", "no-draft"]),
    help="A control run: the target drafts for itself; built-in text that repeats itself; no draft at all.",
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
    states: int | None,
    control: str | None,
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
    spectrace record --target T --control self-draft --prompts prompts.txt -o self.spectrace

    The exit code is 1 when steps were lost. With --compare-baseline it is also 1 when greedy output is not
    the same token by token; the trace is written all the same, and the first difference is named with the
    target's logit gap there. Near zero, the two tokens were a tie that rounding decided.
    """  # noqa: D301 (click wants a real backspace)
    proposers = [name for name in ("prompt_lookup", "early_exit") if options[name] is not None]
    _check_proposers(control, len(proposers) + (draft is not None))
    if options["prompt_lookup"] is not None and options["num_draft_tokens"] is not None:
        raise UsageError("--prompt-lookup N says how many tokens: leave --num-draft-tokens out")
    shape = None if tree is None else tree_of(tree)
    if shape is not None and options["num_draft_tokens"] is not None:
        raise UsageError("--tree says how many nodes: leave --num-draft-tokens out")
    read = [Path(given) for given in (target, draft, prompts) if given not in (None, "-")]
    if out.parent.is_dir():
        for sentence in put_back(out, _states_beside(out)):
            say(visible(sentence))
    check_out(out, overwrite=overwrite, inputs=read)
    if control == "predictable-text" and not texts and prompts is None:
        given = list(PREDICTABLE)
    else:
        given = prompts_given(texts, prompts)
    folders = {"target": model_folder(target), "draft": None if draft is None else model_folder(draft)}
    if options["early_exit"] is not None:
        check_early_exit(options["early_exit"], Path(target))
    if control is not None:
        options["control"] = control
    if control == "self-draft":
        folders["draft"] = folders["target"]
    engine = engine or engine_for(folders["draft"])
    if engine == EAGLE3:
        options |= {"tree": shape, "reference": reference, "states": states or 0}
        if states is not None:
            check_out(_states_beside(out), overwrite=overwrite, inputs=read)
    elif shape is not None or reference or states is not None:
        words = "--tree, --reference and --states need an EAGLE-3 draft"
        raise UsageError(f"{words}: --draft DIR or --engine eagle3")
    run(engine, out, given, overwrite=overwrite, **folders, **options)
    with spectrace.open(out) as trace:
        if as_json:
            print_json(summary(trace))
        else:
            print_lines(outcome(trace, None if states is None else _states_beside(out)))
        lost = lost_sentence(trace)
        if lost is not None:
            say(lost)
        return 1 if lost is not None or difference(trace) else 0


def _check_proposers(control: str | None, number: int) -> None:
    """Refuses more or fewer drafts than a run, or a control, has.

    Raises:
        UsageError: the sentence says which.
    """
    if control == "self-draft" and number:
        raise UsageError("--control self-draft: the target drafts for itself; leave every other draft out")
    if control == "no-draft" and number:
        raise UsageError("--control no-draft: leave --draft, --prompt-lookup and --early-exit out")
    if number != 1 and control not in ("self-draft", "no-draft"):
        raise UsageError("give one of --draft, --prompt-lookup and --early-exit")


def run(engine: str, out: Path, prompts: Sequence[str], **options: Any) -> None:
    """Has a recorder generate from prompts, with a progress bar.

    Args:
        engine: name of the recorder.
        out: trace to write.
        prompts: texts.
        options: passed on, see `Generate`.

    Raises:
        RecorderError: not one step was written.
    """
    generate = load_recorder(engine)
    runs = 2 if options.get("compare_baseline") else 1
    with (
        old_kept(out, _states_beside(out)),
        progress("recording", len(prompts) * options["max_new_tokens"] * runs) as show,
    ):
        generate(out, prompts, on_progress=show, **options)
        if not has_steps(out):
            raise RecorderError(f"{shown(out)}: not one step could be written; is the disk full?")


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
        raise EngineNotInstalled(engine, extra_of(engine)) from error
    return generate


def _states_beside(out: Path) -> Path:
    """Where the recorder of EAGLE-3 writes raw states."""
    return out.with_name(f"{out.name}.states.safetensors")

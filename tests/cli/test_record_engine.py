"""`spectrace record` and `demo` with the real engine and the bundled models, on a CPU."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import spectrace
import spectrace_demo
from spectrace.report.command import command_line

if TYPE_CHECKING:
    from tests.cli.conftest import Run

pytestmark = pytest.mark.engine

TARGET = str(spectrace_demo.target_path())
DRAFT = str(spectrace_demo.draft_path())


@pytest.fixture(autouse=True)
def _declared_recorder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Use the recorder of this tree, whether or not it is installed; leave transformers' log as it was."""
    from transformers.utils import logging

    entries = [
        EntryPoint(name, f"spectrace_{name}.generation:generate", "spectrace.recorders")
        for name in ("eagle3", "transformers")
    ]
    monkeypatch.setattr("spectrace.cli.record.entry_points", lambda group: entries)
    monkeypatch.chdir(tmp_path)
    before = logging.get_verbosity()
    yield
    logging.set_verbosity(before)
    logging.enable_progress_bar()


def _record(run: Run, *arguments: str) -> dict[str, Any]:
    """Record two short texts on the CPU; the summary."""
    prompts = [word for prompt in spectrace_demo.prompts()[:2] for word in ("--prompt", prompt)]
    found = run(
        *("record", "--target", TARGET, *prompts, "-o", "run.spectrace", "--json", "--overwrite"),
        *("--max-new-tokens", "12", "--device", "cpu", *arguments),
    )
    assert found.code == 0, found.err
    summary: dict[str, Any] = json.loads(found.out)
    return summary


@pytest.mark.parametrize(
    ("arguments", "method"),
    [
        (["--draft", DRAFT], "draft_model"),
        (["--prompt-lookup", "3"], "ngram"),
        (["--early-exit", "1"], "early_exit"),
    ],
)
def test_each_way_to_propose_keeps_greedy_output(run: Run, arguments: list[str], method: str) -> None:
    """Speculation changes no greedy token, and plain time per token is stored beside the comparison."""
    summary = _record(run, *arguments, "--compare-baseline")
    baseline = summary["times"]["baseline"]
    assert baseline["difference"] is None
    assert baseline["compared_tokens"] == summary["counts"]["emitted"] > 12
    assert baseline["token_ns"] > 0
    assert summary["requests"] == 2
    with spectrace.open("run.spectrace") as trace:
        assert trace.run.method == method


def test_proposals_are_as_long_as_asked_for(run: Run) -> None:
    """--num-draft-tokens switches off schedules and thresholds: only the length limit cuts a proposal."""
    _record(run, "--draft", DRAFT, "--num-draft-tokens", "3")
    with spectrace.open("run.spectrace") as trace:
        last = {step.request: step.step for step in trace}
        lengths = {len(step.proposal_ids) for step in trace if step.step < last[step.request] - 2}
    assert lengths == {3}


def test_a_seed_makes_sampling_repeatable(run: Run) -> None:
    """The same seed samples the same tokens; another one does not."""
    texts = []
    for seed in ("1", "1", "2"):
        _record(run, "--draft", DRAFT, "--temperature", "1.5", "--seed", seed)
        with spectrace.open("run.spectrace") as trace:
            texts.append([step.emitted_ids for step in trace])
            assert trace.run.sampling is not None
            assert trace.run.sampling.seed == int(seed)
    assert texts[0] == texts[1] != texts[2]


def test_sampling_is_timed_and_not_compared(run: Run) -> None:
    """Two samples differ by right: --compare-baseline then only measures."""
    baseline = _record(run, "--draft", DRAFT, "--temperature", "1", "--compare-baseline")["times"]["baseline"]
    assert set(baseline) == {"token_ns"}


def test_a_difference_is_found_with_its_gap(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A token that the target did not want is named with what it wanted and by how much."""
    from spectrace_transformers import generation

    plain_run = generation._run

    def tampered(models: Any, inputs: Any, options: dict[str, Any], *rest: Any) -> Any:
        outputs = plain_run(models, inputs, options, *rest)
        if "assistant_model" in options:
            outputs[1].new_ids[3] += 1
        return outputs

    monkeypatch.setattr(generation, "_run", tampered)
    prompts = [word for prompt in spectrace_demo.prompts()[:2] for word in ("--prompt", prompt)]
    found = run(
        *("record", "--target", TARGET, "--draft", DRAFT, *prompts, "-o", "run.spectrace"),
        *("--max-new-tokens", "8", "--device", "cpu", "--compare-baseline"),
    )
    assert found.code == 1
    assert "DIFFERENT greedy output: prompt 1, new token 3 is " in found.out
    with spectrace.open("run.spectrace") as trace:
        assert trace.run.baseline is not None
        difference = trace.run.baseline["difference"]
    assert difference["logit_gap"] > 0
    assert difference["with_speculation"] == difference["without"] + 1


def test_a_folder_that_transformers_cannot_load_is_a_sentence(run: Run) -> None:
    """A broken checkpoint is one and names the folder; an existing trace is not touched by the attempt."""
    Path("broken").mkdir()
    (Path("broken") / "config.json").write_text('{"model_type": "llama", "hidden_size": 8}')
    Path("run.spectrace").write_text("precious")
    found = run(
        *("record", "--target", "broken", "--prompt-lookup", "2", "--prompt", "x", "-o", "run.spectrace"),
        "--overwrite",
    )
    assert found.code == 1
    assert found.err.startswith("spectrace: transformers: broken cannot be loaded: ")
    assert len(found.err.splitlines()) == 1
    assert Path("run.spectrace").read_text() == "precious"


def test_a_chat_needs_a_template(run: Run) -> None:
    """--chat on a base model says what is missing."""
    found = run(
        *("record", "--target", TARGET, "--draft", DRAFT, "--prompt", "x", "-o", "run.spectrace", "--chat")
    )
    assert found.code == 1
    assert found.err.startswith("spectrace: transformers: --chat: ")
    assert not Path("run.spectrace").exists()


def test_demo_runs_from_nothing(run: Run) -> None:
    """The newcomer's first command records, sums up and says what to do next, with no network."""
    found = run("demo", "-o", "demo.spectrace")
    assert found.code == 0
    with spectrace.open("demo.spectrace") as trace:
        assert len(trace.requests) == len(spectrace_demo.prompts())
        assert trace.state == "closed"
        assert trace.token_text(trace.steps[1].emitted_ids[0] or 0) is not None
    with spectrace.open("demo-eagle3.spectrace") as trace:
        assert trace.run.method == "eagle3"
        assert len(trace.references) > 0
    assert found.out.endswith("next: spectrace view demo.spectrace\n")


def test_a_run_recorded_twice_is_equal_and_another_k_changes_only_lengths(run: Run, tmp_path: Path) -> None:
    """Real runs: greedy decoding repeats itself, and does not hang on how much is drafted."""
    for name, count in (("one", "4"), ("again", "4"), ("fewer", "2")):
        _record(run, "--draft", DRAFT, "--num-draft-tokens", count)
        Path("run.spectrace").rename(f"{name}.spectrace")
    with (
        spectrace.open("one.spectrace") as one,
        spectrace.open("again.spectrace") as again,
        spectrace.open("fewer.spectrace") as fewer,
    ):
        assert spectrace.compare(one, again).is_equal
        found = spectrace.compare(one, fewer).first_differences
    assert not any(found.kinds[name].differing for name in ("target_pick", "decision", "emitted"))
    assert found.only_length == found.kinds["proposal"].differing > 0


def test_a_target_accepts_its_own_drafts(run: Run) -> None:
    """The self-draft control of the bundled target refuses nothing and rules the engine out."""
    summary = _record(run, "--control", "self-draft", "--max-new-tokens", "40")
    assert summary["counts"]["rejected"] == 0
    with spectrace.open("run.spectrace") as trace:
        assert trace.run.control == "self-draft"
        cleared = {item.id for item in spectrace.diagnose(trace).cleared}
    assert "verification/self-draft" in cleared


def test_a_run_without_a_draft_is_the_text_and_the_time_of_a_lossless_one(run: Run) -> None:
    """One step per token with the target's choices; the same greedy text as with a draft."""
    _record(run, "--draft", DRAFT)
    with spectrace.open("run.spectrace") as trace:
        texts: dict[str, list[int | None]] = {name: [] for name in ("r0", "r1")}
        for step in trace:
            texts[step.request] += step.emitted_ids
    summary = _record(run, "--control", "no-draft")
    assert summary["counts"]["proposals"] == 0
    assert summary["times"]["baseline"]["token_ns"] > 0
    with spectrace.open("run.spectrace") as trace:
        plain: dict[str, list[int | None]] = {name: [] for name in texts}
        for step in trace:
            plain[step.request] += step.emitted_ids
            assert step.target_ids == step.emitted_ids
            assert step.target_top is not None
            assert step.target_top[0][0][0] == step.emitted_ids[0]
            assert step.target_gaps is not None
            assert step.target_gaps[0] >= 0
        assert trace.requests[0].prompt_ids
        assert trace.run.control == "no-draft"
        assert trace.run_mapping["verification"]["rule"] == "greedy"
        assert trace.state == "closed"
    assert plain == texts


def test_predictable_text_is_a_control_of_both_recorders(run: Run) -> None:
    """The built-in texts, with a draft model and an EAGLE-3 head; the bundled target continues none."""
    for draft in (DRAFT, str(spectrace_demo.eagle3_path())):
        found = run(
            *("record", "--target", TARGET, "--draft", draft, "--control", "predictable-text", "--overwrite"),
            *("-o", "run.spectrace", "--max-new-tokens", "8", "--device", "cpu"),
        )
        assert found.code == 0, found.err
        said = " ".join(found.out.split())
        assert "open: the target went on as foreseen in " in said
        assert "it does not continue the patterns, so nothing is shown; use --control self-draft" in said
        with spectrace.open("run.spectrace") as trace:
            assert trace.run.control == "predictable-text"
            assert len(trace.requests) == 6


@pytest.mark.parametrize(
    "arguments",
    [
        ["--draft", DRAFT, "--num-draft-tokens", "3", "--temperature", "0.7", "--seed", "5"],
        ["--prompt-lookup", "3"],
        ["--early-exit", "1", "--num-draft-tokens", "2"],
        ["--control", "self-draft", "--num-draft-tokens", "2"],
        ["--draft", str(spectrace_demo.eagle3_path()), "--tree", "2,3,8"],
    ],
)
def test_the_command_of_a_report_records_the_same(run: Run, arguments: list[str]) -> None:
    """The command that a report makes of the header, with paths put in, runs the same steps again."""
    _record(run, *arguments)
    prompts = Path("prompts.txt")
    prompts.write_text("\n".join(spectrace_demo.prompts()[:2]) + "\n")
    with spectrace.open("run.spectrace") as trace:
        before = [(s.request, s.proposal_ids, s.num_accepted, s.emitted_ids) for s in trace]
        words = shlex.split(command_line(trace.run) or "")
    draft = arguments[1] if arguments[0] == "--draft" else ""
    places = {"TARGET": TARGET, "DRAFT": draft, "PROMPTS": str(prompts), "run.spectrace": "again.spectrace"}
    assert words[0] == "spectrace"
    found = run(*(places.get(word, word) for word in words[1:]), "--device", "cpu")
    assert found.code == 0, found.err
    with spectrace.open("again.spectrace") as trace:
        assert [(s.request, s.proposal_ids, s.num_accepted, s.emitted_ids) for s in trace] == before

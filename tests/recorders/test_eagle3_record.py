"""`spectrace record` runs an EAGLE-3 draft by itself, with the same comparison as any other."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

import spectrace
import spectrace_demo
from spectrace.cli import main
from spectrace.cli.engines import engine_for

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytestmark = pytest.mark.engine

TARGET, HEAD = str(spectrace_demo.target_path()), str(spectrace_demo.eagle3_path())
Record = Callable[..., tuple[int, str, str]]


@pytest.fixture
def record(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Iterator[Record]:
    """Return `spectrace record` with the recorders of this tree: arguments -> exit code, stdout, stderr."""
    from transformers.utils import logging

    entries = [
        EntryPoint(name, f"{package}.generation:generate", "spectrace.recorders")
        for name, package in (("transformers", "spectrace_transformers"), ("eagle3", "spectrace_eagle3"))
    ]
    monkeypatch.setattr("spectrace.cli.record.entry_points", lambda group: entries)
    monkeypatch.chdir(tmp_path)
    before = logging.get_verbosity()

    def run(*arguments: str) -> tuple[int, str, str]:
        prompts = [word for prompt in spectrace_demo.prompts()[:2] for word in ("--prompt", prompt)]
        limits = ("--device", "cpu", "--max-new-tokens", "12")
        code = main(
            [
                "record",
                "--target",
                TARGET,
                *prompts,
                "-o",
                "run.spectrace",
                "--overwrite",
                *limits,
                *arguments,
            ]
        )
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    yield run
    logging.set_verbosity(before)
    logging.enable_progress_bar()


def test_the_draft_says_which_recorder_runs_it() -> None:
    """An EAGLE-3 folder goes to the reference decoder, everything else to transformers."""
    assert engine_for(spectrace_demo.eagle3_path()) == "eagle3"
    assert engine_for(spectrace_demo.draft_path()) == "transformers"
    assert engine_for(None) == "transformers"


@pytest.mark.parametrize("shape", [[], ["--tree", "3,3,8"]])
def test_an_eagle3_draft_keeps_greedy_output(record: Record, shape: list[str]) -> None:
    """No option names the engine; no greedy token differs from plain generation."""
    code, out, err = record("--draft", HEAD, "--compare-baseline", "--reference", "--json", *shape)
    assert code == 0, err
    summary: dict[str, Any] = json.loads(out)
    baseline = summary["times"]["baseline"]
    assert baseline["difference"] is None
    assert baseline["compared_tokens"] == summary["counts"]["emitted"] == 24
    assert baseline["token_ns"] > 0
    with spectrace.open("run.spectrace") as trace:
        assert trace.run.method == "eagle3"
        assert (trace.run.speculation.tree is not None) == bool(shape)  # type: ignore[union-attr]
        assert [r.request for r in trace.references] == ["r0"] * 9 + ["r1"] * 9
        assert len(trace.requests) == 2


def test_chains_are_as_long_as_asked_for(record: Record) -> None:
    """--num-draft-tokens is the length of every chain that the length limit does not cut."""
    code, _, err = record("--draft", HEAD, "--num-draft-tokens", "2", "--temperature", "1")
    assert code == 0, err
    with spectrace.open("run.spectrace") as trace:
        assert max(len(step.proposal_ids) for step in trace) == 2
        assert trace.run.verification.rule == "rejection_sampling"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--draft", HEAD, "--tree", "3,3"], "--tree 3,3: give three whole numbers TOPK,DEPTH,NODES"),
        (["--draft", str(spectrace_demo.draft_path()), "--tree", "3,3,8"], "need an EAGLE-3 draft"),
        (["--draft", HEAD, "--tree", "3,3,8", "--num-draft-tokens", "2"], "leave --num-draft-tokens out"),
        (["--prompt-lookup", "3", "--reference"], "need an EAGLE-3 draft"),
        (["--prompt-lookup", "3", "--engine", "eagle3"], "give an EAGLE-3 checkpoint with --draft"),
    ],
)
def test_what_cannot_be_is_a_sentence(record: Record, arguments: list[str], sentence: str) -> None:
    """A wrong option is one line and exit code 2; no trace is left."""
    code, _, err = record(*arguments)
    assert code == 2
    assert sentence in err
    assert len(err.splitlines()) == 1
    assert not Path("run.spectrace").exists()


def test_a_head_that_does_not_fit_is_a_sentence(record: Record, tmp_path: Path) -> None:
    """A broken checkpoint names folder and tensor, and leaves an existing trace alone."""
    import shutil

    from safetensors.torch import load_file, save_file

    shutil.copytree(HEAD, "broken")
    tensors = load_file("broken/model.safetensors")
    tensors["d2t"] = tensors["d2t"][:100].clone()
    save_file(tensors, "broken/model.safetensors")
    Path("run.spectrace").write_text("precious")
    code, _, err = record("--draft", "broken")
    assert code == 1
    assert "broken: tensor d2t: holds 100 offsets; the draft's LM head has 560 rows" in err
    assert len(err.splitlines()) == 1
    assert Path("run.spectrace").read_text() == "precious"

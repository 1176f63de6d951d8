"""`spectrace record` and `demo` around a recorder that is made up: options, refusals, what is said."""

from __future__ import annotations

import json
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import spectrace_demo
from spectrace import TraceWriter
from spectrace.errors import RecorderError
from spectrace.testing import step_fields

if TYPE_CHECKING:
    from tests.cli.conftest import Run

SAME = {"token_ns": 3_000_000, "compared_tokens": 9, "difference": None}
DIFFERENT = {
    "token_ns": 3_000_000,
    "compared_tokens": 4,
    "difference": {"prompt": 1, "token": 4, "with_speculation": 99, "without": 7, "logit_gap": 0.03125},
}


class FakeRecorder:
    """Stands in for an engine: writes a small trace and keeps what it was asked."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []
        self.baseline: dict[str, Any] | None = None
        self.error: Exception | None = None
        self.name = "transformers"

    def load(self) -> Any:
        """As an entry point does."""
        if self.error is not None:
            raise self.error
        return self

    def __call__(self, out: Path, prompts: list[str], *, on_progress: Any, **options: Any) -> None:
        """Write two steps."""
        self.calls.append({"out": out, "prompts": list(prompts), **options})
        if options["overwrite"]:
            out.unlink(missing_ok=True)
        with TraceWriter(out, {}, strict=True, token_text=lambda space, token_id: " the") as writer:
            writer.step(step_fields(num_accepted=2, step_ns=3_000_000))
            writer.step(step_fields(step=1, num_accepted=0, step_ns=3_000_000))
            if self.baseline is not None:
                writer.amend(baseline=self.baseline)
        on_progress(2)


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeRecorder:
    """An installed recorder, and the folders T and D that look like models."""
    monkeypatch.chdir(tmp_path)
    for name in ("T", "D"):
        Path(name).mkdir()
        (Path(name) / "config.json").write_text("{}")
    fake, eagle3 = FakeRecorder(), FakeRecorder()
    eagle3.name, eagle3.calls = "eagle3", fake.calls
    monkeypatch.setattr("spectrace.cli.record.entry_points", lambda group: [fake, eagle3])
    return fake


RECORD = ("record", "--target", "T", "--draft", "D", "--prompt", "Once", "-o", "run.spectrace")


def test_a_recording_ends_with_what_to_do_next(recorder: FakeRecorder, run: Run) -> None:
    """Steps, accept length, alpha1, the file and the next command."""
    found = run(*RECORD)
    assert (found.code, found.err) == (0, "")
    first, second, why, last = found.out.splitlines()
    assert first.startswith("run.spectrace: 2 steps, 1 requests, ")
    assert second == "accept length 2.000, alpha1 0.500"
    assert (why, last) == ("why:  spectrace diagnose run.spectrace", "next: spectrace view run.spectrace")


def test_options_reach_the_recorder(recorder: FakeRecorder, run: Run) -> None:
    """What was typed is handed over under the same names, and defaults where nothing was."""
    more = "--num-draft-tokens 4 --max-new-tokens 9 --temperature 0.7 --top-k 5 --top-p 0.9 --seed 3"
    assert run(*RECORD, *more.split(), "--dtype", "float32", "--device", "cpu", "--chat").code == 0
    assert run(*RECORD, "--overwrite").code == 0
    typed, plain = recorder.calls
    assert typed == {
        "out": Path("run.spectrace"),
        "prompts": ["Once"],
        "target": Path("T"),
        "draft": Path("D"),
        "prompt_lookup": None,
        "early_exit": None,
        "num_draft_tokens": 4,
        "max_new_tokens": 9,
        "temperature": 0.7,
        "top_k": 5,
        "top_p": 0.9,
        "seed": 3,
        "dtype": "float32",
        "device": "cpu",
        "chat": True,
        "compare_baseline": False,
        "overwrite": False,
    }
    assert plain["temperature"] == 0
    assert [plain[name] for name in ("num_draft_tokens", "top_k", "top_p", "device")] == [None] * 4


def test_prompts_come_from_arguments_and_files(recorder: FakeRecorder, run: Run) -> None:
    """A text file holds a prompt per line, JSON lines an object per line; empty lines are skipped."""
    Path("p.txt").write_text("  one \n\ntwo\n", encoding="utf-8")
    Path("p.jsonl").write_text('{"prompt": "a\\nb", "id": 7}\n\n{"prompt": "c"}\n', encoding="utf-8")
    for file in ("p.txt", "p.jsonl"):
        assert run(*RECORD, "--prompt", "again", "--prompts", file, "--overwrite").code == 0
    assert [call["prompts"] for call in recorder.calls] == [
        ["Once", "again", "  one ", "two"],
        ["Once", "again", "a\nb", "c"],
    ]


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("record --target T --prompt x -o o", "give one of --draft, --prompt-lookup and --early-exit"),
        ("record --target T --draft D --early-exit 2 --prompt x -o o", "give one of --draft"),
        ("record --target T --draft D -o o", "give a prompt: --prompt TEXT, or --prompts FILE"),
        ("record --target org/model --draft D --prompt x -o o", "hf download NAME --local-dir FOLDER"),
        ("record --target T --draft nowhere --prompt x -o o", "nowhere: no such folder"),
        ("record --target T --draft D --prompt x -o T/config.json", "--overwrite replaces it"),
        ("record --target T --draft D --prompt x -o no/o", "the folder no does not exist"),
        ("record --target T --draft D --prompts bad.jsonl -o o", "bad.jsonl: line 2 must be an object with"),
        ("record --target T --draft D --prompts latin.txt -o o", "latin.txt: is not UTF-8 text"),
        (
            "record --target T --prompt-lookup 3 --num-draft-tokens 2 --prompt x -o o",
            "leave --num-draft-tokens",
        ),
        (
            "record --target T --draft D --prompt x -o o --engine vllm",
            "no recorder for vllm; installed: eagle3, t",
        ),
    ],
)
def test_what_cannot_be_recorded_is_refused_first(
    recorder: FakeRecorder, run: Run, line: str, sentence: str
) -> None:
    """A wrong option or path is two and a sentence, before an engine is loaded and with nothing written."""
    Path("bad.jsonl").write_text('{"prompt": "x"}\n["prompt"]\n')
    Path("latin.txt").write_bytes(b"\xe9t\xe9\n")
    found = run(*line.split())
    assert (found.code, found.out) == (2, "")
    assert sentence in found.err
    assert recorder.calls == []
    assert not Path("o").exists()


def test_a_folder_without_a_model_is_at_fault(recorder: FakeRecorder, run: Run) -> None:
    """A folder that holds no config.json is one: the command line was right, the model is not."""
    Path("empty").mkdir()
    found = run("record", "--target", "empty", "--draft", "D", "--prompt", "x", "-o", "o")
    assert found.code == 1
    assert found.err == "spectrace: empty: holds no config.json, so it is not a model's folder\n"


def test_a_missing_engine_says_what_to_type(recorder: FakeRecorder, run: Run) -> None:
    """Without torch the pip line is the answer."""
    recorder.error = ModuleNotFoundError("No module named 'torch'", name="torch")
    found = run(*RECORD)
    assert found.code == 1
    assert "pip install 'spectrace-tui[transformers]'" in found.err


def test_equal_output_is_said_and_is_zero(recorder: FakeRecorder, run: Run) -> None:
    """A comparison that finds nothing says how much it compared, and how much faster speculation was."""
    recorder.baseline = SAME
    found = run(*RECORD, "--compare-baseline")
    assert found.code == 0
    assert "greedy output is the same without speculation: 9 tokens compared" in found.out
    assert "2.000 times as fast as without speculation" in found.out


def test_different_output_is_one_and_names_the_first_difference(recorder: FakeRecorder, run: Run) -> None:
    """CI that asked for the comparison turns red; the trace is there, and so is the gap."""
    recorder.baseline = DIFFERENT
    found = run(*RECORD, "--compare-baseline")
    assert found.code == 1
    assert 'prompt 1, new token 4 is 99 " the" with speculation, 7 without' in found.out
    assert "prefers its own token by 0.03125 logits" in found.out
    assert Path("run.spectrace").exists()
    data = json.loads(run(*RECORD, "--compare-baseline", "--overwrite", "--json").out)
    assert data["times"]["baseline"]["difference"]["logit_gap"] == 0.03125


def test_demo_records_the_bundled_models(recorder: FakeRecorder, run: Run) -> None:
    """The demo hands the bundled models and prompts to the recorder and prints summary and comparison."""
    recorder.baseline = SAME
    found = run("demo", "-o", "demo.spectrace")
    assert found.code == 0
    call = recorder.calls[0]
    assert (call["target"], call["draft"]) == (spectrace_demo.target_path(), spectrace_demo.draft_path())
    assert tuple(call["prompts"]) == spectrace_demo.prompts()
    assert recorder.calls[1]["draft"] == spectrace_demo.eagle3_path()
    assert "demo-eagle3.spectrace: 2 steps, " in found.out
    assert found.out.startswith(run("stats", "demo.spectrace").out)
    assert found.out.endswith("next: spectrace view demo.spectrace\n")
    assert run("demo", "-o", "demo.spectrace").code == 2


def test_demo_without_a_file_keeps_its_trace(
    recorder: FakeRecorder, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A temporary trace stays where the last line says it is."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    found = run("demo", "--no-view")
    assert Path(found.out.splitlines()[-1].removeprefix("next: spectrace view ")).exists()


def test_the_declared_recorder_is_a_function() -> None:
    """The entry point in pyproject.toml names something that can be called with what `record` hands over."""
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    group = text.split('[project.entry-points."spectrace.recorders"]')[1].split("\n\n")[0]
    declared = dict(line.split(" = ") for line in group.strip().splitlines())
    entry = EntryPoint("transformers", declared["transformers"].strip('"'), "spectrace.recorders")
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    assert entry.load().__name__ == "generate"


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("--control self-draft --draft D --prompt x", "the target drafts for itself"),
        ("--control no-draft --draft D --prompt x", "leave --draft, --prompt-lookup and --early-exit out"),
        ("--control no-draft --prompt-lookup 3 --prompt x", "leave --draft"),
        ("--control predictable-text", "give one of --draft"),
        ("--control self-draft", "give a prompt"),
    ],
)
def test_a_control_refuses_what_contradicts_it(
    recorder: FakeRecorder, run: Run, line: str, sentence: str
) -> None:
    """A self-draft has no other draft, a run without one none at all; prompts may be missing if built in."""
    found = run("record", "--target", "T", *line.split(), "-o", "o")
    assert (found.code, found.out) == (2, "")
    assert sentence in found.err


def test_a_control_is_handed_to_the_recorder(recorder: FakeRecorder, run: Run) -> None:
    """The target in the place of the draft, built-in texts, or nothing that proposes."""
    base = ("record", "--target", "T", "-o", "run.spectrace", "--overwrite")
    assert run(*base, "--control", "self-draft", "--prompt", "Once").code == 0
    assert run(*base, "--control", "predictable-text", "--draft", "D").code == 0
    assert run(*base, "--control", "predictable-text", "--draft", "D", "--prompt", "mine").code == 0
    assert run(*base, "--control", "no-draft", "--prompt", "Once").code == 0
    own, easy, mine, plain = recorder.calls
    assert (own["control"], own["draft"]) == ("self-draft", Path("T"))
    assert (easy["control"], len(easy["prompts"]), easy["draft"]) == ("predictable-text", 6, Path("D"))
    assert mine["prompts"] == ["mine"]
    assert (plain["control"], plain["draft"], plain["early_exit"]) == ("no-draft", None, None)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *(("--temperature", value) for value in ("nan", "inf", "-1", "5e-324", "1e-9")),
        *(("--top-p", value) for value in ("nan", "0", "1.5", "5e-324")),
        *(("--seed", value) for value in ("9223372036854775808", "-1")),
        ("--top-k", "99999999999999999999"),
        *(("--num-draft-tokens", value) for value in ("0", "1025")),
        *(
            ("--tree", value)
            for value in ("257,2,2", "2,65,2", "2,2,1025", "9,9", "0,1,1", "9" * 5000 + ",1,1")
        ),
        *(("--device", value) for value in ("meta", "meta:0")),
        ("--prompt", "half \ud83d"),
    ],
)
def test_numbers_and_names_beyond_sense_are_refused_first(
    recorder: FakeRecorder, run: Run, option: str, value: str
) -> None:
    """The option is named, before an engine is loaded."""
    found = run(*RECORD, option, value)
    assert (found.code, found.out) == (2, "")
    assert option in found.err
    assert recorder.calls == []


def test_prompts_are_text(recorder: FakeRecorder, run: Run) -> None:
    """Half a surrogate pair in JSON is no text, and the file is named."""
    Path("p.jsonl").write_text('{"prompt": "\\ud83d"}\n')
    found = run("record", "--target", "T", "--draft", "D", "--prompts", "p.jsonl", "-o", "o")
    assert found.code == 2
    assert found.err.startswith("spectrace: --prompts p.jsonl: a prompt is not text")


def test_proposers_have_limits(recorder: FakeRecorder, run: Run) -> None:
    """Prompt lookup proposes at most 1024 tokens, early exit leaves before the last layer."""
    Path("T/config.json").write_text('{"num_hidden_layers": 4}')
    base = ("record", "--target", "T", "--prompt", "x", "-o", "o")
    found = run(*base, "--early-exit", "4")
    assert (found.code, found.err) == (
        2,
        "spectrace: --early-exit 4: the target has 4 layers; give fewer\n",
    )
    assert run(*base, "--prompt-lookup", "1025").code == 2
    assert recorder.calls == []
    assert run(*base, "--early-exit", "3").code == 0


@pytest.mark.parametrize("out", ["p.txt", "T/config.json", "D/sub/weights.safetensors"])
def test_nothing_that_is_read_is_recorded_over(recorder: FakeRecorder, run: Run, out: str) -> None:
    """Prompts and the files of both models stay, with --overwrite too."""
    Path("D/sub").mkdir()
    for name in ("p.txt", "D/sub/weights.safetensors", "T/other.spectrace"):
        Path(name).write_text("x")
    before = Path(out).read_bytes()
    line = ("record", "--target", "T", "--draft", "D", "--prompts", "p.txt", "-o", out, "--overwrite")
    found = run(*line)
    assert (found.code, found.err) == (2, f"spectrace: {out}: is what is read; give another name\n")
    assert Path(out).read_bytes() == before
    assert recorder.calls == []


def test_lost_steps_are_said_and_are_one(
    recorder: FakeRecorder, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A recording with a gap, or without its end, is no success."""

    def with_gap(out: Path, prompts: list[str], **options: Any) -> None:
        with TraceWriter(out, {}) as writer:
            writer.step(step_fields(num_accepted=2))
            writer.gap(lost=3, reason="queue full")

    def without_end(out: Path, prompts: list[str], **options: Any) -> None:
        out.write_bytes(killed)

    monkeypatch.setattr(recorder, "load", lambda: with_gap)
    found = run(*RECORD)
    assert (found.code, found.err) == (1, "3 of 4 steps lost: queue full\n")
    killed = (Path(__file__).parents[2] / "sample_traces" / "killed.spectrace").read_bytes()
    monkeypatch.setattr(recorder, "load", lambda: without_end)
    found = run(*RECORD, "--overwrite")
    assert found.code == 1
    assert "the trace was not closed" in found.err


def test_a_run_that_fails_leaves_the_old_trace(
    recorder: FakeRecorder, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """--overwrite replaces a trace by steps only: not by a fault before the first, nor by an empty file."""

    def breaks(out: Path, prompts: list[str], **options: Any) -> None:
        out.unlink()
        raise RecorderError("out of memory")

    def empty(out: Path, prompts: list[str], **options: Any) -> None:
        out.unlink()
        TraceWriter(out, {}).close()

    assert run(*RECORD).code == 0
    before = Path("run.spectrace").read_bytes()
    for fault, sentence in ((breaks, "out of memory"), (empty, "not one step could be written")):
        monkeypatch.setattr(recorder, "load", lambda fault=fault: fault)
        found = run(*RECORD, "--overwrite")
        assert found.code == 1
        assert sentence in found.err
        assert Path("run.spectrace").read_bytes() == before
    assert not [path for path in Path().iterdir() if path.name.startswith(".")]


def test_what_a_killed_recording_replaced_comes_back(recorder: FakeRecorder, run: Run, trace: Path) -> None:
    """The next start puts it back before anything else, says so, and replaces it only when told to."""
    before = trace.read_bytes()
    trace.rename(".run.spectrace.999999999.old")
    found = run(*RECORD)
    assert found.code == 2
    assert "run.spectrace: put back" in found.err
    assert "--overwrite replaces it" in found.err
    assert Path("run.spectrace").read_bytes() == before
    assert run(*RECORD, "--overwrite").code == 0

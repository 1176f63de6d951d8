"""What README, SPEC and the sample table show is what happens."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from spectrace.cli import COMMANDS
from spectrace.format.fields import FIELDS

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
SPEC = (ROOT / "spectrace/format/SPEC.md").read_text()


def blocks(text: str, language: str) -> list[str]:
    """Fenced blocks of one language."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def console_commands() -> list[tuple[str, str]]:
    """(command, output) of every ``$`` line in the README's console blocks."""
    found = []
    for block in blocks(README, "console"):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            found.append((command, output))
    return found


@pytest.mark.parametrize(("command", "output"), console_commands())
def test_readme_commands_print_what_the_readme_shows(command: str, output: str) -> None:
    """Every command in a console block of the README prints exactly what stands below it."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "COLUMNS": "80", "NO_COLOR": "1"}
    done = subprocess.run(
        ["bash", "-c", command], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout + done.stderr == output


def test_readme_shows_some_commands() -> None:
    """The README has console blocks, so that the test above tests something."""
    assert len(console_commands()) >= 3


@pytest.mark.engine
def test_readme_four_lines_record_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The README's lines around generate work as they stand, on the bundled models."""
    pytest.importorskip("transformers")
    from transformers import AutoModelForCausalLM, AutoTokenizer

    import spectrace
    import spectrace_demo

    tokenizer = AutoTokenizer.from_pretrained(spectrace_demo.target_path())
    names = {
        "model": AutoModelForCausalLM.from_pretrained(spectrace_demo.target_path()),
        "draft": AutoModelForCausalLM.from_pretrained(spectrace_demo.draft_path()),
        "tokenizer": tokenizer,
        "inputs": {**tokenizer(spectrace_demo.prompts()[0], return_tensors="pt"), "max_new_tokens": 12},
    }
    monkeypatch.chdir(tmp_path)
    (block,) = [block for block in blocks(README, "python") if "spectrace_transformers.record" in block]
    exec(block, names)
    with spectrace.open("run.spectrace") as trace:
        assert trace.state == "closed"
        assert trace.counts.proposals > 0


@pytest.mark.engine
def test_readme_loop_records_a_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The README's loop works as it stands, on the bundled models, and its text is the target's own."""
    torch = pytest.importorskip("torch")
    from transformers import AutoModelForCausalLM, AutoTokenizer

    import spectrace
    import spectrace_demo

    folders = (spectrace_demo.target_path(), spectrace_demo.draft_path())
    target, draft = (AutoModelForCausalLM.from_pretrained(folder).eval() for folder in folders)

    def logits_after(model: Any, ids: list[int], last: int) -> Any:
        with torch.no_grad():
            return model(torch.tensor([ids])).logits[0, -last:]

    def propose(ids: list[int]) -> tuple[list[int], Any]:
        rows: list[Any] = []
        for _ in range(4):
            rows.append(logits_after(draft, [*ids, *(int(row.argmax()) for row in rows)], 1)[0])
        return [int(row.argmax()) for row in rows], torch.stack(rows)

    def accept(drafted: list[int], logits: Any) -> list[int]:
        picks: list[int] = logits.argmax(-1).tolist()
        agreed = next((n for n, (a, b) in enumerate(zip(drafted, picks)) if a != b), len(drafted))
        return picks[: agreed + 1]

    tokenizer = AutoTokenizer.from_pretrained(folders[0])
    prompt = tokenizer(spectrace_demo.prompts()[0]).input_ids
    names: dict[str, Any] = {"ids": list(prompt), "propose": propose, "accept": accept}
    names["tokenizer"] = tokenizer
    names["verify"] = lambda ids, drafted: logits_after(target, [*ids, *drafted], len(drafted) + 1)
    monkeypatch.chdir(tmp_path)
    (block,) = [block for block in blocks(README, "python") if "spectrace_loop" in block]
    assert len(block.splitlines()) <= 15
    exec(block, names)
    alone = list(prompt)
    while len(alone) < len(names["ids"]):
        alone.append(int(logits_after(target, alone, 1)[0].argmax()))
    assert names["ids"] == alone
    with spectrace.open("loop.spectrace") as trace:
        assert [token for step in trace for token in step.emitted_ids] == alone[len(prompt) :]
        assert trace.counts.accepted > 0
        assert trace.problems == []


@pytest.mark.engine
def test_the_loop_of_the_recorders_readme_is_a_program(tmp_path: Path) -> None:
    """Put into a file it runs, and records steps whose tokens have texts."""
    pytest.importorskip("transformers")
    import spectrace

    program = blocks((ROOT / "recorders/spectrace_loop/README.md").read_text(), "python")[0]
    (tmp_path / "loop.py").write_text(program)
    subprocess.run([sys.executable, "loop.py"], cwd=tmp_path, check=True, capture_output=True, timeout=300)
    with spectrace.open(tmp_path / "run.spectrace") as trace:
        assert trace.problems == []
        assert trace.counts.accepted > 0
        assert trace.token_text(trace.steps[0].proposal_ids[0]) is not None


def test_readme_python_reads_a_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The README's reading example works as it stands."""
    (block,) = [block for block in blocks(README, "python") if "spectrace.open" in block]
    shutil.copy(ROOT / "sample_traces/draft-greedy.spectrace", tmp_path / "run.spectrace")
    monkeypatch.chdir(tmp_path)
    exec(block, {})


def test_spec_script_reads_a_trace_without_the_package(tmp_path: Path) -> None:
    """The first script in SPEC.md counts accepted tokens as the package does."""
    import spectrace

    sample = ROOT / "sample_traces/draft-greedy.spectrace"
    shutil.copy(sample, tmp_path / "run.spectrace")
    done = subprocess.run(
        [sys.executable, "-I", "-W", "ignore", "-c", blocks(SPEC, "python")[0]],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    with spectrace.open(sample) as trace:
        counted = {int(a): 0 for a in set(trace.columns("num_accepted").tolist())}
        for step in trace:
            counted[step.num_accepted] += 1
    assert done.stdout.strip() == str(sorted(counted.items()))


def test_spec_lists_every_field() -> None:
    """SPEC.md's table of fields is the table in fields.py."""
    listed = re.findall(r"^\| (\d+) \| `([\w.]+)`( \(required\))? \| (\w+) \| (\d) \|", SPEC, re.MULTILINE)
    expected = [
        (str(leaf.number), leaf.path, " (required)" if field.required else "", leaf.kind, str(leaf.depth))
        for field in FIELDS
        for leaf in field.leaves
    ]
    assert listed == expected


def test_every_command_is_in_the_readme() -> None:
    """A reader of the README meets every command once."""
    names = [name for group in COMMANDS.values() for name in group]
    missing = [name for name in names if f"spectrace {name}" not in README]
    assert not missing


def test_every_sample_has_a_line() -> None:
    """sample_traces/README.md says of every sample what it is, and names no other."""
    table = (ROOT / "sample_traces/README.md").read_text()
    listed = set(re.findall(r"`([\w.-]+\.spectrace)`", table))
    assert listed == {path.name for path in (ROOT / "sample_traces").glob("*.spectrace")}


def test_samples_are_small_and_name_no_machine() -> None:
    """Every sample is at most 150 kB and holds no path of the machine it was made on."""
    for path in (ROOT / "sample_traces").glob("*.spectrace"):
        data = path.read_bytes()
        assert len(data) <= 150_000, path
        assert b"/home/" not in data, path
        assert str(ROOT).encode() not in data, path

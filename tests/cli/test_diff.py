"""`spectrace diff`: its text, its JSON, its exit codes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spectrace.testing import write_trace

if TYPE_CHECKING:
    from tests.cli.conftest import Run

Golden = Callable[[str, str], None]
SAMPLES = Path(__file__).parents[2] / "sample_traces"
HEALTHY = SAMPLES / "eagle3.spectrace"


@pytest.fixture
def samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sample traces, in the current folder."""
    for path in SAMPLES.glob("*.spectrace"):
        shutil.copy(path, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")


@pytest.mark.usefixtures("samples")
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("diff_taps_shifted.txt", ["eagle3.spectrace", "eagle3-taps-shifted.spectrace"]),
        ("diff_taps_shifted.json", ["eagle3.spectrace", "eagle3-taps-shifted.spectrace", "--json"]),
        ("diff_map_as_direct.txt", ["eagle3.spectrace", "eagle3-map-as-direct.spectrace"]),
        ("diff_sampled.txt", ["draft-greedy.spectrace", "draft-sampled.spectrace"]),
        ("diff_engines.txt", ["eagle3.spectrace", "draft-greedy.spectrace"]),
    ],
)
def test_output_is_what_a_person_last_looked_at(
    run: Run, golden: Golden, name: str, arguments: list[str]
) -> None:
    """A change of either format is seen in review and not by its users."""
    found = run("diff", *arguments)
    assert (found.code, found.err) == (0, "")
    golden(name, found.out)


@pytest.mark.usefixtures("samples")
@pytest.mark.parametrize("other", sorted(path.name for path in SAMPLES.glob("eagle3-*.spectrace")))
def test_a_fault_beside_its_healthy_twin_fits_one_screen(run: Run, other: str) -> None:
    """80 columns and 24 lines, the prompt of the shell included."""
    lines = run("diff", "eagle3.spectrace", other).out.splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) <= 24


def test_a_run_beside_itself_is_equal(run: Run, tmp_path: Path) -> None:
    """Nothing differs; that both are one file is said."""
    shutil.copy(HEALTHY, tmp_path / "again.spectrace")
    again = run("diff", HEALTHY, tmp_path / "again.spectrace")
    assert "Nothing: what the traces hold is the same." in again.out
    assert "same file" not in again.out
    assert "Both are the same file." in run("diff", HEALTHY, HEALTHY).out
    found = json.loads(run("diff", HEALTHY, HEALTHY, "--json").out)
    assert found["is_equal"] is True


def test_json_has_the_keys_of_the_contract(run: Run) -> None:
    """Stable names, also where nothing differs."""
    for other in ("eagle3", "eagle3-taps-shifted", "minimal-v1"):
        found = json.loads(run("diff", "--json", HEALTHY, SAMPLES / f"{other}.spectrace").out)
        assert set(found) == {
            "a", "b", "is_equal", "alignment", "headers", "same_weights", "first_differences", "fork", "taps",
            "acceptance", "next", "without_ids",
        }  # fmt: skip
        kinds = (
            "prompt",
            "draft_positions",
            "kv_lengths",
            "fed_back",
            "proposal",
            "target_pick",
            "decision",
            "emitted",
        )
        assert set(kinds) < set(found["first_differences"])
        assert {"alpha1", "acceptance_rate", "accept_length", "positions"} < set(found["acceptance"])


def test_another_number_of_draft_tokens_is_told_as_such(run: Run, tmp_path: Path) -> None:
    """The healthy run beside itself with three draft tokens at most."""
    records = [json.loads(line) for line in run("export", HEALTHY).out.splitlines()]
    for record in records:
        if record["record"] == "run":
            record["speculation"] = {"num_draft_tokens": 3}
        if record["record"] == "step" and record["num_accepted"] < 4 and record["proposal_ids"]:
            record["proposal_ids"] = record["proposal_ids"][:3]
            for name in list(record):
                if isinstance(record[name], list) and name.startswith(("draft_", "target_", "overlaps")):
                    places = 4 if name in ("target_gaps", "target_top", "target_ids") else 3
                    record[name] = record[name][:places]
    lines = tmp_path / "k3.jsonl"
    lines.write_text("\n".join(map(json.dumps, records)))
    assert run("import", lines, "-o", tmp_path / "k3.spectrace").code == 0
    text = run("diff", HEALTHY, tmp_path / "k3.spectrace").out
    assert "draft tokens per step: A 4 | B 3" in text
    assert "only the number of draft tokens differs" in " ".join(text.split())


def _two(tmp_path: Path, *digests: str, **fields: Any) -> list[Path]:
    """Traces of one step each, of the prompts given."""
    return [
        write_trace(
            tmp_path / f"{at}.spectrace",
            [fields],
            run={"method": "eagle3", "engine": {"name": f"engine{at}"}},
            requests=[{"request": "r0", "prompt_digest": digest}],
        )
        for at, digest in enumerate(digests)
    ]


def test_other_prompts_are_one_sentence_and_exit_code_1(run: Run, tmp_path: Path) -> None:
    """The headers are compared all the same, as text and as JSON."""
    paths = _two(tmp_path, "sha256:aa", "sha256:bb")
    found = run("diff", *paths)
    assert found.code == 1
    assert "engine: A engine0 | B engine1" in found.out
    assert found.err.count("\n") == 1
    assert "the two traces have no prompt in common" in found.err
    as_json = run("diff", *paths, "--json")
    assert as_json.code == 1
    assert json.loads(as_json.out)["alignment"]["problem"] == "the two traces have no prompt in common"


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_file_that_is_no_trace_is_exit_code_1(run: Run, tmp_path: Path, order: tuple[int, int]) -> None:
    """Whichever of the two it is, the sentence names it."""
    bad = tmp_path / "bad.spectrace"
    bad.write_bytes(b"not a trace")
    found = run("diff", *[(HEALTHY, bad)[at] for at in order])
    assert (found.code, found.out) == (1, "")
    assert "bad.spectrace" in found.err


def test_an_empty_trace_is_exit_code_1(run: Run, tmp_path: Path) -> None:
    """There is nothing to compare, and it is said of which."""
    empty = write_trace(tmp_path / "empty.spectrace")
    assert "B holds no request" in run("diff", HEALTHY, empty).err
    assert "A holds no request" in run("diff", empty, HEALTHY).err


def test_texts_from_the_file_are_shown_as_escapes(run: Run, tmp_path: Path) -> None:
    """Request names, headers and token texts with terminal escapes do not reach the terminal."""
    name = "r\x1b[2J\n\u202e"
    paths = []
    for at, token in enumerate((5, 6)):
        paths.append(
            write_trace(
                tmp_path / f"{at}.spectrace",
                [{"request": name, "emitted_ids": [token]}],
                run={"method": f"m\x1b[3{at}m", "engine": {"flags": {"x\x07": at}}},
                requests=[{"request": name, "prompt_digest": "sha256:aa"}],
                token_text=lambda space, token_id: "\x1b[31m",
            )
        )
    found = run("diff", *paths)
    assert found.code == 0
    assert "\x1b" not in found.out
    assert "\u202e" not in found.out
    assert "\x07" not in found.out
    assert "r\\x1b[2J\\n\\u202e" in found.out


@pytest.mark.parametrize("columns", ["50", "200"])
def test_lines_fit_the_terminal(run: Run, monkeypatch: pytest.MonkeyPatch, columns: str) -> None:
    """What is prose is wrapped; the tables need 72 columns."""
    monkeypatch.setenv("COLUMNS", columns)
    for other in ("eagle3-no-midlayer", "eagle3-taps-normed", "draft-sampled"):
        lines = run("diff", HEALTHY, SAMPLES / f"{other}.spectrace").out.splitlines()
        assert max(map(len, lines)) <= max(72, min(int(columns), 100))


def test_a_terminal_sees_no_bar_in_the_output(on_a_terminal: Run) -> None:
    """Progress is talk, on stderr; the comparison ends with what to look at."""
    found = on_a_terminal("diff", HEALTHY, HEALTHY)
    assert found.code == 0
    assert found.out.rstrip().endswith("next: Nothing: what the traces hold is the same.")

"""`spectrace check` from the outside: what it prints, its exit codes, and strangers' files."""

from __future__ import annotations

import json
import os
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.checkpoint.building import (
    KEPT,
    d2t_of,
    head_tensors,
    llama_config,
    save,
    speculators_config,
    story_map,
    t2d_of,
    target_config,
    write_draft,
    write_model,
)

if TYPE_CHECKING:
    from tests.cli.conftest import Run

Golden = Callable[[str, str], None]

NESTED = {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 15, 28], "use_aux_hidden_state": True}}


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A sound draft, its target and the training run's map, in the current folder."""
    monkeypatch.chdir(tmp_path)
    write_draft(Path("draft"), llama_config(32, 8, **NESTED))
    write_model(Path("target"), target_config(32), {})
    Path("run").mkdir()
    np.save("run/d2t.npy", d2t_of(KEPT))
    return tmp_path


@pytest.mark.parametrize(("name", "options"), [("check.txt", []), ("check.json", ["--json"])])
def test_output_is_what_a_person_last_looked_at(
    models: Path, run: Run, golden: Golden, name: str, options: list[str]
) -> None:
    """Both forms of the same answer, byte for byte."""
    found = run("check", "draft", "--target", "target", "--vocab-mapping", "run", *options)
    assert (found.code, found.err) == (0, "")
    golden(name, found.out)


def test_the_story_fits_a_small_terminal(models: Path, run: Run) -> None:
    """The seed's table with its figures, the newcomer's sentence, and no line beyond 80 columns."""
    d2t, t2d = story_map()
    tensors = head_tensors(32_000) | {"d2t": d2t, "t2d": t2d}
    write_model(Path("story"), llama_config(163_840, 32_000, **NESTED), tensors)
    save(Path("run/d2t.safetensors"), {"d2t": d2t, "t2d": t2d})
    Path("run/d2t.npy").unlink()
    found = run("check", "story", "--vocab-mapping", "run")
    lines = found.out.splitlines()
    assert found.code == 0
    assert max(map(len, lines)) <= 80
    for line in (
        "  d2t[:10] = 0 0 0 0 0 0 0 0 0 0",
        "  d2t[100] = 0",
        "  d2t[1000] = 787",
        "  distinct ids                    32,000 of 32,000      20,954 of 32,000",
        "  equal to t2d (32,000)                        yes                    no",
    ):
        assert line in lines
    assert "The map is sound: d2t holds offsets" in found.out
    assert "vocab-map/stale: equal, entry by entry, to the map in run/d2t.safetensors" in found.out


def test_findings_come_first_and_tables_after(models: Path, run: Run) -> None:
    """A reader of the first screen has the cause."""
    names = [name for name in head_tensors(8) if name.startswith("midlayer")]
    write_draft(Path("bare"), llama_config(32, 8, **NESTED), dict.fromkeys(names))
    out = run("check", "bare", "--target", "target").out
    order = [
        "certain: weights/not-loaded",
        "hint: ",
        "cleared:",
        "could not be checked:",
        "Vocabulary map",
        "Layers fed",
    ]
    assert [out.index(word) for word in order] == sorted(out.index(word) for word in order)


def test_json_answers_like_diagnose(models: Path, run: Run) -> None:
    """The same three lists with the same keys, and the tables with their sources."""
    found = json.loads(run("check", "draft", "--json").out)
    assert {"findings", "cleared", "not_checked"} <= found.keys()
    assert all(
        {"id", "strength", "summary", "evidence", "steps"} <= item.keys() for item in found["findings"]
    )
    assert found["map"]["offset"]["distinct"] == 8
    assert len(found["taps"]["engines"]) == 8
    assert all(row["source"] and row["version"] for row in (*found["taps"]["engines"], *found["loading"]))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nothing"], "nothing: does not exist"),
        (["draft", "--target", "nothing"], "nothing: does not exist"),
        (["draft", "--vocab-mapping", "nothing"], "nothing: does not exist"),
        (["draft", "--token-frequencies", "nothing"], "nothing: does not exist"),
        ([], "Missing argument 'DRAFT'"),
    ],
)
def test_a_wrong_command_line_is_two(models: Path, run: Run, arguments: list[str], sentence: str) -> None:
    """What does not exist is a slip of the hand."""
    found = run("check", *arguments)
    assert (found.code, found.out) == (2, "")
    assert sentence in found.err


def test_what_is_no_model_is_one(models: Path, run: Run) -> None:
    """A folder without a model, a file, a link to itself, a pipe: one sentence, exit 1."""
    Path("loop").symlink_to("loop")
    Path("empty").mkdir()
    Path("file").write_text("x")
    os.mkfifo("pipe")
    for name in ("loop", "empty", "file", "pipe"):
        found = run("check", name)
        assert (found.code, found.out) == (1, "")
        assert found.err.startswith(f"spectrace: {name}: ")
        assert found.err.count("\n") == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may read everything")
def test_a_folder_without_permission_is_one(models: Path, run: Run) -> None:
    """The model is at fault and not the command line."""
    Path("draft").chmod(0)
    try:
        found = run("check", "draft")
    finally:
        Path("draft").chmod(0o755)
    assert (found.code, found.out) == (1, "")
    assert "draft: cannot be read: Permission denied" in found.err


def test_a_cut_tensor_file_names_file_and_tensor_and_the_rest_is_checked(models: Path, run: Run) -> None:
    """Exit 1; what lies before the cut is judged, and a lost map is not called missing."""
    path = Path("draft/model.safetensors")
    os.truncate(path, path.stat().st_size - 40)
    found = run("check", "draft", "--target", "target")
    assert found.code == 1
    assert "draft/model.safetensors: tensor d2t: the file ends" in found.err
    assert "draft/model.safetensors: tensor t2d: the file ends" in found.err
    assert "tap-form/width: fc takes 3 taps" in found.out
    assert "vocab-map: d2t is there and could not be read" in found.out
    assert "vocab-map/missing" not in found.out


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda path: path.write_bytes(b"\xff" * 100), "truncated, or no safetensors file"),
        (lambda path: path.write_bytes(b""), "too short for a safetensors file"),
        (lambda path: path.write_bytes((1 << 62).to_bytes(8, "little") + b"{}"), "its header claims"),
        (lambda path: (path.unlink(), path.symlink_to(path.name)), "symbolic links"),
        (lambda path: (path.unlink(), path.mkdir()), "a directory"),
    ],
)
def test_an_unreadable_tensor_file_leaves_the_other_checks(
    models: Path, run: Run, damage: Callable[[Path], Any], sentence: str
) -> None:
    """The layers of the engines are in config.json; exit 1 with the file's name."""
    damage(Path("draft/model.safetensors"))
    found = run("check", "draft", "--target", "target")
    assert found.code == 1
    assert f"draft/model.safetensors: {sentence}" in found.err or sentence in found.err
    assert "vLLM V1 0.33.0  eagle_config, as is  1 15 28" in found.out
    assert "Traceback" not in found.err


def test_a_damaged_config_leaves_the_map(models: Path, run: Run) -> None:
    """Exit 1, and d2t is judged from the tensors alone."""
    Path("draft/config.json").write_text('{"a": [' * 20_000)
    found = run("check", "draft")
    assert found.code == 1
    assert "draft/config.json: nested too deeply" in found.err
    assert "The map is sound" in found.out


def test_many_faults_are_a_few_sentences(models: Path, run: Run) -> None:
    """The first of them, and how many more; all in JSON."""
    path = Path("draft/model.safetensors")
    length = int.from_bytes(path.read_bytes()[:8], "little")
    os.truncate(path, 8 + length)
    found = run("check", "draft")
    assert len(found.err.splitlines()) == 9
    assert found.err.splitlines()[-1] == "spectrace: and 7 more like these; --json lists all"
    assert len(json.loads(run("check", "draft", "--json").out)["problems"]) == 15


@pytest.mark.parametrize(
    ("d2t", "name"),
    [
        (d2t_of(KEPT).astype(np.float32), "vocab-map/dtype"),
        (d2t_of(KEPT)[:5], "vocab-map/length"),
        (d2t_of(KEPT) - 3, "vocab-map/out-of-range"),
        (np.array(KEPT), "vocab-map/absolute-table"),
    ],
)
def test_a_wrong_map_is_a_finding_and_no_error(models: Path, run: Run, d2t: Any, name: str) -> None:
    """Exit 0: the question was answered."""
    write_draft(Path("wrong"), None, {"d2t": d2t})
    found = run("check", "wrong")
    assert (found.code, found.err) == (0, "")
    assert f": {name}\n" in found.out


def test_a_target_too_small_for_the_map_is_a_finding(models: Path, run: Run) -> None:
    """With both sizes."""
    write_model(Path("small"), target_config(20), {})
    assert (
        "1 of 8 ids lie outside the target's vocabulary of 20"
        in run("check", "draft", "--target", "small").out
    )


def test_another_map_in_the_folder_is_a_finding(models: Path, run: Run) -> None:
    """The checkpoint does not hold the map of its training run."""
    np.save("run/d2t.npy", d2t_of(KEPT) + np.arange(8) // 7)
    found = run("check", "draft", "--vocab-mapping", "run")
    assert found.code == 0
    assert "certain: vocab-map/stale\n  The map is not that of run: 1 of 8 entries differ" in found.out


def test_another_checkpoint_is_a_mapping_folder_too(models: Path, run: Run) -> None:
    """The server's copy against the trainer's."""
    write_draft(Path("other"))
    assert (
        "equal, entry by entry, to the map in other/model.safetensors"
        in run("check", "draft", "--vocab-mapping", "other").out
    )


def test_a_pickled_map_without_torch_is_said_and_no_fault(models: Path, spawn: Run) -> None:
    """Exit 0: nothing of the model is at fault, and nothing was unpickled."""
    Path("run/d2t.npy").unlink()
    Path("run/mapping.pt").write_bytes(pickle.dumps({}))
    Path("torch.py").write_text("raise ImportError('none here')\n")
    Path("sitecustomize.py").write_text(
        "import importlib.util as u\nfind = u.find_spec\n"
        "u.find_spec = lambda name, *a: None if name == 'torch' else find(name, *a)\n"
    )
    path = os.pathsep.join([str(models), *filter(None, sys.path)])
    found = spawn("check", "draft", "--vocab-mapping", "run", env={**os.environ, "PYTHONPATH": path})
    assert found.code == 0, found.err
    assert "run/mapping.pt: a pickle, not read: that needs torch" in found.err
    assert "vocab-map/stale: the folder holds no readable d2t" in found.out


def test_frequencies_weigh_the_coverage(models: Path, run: Run) -> None:
    """A JSON object of counts; anything else is one sentence."""
    Path("counts.json").write_text('{"0": 6, "31": 2}')
    words = " ".join(run("check", "draft", "--token-frequencies", "counts.json").out.split())
    assert "75.00% of the 8 tokens counted" in words
    for text in ("[]", '{"a": 1}', '{"1": "x"}', '{"1": -1}', '{"-1": 1}', '{"1": true}', "{"):
        Path("counts.json").write_text(text)
        found = run("check", "draft", "--token-frequencies", "counts.json")
        assert (found.code, found.out) == (1, "")
        assert found.err.startswith("spectrace: counts.json: ")


def test_hostile_words_are_shown_as_escapes(models: Path, run: Run) -> None:
    """Names of tensors and words of config.json are a stranger's: no control character reaches a terminal."""
    bad = "\x1b]0;owned\x07\u202e[red]"
    config = speculators_config(32, 8, architectures=[bad], eagle_aux_hidden_state_layer_ids=[2, 16, 29])
    config["transformer_layer_config"]["rope_scaling"] = {"rope_type": bad}
    write_draft(
        Path("hostile"), config, {f"midlayer.{bad}": np.ones(4, np.float32) * np.nan, "t2d": t2d_of(KEPT, 32)}
    )
    Path(f"hostile/{bad[:3]}.safetensors").write_bytes(b"x")
    found = run("check", "hostile", "--target", "target")
    for text in (found.out, found.err):
        assert all(char.isprintable() or char == "\n" for char in text)
    assert "\\x1b]0;owned" in found.out
    assert json.loads(run("check", "hostile", "--json").out)["draft"]["architecture"] == bad


def test_nothing_heavy_is_loaded(models: Path, spawn: Run) -> None:
    """No torch, no safetensors library, no Textual: headers and numpy are enough."""
    program = Path("sitecustomize.py")
    program.write_text(
        "import atexit, sys\n"
        "heavy = ('torch', 'safetensors', 'textual', 'rich')\n"
        "atexit.register(lambda: sys.stderr.write(' '.join(m for m in heavy if m in sys.modules)))\n"
    )
    path = os.pathsep.join([str(models), *filter(None, sys.path)])
    found = spawn("check", "draft", env={**os.environ, "PYTHONPATH": path})
    assert (found.code, found.err) == (0, "")

"""Model directories: shards and their index, maps in folders, tokenizers, pickles, and what is none."""

from __future__ import annotations

import io
import json
import os
import pickle
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spectrace.checkpoint.config import Config
from spectrace.checkpoint.directory import open_checkpoint, open_table
from spectrace.checkpoint.tokenizer import read_tokenizer
from spectrace.errors import CheckpointError
from tests.checkpoint.building import KEPT, d2t_of, save, t2d_of, write_draft, write_model

D2T, T2D = d2t_of(KEPT), t2d_of(KEPT, 32)


def write_sharded(folder: Path, places: dict[str, str]) -> Path:
    """Two shards that hold `a` and `b`, and an index that says `places`."""
    write_model(folder, {"hidden_size": 4}, {})
    for at, name in enumerate("ab"):
        save(folder / f"model-{at}.safetensors", {name: np.ones(3, np.float32)})
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    return folder


def test_shards_are_read_through_their_index(tmp_path: Path) -> None:
    """Each tensor is found in its file, and files that the index leaves out are named."""
    folder = write_sharded(tmp_path, {"a": "model-0.safetensors"})
    found = open_checkpoint(folder, with_values=True)
    assert (list(found.tensors), found.files) == (["a"], ("model-0.safetensors",))
    assert found.unread == ("model-1.safetensors",)
    assert (found.missing, found.faults) == ((), ())


def test_what_an_index_promises_and_no_file_holds_is_missing(tmp_path: Path) -> None:
    """Also where the whole shard is not there."""
    places = {"a": "model-0.safetensors", "x": "model-0.safetensors", "y": "model-9.safetensors"}
    found = open_checkpoint(write_sharded(tmp_path, places))
    assert found.missing == ("x", "y")
    assert [Path(fault.file).name for fault in found.faults] == ["model-9.safetensors"]


@pytest.mark.parametrize("place", ["../b.safetensors", "/etc/passwd", "sub/x.safetensors", "..", "a\\b"])
def test_an_index_cannot_lead_out_of_the_directory(tmp_path: Path, place: str) -> None:
    """Such a file is never opened."""
    folder = write_sharded(tmp_path / "model", {"a": "model-0.safetensors", "b": place})
    save(tmp_path / "b.safetensors", {"b": np.ones(1, np.float32)})
    found = open_checkpoint(folder)
    assert list(found.tensors) == ["a"]
    assert "outside the checkpoint" in found.faults[0].what


def test_only_files_with_the_tensors_asked_for_are_opened(tmp_path: Path) -> None:
    """Of a target nothing but embeddings and head is looked at."""
    folder = write_sharded(tmp_path, {"a": "model-0.safetensors", "b": "model-1.safetensors"})
    assert open_checkpoint(folder, ending=("b",)).files == ("model-1.safetensors",)


def test_a_damaged_config_leaves_the_tensors(tmp_path: Path) -> None:
    """One damaged file costs its own contents."""
    folder = write_draft(tmp_path)
    for text, sentence in (
        ("{", "is no JSON"),
        ("[" * 100_000, "nested too deeply"),
        ('{"a":' * 50_000, "nested too deeply"),
        ("[]", "no object"),
        (" " * (3 << 20), "are not read"),
        ('{"a": ' + "9" * 5000 + "}", "is no JSON"),
    ):
        (folder / "config.json").write_text(text)
        found = open_checkpoint(folder)
        assert len(found.tensors) == 15
        assert not found.config
        assert sentence in found.faults[0].what


def test_a_directory_without_model_files_is_none(tmp_path: Path) -> None:
    """Empty, a file, a link to itself: one sentence with the path."""
    (tmp_path / "file").write_text("x")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "empty").mkdir()
    (tmp_path / "gguf").mkdir()
    (tmp_path / "gguf" / "x.gguf").write_bytes(b"GGUF")
    for name, sentence in (
        ("file", "Not a directory"),
        ("loop", "symbolic links"),
        ("empty", "holds neither config.json nor"),
        ("gguf", "GGUF files are not read"),
    ):
        with pytest.raises(CheckpointError, match=name) as caught:
            open_checkpoint(tmp_path / name)
        assert sentence in str(caught.value)


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may read everything")
def test_what_may_not_be_read_is_named(tmp_path: Path) -> None:
    """A file without permission costs its own contents only."""
    folder = write_draft(tmp_path / "model")
    (folder / "model.safetensors").chmod(0)
    assert "Permission denied" in open_checkpoint(folder).faults[0].what


def test_the_map_is_read_whatever_its_prefix(tmp_path: Path) -> None:
    """`d2t` of a wrapped module is `model.d2t`."""
    write_model(tmp_path, {}, {"model.d2t": D2T, "model.t2d": T2D})
    table = open_checkpoint(tmp_path).table
    assert table is not None
    assert table.d2t is not None
    assert table.t2d is not None
    assert np.array_equal(table.d2t, D2T)
    assert np.array_equal(table.t2d, T2D)


# --- folders of a training run ---------------------------------------------------------------------


def test_a_mapping_folder_may_hold_numpy_files(tmp_path: Path) -> None:
    """As speculators writes them."""
    np.save(tmp_path / "d2t.npy", D2T)
    np.save(tmp_path / "t2d.npy", T2D)
    (table,), faults = open_table(tmp_path)
    assert faults == ()
    assert table.d2t is not None
    assert np.array_equal(table.d2t, D2T)


def test_a_mapping_folder_may_hold_several_maps(tmp_path: Path) -> None:
    """One per training run; a checkpoint is a mapping folder too, and so is one file."""
    save(tmp_path / "a.safetensors", {"d2t": D2T})
    save(tmp_path / "b.safetensors", {"d2t": D2T + 1, "t2d": T2D})
    save(tmp_path / "c.safetensors", {"other": D2T})
    tables, _ = open_table(tmp_path)
    assert [Path(table.source).name for table in tables] == ["a.safetensors", "b.safetensors"]
    assert len(open_table(tmp_path / "a.safetensors")[0]) == 1


@pytest.mark.parametrize(
    "data",
    [
        pickle.dumps([1, 2, 3]),
        b"",
        b"\x93NUMPY\x01\x00v\x00{'descr': '|O', 'fortran_order': False, 'shape': (9,)}",
    ],
)
def test_a_numpy_file_with_a_pickle_is_refused(tmp_path: Path, data: bytes) -> None:
    """An array of objects would be unpickled: it is not."""
    (tmp_path / "d2t.npy").write_bytes(data)
    tables, faults = open_table(tmp_path)
    assert tables == ()
    assert "without unpickling" in faults[0].what


def test_a_numpy_header_that_lies_allocates_nothing(tmp_path: Path) -> None:
    """A shape of a terabyte in a file of a few bytes is a fault."""
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": "<i8", "fortran_order": False, "shape": (1 << 37,)})
    (tmp_path / "d2t.npy").write_bytes(file.getvalue())
    assert open_table(tmp_path)[0] == ()
    assert len(open_table(tmp_path)[1]) == 1


# --- pickles ---------------------------------------------------------------------------------------


class Bomb:
    """Writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.write_text, (self.path, "boom"))


@pytest.mark.parametrize("name", ["d2t.pt", "pytorch_model.bin", "x.pth"])
def test_a_pickle_never_runs(tmp_path: Path, name: str) -> None:
    """Plain or in torch's archive, with torch or without: refused or left alone, and named."""
    target = tmp_path / "boom"
    for wrap in (False, True):
        folder = tmp_path / f"model{wrap}"
        folder.mkdir()
        data = pickle.dumps({"d2t": Bomb(target)})
        if wrap:
            with zipfile.ZipFile(folder / name, "w") as archive:
                archive.writestr("archive/data.pkl", data)
                archive.writestr("archive/version", "3\n")
        else:
            (folder / name).write_bytes(data)
        assert open_checkpoint(folder).unread == (name,)
        assert Path(open_table(folder)[1][0].file).name == name
        assert not target.exists()


def test_a_compressed_archive_is_refused(tmp_path: Path) -> None:
    """Torch stores; a compressed file may grow without bound, so torch never sees it."""
    with zipfile.ZipFile(tmp_path / "d2t.pt", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", bytes(1 << 20))
    assert "compressed" in open_table(tmp_path)[1][0].what


def test_without_torch_a_pickle_is_left_alone_and_the_sentence_says_so(tmp_path: Path) -> None:
    """In an interpreter that cannot import torch: no fault of the file, and what to do."""
    (tmp_path / "d2t.pt").write_bytes(pickle.dumps({}))
    program = (
        "import sys, importlib.util as u; from pathlib import Path\n"
        "find = u.find_spec\n"
        "u.find_spec = lambda name, *a: None if name == 'torch' else find(name, *a)\n"
        "from spectrace.checkpoint.directory import open_table\n"
        "fault = open_table(Path(sys.argv[1]))[1][0]\n"
        "assert fault.needs == 'torch', fault\n"
        "assert 'convert it to safetensors' in fault.what, fault\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True, timeout=120)


@pytest.mark.engine
def test_with_torch_a_mapping_file_is_read(tmp_path: Path) -> None:
    """As SpecForge writes it, with `weights_only=True`; bfloat16 and booleans included."""
    import torch

    tables = {"d2t": torch.from_numpy(D2T), "t2d": torch.from_numpy(T2D), "note": "text"}
    torch.save(tables, tmp_path / "abc.pt")
    (table,), faults = open_table(tmp_path)
    assert faults == ()
    assert table.d2t is not None
    assert table.t2d is not None
    assert np.array_equal(table.d2t, D2T)
    assert np.array_equal(table.t2d, T2D)


@pytest.mark.engine
def test_with_torch_a_pickled_checkpoint_is_read(tmp_path: Path) -> None:
    """EAGLE's own checkpoints are pytorch_model.bin; a tensor that claims more than it holds is a fault."""
    import torch

    one = torch.ones(1)
    torch.save(
        {"norm.weight": torch.full((4,), torch.nan).bfloat16(), "huge": one.expand(1 << 40)},
        tmp_path / "pytorch_model.bin",
    )
    found = open_checkpoint(tmp_path, with_values=True)
    assert found.values["norm.weight"].nonfinite == 4
    assert [fault.tensor for fault in found.faults] == ["huge"]


# --- tokenizers ------------------------------------------------------------------------------------


def write_tokenizer(folder: Path, vocab: dict[str, int], **more: Any) -> Path:
    """A tokenizer.json as `tokenizers` writes it."""
    added = [{"id": 4, "content": "<eos>", "special": True}]
    model = {"type": "BPE", "vocab": vocab, "merges": [["a", "b"], ['"merges": [', "]"]]}
    (folder / "tokenizer.json").write_text(
        json.dumps({"added_tokens": added, "model": model, **more}, indent=1)
    )
    return folder


def test_ids_and_texts_of_a_tokenizer(tmp_path: Path) -> None:
    """Added tokens count, merges are passed over, and a token that looks like the merges is one."""
    write_tokenizer(tmp_path, {"a": 0, "merges": 1, '"merges": [': 2, "b": 3})
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": {"content": "<eos>"}, "bos_token": "a"}')
    found, faults = read_tokenizer(tmp_path, Config({"bos_token_id": 3}))
    assert faults == ()
    assert found is not None
    assert found.texts == {0: "a", 1: "merges", 2: '"merges": [', 3: "b", 4: "<eos>"}
    assert found.special_ids == {"bos": (3,), "eos": (4,)}


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"model": 5}', '{"model": {"vocab": [1, [2]]}, "added_tokens": [3, {"id": -1}]}'],
)
def test_a_strange_tokenizer_is_no_exception(tmp_path: Path, text: str) -> None:
    """Nothing known, or one fault."""
    (tmp_path / "tokenizer.json").write_text(text)
    found, faults = read_tokenizer(tmp_path, Config({}))
    assert (found is None) == bool(faults)
    assert found is None or found.texts == {}


def test_a_unigram_vocabulary_is_a_list(tmp_path: Path) -> None:
    """Sentencepiece models number their tokens by place."""
    (tmp_path / "tokenizer.json").write_text('{"model": {"vocab": [["<unk>", 0.0], ["x", -1.5]]}}')
    found, _ = read_tokenizer(tmp_path, Config({}))
    assert found is not None
    assert found.texts == {0: "<unk>", 1: "x"}

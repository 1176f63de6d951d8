"""Safetensors files that lie, end early or are something else: a sentence, and whatever is whole."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spectrace.checkpoint.scan import CHUNK, read_array, scan
from spectrace.checkpoint.tensorfile import HEADER_LIMIT, SafetensorsFile
from spectrace.errors import CheckpointError
from tests.checkpoint.building import Arrays, bf16, save

TABLES: Arrays = {"a": np.arange(6, dtype=np.int64), "b": np.ones((2, 3), np.float32), "c": np.zeros(4, bool)}


def raw(path: Path, header: Mapping[str, Any] | bytes, body: bytes = b"", length: int | None = None) -> Path:
    """A file with exactly this header."""
    head = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes((len(head) if length is None else length).to_bytes(8, "little") + head + body)
    return path


def entry(dtype: Any = "F32", shape: Any = (2,), span: Any = (0, 8)) -> dict[str, Any]:
    """One entry of a header."""
    return {"dtype": dtype, "shape": shape, "data_offsets": span}


def test_tensors_are_listed_and_read_back(tmp_path: Path) -> None:
    """Name, shape and values come out as they went in, whatever their type."""
    file = SafetensorsFile(save(tmp_path / "x.safetensors", TABLES), "x.safetensors")
    assert file.faults == ()
    for name, array in TABLES.items():
        assert file.tensors[name].shape == array.shape
        assert np.array_equal(read_array(file, file.tensors[name]), array)


def test_bfloat16_is_widened(tmp_path: Path) -> None:
    """Its bits are the upper half of a float32; numpy itself lacks it."""
    values = np.array([1.0, -2.5, 0.0, np.inf], np.float32)
    file = SafetensorsFile(save(tmp_path / "x.safetensors", {"w": bf16(values)}), "x")
    assert read_array(file, file.tensors["w"]).tolist() == values.tolist()


@pytest.mark.parametrize(
    ("header", "body", "tensor", "sentence"),
    [
        ({"a": entry()}, b"1234", "a", "the file ends 4 bytes before its last value"),
        ({"a": entry(shape=[3])}, b"12345678", "a", "its shape needs 12 bytes, its offsets span 8"),
        ({"a": entry(shape=[2**40, 2**40])}, b"12345678", "a", "its shape needs more than 2^60 bytes"),
        ({"a": entry(), "b": entry(span=[4, 12])}, b"0" * 12, "b", "its values overlap those of a"),
        ({"a": entry(), "b": entry(span=[12, 20])}, b"0" * 20, None, "leaves a hole: 4 bytes before it"),
        ({"a": entry()}, b"0" * 16, None, "8 bytes at its end belong to no tensor"),
        ({"a": entry(dtype="F33")}, b"12345678", "a", "dtype 'F33' is not one that safetensors has"),
        ({"a": entry(dtype=5)}, b"12345678", "a", "no dtype, shape and two offsets"),
        ({"a": entry(shape=[-2])}, b"12345678", "a", "no dtype, shape and two offsets"),
        ({"a": entry(shape=[True, 2])}, b"12345678", "a", "no dtype, shape and two offsets"),
        ({"a": entry(shape=[1] * 40)}, b"12345678", "a", "no dtype, shape and two offsets"),
        ({"a": entry(span=[8, 0])}, b"12345678", "a", "no dtype, shape and two offsets"),
        ({"a": entry(span=[0, 2**70])}, b"12345678", "a", "no dtype, shape and two offsets"),
        ({"a": [1, 2]}, b"", "a", "no dtype, shape and two offsets"),
    ],
)
def test_a_lying_header_costs_what_it_lies_about(
    tmp_path: Path, header: dict[str, Any], body: bytes, tensor: str | None, sentence: str
) -> None:
    """The fault names the tensor, and a sound one beside it stays readable."""
    file = SafetensorsFile(raw(tmp_path / "x.safetensors", header, body), "x")
    assert sentence in file.faults[0].what
    assert file.faults[0].tensor == tensor
    for name, found in file.tensors.items():
        assert name not in {fault.tensor for fault in file.faults}
        read_array(file, found)


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", "0 bytes; too short"),
        (b"1234567", "7 bytes; too short"),
        (b"\xff" * 64, "truncated, or no safetensors file"),
        ((100).to_bytes(8, "little") + b"{}", "its header claims 100 bytes of 10"),
        ((HEADER_LIMIT + 1).to_bytes(8, "little") + bytes(HEADER_LIMIT + 1), "more than 8,388,608"),
        ((2).to_bytes(8, "little") + b"[]", "its header is JSON, but no object"),
        ((4).to_bytes(8, "little") + b"{{{{", "its header is no JSON"),
        ((3).to_bytes(8, "little") + b"\xff\xfe\xfd", "its header is no JSON"),
        ((200_000).to_bytes(8, "little") + b"[" * 200_000, "nested too deeply"),
        (b"PK\x03\x04" + bytes(60), "truncated, or no safetensors file"),
    ],
)
def test_what_is_no_safetensors_file_is_one_sentence(tmp_path: Path, data: bytes, sentence: str) -> None:
    """Nothing is allocated for a header that cannot be there, and the file is named."""
    path = tmp_path / "x.safetensors"
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match=r"x\.safetensors") as caught:
        SafetensorsFile(path, "x")
    assert sentence in str(caught.value)


def test_what_is_no_file_is_not_opened(tmp_path: Path) -> None:
    """A pipe would block for ever, a link to itself leads nowhere, a directory is none."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for name, sentence in (
        ("pipe", "no regular file"),
        ("loop", "symbolic links"),
        ("none", "No such file"),
        (".", "a directory"),
    ):
        with pytest.raises(CheckpointError) as caught:
            SafetensorsFile(tmp_path / name, name)
        assert sentence in str(caught.value)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_damage_is_a_sentence_or_whole_tensors(tmp_path: Path, data: st.DataObject) -> None:
    """Cut anywhere, or with any byte changed: `CheckpointError`, or tensors that can all be read."""
    path = save(tmp_path / "x.safetensors", TABLES)
    content = bytearray(path.read_bytes())
    if data.draw(st.booleans()):
        content = content[: data.draw(st.integers(0, len(content)))]
    else:
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    try:
        file = SafetensorsFile(path, "x")
    except CheckpointError:
        return
    found, faults = scan({"x": file}, file.tensors)
    assert faults == ()
    assert all(values.bytes_read == values.bytes_total for values in found.values())


@pytest.mark.parametrize(
    ("dtype", "values", "nonfinite", "is_zero"),
    [
        (np.float32, [0.0, -0.0], 0, True),
        (np.float32, [1.0, np.nan, -np.inf], 2, False),
        (np.float16, [1.0, np.inf], 1, False),
        (np.float64, [np.nan, 65504.0], 1, False),
        (np.int64, [0, 0], 0, True),
        (np.int64, [0, -1], 0, False),
        ("bf16", [0.0, 1.0, -np.nan], 1, False),
        ("bf16", [-0.0, 0.0], 0, True),
        ("bf16", [3.0e38, -3.0e38], 0, False),
    ],
)
def test_values_that_are_not_finite_or_all_zero_are_seen(
    tmp_path: Path, dtype: Any, values: list[float], nonfinite: int, is_zero: bool
) -> None:
    """By their bits, so that each type is looked at without being converted."""
    array = bf16(np.array(values)) if dtype == "bf16" else np.array(values, dtype)
    file = SafetensorsFile(save(tmp_path / "x.safetensors", {"w": array}), "x")
    found, _ = scan({"x": file}, file.tensors)
    assert (found["w"].nonfinite, found["w"].is_zero) == (nonfinite, is_zero)


def test_one_bad_value_in_the_last_piece_is_found(tmp_path: Path) -> None:
    """Everything is read up to the limit, in pieces."""
    array = np.zeros(CHUNK, np.float32)
    array[-1] = np.nan
    file = SafetensorsFile(save(tmp_path / "x.safetensors", {"w": array}), "x")
    found, _ = scan({"x": file}, file.tensors)
    assert found["w"].nonfinite == 1
    assert not found["w"].is_sample


def test_beyond_the_limit_a_sample_is_read_and_says_so(tmp_path: Path) -> None:
    """Evenly spaced pieces, never more bytes than allowed plus a piece."""
    file = SafetensorsFile(save(tmp_path / "x.safetensors", {"w": np.zeros(2 * CHUNK, np.float32)}), "x")
    found, _ = scan({"x": file}, file.tensors, full_limit=2 * CHUNK)
    assert found["w"].bytes_read == 2 * CHUNK
    assert found["w"].is_sample


def test_a_file_cut_after_it_was_opened_is_one_sentence(tmp_path: Path) -> None:
    """Nothing is mapped: a file that shrinks gives a fault and no signal."""
    path = save(tmp_path / "x.safetensors", TABLES)
    file = SafetensorsFile(path, "x")
    os.truncate(path, path.stat().st_size - 20)
    _, faults = scan({"x": file}, file.tensors)
    assert [fault.tensor for fault in faults] == ["b", "c"]
    assert "bytes too early" in faults[0].what


def test_a_large_table_is_not_read_whole(tmp_path: Path) -> None:
    """A map of a gigabyte is none."""
    file = SafetensorsFile(save(tmp_path / "x.safetensors", TABLES), "x")
    with pytest.raises(CheckpointError, match="too large for a table"):
        read_array(file, file.tensors["a"], limit=8)

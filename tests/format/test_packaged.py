"""Traces in zip and gzip files: read as the bare file is, and refused where one is more than a trace."""

from __future__ import annotations

import gzip
import io
import os
import stat
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

import spectrace
from spectrace.errors import NotATrace, TraceError
from spectrace.format import packaged
from spectrace.format.repair import repair
from spectrace.testing import write_trace


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A small closed trace."""
    return write_trace(tmp_path / "run.spectrace", [{"step": n} for n in range(20)])


def zipped(path: Path, members: dict[str, bytes], compression: int = zipfile.ZIP_DEFLATED) -> Path:
    """A zip of named members."""
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


def refused(path: Path) -> str:
    """The sentence with which a file is refused."""
    with pytest.raises(TraceError) as caught:
        spectrace.open(path)
    sentence = str(caught.value)
    assert sentence.startswith(str(path))
    assert "\n" not in sentence
    return sentence


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_zip_reads_as_the_trace_in_it(bare: Path, tmp_path: Path, compression: int) -> None:
    """A zip with one trace and other files opens as the bare trace does."""
    members = {"notes.md": b"hi", "deep/in/run.spectrace": bare.read_bytes()}
    with (
        spectrace.open(zipped(tmp_path / "a.zip", members, compression)) as trace,
        spectrace.open(bare) as own,
    ):
        assert list(trace) == list(own)
        assert trace.state == "closed"
        assert not trace.problems


def test_a_gzip_file_reads_as_the_trace_in_it(bare: Path, tmp_path: Path) -> None:
    """A gzip file opens as the bare trace does, also one of several parts."""
    data = bare.read_bytes()
    path = tmp_path / "run.spectrace.gz"
    path.write_bytes(gzip.compress(data[:100]) + gzip.compress(data[100:]))
    with spectrace.open(path) as trace, spectrace.open(bare) as own:
        assert list(trace) == list(own)


def test_repair_reads_packages(bare: Path, tmp_path: Path) -> None:
    """Repair takes a zip as it takes a trace."""
    source = zipped(tmp_path / "a.zip", {"run.spectrace": bare.read_bytes()})
    assert repair(source, tmp_path / "out.spectrace").steps == 20


def test_a_cut_gzip_file_shows_what_is_whole(bare: Path, tmp_path: Path) -> None:
    """A gzip file that ends early gives the steps in it and says so."""
    path = tmp_path / "cut.gz"
    steps = [{"step": n, "draft_ids": [n * k for k in range(3)]} for n in range(3000)]
    packed = gzip.compress(write_trace(tmp_path / "long.spectrace", steps, flush_interval=0.001).read_bytes())
    path.write_bytes(packed[: len(packed) // 2])
    with spectrace.open(path) as trace:
        assert 0 < len(trace) < 3000
        assert any("ends early" in problem for problem in trace.problems)
        assert trace.state == "unclosed"


def test_nothing_is_left_on_the_disk(bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is unpacked has no name, while it is read and afterwards."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    with spectrace.open(zipped(tmp_path / "a.zip", {"run.spectrace": bare.read_bytes()})):
        assert not list(scratch.iterdir())
    assert not list(scratch.iterdir())


@pytest.mark.parametrize(
    "name",
    ["../run.spectrace", "/run.spectrace", "a/../../run.spectrace", "C:run.spectrace", "a\\run.spectrace"],
)
def test_names_that_lead_out_are_refused(bare: Path, tmp_path: Path, name: str) -> None:
    """A member whose name leads out of its folder makes the zip refused, whichever member it is."""
    path = zipped(tmp_path / "a.zip", {"run.spectrace": bare.read_bytes(), name + ".txt": b"x"})
    assert "leads out of its folder" in refused(path)


def test_a_link_is_refused(bare: Path, tmp_path: Path) -> None:
    """A symbolic link in a zip is refused."""
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("run.spectrace", bare.read_bytes())
        info = zipfile.ZipInfo("link")
        info.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(info, "/etc/passwd")
    assert "is a link" in refused(path)


def test_an_encrypted_member_is_refused(bare: Path, tmp_path: Path) -> None:
    """A zip that says a member is encrypted is refused before it is read."""
    path = zipped(tmp_path / "a.zip", {"run.spectrace": bare.read_bytes()})
    data = bytearray(path.read_bytes())
    data[data.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(data)
    assert "encrypted" in refused(path)


def test_other_compressions_are_refused(bare: Path, tmp_path: Path) -> None:
    """Only what every unzip knows is opened."""
    path = zipped(tmp_path / "a.zip", {"run.spectrace": bare.read_bytes()}, zipfile.ZIP_LZMA)
    assert "neither stored nor deflated" in refused(path)


def test_two_traces_or_none_are_refused(bare: Path, tmp_path: Path) -> None:
    """A zip holds one trace."""
    data = bare.read_bytes()
    assert "2 traces" in refused(zipped(tmp_path / "two.zip", {"a.spectrace": data, "b.spectrace": data}))
    assert "without a *.spectrace" in refused(zipped(tmp_path / "none.zip", {"a.txt": data}))


def test_the_same_name_twice_is_refused(bare: Path, tmp_path: Path) -> None:
    """Two members of one name are two answers to one question."""
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("run.spectrace", bare.read_bytes())
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("run.spectrace", bare.read_bytes())
    assert "same name" in refused(path)


@pytest.mark.parametrize("pack", [gzip.compress, lambda data: zip_bytes({"run.spectrace": data})])
def test_a_package_in_a_package_is_refused(
    bare: Path, tmp_path: Path, pack: Callable[[bytes], bytes]
) -> None:
    """Packages are not opened within packages."""
    inner = pack(bare.read_bytes())
    assert "within a package" in refused(zipped(tmp_path / "a.zip", {"run.spectrace": inner}))
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(inner))
    assert "within a package" in refused(path)


def zip_bytes(members: dict[str, bytes]) -> bytes:
    """A zip as bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def test_bombs_are_refused_before_they_are_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What unpacks to far more than it is, or says so, is refused; the limit is named."""
    zeros = bytes(64 << 20)
    path = zipped(tmp_path / "a.zip", {"run.spectrace": zeros})
    assert f"more than {packaged.MAX_RATIO} times" in refused(path)
    gz = tmp_path / "a.gz"
    gz.write_bytes(gzip.compress(zeros))
    assert f"more than {packaged.MAX_RATIO} times" in refused(gz)
    monkeypatch.setattr(packaged, "MAX_UNPACKED", 1000)
    assert "at most 1,000" in refused(zipped(tmp_path / "b.zip", {"run.spectrace": os.urandom(2000)}))


def test_a_member_that_lies_about_its_size_is_refused(tmp_path: Path) -> None:
    """A member that holds more than its entry says is not read beyond that."""
    path = zipped(tmp_path / "a.zip", {"run.spectrace": os.urandom(5000)})
    data = bytearray(path.read_bytes())
    at = data.index(b"PK\x01\x02")
    data[at + 24 : at + 28] = struct.pack("<L", 100)
    path.write_bytes(data)
    refused(path)


def test_a_directory_too_large_is_refused(tmp_path: Path) -> None:
    """The directory of a zip is held against its limits before it is read."""
    path = zipped(tmp_path / "a.zip", {f"{n}.txt": b"" for n in range(packaged.MAX_MEMBERS + 1)})
    assert f"at most {packaged.MAX_MEMBERS}" in refused(path)
    data = bytearray(zip_bytes({"run.spectrace": b"x"}))
    at = data.rindex(b"PK\x05\x06")
    data[at + 12 : at + 16] = struct.pack("<L", 1 << 30)
    path.write_bytes(data)
    assert f"{packaged.MAX_DIRECTORY:,}" in refused(path)


def test_every_cut_and_flip_of_a_zip_is_a_trace_or_a_sentence(bare: Path, tmp_path: Path) -> None:
    """A zip cut anywhere, or with any byte changed, opens or is refused with one sentence."""
    data = zip_bytes({"run.spectrace": bare.read_bytes(), "report.md": b"hello"})
    path = tmp_path / "a.zip"
    sentences = set()
    for at in range(0, len(data), 7):
        for damaged in (data[:at], data[:at] + bytes([data[at] ^ 0x41]) + data[at + 1 :]):
            path.write_bytes(damaged)
            try:
                with spectrace.open(path) as trace:
                    list(trace)
            except TraceError as error:
                sentences.add(str(error))
    assert sentences
    assert not [sentence for sentence in sentences if "\n" in sentence]


def test_an_empty_zip_is_no_trace(tmp_path: Path) -> None:
    """A zip of nothing is no trace."""
    path = zipped(tmp_path / "a.zip", {})
    with pytest.raises(NotATrace):
        spectrace.open(path)

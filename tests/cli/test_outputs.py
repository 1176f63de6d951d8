"""What commands write: never over what is read, is no file, or is not there again; whole or not at all."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import struct
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spectrace.cli.arguments import written_whole
from spectrace.errors import RecorderError
from spectrace.format.replacing import old_kept
from spectrace.testing import write_trace
from tests.format.hostile import CASES, frame, good, head, required

if TYPE_CHECKING:
    from tests.cli.conftest import Run

WRITERS = (
    ("export", "run.spectrace", "-o"),
    ("repair", "run.spectrace", "-o"),
    ("pack", "run.spectrace", "-o"),
    ("view", "run.spectrace", "--screenshot"),
)


@pytest.mark.parametrize("arguments", WRITERS)
def test_only_a_regular_file_is_replaced(trace: Path, run: Run, arguments: tuple[str, ...]) -> None:
    """A FIFO, and a link to one, stays what it is and is a usage error, with --overwrite too."""
    os.mkfifo("pipe")
    Path("link").symlink_to("pipe")
    for name in ("pipe", "link"):
        for more in ([], ["--overwrite"]):
            found = run(*arguments, name, *more)
            assert (found.code, found.out) == (2, "")
            assert found.err == (
                f"spectrace: {name}: is no regular file, so it is not replaced; give another name\n"
            )
    assert stat.S_ISFIFO(Path("pipe").lstat().st_mode)
    assert Path("link").is_symlink()


@pytest.mark.parametrize("arguments", WRITERS)
@pytest.mark.parametrize("name", ["", "-"])
def test_an_output_is_a_file_with_a_name(
    trace: Path, run: Run, arguments: tuple[str, ...], name: str
) -> None:
    """No name, and the dash that means stdout elsewhere, are usage errors that write nothing."""
    before = set(Path().iterdir())
    found = run(*arguments, name)
    assert found.code == 2
    assert "OUT must be the name of a file" in found.err
    assert set(Path().iterdir()) == before


@pytest.mark.parametrize(
    ("line", "out"),
    [
        ("pack other.spectrace run.spectrace -o", "run.spectrace"),
        ("report other.spectrace run.spectrace -o", "hard.md"),
        ("pack runs -o", "runs/one.spectrace"),
        ("export runs -o", "runs/one.spectrace.1"),
        ("view run.spectrace --screenshot", "run.spectrace"),
        ("view run.spectrace --against other.spectrace --screenshot", "other.spectrace"),
    ],
)
def test_no_input_is_replaced(trace: Path, run: Run, line: str, out: str) -> None:
    """The second trace, a file of a folder, a segment, a second name: none may be OUT."""
    Path("runs").mkdir()
    for copy in ("other.spectrace", "runs/one.spectrace", "runs/one.spectrace.1"):
        shutil.copy(trace, copy)
    Path("hard.md").hardlink_to(trace)
    before = Path(out).read_bytes()
    found = run(*line.split(), out, "--overwrite")
    assert (found.code, found.out) == (2, "")
    assert found.err == f"spectrace: {out}: is what is read; give another name\n"
    assert Path(out).read_bytes() == before


def test_a_picture_replaces_nothing_unasked_and_is_whole(
    trace: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """--overwrite is needed for a second picture, and a fault leaves the first as it was."""
    picture = ("view", "run.spectrace", "--screenshot", "a.svg")
    Path("a.svg").write_text("mine")
    assert run(*picture).code == 2

    def broken(trace: object, out: Path, **options: object) -> None:
        out.write_text("half")
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("spectrace.tui.app.screenshot", broken)
        found = run(*picture, "--overwrite")
    assert (found.code, found.err) == (1, "spectrace: a.svg: No space left on device\n")
    assert Path("a.svg").read_text() == "mine"
    assert run(*picture, "--overwrite").code == 0
    assert Path("a.svg").read_text(encoding="utf-8").startswith("<svg")


@pytest.mark.parametrize(
    ("number", "name", "said"),
    [
        (errno.ENOSPC, None, "OUT"),
        (errno.EACCES, "hidden", "OUT"),
        (errno.EIO, "elsewhere", "elsewhere"),
        (errno.EIO, None, None),
    ],
)
def test_a_fault_names_the_file_that_was_typed(
    tmp_path: Path, number: int, name: str | None, said: str | None
) -> None:
    """A full disk or a locked folder is said of OUT, not of the hidden file; others keep their name."""
    out = tmp_path / ("long" * 60 + ".md")

    def write() -> None:
        with written_whole(out, overwrite=False) as beside:
            beside.write_text("half")
            raise OSError(number, "fault", str(beside) if name == "hidden" else name)

    with pytest.raises(OSError, match="fault") as caught:
        write()
    assert caught.value.filename == (str(out) if said == "OUT" else said)
    assert list(tmp_path.iterdir()) == []


def test_a_recorder_names_the_file_that_was_typed(tmp_path: Path) -> None:
    """What the writer of traces says is said of OUT as well."""
    out = tmp_path / "run.spectrace"

    def write() -> None:
        with written_whole(out, overwrite=False) as beside:
            raise RecorderError(f"{beside}: cannot be created")

    with pytest.raises(RecorderError) as told:
        write()
    assert str(told.value) == f"{out}: cannot be created"


@pytest.mark.parametrize("has_links", [True, False])
@pytest.mark.parametrize("num_steps", [0, 1])
def test_a_recording_that_fails_early_gives_the_old_one_back(
    trace: Path, monkeypatch: pytest.MonkeyPatch, has_links: bool, num_steps: int
) -> None:
    """Before the first step the old files come back; behind it the new one stays; nothing hidden is left."""

    def no_link(*_: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    if not has_links:
        monkeypatch.setattr(os, "link", no_link)
    before, new = trace.read_bytes(), b""
    out = trace.rename("long" * 20 + ".spectrace")
    states = Path(f"{out}.states.safetensors")
    states.write_text("states")

    def record() -> None:
        nonlocal new
        with old_kept(out, states):
            for path in (out, states):
                path.unlink(missing_ok=True)
            write_trace(out, [{}] * num_steps)
            new = out.read_bytes()
            raise RecorderError("the model broke")

    with pytest.raises(RecorderError):
        record()
    assert out.read_bytes() == (new if num_steps else before)
    assert states.exists() == (not num_steps)
    assert set(Path().iterdir()) == ({out} if num_steps else {out, states})


def test_small_clocks_and_bytes_in_a_header_leave_the_machine(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Times that fit in two bytes are rounded as others are; bytes where JSON has none are shown as text."""
    monkeypatch.chdir(tmp_path)
    declared = frame(b"reqs", 0, {"number": 0, "request": "r0"})
    clocks = required(2, started=[54, "u2", struct.pack("<2H", 300, 65_000)])
    Path("small.spectrace").write_bytes(head() + declared + frame(b"STEP", 0, clocks))
    header = {"recorder": {"name": b"\xff"}, "sampling": {"seed": b"\xfe"}, "environment": {"gpu": b"\xff"}}
    Path("bytes.spectrace").write_bytes(good(run=header))
    for name, more in (("small", ()), ("bytes", ("--include", "paths")), ("bytes", ())):
        found = run("pack", f"{name}.spectrace", "-o", f"{name}.zip", *more, "--overwrite")
        assert found.code == 0, found.err
        with zipfile.ZipFile(f"{name}.zip") as file:
            assert "environment.txt" in file.namelist()


def test_steps_that_claim_to_be_none_are_compared_with_nothing(trace: Path, run: Run) -> None:
    """A frame that its own header calls empty is not read behind the last step."""
    Path("hostile.spectrace").write_bytes(CASES["step: missing required columns"]())
    for pair in (("hostile.spectrace", trace), (trace, "hostile.spectrace"), ("hostile.spectrace",) * 2):
        assert run("diff", *pair).code in (0, 1)
    assert len(run("steps", "hostile.spectrace", "--json").out.splitlines()) == 2

"""A recording that replaces a trace: killed at any moment, it leaves the old one or says where it is."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import spectrace
from spectrace.errors import RecorderError
from spectrace.format.replacing import in_place_of, old_kept, put_back
from spectrace.testing import step_fields, write_trace

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals and links of Unix")

_KILLED = textwrap.dedent("""
    import os, signal, sys
    from pathlib import Path
    from spectrace.format.replacing import in_place_of
    from spectrace.format.writer import TraceWriter
    from spectrace.testing import step_fields

    out, steps = Path(sys.argv[1]), int(sys.argv[2])
    with in_place_of(out, out.with_name("states"), overwrite=True):
        if steps >= 0:
            writer = TraceWriter(out, {})
            for step in range(steps):
                writer.step(step_fields(step=step))
            writer.flush()
        os.kill(os.getpid(), signal.SIGKILL)
""")


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """An old trace of two steps, and a file beside it."""
    (tmp_path / "states").write_text("old states")
    return write_trace(tmp_path / "run.spectrace", [step_fields(step=0), step_fields(step=1)])


def killed(out: Path, steps: int) -> None:
    """Replaces the trace in a process that is killed behind some steps; -1: before there is a new file."""
    done = subprocess.run([sys.executable, "-c", _KILLED, str(out), str(steps)], check=False)
    assert done.returncode == -9


@pytest.mark.parametrize("steps", [-1, 0])
def test_a_recording_killed_before_a_step_gives_the_old_trace_back(out: Path, steps: int) -> None:
    """At the next start both files are what they were, nothing hidden is left, and it is said."""
    before = out.read_bytes()
    killed(out, steps)
    said = put_back(out, out.with_name("states"))
    assert [sentence.split(": ")[1].split(";")[0] for sentence in said] == ["put back", "put back"]
    assert out.read_bytes() == before
    assert out.with_name("states").read_text() == "old states"
    assert sorted(path.name for path in out.parent.iterdir()) == ["run.spectrace", "states"]
    assert put_back(out, out.with_name("states")) == []


def test_a_recording_killed_behind_a_step_keeps_both(out: Path) -> None:
    """The new trace stays, and every start says under which name the old one is."""
    before = out.read_bytes()
    killed(out, 3)
    for _ in range(2):
        said = put_back(out)
        assert len(said) == 1
        (name,) = [path.name for path in out.parent.glob(".run*")]
        assert name in said[0]
        assert out.with_name(name).read_bytes() == before
    with spectrace.open(out) as trace:
        assert len(trace) == 3


def test_what_a_living_process_holds_is_left_alone(out: Path) -> None:
    """A recording that is under way keeps its old trace hidden."""
    with old_kept(out):
        hidden = list(out.parent.glob(".run*"))
        assert put_back(out) == []
        assert list(out.parent.glob(".run*")) == hidden != []


def test_an_empty_recording_replaces_nothing(out: Path) -> None:
    """Without a step the old trace comes back, from Python too."""
    before = out.read_bytes()
    with pytest.raises(RecorderError, match="not one step"), in_place_of(out, overwrite=True):
        spectrace.TraceWriter(out, {}).close()
    assert out.read_bytes() == before
    assert sorted(path.name for path in out.parent.iterdir()) == ["run.spectrace", "states"]


def test_without_leave_nothing_is_replaced(out: Path) -> None:
    """`overwrite=False` leaves the refusal to the writer."""
    with pytest.raises(RecorderError, match="exists already"), in_place_of(out, overwrite=False):
        spectrace.TraceWriter(out, {})


def test_names_with_wildcards_are_names(tmp_path: Path) -> None:
    """A star in a file's name finds its own leftovers only."""
    for name in ("*.spectrace", "a.spectrace"):
        (tmp_path / f".{name}.999999999.old").write_bytes(b"")
    put_back(tmp_path / "*.spectrace")
    assert (tmp_path / ".a.spectrace.999999999.old").exists()
    assert (tmp_path / "*.spectrace").exists()

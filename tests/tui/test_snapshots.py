"""What the screens look like, as text; a change is looked at by a person.

UPDATE_GOLDEN=1 writes the files of snapshots/, to be looked at in git diff.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import spectrace
from tests.tui.driving import viewing
from tests.tui.ptys import Session
from tests.tui.traces import make_trace

HERE = Path(__file__).parent / "snapshots"
SAMPLES = Path(spectrace.__file__).parent.parent / "sample_traces"
LOOKS = [
    ("steps-80x24", "", (80, 24), "3gf"),
    ("steps-140x40", "", (140, 40), "3gf"),
    ("steps-40x10", "", (40, 10), "3gf"),
    ("steps-ids", "", (80, 24), "5gtt"),
    ("search", "", (80, 24), "/fox\rn"),
    ("filter", "", (80, 24), "&accepted < 2\rj"),
    ("prompt", "", (80, 24), "&acc"),
    ("command", "", (80, 24), ":fi\t"),
    ("help", "", (80, 24), "?"),
    ("palette", "", (80, 24), "\x10rejection"),
    ("copy", "minimal-v1", (80, 24), "y"),
    ("full", "full-v1", (100, 30), "G"),
]
"""Name of the file, sample trace that is never made anew ("" = made here), size, keys."""


def trace_for(sample: str, folder: Path) -> Path:
    """A trace that is the same every time."""
    return SAMPLES / f"{sample}.spectrace" if sample else make_trace(folder / "run.spectrace", 60)


def compare(name: str, lines: list[str]) -> None:
    """Compares a screen with its file."""
    path = HERE / f"{name}.txt"
    text = "".join(f"{line}\n" for line in lines)
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    hint = f"if this is meant: UPDATE_GOLDEN=1 and look at {path.name}"
    assert text == path.read_text(encoding="utf-8"), hint


@pytest.mark.parametrize(("name", "trace", "size", "keys"), LOOKS, ids=[look[0] for look in LOOKS])
async def test_screens_look_as_a_person_last_saw_them(
    tmp_path: Path, name: str, trace: str, size: tuple[int, int], keys: str
) -> None:
    """The text of every row."""
    async with viewing(trace_for(trace, tmp_path), size=size) as driven:
        await driven.type(keys)
        compare(name, driven.lines)


@pytest.mark.skipif(os.name != "posix", reason="needs a pseudo-terminal")
def test_without_colour_a_terminal_shows_the_same(tmp_path: Path) -> None:
    """NO_COLOR, the frugal driver and a real pseudo-terminal: the same text in every row."""
    with Session(trace_for("", tmp_path), environ={"NO_COLOR": "1"}) as session:
        session.send("3gf")
        session.until("── step 0 ", r"token 0/3 +first rejection")
        compare("steps-80x24", session.screen.lines)

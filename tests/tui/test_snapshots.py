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

HERE = Path(__file__).parent / "snapshots"
SAMPLES = Path(spectrace.__file__).parent.parent / "sample_traces"
LOOKS = [
    ("steps-80x24", "eagle3-taps-normed", (80, 24), "f"),
    ("steps-140x40", "eagle3-taps-normed", (140, 40), "f"),
    ("steps-40x10", "eagle3-taps-normed", (40, 10), "f"),
    ("steps-ids", "draft-sampled", (80, 24), "5gtt"),
    ("tree", "eagle3-tree", (100, 30), "3g"),
    ("search", "draft-greedy", (80, 24), "/the\rn"),
    ("filter", "draft-greedy", (80, 24), "&accepted < 2\rj"),
    ("prompt", "draft-greedy", (80, 24), "&acc"),
    ("command", "draft-greedy", (80, 24), ":fi\t"),
    ("help", "draft-greedy", (80, 24), "?"),
    ("palette", "draft-greedy", (80, 24), "\x10rejection"),
    ("copy", "minimal-v1", (80, 24), "y"),
    ("killed", "killed", (80, 24), "G"),
]
"""Name of the file, sample trace, size, keys."""


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
    name: str, trace: str, size: tuple[int, int], keys: str
) -> None:
    """The text of every row."""
    async with viewing(SAMPLES / f"{trace}.spectrace", size=size) as driven:
        await driven.type(keys)
        compare(name, driven.lines)


@pytest.mark.skipif(os.name != "posix", reason="needs a pseudo-terminal")
def test_without_colour_a_terminal_shows_the_same(tmp_path: Path) -> None:
    """NO_COLOR, the frugal driver and a real pseudo-terminal: the same text in every row."""
    with Session(SAMPLES / "eagle3-taps-normed.spectrace", environ={"NO_COLOR": "1"}) as session:
        session.send("f")
        session.until("── step 1 ", "first rejection", "2 requests|closed")
        compare("steps-80x24", session.screen.lines)

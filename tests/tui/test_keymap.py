"""A reader's own keys."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from spectrace.tui.keymap import own_keys
from spectrace.tui.keys import KEYS, by_key, key_id, key_name
from tests.tui.driving import viewing
from tests.tui.traces import make_trace


def test_lines_of_the_file_replace_the_usual_keys(tmp_path: Path) -> None:
    """Signs as they are printed or Textual's names; a key that is given away is taken from its owner."""
    path = tmp_path / "keys.toml"
    path.write_text('# mine\n\nhunt.first = "F,f5"  # both\nsearch.filter = \'%\'\nmove.last = ""\n')
    keys, complaint = own_keys(KEYS, path)
    assert complaint == ""
    found = {name: key.id for name, key in by_key(keys).items()}
    assert found["F"] == found["f5"] == "hunt.first"
    assert found["percent_sign"] == "search.filter"
    assert "f" not in found
    assert "G" not in found
    assert "view.follow" not in found.values()
    assert found["j"] == "move.down"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("hunt.frist = 'f'", "line 1: there is no hunt.frist, did you mean hunt.first"),
        ("\nhunt.first f", 'line 2 is not of the form id = "key,key"'),
        ("hunt.first = 'wrong key'", "there is no key wrong key"),
        ("hunt.first = 'x'\nhunt.next = 'x'", "line 2: hunt.first has the key x already"),
        ("\x1b]0;owned\x07", "line 1 is not of the form"),
        (b"\xff\xfe", "is no text"),
        (b'hunt.first = "f"\n' * 10_000, "is longer than 65,536 bytes"),
    ],
)
def test_a_file_that_cannot_be_used_changes_nothing_and_is_named(
    tmp_path: Path, text: str | bytes, words: str
) -> None:
    """One sentence, the usual keys."""
    path = tmp_path / "keys.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    keys, complaint = own_keys(KEYS, path)
    assert keys == KEYS
    assert complaint.startswith("keys.toml: ")
    assert words in complaint
    assert complaint.isprintable()


def test_no_file_is_no_fault_and_a_folder_is_one(tmp_path: Path) -> None:
    """Most readers have none."""
    assert own_keys(KEYS, tmp_path / "keys.toml") == (KEYS, "")
    keys, complaint = own_keys(KEYS, tmp_path)
    assert keys == KEYS
    assert "the keys are the usual ones" in complaint


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_of_this_name_is_not_waited_for(tmp_path: Path) -> None:
    """Nobody writes into it; a device of it neither ends."""
    path = tmp_path / "keys.toml"
    os.mkfifo(path)
    assert own_keys(KEYS, path) == (KEYS, "keys.toml: is no regular file; the keys are the usual ones")
    path.unlink()
    path.symlink_to("/dev/zero")
    assert own_keys(KEYS, path) == (KEYS, "keys.toml: is no regular file; the keys are the usual ones")


def test_every_usual_key_can_be_written_in_the_file() -> None:
    """What the help prints, and Textual's names, are both understood."""
    for key in KEYS:
        for name in filter(None, key.keys.split(",")):
            assert key_id(name) == name
            if "+" not in name and len(key_name(name)) == 1:
                assert key_id(key_name(name)) == name


async def test_own_keys_act_and_are_shown(tmp_path: Path) -> None:
    """The help and the hints say what is pressed; what is wrong with the file is said at the start."""
    path = tmp_path / "keys.toml"
    path.write_text('hunt.first = "x"\n')
    trace = make_trace(tmp_path / "run", 20)
    async with viewing(trace, keymap=path) as driven:
        assert "x first rejection" in driven.lines[-1]
        await driven.press("G", "x")
        assert driven.steps.row == 0
        await driven.press("question_mark", "slash", *"first rejection", "enter")
        assert "    x  " in driven.row_of("first rejection among")
    path.write_text("what is this\n")
    async with viewing(trace, keymap=path) as driven:
        assert "line 1 is not of the form" in driven.text
        await driven.press("f")
        assert "line 1" not in driven.text

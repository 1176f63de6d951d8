"""The tree of a step: branches, the accepted path, and the one that the target wanted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import spectrace
from spectrace.testing import write_trace
from spectrace.tui.ascii import to_ascii
from spectrace.tui.loader import Loader
from spectrace.tui.plain import plain_lines
from spectrace.tui.spans import text_of, width_of
from tests.tui.pages.showing import flat, lines_of, shown

RUN = {
    "method": "eagle3",
    "target": {"vocab_size": 64},
    "vocab_map": {"d2t": list(range(0, 32)), "t2d": list(range(0, 64, 2))},
}
TREE: dict[str, Any] = {
    # 0 ── 2, 3        1 ── 4
    "proposal_ids": [10, 12, 14, 16, 18],
    "parents": [-1, -1, 0, 0, 1],
    "draft_ids": [5, 6, 7, 8, 9],
    "num_accepted": 1,
    "accepted_nodes": [0],
}


def _tree(path: Path, **fields: Any) -> Path:
    return write_trace(path / "t.spectrace", [{**TREE, **fields}], run=RUN)


def test_children_are_drawn_below_their_parents(tmp_path: Path) -> None:
    """Depth first, with a branch for each child."""
    path = _tree(tmp_path, target_ids=[10, 16, 0, 0, 0, 0], num_accepted=2, accepted_nodes=[0, 3])
    drawn = [line[:40].rstrip() for line in shown("tree", path).splitlines()]
    at = next(i for i, line in enumerate(drawn) if line.startswith("├─"))
    assert drawn[at : at + 5] == [
        "├─ = 0 5→10 <wanted, in tree",
        "│  ├─ - 2 7→14",
        "│  └─ = 3 8→16 <wanted, in tree",
        "└─ - 1 6→12",
        "   └─ · 4 9→18",
    ]


def test_a_choice_outside_the_vocabulary(tmp_path: Path) -> None:
    """An odd id is in no draft vocabulary of even ones."""
    path = _tree(tmp_path, target_ids=[10, 33, 0, 0, 0, 0], emitted_ids=[10, 33])
    text = flat("tree", path)
    assert "target wanted 10 → not in vocabulary" in text
    assert "?33 <wanted after node 0: not in vocabulary" in text


def test_a_choice_that_was_pruned(tmp_path: Path) -> None:
    """A token that the draft ranked and the tree does not hold was pruned; its rank is said."""
    top = [[[9, -0.5], [15, -1.5]]] * 5
    path = _tree(tmp_path, target_ids=[10, 30, 0, 0, 0, 0], emitted_ids=[10, 30], draft_top=top)
    text = flat("tree", path)
    assert "→ pruned" in text
    assert "was second among the draft's best 2, log q -1.500" in text


def test_a_chain_is_shown_as_one(sample_traces: Path) -> None:
    """A chain says that it has no branches, and draws none."""
    text = shown("tree", sample_traces / "eagle3.spectrace", 3)
    assert "A chain of 4: every token follows the one before it" in text
    assert "├" not in text


def test_what_the_target_wanted_is_not_guessed(sample_traces: Path) -> None:
    """Without the target's picks the page says that they are missing."""
    text = flat("tree", sample_traces / "minimal-v1.spectrace", 1)
    assert "target wanted → not recorded" in text
    assert "target_ids is not recorded" in text


def test_a_step_without_proposal(sample_traces: Path) -> None:
    """A prefill has no tree."""
    assert "there is no tree to draw" in flat("tree", sample_traces / "eagle3-tree.spectrace", 0)


def test_plain_characters_keep_every_column(sample_traces: Path) -> None:
    """The drawing without box characters has the same width and only ASCII around the tokens."""
    for line in lines_of("tree", sample_traces / "eagle3-tree.spectrace", 3):
        plain = to_ascii(line.spans)
        assert width_of(plain) == width_of(line.spans)
        assert text_of(plain).isascii()


def test_a_plain_screen_keeps_the_branches(sample_traces: Path) -> None:
    """Printed lines have their branches, and ASCII ones where the output takes no other."""
    with spectrace.open(sample_traces / "eagle3-tree.spectrace") as trace:
        drawn = list(plain_lines(Loader(trace), "tree", 3, 80))
        plain = list(plain_lines(Loader(trace), "tree", 3, 80, is_ascii=True))
    assert any(line.startswith("├─ = 0 183→534") for line in drawn)
    assert any(line.startswith("|- = 0 183>534") for line in plain)
    assert all(line.isascii() for line in plain)

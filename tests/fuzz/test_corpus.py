"""Every door, tried with the corpus and with simple damage to it: what `make fuzz` starts from holds."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.fuzz.targets import TARGETS

CORPUS = Path(__file__).parent / "corpus"
FILES = sorted(path for path in CORPUS.rglob("*") if path.is_file())


def test_every_target_has_a_corpus() -> None:
    """Each door has inputs to begin with, small ones."""
    assert {path.parent.name for path in FILES} == set(TARGETS)
    assert sum(path.stat().st_size for path in FILES) < 100_000


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_the_corpus_and_its_neighbours_pass(path: Path) -> None:
    """An input of the corpus, whole or with some bytes changed, ends in a result or in one sentence."""
    data = path.read_bytes()
    target = TARGETS[path.parent.name]
    target(data)
    chance = random.Random(path.name)
    for _ in range(15):
        damaged = bytearray(data)
        for _ in range(chance.randint(1, 4)):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        target(bytes(damaged))

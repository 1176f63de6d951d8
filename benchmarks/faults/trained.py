"""Drafts of other quality, trained by the committed training code and kept in a folder that git ignores."""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from transformers import PreTrainedTokenizerFast

import spectrace_demo
from benchmarks.faults.rig import swapped
from spectrace_demo import corpus, train, train_eagle3

CACHE = Path(__file__).parent / ".cache"
UNDERTRAINED_STEPS, NARROW_STEPS = 90, 90


def _only_code(seed: int) -> Iterator[str]:
    """Documents of one kind of the nine."""
    rng = random.Random(seed)
    while True:
        yield corpus._code(rng)


def _kept(name: str, make: Callable[[Path], None]) -> Path:
    """A folder of the cache, made whole or not at all."""
    folder = CACHE / name
    if not folder.exists():
        CACHE.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
            made = Path(scratch) / name
            make(made)
            shutil.move(made, folder)
    return folder


def undertrained_head() -> Path:
    """An EAGLE-3 head after a fifth of its training."""

    def make(folder: Path) -> None:
        with swapped(train_eagle3, STEPS=UNDERTRAINED_STEPS):
            train_eagle3.train(folder)

    return _kept("undertrained-head", make)


def narrow_head() -> Path:
    """An EAGLE-3 head that has seen code only."""

    def make(folder: Path) -> None:
        with swapped(train_eagle3, STEPS=NARROW_STEPS), swapped(train, iter_documents=_only_code):
            train_eagle3.train(folder)

    return _kept("narrow-head", make)


def _draft_model(folder: Path, steps: int) -> None:
    tokenizer = PreTrainedTokenizerFast.from_pretrained(spectrace_demo.target_path())
    folder.mkdir(parents=True)
    (folder / "target").symlink_to(spectrace_demo.target_path())
    with swapped(train, DRAFT_STEPS=steps):
        train.train_draft(folder, tokenizer)
    (folder / "target").unlink()


def undertrained_draft() -> Path:
    """A draft model after a tenth of its training."""
    return _kept("undertrained-draft", lambda folder: _draft_model(folder, 20)) / "draft"


def narrow_draft() -> Path:
    """A draft model that has seen code only."""

    def make(folder: Path) -> None:
        with swapped(train, iter_documents=_only_code):
            _draft_model(folder, 100)

    return _kept("narrow-draft", make) / "draft"

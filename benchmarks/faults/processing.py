"""Faults of logits processors: penalties that see another text, late masks, a draft unaware of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import spectrace_demo
from benchmarks.faults.loops import Fields, adding
from benchmarks.faults.rig import Rig, shared_target, tokenizer
from spectrace_eagle3 import Eagle3Decoder, load_draft
from spectrace_eagle3.decoder import Round
from spectrace_eagle3.sampling import Sampler

PENALTY = 0.5


class Penalised(Sampler):
    """Greedy, with a penalty on what was said before."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[int] = set()

    @property
    def processors(self) -> list[str]:
        """What changes the target's logits."""
        return ["presence_penalty"]

    def processed(self, logits: Tensor) -> Tensor:
        """[n, vocab_size] with the penalty taken off."""
        taken = logits.clone()
        taken[:, list(self.seen)] -= PENALTY
        return taken


class PenalisedDecoder(Eagle3Decoder):
    """Feeds the processors what was committed, or only a part of it."""

    only_last = False
    sampler: Penalised
    fed = 0

    def rounds(self, prompt_ids: Sequence[int], max_new_tokens: int) -> Any:
        """As ever, from an empty memory."""
        self.sampler.seen.clear()
        waiting: Sequence[int] = ()
        for done in super().rounds(prompt_ids, max_new_tokens):
            waiting = done.emitted[-1:] if self.only_last else done.emitted
            self.fed = len(waiting)
            yield done  # the recorder reads the logits of this step as they were processed
            self.sampler.seen.update(waiting)


class LazyDecoder(PenalisedDecoder):
    """Feeds one token a step."""

    only_last = True


def penalised(rig: Rig, out: Path, decoder: type[PenalisedDecoder]) -> None:
    """Records a run with a penalty."""
    rig.eagle3(
        out,
        decoder=decoder,
        sampler=Penalised(),
        recorder=adding(lambda runs, _fields: {"processor_tokens": runs.fed}),  # type: ignore[attr-defined]
    )


# --- a grammar -------------------------------------------------------------------------------------


def banned_ids(letters: str) -> Tensor:
    """What the grammar rules out: every token with one of these letters."""
    texts = [tokenizer().decode([number]) for number in range(len(tokenizer()))]
    found = [n for n, text in enumerate(texts) if n > 2 and set(text) & set(letters)]
    return torch.tensor(found)


def shared_draft_table() -> Tensor:
    """[draft_vocab_size] target id of each raw id of the bundled head."""
    return load_draft(spectrace_demo.eagle3_path(), shared_target()).vocab.table


class Grammar(Sampler):
    """Greedy under a mask that can be switched.

    Args:
        letters: what it rules out.
    """

    def __init__(self, letters: str = "qxz") -> None:
        super().__init__()
        self.rows: list[bool] = []
        """Which rows of the next logits are masked; those behind the last are like it."""
        self.is_draft_masked = False
        self._banned = banned_ids(letters)
        self._banned_raw = torch.isin(shared_draft_table(), self._banned)

    def draw_draft(self, logits: Tensor) -> int:
        """A raw id, under the mask where the draft knows of it."""
        if self.is_draft_masked:
            logits = logits.masked_fill(self._banned_raw, float("-inf"))
        return super().draw_draft(logits)

    @property
    def processors(self) -> list[str]:
        """What changes the target's logits."""
        return ["grammar"]

    def is_on(self, row: int) -> bool:
        """Whether a row is masked."""
        return self.rows[min(row, len(self.rows) - 1)] if self.rows else False

    def processed(self, logits: Tensor) -> Tensor:
        """[n, vocab_size] with the banned ids ruled out where the mask is on."""
        masked = logits.clone()
        for row in range(len(logits)):
            if self.is_on(row):
                masked[row, self._banned] = float("-inf")
        return masked


class GrammarDecoder(Eagle3Decoder):
    """Switches the mask on behind the first full stop of the answer."""

    sampler: Grammar
    looks_inside = False
    """The mask follows the draft tokens of a step; otherwise it is set once a step."""
    begins = False
    """The mask is on before anything is said."""
    _began = False

    def rounds(self, prompt_ids: Sequence[int], max_new_tokens: int) -> Any:
        """As ever."""
        self._began = self.begins
        self.sampler.rows = [self.begins]
        for done in super().rounds(prompt_ids, max_new_tokens):
            yield done
            self._began = self._began or STOP() in done.emitted

    def _verify(self, root: int, length: int, proposal: Any) -> Any:
        inside = [self._began]
        for token in proposal.target_ids:
            inside.append(inside[-1] or (self.looks_inside and token == STOP()))
        self.sampler.rows = inside
        return super()._verify(root, length, proposal)


def STOP() -> int:  # noqa: N802
    """The id of a full stop."""
    return int(tokenizer().convert_tokens_to_ids("."))


class CarefulDecoder(GrammarDecoder):
    """Masks every position behind the boundary, and the draft too."""

    looks_inside = True

    def _round(self, *args: Any, **options: Any) -> Round:
        self.sampler.is_draft_masked = self._began
        return super()._round(*args, **options)


def _masks(decoder: Any, fields: dict[str, Any]) -> Fields:
    """What a grammar engine says of a step."""
    emitted = fields["emitted_ids"]
    mask = ["on" if decoder.sampler.is_on(row) else "off" for row in range(len(emitted))]
    found: dict[str, Any] = {"mask": mask, "segment": "grammar" if decoder._began else "answer"}
    if not decoder._began and STOP() in emitted:
        found["segment_boundary"] = emitted.index(STOP())
    return found


def grammar(rig: Rig, out: Path, decoder: type[GrammarDecoder]) -> None:
    """Records a run in which a grammar begins in the middle."""
    rig.eagle3(out, decoder=decoder, sampler=Grammar(), recorder=adding(_masks))


class AlwaysDecoder(GrammarDecoder):
    """Has the mask on from the first token."""

    begins = True


def draft_unaware(rig: Rig, out: Path) -> None:
    """The grammar masks the target's logits and not the draft's."""
    rig.eagle3(out, decoder=AlwaysDecoder, sampler=Grammar("aA0123456789"), recorder=adding(_masks))

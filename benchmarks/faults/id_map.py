"""Faults of the map from draft to target ids: other tables, other readings, another vocabulary."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerFast

import spectrace_demo
from benchmarks.faults.rig import Rig, load, shared_target
from spectrace_eagle3.draft import Draft


def _vocab_size() -> int:
    return int(shared_target().config.vocab_size)


def _other_ids(rows: int, vocab_size: int) -> Tensor:
    """[rows] the ids that another training run would have kept: the first 16, then others, ascending."""
    others = random.Random(1).sample(range(16, vocab_size), rows - 16)
    return torch.tensor([*range(16), *sorted(others)])


def _offsets(ids: Tensor) -> Tensor:
    return ids - torch.arange(len(ids))


def _with_table(draft: Draft, d2t: Tensor, **facts: Any) -> Draft:
    """The draft with another d2t in its checkpoint, applied as offsets; what leads outside is clamped."""
    table = (torch.arange(len(d2t)) + d2t).clamp(0, _vocab_size() - 1)
    draft.vocab = replace(draft.vocab, table=table, d2t=tuple(d2t.tolist()), **facts)
    return draft


def absolute(rig: Rig, out: Path) -> None:
    """The table holds target ids."""
    draft = rig.draft()
    rig.eagle3(out, draft=_with_table(draft, draft.vocab.table))


def missing(rig: Rig, out: Path) -> None:
    """There is no table."""
    draft = rig.draft()
    raw_ids = torch.arange(len(draft.vocab.table))
    draft.vocab = replace(
        draft.vocab, table=raw_ids, d2t=None, t2d=None, source="missing", applied="identity"
    )
    rig.eagle3(out, draft=draft)


def not_applied(rig: Rig, out: Path) -> None:
    """There is a table, and the engine does not use it."""
    draft = rig.draft()
    draft.vocab = replace(draft.vocab, table=torch.arange(len(draft.vocab.table)))
    rig.eagle3(out, draft=draft)


def stale(rig: Rig, out: Path) -> None:
    """The checkpoint holds d2t of another training run beside its own t2d."""
    draft = rig.draft()
    rig.eagle3(out, draft=_with_table(draft, _offsets(_other_ids(len(draft.vocab.table), _vocab_size()))))


def from_another_file(rig: Rig, out: Path) -> None:
    """The engine maps by the table of another folder than the checkpoint's."""
    draft = rig.draft()
    draft.vocab = replace(draft.vocab, table=_other_ids(len(draft.vocab.table), _vocab_size()))
    rig.eagle3(out, draft=draft)


def stale_pair(rig: Rig, out: Path) -> None:
    """Both d2t and t2d are those of another training run: they agree with each other."""
    draft = rig.draft()
    ids = _other_ids(len(draft.vocab.table), _vocab_size())
    rig.eagle3(out, draft=_with_table(draft, _offsets(ids), t2d=tuple(ids.tolist())))


def ramp(rig: Rig, out: Path) -> None:
    """d2t is a buffer's default 0, 1, 2, ... that nothing was loaded into."""
    draft = rig.draft()
    rig.eagle3(out, draft=_with_table(draft, torch.arange(len(draft.vocab.table))))


def out_of_range(rig: Rig, out: Path) -> None:
    """Both tables are made for a target with a larger vocabulary."""
    draft = rig.draft()
    ids = _other_ids(len(draft.vocab.table), 2 * _vocab_size())
    rig.eagle3(out, draft=_with_table(draft, _offsets(ids), t2d=tuple(ids.tolist())))


# --- a draft model whose ids mean other words ------------------------------------------------------


def _permutation() -> Tensor:
    """[vocab] the id that each token has in the other vocabulary; special tokens keep theirs."""
    ids = list(range(3, _vocab_size()))
    random.Random(2).shuffle(ids)
    return torch.tensor([0, 1, 2, *ids])


def _permuted_draft() -> Any:
    """The bundled draft model with the rows of embeddings and head in another order."""
    draft, order = load(spectrace_demo.draft_path()), _permutation()
    weight = draft.get_input_embeddings().weight  # [vocab, hidden], tied to the head
    with torch.no_grad():
        weight[order] = weight.clone()
    return draft


def _permuted_tokenizer(rig: Rig) -> PreTrainedTokenizerFast:
    """The tokenizer that belongs to it."""
    order = _permutation().tolist()
    content = json.loads((spectrace_demo.draft_path() / "tokenizer.json").read_text(encoding="utf-8"))
    vocab = content["model"]["vocab"]
    content["model"]["vocab"] = {token: order[number] for token, number in vocab.items()}
    file = rig.scratch / "tokenizer.json"
    file.write_text(json.dumps(content), encoding="utf-8")
    return PreTrainedTokenizerFast(tokenizer_file=str(file))


def other_tokenizer(rig: Rig, out: Path) -> None:
    """The draft model has another tokenizer, which the recorder sees; ids are passed on as they are."""
    tokenizer = _permuted_tokenizer(rig)
    rig.transformers(out, draft=_permuted_draft(), num_prompts=6, record={"assistant_tokenizer": tokenizer})


def unseen_tokenizer(rig: Rig, out: Path) -> None:
    """The same, and nobody says what the draft's ids mean."""
    rig.transformers(out, draft=_permuted_draft(), num_prompts=6)

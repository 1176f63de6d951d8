"""Faults of the map from draft to target ids: other tables, other readings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.faults.rig import Rig, shared_target
from spectrace_eagle3.draft import Draft


def _vocab_size() -> int:
    return int(shared_target().config.vocab_size)


def _with_table(draft: Draft, d2t: Tensor) -> Draft:
    """The draft with another d2t in its checkpoint, applied as offsets; what leads outside is clamped."""
    table = (torch.arange(len(d2t)) + d2t).clamp(0, _vocab_size() - 1)
    draft.vocab = replace(draft.vocab, table=table, d2t=tuple(d2t.tolist()))
    return draft


def absolute(rig: Rig, out: Path) -> None:
    """The table holds target ids."""
    draft = rig.draft()
    rig.eagle3(out, draft=_with_table(draft, draft.vocab.table))


def missing(rig: Rig, out: Path) -> None:
    """There is no table."""
    draft = rig.draft()
    rows = len(draft.vocab.table)
    draft.vocab = replace(
        draft.vocab, table=torch.arange(rows), d2t=None, t2d=None, source="missing", applied="identity"
    )
    rig.eagle3(out, draft=draft)

"""The visible list of faults: name, what it breaks, what must be found, and how strong the evidence can be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from benchmarks.faults import id_map
from benchmarks.faults.rig import Rig

Record = Callable[[Rig, Path], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault, injected in code."""

    name: str
    breaks: str
    """One sentence."""
    expected: tuple[str, ...]
    """Finding ids that name it."""
    kind: Literal["structural", "statistical"] = "structural"
    record: Record
    control: Record | None = None
    """Where one trace cannot tell: the run it is compared with."""


FAULTS: tuple[Fault, ...] = (
    Fault(
        name="map-read-direct",
        breaks="the offsets of d2t are used as target ids",
        expected=("vocab-map/offset-read-as-direct",),
        record=lambda rig, out: rig.eagle3(out, map_as_direct=True),
    ),
    Fault(
        name="map-absolute",
        breaks="d2t was exported as target ids, the engine adds it to the draft id",
        expected=("vocab-map/absolute-table",),
        record=id_map.absolute,
    ),
    Fault(
        name="map-missing",
        breaks="the checkpoint has no d2t, draft ids are taken for target ids",
        expected=("vocab-map/missing",),
        record=id_map.missing,
    ),
    Fault(
        name="taps-shifted-down",
        breaks="every tap is taken one boundary too low",
        expected=("tap-layer/shifted",),
        record=lambda rig, out: rig.eagle3(out, tap_shift=-1),
    ),
    Fault(
        name="taps-shifted-up",
        breaks="every tap is taken one boundary too high",
        expected=("tap-layer/shifted",),
        record=lambda rig, out: rig.eagle3(out, tap_shift=1),
    ),
    Fault(
        name="taps-normed",
        breaks="the taps are taken after the target's final norm",
        expected=("tap-form/norm",),
        record=lambda rig, out: rig.eagle3(out, normed_taps=True),
    ),
    Fault(
        name="draft-kv-kept",
        breaks="rejected tokens stay in the draft's cache",
        expected=("kv-state/not-trimmed",),
        record=lambda rig, out: rig.eagle3(out, keep_draft_kv=True),
    ),
    Fault(
        name="head-not-loaded",
        breaks="the draft's LM head stays random, the loader names it",
        expected=("draft-head/not-loaded",),
        record=lambda rig, out: rig.eagle3(out, random_head=True),
    ),
)

"""The visible list of healthy runs: they differ in everything that is no fault."""

from __future__ import annotations

from dataclasses import dataclass

import spectrace_demo
from benchmarks.faults.faults import Record
from benchmarks.faults.rig import load
from spectrace_eagle3 import Chain, DynamicTree


@dataclass(frozen=True, slots=True, kw_only=True)
class Healthy:
    """One run in which nothing is broken."""

    name: str
    record: Record
    control: Record | None = None


HEALTHY: tuple[Healthy, ...] = (
    Healthy(name="chain-4", record=lambda rig, out: rig.eagle3(out)),
    Healthy(name="chain-2", record=lambda rig, out: rig.eagle3(out, plan=Chain(2))),
    Healthy(
        name="tree-12",
        record=lambda rig, out: rig.eagle3(out, plan=DynamicTree(topk=4, depth=4, num_nodes=12)),
    ),
    Healthy(
        name="draft-model",
        record=lambda rig, out: rig.transformers(out, draft=load(spectrace_demo.draft_path())),
    ),
)

"""The visible list of healthy runs: they differ in everything that is no fault."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import spectrace_demo
from benchmarks.faults import loops, processing, trained, verifying
from benchmarks.faults.faults import Record
from benchmarks.faults.rig import load, prompts_of, shared_target
from benchmarks.faults.weights import round_weights
from spectrace_eagle3 import Chain, DynamicTree, StaticTree
from spectrace_eagle3.sampling import Sampler


@dataclass(frozen=True, slots=True, kw_only=True)
class Healthy:
    """One run in which nothing is broken."""

    name: str
    record: Record
    control: Record | None = None


def _eagle3(**options: Any) -> Record:
    return lambda rig, out: rig.eagle3(out, **options)


def _head(folder: Callable[[], Path], **options: Any) -> Record:
    """With another EAGLE-3 head."""
    return lambda rig, out: rig.eagle3(out, draft=rig.draft(folder()), **options)


def _sampled(temperature: float, top_k: int | None = None, top_p: float | None = None, **more: Any) -> Record:
    return lambda rig, out: rig.eagle3(out, sampler=Sampler(temperature, top_k, top_p, seed=rig.seed), **more)


def _draft_model(folder: Callable[[], Path] = spectrace_demo.draft_path, **options: Any) -> Record:
    return lambda rig, out: rig.transformers(out, draft=load(folder()), **options)


def _transformers(**options: Any) -> Record:
    return lambda rig, out: rig.transformers(out, **options)


_RANDOM: dict[str, Any] = {"do_sample": True, "temperature": 0.8, "top_k": 0}
_STATIC = StaticTree(((0,), (1,), (2,), (0, 0), (0, 1), (1, 0), (0, 0, 0), (0, 0, 0, 0)))


_CASES: dict[str, Record] = {
    "chain-1": _eagle3(plan=Chain(1)),
    "chain-2": _eagle3(plan=Chain(2)),
    "chain-4": _eagle3(),
    "chain-8": _eagle3(plan=Chain(8)),
    "chain-16": _eagle3(plan=Chain(16)),
    "chain-no-reference": _eagle3(reference=False),
    "chain-long-texts": lambda rig, out: rig.eagle3(
        out, temperature=0.7, prompts=prompts_of(rig.seed, 6), new_tokens=300, ends=False
    ),
    "chain-short-texts": lambda rig, out: rig.eagle3(out, prompts=prompts_of(rig.seed, 60), new_tokens=20),
    "tree-12": _eagle3(plan=verifying.TREE),
    "tree-32": _eagle3(plan=DynamicTree(topk=8, depth=6, num_nodes=32)),
    "tree-static": _eagle3(plan=_STATIC),
    "tree-sampled": _sampled(0.8, plan=verifying.TREE),
    "sampled-cool": _sampled(0.3),
    "sampled": _sampled(0.8),
    "sampled-hot": _sampled(1.2),
    "sampled-top-p": _sampled(1.0, top_p=0.8),
    "sampled-top-k": _sampled(1.0, top_k=5),
    "sampled-many": lambda rig, out: rig.eagle3(
        out, sampler=Sampler(0.8, seed=rig.seed), prompts=prompts_of(rig.seed, 50), plan=Chain(2)
    ),
    "head-undertrained": _head(trained.undertrained_head),
    "head-undertrained-sampled": _head(trained.undertrained_head, temperature=0.8),
    "head-undertrained-tree": _head(trained.undertrained_head, plan=verifying.TREE),
    "head-out-of-domain": _head(trained.narrow_head),
    "head-out-of-domain-sampled": _head(trained.narrow_head, temperature=0.8),
    "draft-model": _draft_model(),
    "draft-model-2": _draft_model(num_draft_tokens=2),
    "draft-model-sampled": _draft_model(**_RANDOM),
    "draft-model-top-p": _draft_model(do_sample=True, temperature=1.0, top_p=0.9, top_k=0),
    "draft-model-undertrained": _draft_model(trained.undertrained_draft),
    "draft-model-out-of-domain": _draft_model(trained.narrow_draft),
    "draft-model-penalty": _draft_model(repetition_penalty=1.2),
    "prompt-lookup": _transformers(prompt_lookup_num_tokens=5),
    "early-exit": _transformers(assistant_early_exit=6),
    "bfloat16": lambda rig, out: rig.eagle3(out, target=shared_target("bfloat16")),
    "batch-of-8": lambda rig, out: loops.batch(rig, out, None),
    "gate-right": verifying.with_gate(lambda q: q < 0.4),
    "penalty-fed-all": lambda rig, out: processing.penalised(rig, out, processing.PenalisedDecoder),
    "grammar-careful": lambda rig, out: processing.grammar(rig, out, processing.CarefulDecoder),
    "metric-pooled": loops.printed(loops.pooled),
    "long-day": lambda rig, out: loops.uptime(rig, out, 0.0),
}

HEALTHY: tuple[Healthy, ...] = (
    *(Healthy(name=name, record=record) for name, record in _CASES.items()),
    Healthy(name="beside-itself", record=_eagle3(), control=_eagle3(plan=Chain(2))),
    Healthy(
        name="int8-beside-full",
        record=lambda rig, out: rig.eagle3(
            out, draft=round_weights(rig.draft(), 8), run={"draft": {"quantization": "int8"}}
        ),
        control=_eagle3(),
    ),
)

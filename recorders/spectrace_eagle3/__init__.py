"""EAGLE-3 with transformers: a reference decoder that records everything it does.

Transformers has no EAGLE. This package runs any EAGLE-3 checkpoint beside any decoder-only model of
transformers, in plain PyTorch: what comes out is what an engine should do.
"""

from __future__ import annotations

from spectrace_eagle3.decoder import Eagle3Decoder, Round, generate_alone
from spectrace_eagle3.draft import Draft, load_draft
from spectrace_eagle3.faults import Faults
from spectrace_eagle3.recorder import Eagle3Recorder
from spectrace_eagle3.sampling import Sampler
from spectrace_eagle3.tree import Chain, DynamicTree, StaticTree

__all__ = [
    "Chain",
    "Draft",
    "DynamicTree",
    "Eagle3Decoder",
    "Eagle3Recorder",
    "Faults",
    "Round",
    "Sampler",
    "StaticTree",
    "generate_alone",
    "load_draft",
]

"""Values of a draft's tensors: not finite, all zero, quantized without a word. Rules K05 and K20.

Owns also how a sentence counts and lists names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from spectrace.analysis.diagnosis.verdict import Cleared, Finding, Outcome, Strength
from spectrace.analysis.draft.facts import DraftFacts
from spectrace.checkpoint.records import Checkpoint, Values
from spectrace.format.figures import count_of

_PACKED = re.compile(r"\.(qweight|weight_packed|weight_scale|weight_scale_inv|qzeros|scales|g_idx|absmax)$")


def judge_precision(facts: DraftFacts, draft: Checkpoint) -> Iterator[Outcome]:
    """Quantized tensors against what config.json declares."""
    packed = [name for name in draft.tensors if _PACKED.search(name)]
    declared = facts.config.has("quantization_config")
    if packed and not declared:
        yield Finding(
            id="weights/precision",
            strength=Strength.CERTAIN,
            summary=f"Quantized tensors ({count_of(len(packed), 'tensor')}, such as {listed(packed, 1)}), "
            "but config.json has no quantization_config.",
            advice="Copy quantization_config from the export; else packed values are read as plain weights.",
            evidence={"packed": packed[:20], "count": len(packed)},
        )
    elif declared and not packed:
        yield Finding(
            id="weights/precision",
            strength=Strength.HINT,
            summary="config.json has a quantization_config, but no tensor looks quantized.",
            advice="Harmless where the engine quantizes while it loads; else drop it from config.json.",
        )


def judge_values(values: Mapping[str, Values]) -> Iterator[Outcome]:
    """Not finite, and all zero."""
    if not values:
        return
    bad = {name: seen.nonfinite for name, seen in values.items() if seen.nonfinite}
    read, total = sum(v.bytes_read for v in values.values()), sum(v.bytes_total for v in values.values())
    how = (
        "every value was read"
        if read == total
        else f"{read / total:.0%} of the values were read, evenly spread"
    )
    if bad:
        yield Finding(
            id="nonfinite/values",
            strength=Strength.CERTAIN,
            summary=f"NaN or infinity in {count_of(len(bad), 'tensor')}: {listed(tuple(bad))} ({how}).",
            advice="Export the checkpoint again; a training run that diverged is not worth serving.",
            evidence={"nonfinite": dict(list(bad.items())[:20]), "bytes_read": read, "bytes_total": total},
        )
    else:
        words = f"no NaN and no infinity in {count_of(len(values), 'tensor')}; {how}"
        yield Cleared(
            id="nonfinite/values", summary=words, evidence={"bytes_read": read, "bytes_total": total}
        )
    zero = [n for n, seen in values.items() if seen.is_zero and not _may_be_zero(n) and not seen.is_sample]
    if zero:
        yield Finding(
            id="weights/not-loaded",
            strength=Strength.CERTAIN,
            summary=f"Zero throughout: {count_of(len(zero), 'tensor')}, {listed(tuple(zero))}.",
            advice="Export the checkpoint again; these weights were never written.",
            evidence={"zero": zero[:20], "count": len(zero)},
        )


def _may_be_zero(name: str) -> bool:
    """Maps, biases and zero points may be zero; the head has a finding of its own."""
    return name.endswith(
        ("d2t", "t2d", "bias", "qzeros", "lm_head.weight", "zero_point", "inv_freq", "g_idx")
    )


def listed(names: Sequence[str], most: int = 3) -> str:
    """The first few names, however long they are."""
    shown = [name if len(name) <= 60 else f"{name[:59]}…" for name in names[:most]]
    return ", ".join(shown) + (", …" if len(names) > most else "")

"""The header of a serving engine's trace: its sections in their order, and what such an engine cannot give.

What stands in the sections about the models is told by facts.py and by the engine's recorder.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

import spectrace
from spectrace_serving.facts import Facts, eos_ids, without_missing
from spectrace_serving.settings import CAPTURE
from spectrace_transformers.token_text import Vocabulary

DRAFT_VALUES = (
    "draft_ids", "draft_logprobs", "draft_entropy", "draft_top", "draft_positions", "draft_inputs",
)  # fmt: skip
"""What a look at the draft's own forwards gives."""
FULL_VALUES = (
    "target_logprobs", "target_ranks", "target_gaps", "target_top", *DRAFT_VALUES[1:], "taps", "nonfinite",
)  # fmt: skip
"""What SPECTRACE_CAPTURE=ids leaves out."""
PART_OF_TARGET = {"draft.parameters": "the draft is a part of the target's checkpoint, under other names"}
"""What a draft that is loaded from the target's own checkpoint cannot give."""
NORMS = ("norm_before_residual", "norm_before_fc", "fc_norm", "norm_output")
"""Settings of a draft's config that say where it norms."""


def run_header(
    name: str,
    own: Facts,
    *,
    vocabulary: Vocabulary | None,
    target_config: Any,
    draft_config: Any,
    is_eager: bool,
    is_full: bool,
    unavailable: Facts,
) -> Facts:
    """The header as far as it is known before the first request.

    Args:
        name: of the engine, in its recorder's name.
        own: sections that the engine itself tells, from ``engine`` to ``speculation``.
        vocabulary: the target's tokens, where texts are captured.
        target_config: of the target, as transformers has it.
        draft_config: of the draft.
        is_eager: no graph is captured.
        is_full: probabilities and states too, not only ids.
        unavailable: fields that will be missing, and why.
    """
    left_out = {} if is_full else dict.fromkeys(FULL_VALUES, f"{CAPTURE}=ids")
    return without_missing(
        {
            "recorder": {"name": f"spectrace_{name}", "version": spectrace.__version__},
            **own,
            "tokenizer": {
                "digest": None if vocabulary is None else vocabulary.digest,
                "vocab_size": None if vocabulary is None else len(vocabulary),
                "eos_ids": eos_ids(target_config),
            },
            "training": getattr(draft_config, "training", None),
            "capture": {
                "mode": "eager" if is_eager else "unknown",
                "unavailable": left_out | unavailable,
                "text": vocabulary is not None,
            },
        }
    )


def flags(settings: Facts, draft_config: Any) -> Facts:
    """Launch settings that bear on speculation, of those that are one word, a number or some numbers."""
    found = {"torch": torch.__version__, **settings}
    found |= {name: getattr(draft_config, name, None) for name in NORMS}
    return {
        name: value
        for name, value in found.items()
        if isinstance(value, (str, int, float)) or _are_numbers(value)
    }


def _are_numbers(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(item, (int, float)) for item in value)


def out_of_reach(title: str, overlaps: str) -> Facts:
    """What serving engines cannot give, and why.

    Args:
        title: of the engine.
        overlaps: why these are not there.
    """
    return {
        "draft_kv_length": f"{title} keeps the draft's cache in pages and trims it by position alone",
        "overlaps": overlaps,
    }


def without_model(reason: str) -> Facts:
    """What a proposer that is no model cannot give."""
    return dict.fromkeys((*DRAFT_VALUES, "taps"), reason)


LOOKUP = without_model("a lookup copies tokens and has no distribution")


def misfits(problems: Iterable[str], fix: str) -> Facts:
    """Hooks that do not fit, as fields that are missing.

    Args:
        problems: what does not fit, as sentences.
        fix: what is to be done.
    """
    return {f"hook {number}": f"{what}; {fix}" for number, what in enumerate(problems)}

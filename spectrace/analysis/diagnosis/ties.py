"""How close two logits must be for rounding alone to swap them.

Two units in the last place of the compute type, for logits between 16 and 32 (between 8 and 16 it is half of
that). Source of the unit: IEEE 754 and bfloat16, 2 ** (exponent - mantissa bits).
"""

from __future__ import annotations

from spectrace.format.records import Run

_UNITS = {"bfloat16": 2.0**-3, "float16": 2.0**-6, "float32": 2.0**-19, "float64": 2.0**-48}
"""One unit in the last place at 16 to 32."""
_NAMES = {"bf16": "bfloat16", "fp16": "float16", "half": "float16", "fp32": "float32", "float": "float32"}
_KERNELS = 1e-4
"""Kernels add up in another order for another batch shape: float32 logits differ by this much."""


def unit_in_last_place(run: Run) -> float:
    """One unit of the target's compute type at 16 to 32; bfloat16's where the type is not known."""
    dtype = "" if run.target is None else (run.target.dtype or "")
    name = dtype.removeprefix("torch.").lower()
    return _UNITS.get(_NAMES.get(name, name), _UNITS["bfloat16"])


def tie_limit(run: Run) -> float:
    """Largest gap between first and second choice, in logits, that is taken for a tie."""
    return max(2 * unit_in_last_place(run), _KERNELS)


def is_tie(gap: float, rank_of_other: int | None, limit: float) -> bool:
    """Whether rounding alone explains that two greedy runs picked different tokens at one place.

    Args:
        gap: first less second choice of the target there, in logits.
        rank_of_other: rank of the other run's token, 1 = first; None where it is not known.
        limit: of `tie_limit`.

    >>> is_tie(0.125, 2, 0.25), is_tie(0.125, 3, 0.25), is_tie(0.5, 2, 0.25)
    (True, False, False)
    """
    return gap <= limit and (rank_of_other is None or rank_of_other <= 2)

"""What the numbers and names of `spectrace record` may be, beyond what click's ranges can say.

Refuses, naming the option, what would end inside an engine. Loads no engine.
"""

from __future__ import annotations

from pathlib import Path

import click

from spectrace.checkpoint.directory import open_checkpoint
from spectrace.cli.output import shown
from spectrace.errors import CheckpointError, UsageError

_TREE = (256, 64, 1024)
"""Largest TOPK, DEPTH and NODES."""


def temperature(ctx: click.Context, param: click.Parameter, value: float) -> float:
    """Callback of ``--temperature``; `nan` is in no range."""
    if value != 0 and not 1e-3 <= value <= 1e3:
        raise click.BadParameter(f"{value} is not 0 (greedy) or from 0.001 to 1000.", ctx, param)
    return abs(value)


def top_p(ctx: click.Context, param: click.Parameter, value: float | None) -> float | None:
    """Callback of ``--top-p``."""
    if value is not None and not 1e-6 <= value <= 1:
        raise click.BadParameter(f"{value} is not from 0.000001 to 1.", ctx, param)
    return value


def device(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Callback of ``--device``: a place that holds values."""
    if value is not None and value.partition(":")[0].strip().lower() == "meta":
        raise click.BadParameter("meta holds no values; cpu and cuda do.", ctx, param)
    return value


def tree_of(given: str) -> tuple[int, ...]:
    """Choices per node, depth and nodes: `8,5,32`.

    Raises:
        UsageError: they are not three whole numbers, or larger than any tree that is drafted.
    """
    numbers = given.split(",")
    if len(numbers) != 3 or not all(n.isascii() and n.isdecimal() and len(n) < 9 for n in numbers):
        raise UsageError(f"--tree {shown(given)}: give three whole numbers TOPK,DEPTH,NODES, such as 8,5,32")
    shape = tuple(map(int, numbers))
    if not all(0 < size <= most for size, most in zip(shape, _TREE)):
        words = "TOPK is 1 to 256, DEPTH 1 to 64, NODES 1 to 1024"
        raise UsageError(f"--tree {shown(given)}: {words}")
    return shape


def check_early_exit(num_layers: int, target: Path) -> None:
    """Refuses to leave the target behind its last layer, which would be the target itself.

    Raises:
        UsageError: the target has no more layers than that.
    """
    try:
        known = open_checkpoint(target).config.integer("num_hidden_layers")
    except CheckpointError:
        return  # whoever loads it says what is wrong with it
    if known is not None and num_layers >= known:
        raise UsageError(f"--early-exit {num_layers:,}: the target has {known:,} layers; give fewer")

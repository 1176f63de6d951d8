"""Recorded proposals, drafted again: which of their tokens a way of running the draft proposes too.

A tree is replayed as its paths from root to leaf, which is what its nodes see. Counts only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

NEAR = 0.05
"""Difference in log q up to which a token that was drawn counts as the same."""


class Step(NamedTuple):
    """One recorded proposal."""

    length: int
    """Committed length before it."""
    token_ids: Sequence[int]
    """[K] target ids."""
    parents: Sequence[int] | None
    """[K] index of each node's parent, -1 for the root; None for a chain."""
    logq: Sequence[float]
    """[K] log q of each, or nothing."""


@dataclass(slots=True)
class Replay:
    """Counts."""

    same: int = 0
    """Proposed tokens that are proposed again."""
    proposed: int = 0
    known: int = 0
    """Those of the same tokens whose log q was recorded."""
    apart: float = 0.0
    """Sum over those of the difference in log q."""

    @property
    def mean_apart(self) -> float | None:
        """Mean difference in log q; None where none was recorded."""
        return self.apart / self.known if self.known else None

    def add(self, found: Tensor, recorded: Tensor, is_same: Tensor) -> None:
        """Counts some tokens.

        Args:
            found: [m] log q now.
            recorded: [m] log q then, NaN where it was not recorded.
            is_same: [m] bool.
        """
        apart = (found - recorded)[is_same].abs()
        self.same += len(apart)
        self.known += int(apart.isfinite().sum())
        self.apart += float(apart[apart.isfinite()].sum())


@dataclass(frozen=True, slots=True)
class Paths:
    """Proposals as m chains of at most D tokens."""

    starts: Tensor
    """[m] row that reads the last committed token: its length less two."""
    tokens: Tensor
    """[m, D] target ids, -1 behind the end."""
    logq: Tensor
    """[m, D] as recorded, else NaN."""
    siblings: Tensor
    """[m, D] nodes with the same parent, the node itself included."""
    is_counted: Tensor
    """[m, D] bool: a node that several paths share counts on the first of them."""

    def part(self, first: int, size: int) -> Paths:
        """Some of the chains."""
        end = first + size
        return Paths(
            self.starts[first:end],
            self.tokens[first:end],
            self.logq[first:end],
            self.siblings[first:end],
            self.is_counted[first:end],
        )


def paths_of(steps: Sequence[Step]) -> Paths:
    """All proposals as chains.

    >>> tree = Step(9, [5, 6, 7], [-1, 0, 0], [])
    >>> found = paths_of([tree])
    >>> found.tokens.tolist(), found.is_counted.tolist(), found.siblings.tolist()
    ([[5, 6], [5, 7]], [[True, True], [False, True]], [[1, 2], [1, 2]])
    """
    starts: list[int] = []
    tokens: list[list[int]] = []
    logq: list[list[float]] = []
    siblings: list[list[int]] = []
    counted: list[list[bool]] = []
    for step in steps:
        parents = range(-1, len(step.token_ids) - 1) if step.parents is None else step.parents
        seen: set[int] = set()
        for leaf in sorted({*range(len(parents))} - {*parents}):
            path = _path_to(leaf, parents)
            starts.append(step.length - 2)
            tokens.append([step.token_ids[node] for node in path])
            logq.append([step.logq[node] if step.logq else float("nan") for node in path])
            siblings.append([list(parents).count(parents[node]) for node in path])
            counted.append([node not in seen for node in path])
            seen.update(path)
    longest = max(map(len, tokens), default=0)
    return Paths(
        torch.tensor(starts, dtype=torch.long),
        _padded(tokens, longest, -1),
        _padded(logq, longest, float("nan")),
        _padded(siblings, longest, 0),
        _padded(counted, longest, False),
    )


def _path_to(leaf: int, parents: Sequence[int]) -> list[int]:
    """Nodes from the root's child down to a leaf; parents come before their children."""
    path = [leaf]
    while parents[path[0]] >= 0:
        path.insert(0, parents[path[0]])
    return path


def _padded(lists: Sequence[Sequence[float]], length: int, filler: float) -> Tensor:
    return torch.tensor([[*items, *[filler] * (length - len(items))] for items in lists])


def count_depth(
    replay: Replay, logits: Tensor, table: Tensor, paths: Paths, depth: int, temperature: float | None
) -> None:
    """Counts the tokens of one depth.

    A token is the same where fewer than its siblings are more probable; one that was drawn, where its log q
    is near.

    Args:
        replay: what is counted.
        logits: [m, draft_vocab_size] that the tokens come from.
        table: [draft_vocab_size] target id of each raw id.
        paths: the chains.
        depth: which of their tokens.
        temperature: that tokens were drawn at; None for the most probable ones.
    """
    logq = (logits / (temperature or 1.0)).log_softmax(-1)
    tokens, recorded = paths.tokens[:, depth], paths.logq[:, depth]
    is_it = table == tokens.unsqueeze(1)  # [m, draft_vocab_size]
    own = logq.masked_fill(~is_it, float("-inf")).amax(-1)  # [m]
    counted = paths.is_counted[:, depth]
    is_same = (logq > own.unsqueeze(1)).sum(-1) < paths.siblings[:, depth]
    if temperature is not None:
        is_same = torch.where(recorded.isfinite(), (own - recorded).abs() < NEAR, is_same)
    replay.proposed += int(counted.sum())
    replay.add(own, recorded, is_same & counted & own.isfinite())

"""Plans for proposals, chain or tree, and how each grows: parents always come before their children.

Knows neither target nor verification.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from torch import Tensor

from spectrace.errors import UsageError
from spectrace_eagle3.rows import DraftRows, Node


@dataclass(frozen=True, slots=True)
class Chain:
    """One token after the other."""

    num_draft_tokens: int = 5

    @property
    def depth(self) -> int:
        """Longest path, in nodes."""
        return self.num_draft_tokens


@dataclass(frozen=True, slots=True)
class DynamicTree:
    """The most probable nodes of a tree that grows where the draft is sure.

    Source: Li et al. 2024, "EAGLE-2", arXiv 2406.16858, section 4; SafeAILab/EAGLE eagle/model/cnets.py,
    Model.topK_genrate.
    """

    topk: int = 10
    """Nodes read at each depth, and children looked at of each."""
    depth: int = 7
    """Longest path, in nodes."""
    num_nodes: int = 59
    """Nodes kept in all."""


@dataclass(frozen=True, slots=True)
class StaticTree:
    """The same tree in every step.

    Source of the idea: SafeAILab/EAGLE eagle/model/choices.py.

    Raises:
        UsageError: a path has no parent.
    """

    paths: tuple[tuple[int, ...], ...]
    """Nodes as paths of ranks: (0, 1) is the second choice after the first."""

    def __post_init__(self) -> None:
        known = {(), *self.paths}
        for path in self.paths:
            if not path or path[:-1] not in known or min(path) < 0:
                raise UsageError(f"tree: path {path} has no parent in the tree")

    @property
    def depth(self) -> int:
        """Longest path, in nodes."""
        return max(map(len, self.paths), default=0)


Plan: TypeAlias = "Chain | DynamicTree | StaticTree"
Choose: TypeAlias = Callable[[Tensor], int]
"""Picks a raw id from logits [draft_vocab_size]."""


def check_plan(plan: Plan, draft_vocab_size: int) -> None:
    """Refuses a plan that asks for more choices than a draft has.

    Raises:
        UsageError: with the first rank that is too high.
    """
    ranks = (rank for path in plan.paths for rank in path) if isinstance(plan, StaticTree) else ()
    wrong = next((rank for rank in ranks if rank >= draft_vocab_size), None)
    if wrong is not None:
        raise UsageError(f"tree: there is no choice {wrong:,} among the draft's {draft_vocab_size:,} ids")


def grow_chain(rows: DraftRows, depth: int, choose: Choose) -> list[Node]:
    """Drafts `depth` tokens, each from the row that read the one before."""
    nodes: list[Node] = []
    for level in range(depth):
        if level:
            rows.read([level - 1], nodes)
        nodes.append(Node(choose(rows.logits[level]), level - 1, level, level))
    return nodes


def grow_dynamic(rows: DraftRows, tree: DynamicTree, depth: int) -> list[Node]:
    """Grows a tree by the sum of log q and keeps the best nodes of all depths."""
    nodes: list[Node] = []
    frontier = [-1]  # the root has been read already
    for level in range(depth):
        if level:
            rows.read(frontier, nodes)
        first = len(nodes)
        for parent in frontier:
            source, score = (0, 0.0) if parent < 0 else (nodes[parent].row, nodes[parent].score)
            logq = rows.logits[source].log_softmax(-1)  # [draft_vocab_size]
            values, ids = logq.topk(min(tree.topk, len(logq)))
            for value, draft_id in zip(values.tolist(), ids.tolist()):
                nodes.append(Node(draft_id, parent, level, source, score + value))
        frontier = _best(nodes, range(first, len(nodes)), tree.topk)
    kept = _best(nodes, range(len(nodes)), tree.num_nodes)
    place = {-1: -1, **{old: new for new, old in enumerate(kept)}}
    for index in kept:
        nodes[index].parent = place[nodes[index].parent]
    return [nodes[index] for index in kept]


def _best(nodes: Sequence[Node], among: range, count: int) -> list[int]:
    """Indices of the nodes with the best scores, ascending.

    No child scores better than its parent, and of equals the earlier goes first: parents are never left out.
    """
    return sorted(sorted(among, key=lambda index: (-nodes[index].score, index))[:count])


def grow_static(rows: DraftRows, tree: StaticTree, depth: int) -> list[Node]:
    """Drafts the nodes of a fixed tree down to a depth."""
    paths = sorted({path for path in tree.paths if len(path) <= depth}, key=lambda path: (len(path), path))
    parents = {path[:-1] for path in paths}
    nodes: list[Node] = []
    place: dict[tuple[int, ...], int] = {(): -1}
    for level in range(max(map(len, paths), default=0)):
        if level:
            rows.read([place[path] for path in paths if len(path) == level and path in parents], nodes)
        for path in (path for path in paths if len(path) == level + 1):
            parent = place[path[:-1]]
            source = 0 if parent < 0 else nodes[parent].row
            ranked = rows.logits[source].topk(path[-1] + 1).indices  # best first
            place[path] = len(nodes)
            nodes.append(Node(int(ranked[-1]), parent, level, source))
    return nodes

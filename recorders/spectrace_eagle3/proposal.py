"""What the draft proposes in one step: a chain, or a tree of nodes in which parents come first.

Owns the shapes of proposals and the growing of one; knows neither target nor verification. A chain is a
tree in which every node has one child.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from spectrace_eagle3.rows import DraftRows


@dataclass(frozen=True, slots=True)
class Chain:
    """One token after the other."""

    num_draft_tokens: int = 5


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
    """The same tree in every step, as paths of ranks: (0, 1) is the second choice after the first choice.

    Source: EAGLE-1's eagle/model/choices.py, mc_sim_7b_63.
    """

    paths: tuple[tuple[int, ...], ...] = ((0,), (1,), (2,), (0, 0), (0, 1), (1, 0), (0, 0, 0), (0, 0, 1), (0, 0, 0, 0))

    def __post_init__(self) -> None:
        known = {(), *self.paths}
        for path in self.paths:
            if not path or path[:-1] not in known or min(path) < 0:
                raise ValueError(f"path {path} has no parent in the tree")
        object.__setattr__(self, "paths", tuple(sorted(set(self.paths), key=lambda p: (len(p), p))))


Plan = Chain | DynamicTree | StaticTree


@dataclass(slots=True)
class Node:
    """One proposed token."""

    draft_id: int
    parent: int
    """Index of the parent among all nodes of the step, -1 for the root."""
    depth: int
    """From 0."""
    source: int
    """Row of the draft whose distribution it comes from."""
    score: float = 0.0
    """Sum of log q along the path."""
    row: int | None = None
    """Row of the draft that read it."""


@dataclass(slots=True, kw_only=True)
class Proposal:
    """The nodes of one step, K of them, and the distributions they come from."""

    nodes: list[Node]
    target_ids: list[int]
    """[K] after the vocabulary map."""
    logits: Tensor
    """[R, draft_vocab_size] single precision, one row for each run of the draft."""
    positions: list[int]
    """[R] at which the rows were run."""
    input_rms: list[float]
    """[depth] RMS of the states that were read, depth 0 those of the target after fc."""
    temperature: float = 1.0
    """q is softmax(logits / temperature)."""
    is_drawn: bool = False
    """Tokens are drawn from q; otherwise they are its most probable."""
    is_chain: bool = True
    draft_kv_length: int = 0
    """Rows of the draft's cache that belong to committed tokens."""

    @property
    def parents(self) -> list[int]:
        """[K]"""
        return [node.parent for node in self.nodes]

    def ancestors(self) -> Tensor:
        """[K+1, K+1] bool: which of root and nodes each may see; the root is row 0."""
        size = len(self.nodes) + 1
        seen = torch.zeros(size, size, dtype=torch.bool)
        seen[0, 0] = True
        for index, node in enumerate(self.nodes, 1):
            seen[index] = seen[node.parent + 1]
            seen[index, index] = True
        return seen


Choose = Callable[[Tensor], int]
"""Picks a raw id from logits [draft_vocab_size]."""


def grow_chain(rows: DraftRows, length: int, choose: Choose) -> list[Node]:
    """Drafts `length` tokens, each from the row that read the one before."""
    nodes: list[Node] = []
    for depth in range(length):
        if depth:
            rows.read([nodes[-1]], nodes)
        source = rows.count - 1
        nodes.append(Node(choose(rows.logits[source]), depth - 1, depth, source))
    return nodes


def grow_dynamic(rows: DraftRows, tree: DynamicTree, depth: int) -> list[Node]:
    """Grows a tree by the sum of log q and keeps the best nodes of all depths."""
    nodes: list[Node] = []
    frontier: list[Node | None] = [None]  # the root has been read already
    for level in range(depth):
        children: list[Node] = []
        if level:
            rows.read([node for node in frontier if node is not None], nodes)
        for node in frontier:
            source = 0 if node is None or node.row is None else node.row
            score = 0.0 if node is None else node.score
            parent = -1 if node is None else nodes.index(node)
            logq = rows.logits[source].log_softmax(-1)  # [draft_vocab_size]
            values, ids = logq.topk(min(tree.topk, len(logq)))
            for value, draft_id in zip(values.tolist(), ids.tolist()):
                children.append(Node(draft_id, parent, level, source, score + value))
        nodes += children
        frontier = list(sorted(children, key=lambda child: -child.score)[: tree.topk])
    return _best(nodes, tree.num_nodes)


def _best(nodes: Sequence[Node], count: int) -> list[Node]:
    """The nodes with the best scores in their old order; a parent scores no less than its children."""
    order = sorted(range(len(nodes)), key=lambda index: (-nodes[index].score, index))
    kept = sorted(order[:count])
    place = {-1: -1, **{old: new for new, old in enumerate(kept)}}
    for old in kept:
        nodes[old].parent = place[nodes[old].parent]
    return [nodes[old] for old in kept]


def grow_static(rows: DraftRows, tree: StaticTree, depth: int) -> list[Node]:
    """Drafts the nodes of a fixed tree."""
    paths = [path for path in tree.paths if len(path) <= depth]
    has_children = {path[:-1] for path in paths}
    nodes: list[Node] = []
    at: dict[tuple[int, ...], int] = {(): -1}
    for level in range(max(map(len, paths), default=0)):
        readers = [nodes[at[path]] for path in paths if len(path) == level and path in has_children]
        if readers:
            rows.read(readers, nodes)
        for path in (path for path in paths if len(path) == level + 1):
            parent = at[path[:-1]]
            source = 0 if parent < 0 else nodes[parent].row
            assert source is not None
            ids = rows.logits[source].topk(path[-1] + 1).indices
            at[path] = len(nodes)
            nodes.append(Node(int(ids[-1]), parent, level, source))
    return nodes

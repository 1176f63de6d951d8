"""Do accepted paths follow the tree, and does the tree do better than the chain it contains?"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from spectrace.analysis.block import Block
from spectrace.analysis.diagnosis.facts import Facts
from spectrace.analysis.diagnosis.sample import Witnesses
from spectrace.analysis.diagnosis.verdict import Cleared, Counterfactual, Finding, Outcome, Strength
from spectrace.analysis.diagnosis.verification import is_greedy
from spectrace.format.columns import Array
from spectrace.format.records import Run


class TreeTally:
    """Paths of trees, and what the chain of first children would have had accepted."""

    FIELDS = (
        "proposal_ids", "parents", "accepted_nodes", "num_accepted", "emitted_ids", "target_ids", "flags",
    )  # fmt: skip

    def __init__(self, run: Run) -> None:
        self.is_greedy = is_greedy(run)
        self.trees = 0
        self.paths = 0
        self.broken = Witnesses()
        self.compared = 0
        self.tree_accepted = self.chain_accepted = 0
        self.worse = Witnesses()

    def add(self, block: Block) -> None:
        """Counts a block."""
        parents = block.tokens("parents")
        if parents is None or not parents.known.any():
            return
        whole = np.zeros(block.num_rows, bool)
        whole[block.token_rows[parents.known]] = True
        rows = whole & block.is_real
        self.trees += int(rows.sum())
        self._paths(block, rows, parents.values)
        if self.is_greedy:
            self._chain(block, rows, parents.values)

    def _paths(self, block: Block, rows: Array, parents: Array) -> None:
        column = block.columns.get("accepted_nodes")
        if column is None or column.known is not None or not len(column.values):
            return
        lengths = block.lengths("accepted_nodes")
        owner = np.repeat(np.arange(block.num_rows), lengths)
        nodes = column.values.astype(np.int64)
        within = (nodes >= 0) & (nodes < block.drafted[owner])
        at = np.where(within, block.starts[owner] + nodes, 0)
        before = np.concatenate([[-1], nodes[:-1]])
        is_first = np.concatenate([[True], owner[1:] != owner[:-1]])
        expected = np.where(is_first, -1, before)
        wrong = rows[owner] & (~within | (parents[at] != expected))
        mask = np.zeros(block.num_rows, bool)
        mask[owner[wrong]] = True
        self.paths += int((rows & (lengths > 0)).sum())
        self.broken.note(block, mask)

    def _chain(self, block: Block, rows: Array, parents: Array) -> None:
        """Walks the first children while each is the target's pick after its parent."""
        picks, ids = block.slots("target_ids"), block.tokens("proposal_ids")
        if picks is None or ids is None:
            return
        usable = rows & picks.known[block.root_slots] & ~block.is_cut
        node = np.full(block.num_rows, -1)
        accepted = np.zeros(block.num_rows, np.int64)
        alive = usable.copy()
        first_child = _first_children(block, parents)
        for _ in range(int(block.drafted.max(initial=0))):
            child = first_child[block.root_slots + node + 1]
            at = block.starts + np.maximum(child, 0)
            at = np.minimum(at, len(ids.values) - 1)
            pick = picks.values[block.root_slots + node + 1]
            alive = alive & (child >= 0) & (ids.values[at] == pick) & picks.known[block.root_slots + node + 1]
            if not alive.any():
                break
            accepted += alive
            node = np.where(alive, child, node)
        self.compared += int(usable.sum())
        self.chain_accepted += int(accepted[usable].sum())
        self.tree_accepted += int(block.accepted[usable].sum())
        self.worse.note(block, usable & (accepted > block.accepted))


def _first_children(block: Block, parents: Array) -> Array:
    """[tokens + rows] the first child of the root and of each node, -1 for none."""
    first = np.full(len(parents) + block.num_rows, -1, np.int64)
    index, owner = block.token_index, block.token_rows
    sound = (parents >= -1) & (parents < index)
    slot = block.root_slots[owner] + parents + 1
    order = np.flatnonzero(sound)[::-1]  # of several children the last written is the first
    first[slot[order]] = index[order]
    return first


def judge(facts: Facts) -> Iterator[Outcome]:
    """Ancestors, then the chain inside the tree. A run of chains has no tree to judge."""
    tally, speculation = facts.of(TreeTally), facts.run.speculation
    if not tally.trees:
        if speculation is not None and speculation.tree is not None:
            yield facts.not_recorded("tree", "record the parent of each node", "parents")
        else:
            unknown = list(facts.unavailable("tree", "parents"))
            yield from unknown
            if not unknown:
                yield Cleared(id="tree", summary="proposals are chains")
        return
    if tally.broken:
        yield Finding(
            id="tree/not-ancestor",
            strength=Strength.CERTAIN,
            summary="Accepted paths jump: a node was accepted whose parent was not the node before it.",
            advice="Check the tree's attention mask and the indices by which the path is retrieved.",
            evidence={"steps_affected": tally.broken.count, "paths_looked_at": tally.paths},
            steps=tally.broken.steps,
        )
    elif tally.paths:
        yield Cleared(
            id="tree/not-ancestor", summary=f"all {tally.paths:,} accepted paths follow their parents"
        )
    else:
        yield facts.not_recorded("tree/not-ancestor", "record the accepted path", "accepted_nodes")
    evidence = {
        "accept_length_of_tree": 1 + tally.tree_accepted / tally.compared if tally.compared else None,
        "accept_length_of_chain": 1 + tally.chain_accepted / tally.compared if tally.compared else None,
        "trees": tally.compared,
    }
    if tally.worse:
        yield Finding(
            id="tree/worse-than-chain",
            strength=Strength.CERTAIN,
            summary="The tree had fewer tokens accepted than the chain of first children inside it: a "
            "contradiction.",
            advice="Compare picks node by node: a mask that lets a node see a sibling gives such picks.",
            evidence={**evidence, "steps_affected": tally.worse.count},
            steps=tally.worse.steps,
        )
    elif tally.compared:
        yield Cleared(
            id="tree/worse-than-chain", summary="no tree does worse than its own chain", evidence=evidence
        )
    else:
        yield facts.not_recorded(
            "tree/worse-than-chain", "record the target's pick after each node of a greedy run", "target_ids"
        )


def counterfactual(facts: Facts) -> Iterator[Counterfactual]:
    """Chain acceptance from a tree trace."""
    tally = facts.of(TreeTally)
    if tally.compared:
        tree, chain = (1 + n / tally.compared for n in (tally.tree_accepted, tally.chain_accepted))
        yield Counterfactual(
            name="chain-of-first-children",
            summary=f"the chain of first children alone: accept length {chain:.2f} instead of the tree's "
            f"{tree:.2f}",
            evidence={
                "accept_length_of_chain": chain,
                "accept_length_of_tree": tree,
                "trees": tally.compared,
            },
        )

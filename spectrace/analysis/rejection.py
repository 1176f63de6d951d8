"""What became of each draft token of one step, and what the target wanted instead.

Pure functions over one `Step`, for chains and trees. Nothing here counts over steps, and a token
that was not reached is never called rejected: its target values hang on tokens that were refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from spectrace.format.records import Step

Status = Literal["accepted", "rejected", "passed_over", "not_reached", "bonus", "target"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeState:
    """One token of a step: a draft token, or the target's own that ends the step."""

    index: int
    """Index into the proposal; K for the target's own token."""
    depth: int
    """Position in a chain, depth in a tree, from 0."""
    parent: int
    """Index of the node it follows, -1 = root."""
    status: Status
    """accepted | rejected: the target refused it after accepting everything before it | passed_over:
    another child of the same accepted node was taken | not_reached | bonus: the target's own token
    after full acceptance | target: the target's token of a step without proposal."""
    token_id: int | None
    """Id in the target vocabulary."""
    draft_id: int | None = None
    """Raw id in the draft vocabulary."""
    pick_id: int | None = None
    """The target's own pick at this place."""
    wanted_id: int | None = None
    """For a rejected token: what was committed in its place, else the target's pick."""


def node_states(step: Step) -> tuple[NodeState, ...]:
    """What became of each token of a step.

    A step cut short inside its accepted tokens (end of sequence, length) refused nothing: the rest
    was not reached. A count or a parent out of range is read as the nearest sound one.

    Args:
        step: any step; a file's arrays may be of the wrong length.

    Returns:
        One state per draft token, in proposal order, then the target's own token where it follows a
        full acceptance or a step without proposal.

    >>> from spectrace.testing import make_step
    >>> step = make_step(proposal_ids=[5, 6, 7], num_accepted=1, emitted_ids=[5, 9])
    >>> [state.status for state in node_states(step)]
    ['accepted', 'rejected', 'not_reached']
    >>> node_states(step)[1].wanted_id
    9
    """
    proposal = step.proposal_ids or ()
    parents = node_parents(step)
    depths = _depths(parents)
    path = accepted_path(step)
    emitted = step.emitted_ids or ()
    statuses = _statuses(parents, path, is_cut=len(emitted) <= len(path))
    own = item(emitted, len(path))
    states = []
    target_ids, draft_ids = step.target_ids, step.draft_ids
    for index, status in enumerate(statuses):
        pick = item(target_ids, parents[index] + 1)
        states.append(
            NodeState(
                index=index,
                depth=depths[index],
                parent=parents[index],
                status=status,
                token_id=proposal[index],
                draft_id=item(draft_ids, index),
                pick_id=pick,
                wanted_id=(pick if own is None else own) if status == "rejected" else None,
            )
        )
    if own is not None and "rejected" not in statuses:
        states.append(_own_token(step, path, depths, own))
    return tuple(states)


def node_parents(step: Step) -> tuple[int, ...]:
    """Parent of each draft token, -1 = root; a chain's token follows the one before it."""
    length = len(step.proposal_ids or ())
    parents = step.parents
    if parents is None or len(parents) != length:
        return tuple(range(-1, length - 1))
    return tuple(up if _is_within(up, index) else -1 for index, up in enumerate(parents))


def accepted_path(step: Step) -> tuple[int, ...]:
    """Indices of the accepted draft tokens, root first.

    A tree without `accepted_nodes` is walked along the tokens it committed.
    """
    proposal = step.proposal_ids or ()
    parents = node_parents(step)
    count = min(max(step.num_accepted or 0, 0), len(proposal))
    if step.parents is None:
        return tuple(range(count))
    nodes = step.accepted_nodes
    if nodes is not None and all(_is_within(node, len(proposal)) for node in nodes):
        return tuple(nodes[:count])
    path: list[int] = []
    for token in (step.emitted_ids or ())[:count]:
        at = path[-1] if path else -1
        if token is None:
            break
        following = (i for i, up in enumerate(parents) if up == at and proposal[i] == token)
        node = next(following, None)
        if node is None:
            break
        path.append(node)
    return tuple(path)


def rejected_state(states: Sequence[NodeState]) -> NodeState | None:
    """The first refused token of a step, None when nothing was refused."""
    return next((state for state in states if state.status == "rejected"), None)


def item(values: Sequence[T] | None, index: int) -> T | None:
    """A value of a per-token array; None where the array is missing or too short."""
    return values[index] if values is not None and 0 <= index < len(values) else None


def _is_within(value: int | None, size: int) -> bool:
    """Whether an index of a file, which may be unknown, is one."""
    return value is not None and 0 <= value < size


def _statuses(parents: Sequence[int], path: Sequence[int], *, is_cut: bool) -> list[Status]:
    """Status of each draft token, by where its parent stands to the accepted path."""
    accepted = set(path)
    last = path[-1] if path else -1
    statuses: list[Status] = []
    for index, parent in enumerate(parents):
        if index in accepted:
            statuses.append("accepted")
        elif parent == last and not is_cut:
            statuses.append("rejected")
        elif parent != last and (parent == -1 or parent in accepted):
            statuses.append("passed_over")
        else:
            statuses.append("not_reached")
    return statuses


def _depths(parents: Sequence[int]) -> list[int]:
    depths: list[int] = []
    for parent in parents:
        depths.append(0 if parent < 0 else depths[parent] + 1)
    return depths


def _own_token(step: Step, path: Sequence[int], depths: Sequence[int], own: int) -> NodeState:
    """The target's own token, after everything proposed on its path was accepted."""
    last = path[-1] if path else -1
    return NodeState(
        index=len(step.proposal_ids or ()),
        depth=depths[last] + 1 if path else 0,
        parent=last,
        status="bonus" if path else "target",
        token_id=own,
        pick_id=item(step.target_ids, last + 1),
    )

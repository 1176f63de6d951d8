"""Where the target's choice stood in the draft's eyes: proposed, in its top, outside its vocabulary.

Follows one step, chain or tree. A draft's alternatives are raw ids; they are read by the map that was meant,
also where the engine applied another, so that a wrong map does not hide a draft that was right.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np

from spectrace.analysis.alternatives import uncut
from spectrace.analysis.diagnosis.facts import SHARED_VOCABULARY
from spectrace.analysis.diagnosis.id_map import Table
from spectrace.analysis.rejection import item, node_parents
from spectrace.format.columns import Array

if TYPE_CHECKING:
    from spectrace.format.records import Run, Step

_LONGEST_PATH = 1024
"""Choices that are followed; more only a made-up tree has."""

Kind = Literal["proposed", "in_top", "below_top", "outside_vocabulary", "beyond", "unknown"]


@dataclass(frozen=True)
class DraftVocabulary:
    """What draft ids mean, as far as a header says."""

    run: Run

    @cached_property
    def _table(self) -> Table:
        return Table(self.run)

    @cached_property
    def _ids(self) -> Array | None:
        """[draft vocabulary] target ids by the reading that was meant; None without a table."""
        table = self._table
        if table.offset is None or table.direct is None:
            return None
        return (table.direct if table.is_absolute else table.offset).ids

    @property
    def is_shared(self) -> bool:
        """A draft id is a target id."""
        table = self._table
        is_same = table.head_rows is not None and table.head_rows == table.vocab_size
        return self._ids is None and (
            self.run.method in SHARED_VOCABULARY or table.map.applied == "identity" or is_same
        )

    def holds(self, token_id: int) -> bool | None:
        """Whether the draft can express a target id; None where that is not known."""
        if self.is_shared:
            return True
        kept = self._table.kept
        return None if kept is None else bool(np.isin(token_id, kept))

    def raw_ids(self, token_id: int) -> tuple[int, ...] | None:
        """Draft ids that mean a target id; None where the map is not known."""
        if self._ids is not None:
            return tuple(np.flatnonzero(self._ids == token_id).tolist())
        return (token_id,) if self.is_shared else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A token of the target, placed in the draft's distribution there."""

    token_id: int | None
    """Target id; None where it is not recorded."""
    kind: Kind
    """proposed: a node of the proposal | in_top | below_top: not among the recorded alternatives |
    outside_vocabulary | beyond: nothing was drafted there | unknown."""
    node: int | None = None
    """Index of the node that proposes it."""
    place: int | None = None
    """Rank within the draft's alternatives, 1 = first."""
    num_top: int = 0
    """Alternatives recorded."""
    logprob: float | None = None
    """log q."""
    misread_as: int | None = None
    """Target id that went out for the draft id that means this token: the map in use is not the one meant."""


def choice_after(step: Step, parent: int, vocabulary: DraftVocabulary, token_id: int | None = None) -> Choice:
    """Where the target's choice behind a node stands.

    Args:
        step: any step.
        parent: index of the node, -1 = root.
        vocabulary: of the run's draft.
        token_id: the choice where it is known better than by `target_ids`, such as a sampled token.

    >>> from spectrace.format.records import Run
    >>> from spectrace.testing import make_step
    >>> step = make_step(proposal_ids=[5], target_ids=[7, 0], draft_top=[[[5, -0.1], [7, -2.5]]])
    >>> choice_after(step, -1, DraftVocabulary(Run(method="draft_model"))).place
    2
    """
    children = [node for node, up in enumerate(node_parents(step)) if up == parent]
    return _choice(step, parent, children, vocabulary, token_id)


def _choice(
    step: Step, parent: int, children: Sequence[int], vocabulary: DraftVocabulary, token_id: int | None
) -> Choice:
    wanted = item(step.target_ids, parent + 1) if token_id is None else token_id
    if wanted is None:
        return Choice(token_id=None, kind="unknown")
    proposal = step.proposal_ids or ()
    node = next((child for child in children if proposal[child] == wanted), None)
    top = uncut(item(step.draft_top, children[0])) if children else ()
    raw_ids = vocabulary.raw_ids(wanted) or ()
    place, logprob = _place(top, raw_ids)
    misread = (proposal[child] for child in children if item(step.draft_ids, child) in raw_ids)
    if node is not None:
        kind: Kind = "proposed"
    elif not children:
        kind = "beyond"
    elif vocabulary.holds(wanted) is False:
        kind = "outside_vocabulary"
    elif place is not None:
        kind = "in_top"
    else:
        kind = "below_top" if top and vocabulary.raw_ids(wanted) is not None else "unknown"
    return Choice(
        token_id=wanted,
        kind=kind,
        node=node,
        place=place,
        num_top=len(top),
        logprob=logprob,
        misread_as=next(misread, None) if node is None else None,
    )


def wanted_path(step: Step, vocabulary: DraftVocabulary) -> tuple[Choice, ...]:
    """The target's choices from the root on, through the proposal, until one is not in it.

    >>> from spectrace.format.records import Run
    >>> from spectrace.testing import make_step
    >>> step = make_step(proposal_ids=[5, 6, 8], parents=[-1, -1, 1], target_ids=[6, 0, 9, 0])
    >>> [choice.node for choice in wanted_path(step, DraftVocabulary(Run()))]
    [1, None]
    """
    children: dict[int, list[int]] = {}
    for node, up in enumerate(node_parents(step)):
        children.setdefault(up, []).append(node)
    path: list[Choice] = []
    parent: int | None = -1
    while parent is not None and len(path) < _LONGEST_PATH:
        choice = _choice(step, parent, children.get(parent, ()), vocabulary, None)
        path.append(choice)
        parent = choice.node
    return tuple(path)


def _place(top: Sequence[tuple[int, float]], raw_ids: Sequence[int]) -> tuple[int | None, float | None]:
    """Rank and log q of a token within the alternatives."""
    for at, (raw, logprob) in enumerate(top, 1):
        if raw in raw_ids:
            return at, logprob
    return None, None

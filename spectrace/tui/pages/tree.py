"""The proposal of one step as a tree: what was drafted, which path was accepted, which one the target wanted.

Draws with box characters; `to_ascii` turns them into others for a terminal without them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from spectrace.analysis.alternatives import rank_words
from spectrace.analysis.choice import Choice, DraftVocabulary, wanted_path
from spectrace.analysis.rejection import NodeState, item, node_states
from spectrace.format.records import Run, Step
from spectrace.tui.cells import cell_number, cell_rank
from spectrace.tui.loader import Loader
from spectrace.tui.pages.choice_words import choice_words
from spectrace.tui.pages.page import PageLine
from spectrace.tui.pages.paragraphs import fitted, heading, labelled, line, paragraph
from spectrace.tui.pages.token_texts import TokenTexts, step_texts
from spectrace.tui.spans import Role, Span, left, right, width_of
from spectrace.tui.step_detail import damaged_lines, quoted, title_of
from spectrace.tui.step_row import GLYPHS, TOKEN_ROLES

MOST_NODES = 512
"""Nodes that are drawn; more only a made-up trace has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeFacts:
    """What the page shows."""

    row: int
    step: Step | None
    states: Sequence[NodeState]
    path: Sequence[Choice]
    """The target's choices from the root on."""
    run: Run
    names: TokenTexts
    is_empty: bool


def gather(loader: Loader, row: int) -> TreeFacts:
    """Reads one step."""
    is_empty = loader.total == 0
    step = None if is_empty else loader.held_step(row)
    run = loader.run
    return TreeFacts(
        row=row,
        step=step,
        states=() if step is None else node_states(step),
        path=() if step is None else wanted_path(step, DraftVocabulary(run)),
        run=run,
        names=step_texts(loader, step),
        is_empty=is_empty,
    )


def lines(facts: TreeFacts, width: int) -> list[PageLine]:
    """The page."""
    if facts.is_empty:
        return fitted(paragraph("This trace holds no step.", width), width)
    if facts.step is None:
        return fitted((line(*spans) for spans in damaged_lines(facts.row, width)), width)
    return fitted(_lines(facts, facts.step, width), width)


def _lines(facts: TreeFacts, step: Step, width: int) -> Iterator[PageLine]:
    yield from heading(title_of(facts.row, step), width, is_first=True)
    nodes = [state for state in facts.states if state.status not in ("bonus", "target")]
    if not nodes:
        yield from paragraph("Nothing was proposed in this step: there is no tree to draw.", width)
        return
    yield from _summary(facts, step, nodes, width)
    yield from heading("drafted", width)
    yield from _drawing(facts, step, nodes, width)
    if len(nodes) > MOST_NODES:
        yield from paragraph(f"Drawn are {MOST_NODES:,} of {len(nodes):,} nodes.", width, role="warning")
    yield from _legend(width)


def _summary(facts: TreeFacts, step: Step, nodes: Sequence[NodeState], width: int) -> Iterator[PageLine]:
    deepest = max(state.depth for state in nodes) + 1
    if step.parents is None:
        words = f"A chain of {len(nodes):,}: every token follows the one before it, there is no other branch."
    else:
        roots = sum(state.parent < 0 for state in nodes)
        words = f"{len(nodes):,} nodes, {deepest:,} deep, {roots:,} at the root."
    yield from paragraph(words, width)
    taken = [quoted(state.token_id, facts.names) for state in nodes if state.status == "accepted"]
    yield from labelled(
        "accepted", f"{len(taken):,}: {' '.join(taken[:32])}".rstrip(": "), width, role="accepted"
    )
    inside = [quoted(choice.token_id, facts.names) for choice in facts.path if choice.node is not None]
    end = facts.path[-1]
    words = " ".join([*inside[:32], f"→ {_end_words(end, step)}"])
    yield from labelled("target wanted", words, width, role="wanted")
    if end.kind not in ("beyond", "proposed"):
        yield from paragraph(choice_words(end, facts.names, facts.run), width)


def _end_words(choice: Choice, step: Step) -> str:
    """Why the wanted path leaves the proposal, in a few words."""
    is_tree = step.parents is not None
    if choice.token_id is None:
        return "not recorded"
    return {
        "proposed": "in tree",
        "beyond": "whole path in the tree" if is_tree else "the whole chain",
        "outside_vocabulary": "not in vocabulary",
        "in_top": "pruned" if is_tree else "not drafted",
        "below_top": "pruned" if is_tree else "not drafted",
        "unknown": "not in tree" if is_tree else "not in the chain",
    }[choice.kind]


# --- drawing -------------------------------------------------------------------------------------


def _drawing(facts: TreeFacts, step: Step, nodes: Sequence[NodeState], width: int) -> Iterator[PageLine]:
    numbers = width >= 64
    room = width - (24 if numbers else 0)
    if numbers:
        head = left("node, raw id→mapped id, text", room)
        yield line(Span(f"{head}{right('log q', 8)}{right('log p', 8)}{right('rank', 8)}", "dim"))
    wanted = {choice.node for choice in facts.path if choice.node is not None}
    for state, branch in _walk(nodes, is_chain=step.parents is None):
        branch = branch if len(branch) <= width // 2 else "…" + branch[-(width // 2 - 1) :]
        raw = "" if state.draft_id is None else f"{state.draft_id}→"
        spans = [
            Span(branch, "dim"),
            Span(GLYPHS[state.status], TOKEN_ROLES[state.status]),
            Span(f" {state.index} ", "dim"),
            Span(raw, "dim"),
            Span(quoted(state.token_id, facts.names), _role(state, wanted)),
            Span(" <wanted, in tree" if state.index in wanted else "", "wanted"),
        ]
        values = (
            cell_number(item(step.draft_logprobs, state.index)),
            cell_number(item(step.target_logprobs, state.index)),
            cell_rank(rank_words(step, state.index)),
        )
        tail = "".join(right(value, 8) for value in values) if numbers else ""
        fitted_line = fitted([line(*spans)], room)[0].spans
        gap = " " * (room - width_of(fitted_line))
        yield line(*fitted_line, Span(gap + tail), row=facts.row, position=state.index)
    yield from _missing_branch(facts, step)


def _role(state: NodeState, wanted: set[int]) -> Role:
    if state.index in wanted:
        return "wanted"
    return "dim" if state.status in ("not_reached", "passed_over") else "plain"


def _missing_branch(facts: TreeFacts, step: Step) -> Iterator[PageLine]:
    """What the target wanted and the proposal did not hold."""
    end = facts.path[-1]
    if end.token_id is None or end.kind in ("beyond", "proposed"):
        return
    after = facts.path[-2].node if len(facts.path) > 1 else None
    place = "at the root" if after is None else f"after node {after}"
    yield line(
        Span(f"?{quoted(end.token_id, facts.names)}", "wanted"),
        Span(f" <wanted {place}: {_end_words(end, step)}", "wanted"),
        row=facts.row,
        position=next((state.index for state in facts.states if state.status == "rejected"), None),
    )


def _walk(nodes: Sequence[NodeState], *, is_chain: bool) -> Iterator[tuple[NodeState, str]]:
    """Nodes in the order of a drawing, each with the branch that leads to it."""
    if is_chain:
        yield from ((state, "") for state in nodes[:MOST_NODES])
        return
    children: dict[int, list[NodeState]] = {}
    for state in nodes:
        children.setdefault(state.parent, []).append(state)
    waiting = [(state, "", at == 0) for at, state in enumerate(reversed(children.get(-1, [])))]
    for _ in range(min(MOST_NODES, len(nodes))):
        state, stem, is_last = waiting.pop()
        yield state, stem + ("└─ " if is_last else "├─ ")
        stem += "   " if is_last else "│  "
        waiting += [
            (child, stem, at == 0) for at, child in enumerate(reversed(children.get(state.index, [])))
        ]


def _legend(width: int) -> Iterator[PageLine]:
    words = "= accepted  x refused  - a sibling was accepted  · not reached"
    yield from paragraph(words, width, role="dim")

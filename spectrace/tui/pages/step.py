"""One step with everything the trace says of it: every token, both sides' alternatives, lengths and times.

Shares the table with the pane below the list; what a pane has no room for is here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from spectrace.analysis.choice import Choice, DraftVocabulary, choice_after
from spectrace.analysis.rejection import NodeState, item, node_states, rejected_state
from spectrace.format.records import Run, Step
from spectrace.format.text import visible
from spectrace.tui.cells import cell_number
from spectrace.tui.findings import known_findings
from spectrace.tui.loader import Loader
from spectrace.tui.pages.choice_words import choice_words
from spectrace.tui.pages.missing import missing_fields, missing_words
from spectrace.tui.pages.page import PageLine
from spectrace.tui.pages.paragraphs import fitted, flowing, heading, labelled, line, paragraph
from spectrace.tui.pages.token_texts import TokenTexts, step_texts
from spectrace.tui.spans import Span
from spectrace.tui.step_detail import (
    damaged_lines,
    emitted_words,
    facts_words,
    node_line,
    table_head,
    tap_form,
    tap_words,
    title_of,
    token_cells,
    top_words,
)

CONTEXT = 16
"""Tokens shown before the step."""
_MOST_NODES = 512
"""Tokens of a proposal that are listed; more only a made-up trace has."""
_FIELDS = (
    "draft_ids",
    "draft_logprobs",
    "draft_top",
    "target_ids",
    "target_logprobs",
    "target_ranks",
    "target_gaps",
    "target_top",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFacts:
    """What the page shows."""

    row: int
    step: Step | None
    states: Sequence[NodeState]
    run: Run
    names: TokenTexts
    context: Sequence[int | None]
    choice: Choice | None
    """Of the first refused place."""
    wrong: Sequence[str]
    """What findings say of the step, where a screen has asked for them."""
    is_empty: bool
    """The trace has no step at all."""


def gather(loader: Loader, row: int) -> StepFacts:
    """Reads one step, and the few before it for the context."""
    is_empty = loader.total == 0
    step = None if is_empty else loader.held_step(row)
    states = () if step is None else node_states(step)
    context = () if step is None else loader.context(row, CONTEXT)
    run = loader.run
    refused, findings = rejected_state(states), known_findings(loader)
    choice = None
    if step is not None and refused is not None:
        choice = choice_after(step, refused.parent, DraftVocabulary(run), refused.wanted_id)
    return StepFacts(
        row=row,
        step=step,
        states=states,
        run=run,
        names=step_texts(loader, step, context),
        context=context,
        choice=choice,
        wrong=() if findings is None else findings.wrong_in(row),
        is_empty=is_empty,
    )


def lines(facts: StepFacts, width: int) -> list[PageLine]:
    """The page."""
    if facts.is_empty:
        return fitted(paragraph("This trace holds no step.", width), width)
    if facts.step is None:
        return fitted((line(*spans) for spans in damaged_lines(facts.row, width)), width)
    return fitted(_lines(facts, facts.step, width), width)


def _lines(facts: StepFacts, step: Step, width: int) -> Iterator[PageLine]:
    yield from heading(title_of(facts.row, step), width, is_first=True)
    for words in facts.wrong:
        yield from paragraph(words, width, first=Span("! ", "warning"), role="warning")
    yield from _context(facts, width)
    if facts.choice is not None:
        yield from paragraph(choice_words(facts.choice, facts.names, facts.run), width, role="strong")
    yield from heading("tokens", width)
    yield from _tokens(facts, step, width)
    yield from heading("alternatives, best first, with their log-probabilities", width)
    yield from _alternatives(facts, step, width)
    yield from heading("the step", width)
    yield from flowing("lengths, times", facts_words(step), width)
    taps = [f"{words} {warning}".rstrip() for words, warning in tap_words(step)]
    yield from flowing("hidden states", [*taps, *filter(None, [tap_form(step)])], width)
    yield from flowing(f"committed {len(step.emitted_ids or ())}", emitted_words(step, facts.names), width)
    yield from _rest(step, width)
    yield from _missing(facts, step, width)


def _context(facts: StepFacts, width: int) -> Iterator[PageLine]:
    if not facts.context:
        words = missing_words(facts.run, "prompt_ids")
        yield from paragraph(f"No text is known before this step: {words}.", width, role="dim")
        return
    texts = [facts.names.token(token) for token in facts.context]
    shown = [
        ("?" if token is None else f"{token}") if text is None else f'"{text}"'
        for token, text in zip(facts.context, texts)
    ]
    yield from flowing("tokens before", shown, width)


def _tokens(facts: StepFacts, step: Step, width: int) -> Iterator[PageLine]:
    yield line(*table_head(token_cells(width)))
    for at, state in enumerate(facts.states[:_MOST_NODES]):
        spans = node_line(step, state, facts.names, width, is_cursor=False)
        yield line(*spans, row=facts.row, position=at)
    if not facts.states:
        yield from paragraph("The step has no token.", width)
    if any(state.status == "not_reached" for state in facts.states):
        words = "· not reached: the target's values there hang on refused tokens and count for nothing."
        yield from paragraph(words, width, role="dim")


def _alternatives(facts: StepFacts, step: Step, width: int) -> Iterator[PageLine]:
    shown: set[int] = set()
    for at, state in enumerate(facts.states[:_MOST_NODES]):
        is_own = state.status in ("bonus", "target")
        if state.status in ("not_reached", "passed_over") or state.parent in shown:
            continue
        shown.add(state.parent)
        draft = None if is_own else item(step.draft_top, state.index)
        words = top_words(draft, facts.names, draft=True)
        yield from flowing(f"{state.depth}: draft, raw", words, width, row=facts.row, position=at)
        words = top_words(item(step.target_top, state.parent + 1), facts.names)
        yield from flowing(f"{state.depth}: target", words, width, row=facts.row, position=at)
    if not step.draft_top and not step.target_top:
        yield from paragraph("None are recorded.", width, role="dim")


def _rest(step: Step, width: int) -> Iterator[PageLine]:
    """What has no line of its own, where it is recorded."""
    positions = " ".join(_known(position) for position in (step.draft_positions or ())[:32])
    entropies = " ".join(cell_number(value, 2) for value in (step.draft_entropy or ())[:32])
    overlaps = " ".join(cell_number(value, 2) for value in (step.overlaps or ())[:32])
    inputs = " ".join(cell_number((state or {}).get("rms")) for state in (step.draft_inputs or ())[:32])
    yield from labelled("draft ran at", positions, width)
    yield from labelled("draft entropy", entropies and f"{entropies} nats", width)
    yield from labelled("fed back, rms", inputs, width)
    yield from labelled("overlap of p, q", overlaps, width)
    yield from labelled("target logits", visible(step.logits_kind or "", limit=24), width)
    said = step.num_accepted_reported
    if said is not None and said != step.num_accepted:
        words = f"{said:,} accepted, the ids say {step.num_accepted:,}"
        yield from labelled("engine said", words, width, role="warning")
    numbers = (
        ("batch row", step.batch_row),
        ("rank", step.rank),
        ("engine step", step.engine_step),
        ("longest in batch", step.max_batch_length),
        ("fed to processors", step.processor_tokens),
    )
    places = ", ".join(f"{name} {value:,}" for name, value in numbers if value is not None)
    yield from labelled("batch", places, width)
    yield from labelled("segment", visible(step.segment or "", limit=40), width)
    yield from labelled(
        "grammar mask", visible(" ".join(map(_known, (step.mask or ())[:16])), limit=120), width
    )
    yield from labelled("other keys", visible(step.extra or "", limit=400), width)


def _known(value: int | str | None) -> str:
    return "-" if value is None else str(value)


def _missing(facts: StepFacts, step: Step, width: int) -> Iterator[PageLine]:
    if not step.proposal_ids:
        return
    for words in missing_fields(facts.run, [name for name in _FIELDS if getattr(step, name) is None]):
        yield from paragraph(words, width, role="dim")

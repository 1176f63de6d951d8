"""The draft's vocabulary: its map in both readings, what of the target's text it can say, what it misses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from spectrace.analysis.coverage import CoverageTally, Missed
from spectrace.analysis.diagnosis.facts import collect
from spectrace.analysis.diagnosis.id_map import MapTally, Table
from spectrace.analysis.diagnosis.verdict import Outcome
from spectrace.analysis.diagnosis.vocab_map import judge
from spectrace.analysis.intervals import Share
from spectrace.analysis.vocabulary import Reading
from spectrace.format.figures import percent
from spectrace.format.records import Run
from spectrace.format.text import visible
from spectrace.tui.loader import Loader
from spectrace.tui.pages.missing import missing_words
from spectrace.tui.pages.outcomes import FIRST_STEPS, bound_lines, outcome_lines
from spectrace.tui.pages.page import PageLine
from spectrace.tui.pages.paragraphs import fitted, heading, labelled, line, paragraph, table_row
from spectrace.tui.pages.token_texts import TokenTexts, texts_of
from spectrace.tui.spans import Span
from spectrace.tui.step_detail import quoted

SAMPLES = (100, 1000)
"""Entries of the map that are shown beside the first."""
_FIRST = 10
_MOST_MISSED = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class VocabularyFacts:
    """What the page shows."""

    run: Run
    total: int
    table: Table
    outcomes: Sequence[Outcome]
    is_shared: bool
    num_kept: int | None
    coverage: Share
    ceiling: Share
    missed: Sequence[Missed]
    num_missed: int
    by_offset: Share
    """Ids of the steps that the offset reading explains."""
    directly: Share
    hits: dict[str, Share]
    """Reading -> first draft tokens that meet the target's pick."""
    names: TokenTexts


def gather(loader: Loader, row: int) -> VocabularyFacts:
    """Reads ids of the first steps."""
    with loader.opened_again() as trace:
        facts = collect(trace, [MapTally, CoverageTally], loader.keep_going, FIRST_STEPS)
        total = len(trace)
    tally, coverage = facts.of(MapTally), facts.of(CoverageTally)
    missed = coverage.most_missed(_MOST_MISSED)
    kept = tally.table.kept
    return VocabularyFacts(
        run=facts.run,
        total=total,
        table=tally.table,
        outcomes=tuple(judge(facts)),
        is_shared=facts.shares_vocabulary and not tally.table.map.d2t,
        num_kept=None if kept is None else len(kept),
        coverage=coverage.coverage,
        ceiling=coverage.ceiling,
        missed=missed,
        num_missed=coverage.num_missed,
        by_offset=Share(tally.as_offset, tally.telling),
        directly=Share(tally.as_direct, tally.telling),
        hits={name: tally.hit_share(name) for name in tally.hits},
        names=texts_of(loader, (item.token_id for item in missed)),
    )


def lines(facts: VocabularyFacts, width: int) -> list[PageLine]:
    """The page."""
    return fitted(_lines(facts, width), width)


def _lines(facts: VocabularyFacts, width: int) -> Iterator[PageLine]:
    yield from heading("verdict", width, is_first=True)
    yield from outcome_lines(facts.outcomes, width, "vocabulary")
    yield from bound_lines(facts.total, width, "spectrace diagnose")
    yield from heading("the map, read both ways", width)
    yield from _map(facts, width)
    yield from heading("what the draft can say", width)
    yield from _coverage(facts, width)
    if facts.missed:
        yield from heading("most missed: committed, and not in the draft's vocabulary", width)
        yield from _missed(facts, width)


# --- the map -------------------------------------------------------------------------------------


def _map(facts: VocabularyFacts, width: int) -> Iterator[PageLine]:
    table = facts.table
    given, offset, direct = table.map, table.offset, table.direct
    if given.d2t is None or offset is None or direct is None:
        if facts.is_shared:
            yield from paragraph("Draft and target share one vocabulary: ids are not mapped.", width)
        else:
            yield from paragraph(f"{missing_words(facts.run, 'vocab_map')}.", width)
        return
    source = [f"{len(given.d2t):,} entries"]
    source += [f"from {visible(given.source, limit=24)}"] if given.source else []
    source += [f"applied as {visible(given.applied, limit=24)}"] if given.applied else []
    yield from labelled("d2t", ", ".join(source), width)
    yield from labelled("d2t[:10]", " ".join(f"{value}" for value in given.d2t[:_FIRST]), width)
    entries = [f"d2t[{at}] = {given.d2t[at]}" for at in SAMPLES if at < len(given.d2t)]
    yield from labelled("further on", "  ".join(entries), width)
    for name, digest in (("digest", given.digest), ("digest expected", given.digest_expected)):
        yield from labelled(name, visible(digest or "", limit=80), width)
    sizes = _sizes(width)
    yield line(Span(table_row(["", "offset: id + d2t[id]", "direct: d2t[id]"], sizes), "dim"))
    for cells in _both(facts, offset, direct):
        yield line(Span(table_row(cells, sizes)))
    words = "Zeros at the beginning of d2t are normal: the first ids are kept as they are."
    yield from paragraph(words, width, role="dim")


def _sizes(width: int) -> list[int]:
    name = min(28, max(width // 3, 6))
    each = min(max((width - name - 2) // 2, 4), 26)
    return [name, each, each]


def _both(facts: VocabularyFacts, offset: Reading, direct: Reading) -> Iterator[tuple[str, ...]]:
    readings = (offset, direct)
    yield "ids 0 to 4", *(" ".join(str(value) for value in one.ids[:5].tolist()) for one in readings)
    for at in SAMPLES:
        if at < len(offset.ids):
            yield f"id {at}", *(str(int(one.ids[at])) for one in readings)
    yield "distinct", *(f"{one.distinct:,} of {len(one.ids):,}" for one in readings)
    yield "outside the vocabulary", *(f"{one.out_of_range:,}" for one in readings)
    yield "ascending", *(_yes(one.is_increasing) for one in readings)
    if offset.in_mask is not None and direct.in_mask is not None:
        yield "in t2d", f"{offset.in_mask:,}", f"{direct.in_mask:,}"
    yield "exactly t2d", *(_yes(one.equals_mask) for one in readings)
    if facts.by_offset.trials:
        shares = (facts.by_offset, facts.directly)
        yield "recorded ids follow it", *(f"{one.successes:,} of {one.trials:,}" for one in shares)
    if facts.hits["recorded"].trials:
        shares = (facts.hits["offset"], facts.hits["direct"])
        yield "alpha1 would have been", *(percent(share.value) for share in shares)


def _yes(value: bool | None) -> str:
    return "-" if value is None else "yes" if value else "no"


# --- coverage ------------------------------------------------------------------------------------


def _coverage(facts: VocabularyFacts, width: int) -> Iterator[PageLine]:
    if facts.is_shared:
        yield from paragraph("Everything: the vocabulary is the target's.", width)
        return
    if facts.num_kept is None:
        yield from paragraph("Not known: neither t2d nor a sound d2t is recorded.", width)
        return
    size = facts.table.vocab_size
    of = "" if size is None else f" of the target's {size:,} ({percent(Share(facts.num_kept, size).value)})"
    yield from labelled("vocabulary", f"{facts.num_kept:,} ids{of}", width)
    if not facts.coverage.trials:
        yield from paragraph(
            "No step was drafted and verified: prefills, replays and dummies do not count.", width
        )
        return
    share = facts.coverage
    words = f"{percent(share.value)} of {share.trials:,} committed tokens can be expressed"
    yield from labelled("coverage", words, width)
    words = f"alpha1 of a greedy run is at most {percent(facts.ceiling.value)}: first tokens of "
    yield from labelled("ceiling", f"{words}{facts.ceiling.trials:,} steps", width)
    if not facts.missed:
        yield from labelled("missed", "nothing", width)


def _missed(facts: VocabularyFacts, width: int) -> Iterator[PageLine]:
    sizes = [min(36, max(width - 22, 8)), 9, 11]
    yield line(Span(table_row(["token", "times", "first step"], sizes), "dim"))
    for item in facts.missed:
        cells = [quoted(item.token_id, facts.names), f"{item.count:,}", f"{item.first_row:,}"]
        yield line(Span(table_row(cells, sizes)), row=item.first_row)
    rest = facts.num_missed - len(facts.missed)
    if rest > 0:
        yield from paragraph(f"and {rest:,} more", width, role="dim")

"""`compare`: reads two traces once each, pairs their requests, and says what differs and where first."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from spectrace.analysis.comparison.acceptance_change import compare_acceptance
from spectrace.analysis.comparison.advice import advise
from spectrace.analysis.comparison.alignment import Prompt, align
from spectrace.analysis.comparison.first_difference import compare_rows
from spectrace.analysis.comparison.fork import judge_forks
from spectrace.analysis.comparison.headers import compare_headers, same_weights
from spectrace.analysis.comparison.result import Comparison
from spectrace.analysis.comparison.row_pairs import pair_rows
from spectrace.analysis.comparison.rows import Rows, read_rows
from spectrace.analysis.comparison.tap_match import match_taps
from spectrace.analysis.comparison.text_pair import TextPair
from spectrace.analysis.diagnosis.fingerprints import TapTally
from spectrace.format.headers import may_lack_ids

if TYPE_CHECKING:
    from spectrace.format.reader import Trace


def compare(a: Trace, b: Trace, *, on_progress: Callable[[int], None] | None = None) -> Comparison:
    """What differs between two traces of the same prompts, and where first.

    Requests are paired by prompt, name or order; steps are paired by committed length, so the two may cut a
    text into other steps. Behind the first token in which the texts of a request differ nothing of it is
    compared but how much was accepted.

    Args:
        a: an open trace; read once.
        b: another.
        on_progress: told how many steps of both have been read.

    Returns:
        The comparison; where nothing could be paired, ``alignment.problem`` says why and only the headers
        were compared.
    """
    with np.errstate(all="ignore"):  # a stranger's numbers may be of any size
        return _compared(a, b, on_progress)


def _compared(a: Trace, b: Trace, on_progress: Callable[[int], None] | None) -> Comparison:
    alignment, pairs = align(a, b)
    one, taps = read_rows(a, _numbers(pairs, 0), on_progress)
    other, other_taps = read_rows(b, _numbers(pairs, 1), _behind(len(a), on_progress))
    alignment = replace(
        alignment,
        unplaced=(one.num_unplaced, other.num_unplaced),
        problem=alignment.problem or _nothing_to_compare(one, other),
    )
    uncompared = [at for at, pair in enumerate(alignment.pairs) if pair.prompt_difference is not None]
    texts = TextPair(one, other, len(pairs), uncompared)
    without = [
        label
        for label, trace, rows in (("A", a, one), ("B", b, other))
        if may_lack_ids(trace.run_mapping) and rows.committed.is_empty
    ]
    differences, marks = compare_rows(one, other, texts, alignment.pairs, has_ids=not without)
    fork = judge_forks(a, b, differences.forks, differences.kinds["emitted"].requests)
    # Pack turns fingerprints by a secret rotation of its own.
    matches = [] if without else match_taps((a, b), (taps, other_taps), _requests(pairs, texts, taps))
    acceptance = compare_acceptance(one, other)
    found = Comparison(
        alignment=alignment,
        headers=compare_headers(*({**t.run_mapping, "packed": None} for t in (a, b))),
        same_weights=same_weights(a.run_mapping, b.run_mapping),
        first_differences=differences,
        without_ids=" and ".join(without),
        fork=fork,
        taps=matches,
        acceptance=acceptance,
        next=(),
        rows=pair_rows(one, other, len(a), marks),
    )
    return replace(found, next=advise(found))


def _numbers(pairs: Sequence[tuple[Prompt, Prompt]], side: int) -> Mapping[int, int]:
    """Number of a request within the whole trace -> number of its pair."""
    return {number: at for at, pair in enumerate(pairs) for number in pair[side].numbers}


def _behind(done: int, on_progress: Callable[[int], None] | None) -> Callable[[int], None] | None:
    return None if on_progress is None else lambda read: on_progress(done + read)


def _nothing_to_compare(a: Rows, b: Rows) -> str | None:
    for label, rows in (("A", a), ("B", b)):
        if not len(rows.keys):
            return f"{label} holds no step of a common prompt"
    return None


def _requests(
    pairs: Sequence[tuple[Prompt, Prompt]], texts: TextPair, taps: TapTally
) -> dict[int, tuple[int, int]]:
    """Requests of A whose taps were kept -> that of B, and the first token that differs."""
    return {
        mine.numbers[0]: (theirs.numbers[0], int(texts.fork[at]))
        for at, (mine, theirs) in enumerate(pairs)
        if mine.numbers[0] in taps.rows
    }

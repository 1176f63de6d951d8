"""What the draft was run with in steps that begin at the same place: positions, KV lengths, states fed back.

A difference here comes before the proposals that it changes. Reads nothing itself: a trace without these
columns costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from spectrace.analysis.comparison.difference import Difference
from spectrace.analysis.comparison.hits import Hits, Proposals
from spectrace.analysis.comparison.rows import TREE, Ids, Rows, both_known, spans
from spectrace.format.columns import Array
from spectrace.format.records import Step

RMS_TOLERANCE = 0.05
"""Relative difference of two RMS that rounding may make. A 16-bit float is rounded by up to 2 ** -8, a layer
rounds about ten times in a row, and the mean over a state's elements only averages that: 10 / 256 = 4 %. A
norm or a scale that one run lacks changes the RMS by far more."""
_ROWS_AT_ONCE = 1 << 16

Unequal = Callable[[Array, Array], Array]


def differing_inputs(a: Rows, b: Rows, rows: tuple[Array, Array], proposals: Proposals) -> dict[str, Hits]:
    """Every step whose draft was run otherwise.

    Args:
        a: rows of A.
        b: rows of B.
        rows: rows of A and B that begin at the same place, before the texts part.
        proposals: of these.
    """
    return {
        "draft_positions": _tokens(a.draft_positions, b.draft_positions, proposals, 0, np.not_equal),
        "kv_lengths": _kv_lengths(a, b, *rows),
        "fed_back": _tokens(a.fed_back, b.fed_back, proposals, 1, _is_other_length),
    }


def _is_other_length(one: Array, other: Array) -> Array:
    found: Array = np.abs(one - other) > RMS_TOLERANCE * np.maximum(np.abs(one), np.abs(other))
    return found


def _tokens(one: Ids, other: Ids, proposals: Proposals, begin: int, unequal: Unequal) -> Hits:
    """The first draft token of each chain at which a value differs.

    What a depth reads hangs on the tokens up to two before it: behind the first other token nothing is
    compared but the depth that still reads the same ones. Nodes of trees are left out: theirs hang on shape.
    """
    a, b = proposals.a, proposals.b
    if one.is_empty or other.is_empty:
        return nothing_compared()
    chains = np.flatnonzero((a.marks[proposals.mine] | b.marks[proposals.theirs]) & TREE == 0)
    mine, theirs = proposals.mine[chains], proposals.theirs[chains]
    ends = np.minimum(proposals.index[chains] + 2, proposals.shared[chains])
    compared, rows, places = 0, [], []
    for start in range(0, len(mine), _ROWS_AT_ONCE):
        part = slice(start, start + _ROWS_AT_ONCE)
        counts = np.maximum(ends[part] - begin, 0)
        at = spans(a.draft_starts[mine[part]] + begin, counts)
        other_at = spans(b.draft_starts[theirs[part]] + begin, counts)
        known = both_known(one, at, other, other_at)
        row = np.repeat(np.arange(len(counts)), counts)
        compared += len(np.unique(row[known]))
        hits = np.flatnonzero(known & unequal(one.values[at], other.values[other_at]))
        hits = hits[np.flatnonzero(np.diff(row[hits], prepend=-1))]
        rows.append(row[hits] + start)
        places.append(hits - (np.cumsum(counts) - counts)[row[hits]] + begin)
    row = np.concatenate([np.zeros(0, np.int64), *rows])
    index = np.concatenate([np.zeros(0, np.int64), *places])
    values = (
        one.values[a.draft_starts[mine[row]] + index],
        other.values[b.draft_starts[theirs[row]] + index],
    )
    return _hits(compared, mine[row], theirs[row], index, values)


def _kv_lengths(a: Rows, b: Rows, mine: Array, theirs: Array) -> Hits:
    """Index 0 is the draft's cache, 1 the target's; of a step in which both differ, the draft's."""
    compared = np.zeros(len(mine), bool)
    index = np.full(len(mine), -1, np.int64)
    values = np.zeros(len(mine), np.int64), np.zeros(len(mine), np.int64)
    for which, one, other in ((1, a.target_kv, b.target_kv), (0, a.draft_kv, b.draft_kv)):
        if one.is_empty or other.is_empty:
            continue
        known = both_known(one, mine, other, theirs)
        compared |= known
        other_length = known & (one.values[mine] != other.values[theirs])
        index[other_length] = which
        values[0][other_length] = one.values[mine[other_length]]
        values[1][other_length] = other.values[theirs[other_length]]
    hits = np.flatnonzero(index >= 0)
    pairs = values[0][hits], values[1][hits]
    return _hits(int(compared.sum()), mine[hits], theirs[hits], index[hits], pairs)


def _hits(compared: int, mine: Array, theirs: Array, index: Array, values: tuple[Array, Array]) -> Hits:
    everywhere = np.ones(len(mine), bool)
    return Hits(compared, mine, theirs, index, values, (everywhere, everywhere))


def nothing_compared() -> Hits:
    """Of a kind that one trace lacks."""
    nothing = np.zeros(0, np.int64)
    return _hits(0, nothing, nothing, nothing, (nothing, nothing))


def differing_words(a: Step, b: Step) -> list[str]:
    """What the drafts of two steps were run with, where it differs: name, value of A, value of B.

    >>> from spectrace.testing import make_step
    >>> differing_words(make_step(draft_kv_length=21), make_step(draft_kv_length=18))
    ['draft KV 21 | 18']
    """
    lengths = (
        ("draft KV", a.draft_kv_length, b.draft_kv_length),
        ("target KV", a.target_kv_length, b.target_kv_length),
    )
    words = [f"{name} {x:,} | {y:,}" for name, x, y in lengths if None not in (x, y) and x != y]
    # What a depth reads hangs on the tokens before it: see `_tokens`.
    same = next((i for i, (x, y) in enumerate(zip(a.proposal_ids, b.proposal_ids)) if x != y), None)
    end = None if same is None else same + 2
    for at, (x, y) in enumerate(zip((a.draft_positions or ())[:end], (b.draft_positions or ())[:end])):
        if None not in (x, y) and x != y:
            words.append(f"position of token {at + 1} {x:,} | {y:,}")
            break
    mine, theirs = (np.array(_lengths(step)[:end]) for step in (a, b))
    depths = min(len(mine), len(theirs))
    with np.errstate(invalid="ignore"):  # infinite states
        other = np.flatnonzero(_is_other_length(mine[:depths], theirs[:depths]))
    words += [
        f"fed back at depth {at + 1}, rms {mine[at]:.4g} | {theirs[at]:.4g}" for at in other[other > 0][:1]
    ]
    return words


def _lengths(step: Step) -> list[float]:
    """RMS of what the draft read at each depth, NaN where it is not recorded."""
    found = [(state or {}).get("rms") for state in step.draft_inputs or ()]
    return [float("nan") if rms is None else float(rms) for rms in found]


def input_place(at: Difference) -> str:
    """Which of the step's values it is."""
    return {
        "draft_positions": f"token {at.index + 1}",
        "kv_lengths": ("draft", "target")[at.index],
        "fed_back": f"depth {at.index + 1}",
    }[at.kind]


def input_values(at: Difference) -> list[str]:
    """The values of A and B."""
    form = ".4g" if at.kind == "fed_back" else ",.0f"
    return [f"{value:{form}}" for value in at.values]

"""Columns of many frames at once: where frames are alike, their bytes are joined and read in one go.

A live trace has a frame per engine step, and decoding each column of each frame costs more than reading what
they hold. Whatever is not plain and alike (bitmaps, compression, other words, damage) is left to `Chunk`,
which decodes it frame by frame and says what is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np

from spectrace.format.chunk import Chunk
from spectrace.format.columns import Array, Column, Columns, concatenate, join_arrays
from spectrace.format.fields import LEAF_BY_NUMBER, Leaf
from spectrace.format.wire import K_LENGTH, K_PLUS_1_LENGTH, MAX_ELEMENTS, is_dtype

_PROPOSAL = 9
"""Number of `proposal_ids`, whose lengths others refer to."""
_LENGTH_DTYPES = ("u1", "u2", "u4", "u8")


class _Unlike(Exception):
    """The frames have to be decoded one by one."""


def joined_columns(chunks: Sequence[Chunk], numbers: Sequence[int]) -> Columns:
    """The columns of frames that follow each other, as one set.

    Args:
        chunks: at least one.
        numbers: of the columns wanted.

    Returns:
        What `concatenate` makes of the chunks' own columns.
    """
    if len(chunks) == 1:
        return chunks[0].columns(*numbers)
    rows = np.array([chunk.num_rows for chunk in chunks], np.int64)
    stored = [chunk.body.stored for chunk in chunks]
    found: Columns = {}
    left: set[str] = set()
    drafts: Array | None = None
    for number in sorted(dict.fromkeys(numbers), key=lambda number: number != _PROPOSAL):
        leaf = LEAF_BY_NUMBER[number]
        try:
            parts = list(map(itemgetter(number), stored))
            found[leaf.path] = _joined(leaf, parts, rows, drafts)
        except KeyError:
            if any(number in own for own in stored):
                left.add(leaf.field)
            continue
        except _Unlike:
            left.add(leaf.field)
            continue
        if number == _PROPOSAL:
            drafts = found[leaf.path].lengths[0]
    # The columns of one field tell each other's lengths where a frame lacks one: they are joined together.
    slow = [number for number in dict.fromkeys(numbers) if LEAF_BY_NUMBER[number].field in left]
    if slow:
        found |= concatenate([(chunk.num_rows, chunk.columns(*slow)) for chunk in chunks])
    return dict(sorted(found.items(), key=lambda item: item[1].leaf.number))


def _joined(leaf: Leaf, parts: Sequence[list[Any]], rows: Array, drafts: Array | None) -> Column:
    """One column of all frames.

    Raises:
        _Unlike: not all of them have it plainly, for every row and every element.
    """
    for part in parts:
        if len(part) > 4 and (part[4] is not None or (len(part) > 5 and part[5] is not None)):
            raise _Unlike
    values, sizes = _values([part[1] for part in parts], [part[2] for part in parts], leaf.kind)
    lengths: list[Array] = []
    counts = rows
    raw_lengths: list[Any] = [part[3] if len(part) > 3 else None for part in parts] if leaf.depth else []
    if any(type(raw) is not list or len(raw) != leaf.depth for raw in raw_lengths):
        raise _Unlike
    for level in range(leaf.depth):
        own = [raw[level] for raw in raw_lengths]
        lengths.append(_lengths(own, counts, drafts if level == 0 else None))
        counts = _sums(lengths[-1], counts)
    if not np.array_equal(sizes, counts):
        raise _Unlike
    words = _words(parts, values) if leaf.kind == "str" else ()
    return Column(leaf, values, tuple(lengths), None, None, words)


def _values(dtypes: Sequence[Any], raws: Sequence[Any], kind: str) -> tuple[Array, Array]:
    """Values of all frames, and how many each has."""
    if set(map(type, raws)) != {bytes} or set(map(type, dtypes)) != {str}:
        raise _Unlike
    if not all(is_dtype(kind, dtype) for dtype in set(dtypes)):
        raise _Unlike
    widths = np.array([int(dtype[1]) for dtype in dtypes], np.int64)
    sizes, rest = np.divmod(np.array(list(map(len, raws)), np.int64), widths)
    if rest.any():
        raise _Unlike
    runs, at = [], 0
    for dtype, group in groupby(dtypes):
        end = at + len(list(group))
        runs.append(np.frombuffer(b"".join(raws[at:end]), "<" + dtype))
        at = end
    return join_arrays(runs), sizes


def _lengths(given: Sequence[Any], counts: Array, drafts: Array | None) -> Array:
    """Lengths of all lists of all frames; ``counts`` [frames] says how many lists each has."""
    if set(map(type, given)) == {int}:
        return _told(given, counts, drafts)
    if any(type(own) is not list or len(own) != 2 or own[0] not in _LENGTH_DTYPES for own in given):
        raise _Unlike
    lengths, sizes = _values([own[0] for own in given], [own[1] for own in given], "int")
    if not np.array_equal(sizes, counts) or (len(lengths) and int(lengths.max()) > MAX_ELEMENTS):
        raise _Unlike
    return lengths.astype(np.int64)


def _told(given: Sequence[int], counts: Array, drafts: Array | None) -> Array:
    """Lengths that are the same for all lists of a frame, or those of the proposals."""
    if drafts is not None and len(drafts) == int(counts.sum()) and len(set(given)) == 1:
        if given[0] == K_LENGTH:
            return drafts
        if given[0] == K_PLUS_1_LENGTH:
            return drafts + 1
    if min(given) < 0 or max(given) > MAX_ELEMENTS:
        raise _Unlike
    each = np.array(given, np.int64)
    if (each * counts > MAX_ELEMENTS).any() or int(counts.sum()) > MAX_ELEMENTS:
        raise _Unlike
    return np.repeat(each, counts)


def _sums(lengths: Array, counts: Array) -> Array:
    """[frames] how many elements the lists of each frame have."""
    ends = np.cumsum(counts)
    total = np.concatenate([[0], np.cumsum(lengths)])
    sums: Array = total[ends] - total[ends - counts]
    return sums


def _words(parts: Sequence[list[Any]], values: Array) -> tuple[str, ...]:
    """The words that all frames share."""
    words = parts[0][6] if len(parts[0]) > 6 else None
    if type(words) is not list or any(len(part) < 7 or part[6] != words for part in parts):
        raise _Unlike
    if not all(type(word) is str for word in words):
        raise _Unlike
    if len(values) and (int(values.max()) >= len(words) or int(values.min()) < 0):
        raise _Unlike
    return tuple(words)

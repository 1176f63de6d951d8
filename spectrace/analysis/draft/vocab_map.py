"""The vocabulary map of a checkpoint, read in both ways, and what its entries turn out to be.

Leading zeros of an offset table say that the first ids are kept unchanged; they are no sign of anything and
never reported.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spectrace.analysis.draft.facts import DraftFacts
from spectrace.analysis.vocabulary import Reading, is_ramp, read_direct, read_offset
from spectrace.checkpoint.records import VocabTable

SAMPLES = (100, 1000)
"""Entries that are shown beside the first ten."""

_FAR = 2**40
"""Beyond any id; keeps sums of ids from wrapping."""

Switch = tuple[int, bool]
"""Of a hybrid: first index of the second part, and whether the first part holds offsets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MapReport:
    """A map read in both ways."""

    source: str
    dtype: str
    length: int
    meaning: str
    """offset, direct, identity, ramp, hybrid, either or neither."""
    sentence: str
    """The same for somebody who meets a map for the first time."""
    first: tuple[int, ...]
    """The first ten entries."""
    samples: tuple[tuple[int, int], ...]
    """(index, entry) further on."""
    offset: Reading
    direct: Reading
    target_vocab: int | None
    kept: int | None
    """Ids that t2d marks; None without t2d."""
    digest: str
    """SHA-256 of the entries as little-endian int64."""
    switch: int | None = None
    """Hybrid: first index of the second part."""

    def to_mapping(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "source": self.source,
            "dtype": self.dtype,
            "length": self.length,
            "meaning": self.meaning,
            "sentence": self.sentence,
            "first": list(self.first),
            "samples": {str(at): value for at, value in self.samples},
            "offset": self.offset.to_mapping(),
            "direct": self.direct.to_mapping(),
            "target_vocab": self.target_vocab,
            "kept": self.kept,
            "digest": self.digest,
            "switch": self.switch,
        }


def whole_numbers(array: NDArray[Any]) -> NDArray[np.int64] | None:
    """A table as int64, clipped where no id can be; None where its values are no whole numbers.

    >>> whole_numbers(np.array([0.0, 2.0])).tolist(), whole_numbers(np.array([0.5]))
    ([0, 2], None)
    >>> whole_numbers(np.array([True])) is None
    True
    """
    flat = array.reshape(-1)
    if flat.dtype.kind == "f":
        if not np.isfinite(flat).all() or (flat != np.rint(flat)).any():
            return None
    elif flat.dtype.kind not in "iu":
        return None
    low, high = max(-_FAR, _lowest(flat)), min(_FAR, _highest(flat))
    found: NDArray[np.int64] = np.clip(flat, low, high).astype(np.int64)
    return found


def _lowest(flat: NDArray[Any]) -> int:
    return int(np.iinfo(flat.dtype).min) if flat.dtype.kind in "iu" else -_FAR


def _highest(flat: NDArray[Any]) -> int:
    return int(np.iinfo(flat.dtype).max) if flat.dtype.kind in "iu" else _FAR


def kept_of(t2d: NDArray[Any] | None) -> NDArray[np.int64] | None:
    """Target ids that a mask marks; None where it is no mask."""
    if t2d is None:
        return None
    flat = t2d.reshape(-1)
    is_mask = flat.dtype.kind == "b" or (flat.dtype.kind in "iuf" and bool(((flat == 0) | (flat == 1)).all()))
    return np.flatnonzero(flat).astype(np.int64) if is_mask else None


def digest_of(d2t: NDArray[np.int64]) -> str:
    """Digest of a map's entries, the same for every integer dtype."""
    return "sha256:" + hashlib.sha256(d2t.astype("<i8").tobytes()).hexdigest()


def read_map(table: VocabTable, facts: DraftFacts) -> MapReport | None:
    """Both readings of a map and what it means; None where there is no readable `d2t`."""
    d2t = None if table.d2t is None else whole_numbers(table.d2t)
    if table.d2t is None or d2t is None or not d2t.size:
        return None
    kept = kept_of(table.t2d)
    as_list: Any = kept
    offset = read_offset(d2t, as_list, facts.target_vocab)  # type: ignore[arg-type]
    direct = read_direct(d2t, as_list, facts.target_vocab)  # type: ignore[arg-type]
    meaning, switch = _meaning(d2t, kept, offset, direct, facts.target_vocab)
    return MapReport(
        source=table.source,
        dtype=str(table.d2t.dtype),
        length=int(d2t.size),
        meaning=meaning,
        sentence=_sentence(meaning, offset, direct, kept is not None, switch),
        first=tuple(d2t[:10].tolist()),
        samples=tuple((at, int(d2t[at])) for at in SAMPLES if at < d2t.size),
        offset=offset,
        direct=direct,
        target_vocab=facts.target_vocab,
        kept=None if kept is None else int(kept.size),
        digest=digest_of(d2t),
        switch=None if switch is None else switch[0],
    )


def _meaning(
    d2t: NDArray[np.int64],
    kept: NDArray[np.int64] | None,
    offset: Reading,
    direct: Reading,
    vocab: int | None,
) -> tuple[str, Switch | None]:
    """What the entries are, and for a hybrid from which index on they are something else."""
    if not d2t.any():
        return "identity", None
    if is_ramp(d2t.tolist()):
        return "ramp", None
    if offset.is_sound and direct.is_sound and kept is None:
        return ("either" if direct.is_increasing and offset.is_increasing else "offset"), None
    if offset.is_sound:
        return "offset", None
    if direct.is_sound:
        return "direct", None
    switch = _switch_by_mask(d2t, kept) if kept is not None else _switch_by_order(d2t, vocab)
    return ("neither", None) if switch is None else ("hybrid", switch)


def _switch_by_mask(d2t: NDArray[np.int64], kept: NDArray[np.int64]) -> Switch | None:
    """Index from which on the other reading gives the ids that t2d marks; None where no such index is."""
    if kept.size != d2t.size:
        return None
    is_offset = d2t + np.arange(d2t.size) == kept
    is_direct = d2t == kept
    for first, second in ((is_offset, is_direct), (is_direct, is_offset)):
        until = int(np.argmin(first)) if not first.all() else first.size
        if 1 < until < first.size and second[until:].all():
            return until, first is is_offset
    return None


def _switch_by_order(d2t: NDArray[np.int64], vocab: int | None) -> Switch | None:
    """The same without t2d: both parts strictly increasing, the second beyond the first, all in range."""
    offset, direct = d2t + np.arange(d2t.size), d2t
    for first, second in ((offset, direct), (direct, offset)):
        until = _increasing_until(first)
        since = d2t.size - _increasing_until(-second[::-1])
        candidates = np.arange(max(since, 2), min(until, d2t.size - 2) + 1)
        fits = candidates[second[candidates] > first[candidates - 1]] if candidates.size else candidates
        if fits.size and first[0] >= 0 and (vocab is None or second[-1] < vocab):
            return int(fits[-1]), first is offset
    return None


def _increasing_until(ids: NDArray[np.int64]) -> int:
    """Length of the strictly increasing beginning."""
    drops = np.flatnonzero(np.diff(ids) <= 0)
    return int(drops[0]) + 1 if drops.size else int(ids.size)


def _sentence(meaning: str, offset: Reading, direct: Reading, has_mask: bool, switch: Switch | None) -> str:
    """One sentence that needs no knowledge of maps."""
    size = len(offset.ids)
    known = ", exactly those marked in t2d" if has_mask else ""
    sentences = {
        "offset": "The map is sound: d2t holds offsets, so target id = draft id + d2t[draft id]; "
        f"read so, its {size:,} entries name {offset.distinct:,} different target ids{known}.",
        "direct": "d2t holds target ids, but every engine that loads it adds the draft id to each entry; "
        f"taken as target ids, its {size:,} entries name {direct.distinct:,} different ones{known}.",
        "identity": "Every entry of d2t is 0: draft id i stands for target id i.",
        "ramp": "d2t counts 0, 1, 2, ...: a default that nothing was loaded into; draft id i becomes 2i.",
        "either": "d2t could be offsets or target ids: both readings give different ids in range, "
        "and there is no t2d to tell.",
        "neither": f"d2t fits neither reading: {offset.distinct:,} different ids as offsets, "
        f"{direct.distinct:,} as target ids, of {size:,}.",
    }
    if switch is not None:
        until, is_offset_first = switch
        first, second = ("offsets", "target ids") if is_offset_first else ("target ids", "offsets")
        return (
            f"d2t changes its meaning at index {until:,}: {first} up to there, {second} from there on; "
            "no reading fits both."
        )
    return sentences[meaning]

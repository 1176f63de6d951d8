"""The body of a STEP frame <-> columns: dtypes, lengths, bitmaps and compression.

A body is the array ``[rows, column, column, ...]`` and a column the array
``[number, dtype, values, lengths?, present?, known?, words?]``; SPEC.md says each part byte by byte.
Everything read is checked before it is believed: sizes before allocation, counts against bytes.
"""

from __future__ import annotations

import zlib
from collections.abc import KeysView, Mapping
from typing import Any

import numpy as np

from spectrace.format.columns import MAX_OBJECTS, Array, Column, Columns
from spectrace.format.fields import LEAF_BY_NUMBER
from spectrace.format.frames import BadBody, pack_body, unpack_body

MAX_ROWS = 65_536
"""Most rows in one frame."""
MAX_ELEMENTS = 1 << 20
"""Most values and lists that the columns of one frame may hold together. One takes up to 200 bytes as a
Python object, so this bounds what decoding a frame costs."""
MAX_RATIO = 1_100
"""Most bytes that one compressed byte may become; deflate cannot exceed 1,032."""
K_LENGTH, K_PLUS_1_LENGTH = -1, -2
_PROPOSAL = 9
"""Number of `proposal_ids`, whose lengths others refer to."""
_INT_DTYPES = ("u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8")
_INT_RANGES = [
    (np.dtype("<" + name), int(np.iinfo(name).min), int(np.iinfo(name).max)) for name in _INT_DTYPES
]
_DTYPES = {"int": set(_INT_DTYPES), "str": set(_INT_DTYPES), "float": {"f2", "f4", "f8"}}
_RAW, _ZLIB, _SHUFFLED = 0, 1, 2


# --- writing -----------------------------------------------------------------------------------


def encode_steps(num_rows: int, columns: Columns, *, compress: bool = False) -> bytes:
    """Body of a STEP frame."""
    num_drafts = columns["proposal_ids"].lengths[0] if "proposal_ids" in columns else None
    body: list[Any] = [num_rows]
    # Many fields have lists of the same lengths, which are encoded once.
    levels: dict[int, Any] = {}
    for column in columns.values():
        body.append(_encode_column(column, num_drafts, levels, compress))
    return pack_body(body)


def num_elements(columns: Columns) -> int:
    """Values and lists that a reader of these columns makes, see `MAX_ELEMENTS`."""
    found = 0
    for column in columns.values():
        found += len(column.values) if column.known is None else len(column.known)
        found += len(column.lengths[1]) if len(column.lengths) > 1 else 0
        if column.leaf.key and column.leaf.depth == 1:
            found += (MAX_ELEMENTS // MAX_OBJECTS - 1) * len(column.values)
    return found


def _encode_column(
    column: Column, num_drafts: Array | None, levels: dict[int, Any], compress: bool
) -> list[Any]:
    values = _narrow(column.values, column.leaf.kind == "float")
    dtype = values.dtype.str[1:]
    parts = [
        column.leaf.number,
        dtype,
        _encode_value(values, compress),
        _encode_lengths(column, num_drafts, levels, compress) or None,
        _encode_bitmap(column.present),
        _encode_bitmap(column.known),
        list(column.words) or None,
    ]
    while parts[-1] is None:
        parts.pop()
    return parts


def _narrow(values: Array, is_float: bool) -> Array:
    """The smallest dtype that holds the values exactly, little-endian."""
    if is_float:
        return _narrow_float(values)
    if not values.size:
        return values.astype("<u1")
    low, high = int(values.min()), int(values.max())
    for dtype, least, most in _INT_RANGES:
        if least <= low and high <= most:
            return values.astype(dtype, copy=False)
    raise AssertionError("64-bit integers fit 64 bits")


def _narrow_float(values: Array) -> Array:
    if values.dtype.itemsize <= 4:
        return values.astype("<" + values.dtype.str[1:], copy=False)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        single = values.astype("<f4")
        exact = np.array_equal(single.astype(np.float64), values, equal_nan=True)
    return single if exact else values.astype("<f8")


def _encode_value(values: Array, compress: bool) -> Any:
    raw = values.tobytes()
    if not compress or len(raw) < 64:
        return raw
    packed, code = zlib.compress(raw, 6), _ZLIB
    if values.dtype.itemsize > 1:
        shuffled = zlib.compress(_shuffle(raw, values.dtype.itemsize), 6)
        if len(shuffled) < len(packed):
            packed, code = shuffled, _SHUFFLED
    return [code, len(raw), packed] if len(packed) < 0.95 * len(raw) else raw


def _shuffle(raw: bytes, width: int) -> bytes:
    """All first bytes of the items, then all second bytes, ...: alike bytes lie together."""
    return np.frombuffer(raw, np.uint8).reshape(-1, width).T.tobytes()


def _encode_lengths(
    column: Column, num_drafts: Array | None, levels: dict[int, Any], compress: bool
) -> list[Any]:
    found = []
    for level, lengths in enumerate(column.lengths):
        # Only of fields that every row has: others say their lengths by those of the proposals in these rows.
        is_shared = not level and column.present is None and column.leaf.path != "proposal_ids"
        code = levels.get(id(lengths)) if is_shared else None
        if code is None:
            code = _encode_level(column, level, lengths, num_drafts, compress)
            if is_shared:
                levels[id(lengths)] = code
        found.append(code)
    return found


def _encode_level(
    column: Column, level: int, lengths: Array, num_drafts: Array | None, compress: bool
) -> Any:
    if not lengths.size:
        return 0
    first = int(lengths[0])
    if (lengths == first).all():
        return first
    if level == 0 and num_drafts is not None and column.leaf.path != "proposal_ids":
        expected = num_drafts if column.present is None else num_drafts[column.present]
        if np.array_equal(lengths, expected):
            return K_LENGTH
        if np.array_equal(lengths, expected + 1):
            return K_PLUS_1_LENGTH
    narrow = _narrow(lengths, False)
    return [narrow.dtype.str[1:], _encode_value(narrow, compress)]


def _encode_bitmap(flags: Array | None) -> bytes | None:
    return None if flags is None else np.packbits(flags, bitorder="little").tobytes()


# --- reading -----------------------------------------------------------------------------------


class StepBody:
    """A STEP body whose columns are decoded one by one, when asked for.

    Args:
        body: bytes of the frame's body, checksum verified.

    Raises:
        BadBody: the outline is not that of a STEP body.
    """

    __slots__ = ("_decoded", "_parts", "num_elements", "num_rows")

    def __init__(self, body: Any) -> None:
        parts = unpack_body(body)
        if type(parts) is not list or not parts or type(parts[0]) is not int:
            raise BadBody("a STEP body is [rows, column, ...]")
        self.num_rows: int = parts[0]
        if not 0 < self.num_rows <= MAX_ROWS:
            raise BadBody(f"a STEP frame holds 1 to {MAX_ROWS:,} rows, this one says {parts[0]:,}")
        self._parts: dict[int, list[Any]] = {}
        for part in parts[1:]:
            if type(part) is not list or not 3 <= len(part) <= 7 or type(part[0]) is not int:
                raise BadBody("a column is [number, dtype, values, ...]")
            self._parts[part[0]] = part
        self._decoded: Columns = {}
        self.num_elements = 0
        """Values and lists decoded so far."""

    @property
    def numbers(self) -> KeysView[int]:
        """Numbers of the columns that are there."""
        return self._parts.keys()

    def column(self, number: int) -> Column | None:
        """One column, or None when no row of the frame has it.

        Raises:
            BadBody: the column does not hold what it must.
        """
        part = self._parts.get(number)
        leaf = LEAF_BY_NUMBER.get(number)
        if part is None or leaf is None:
            return None
        found = self._decoded.get(leaf.path)
        if found is None:
            found = self._decoded[leaf.path] = self._decode(part)
        return found

    @property
    def num_drafted(self) -> int:
        """Draft tokens that the frame says it holds, unchecked; 0 where it does not say so."""
        part = self._parts.get(_PROPOSAL)
        lengths = part[3] if part is not None and len(part) > 3 else None
        if type(lengths) is not list or not lengths:
            return 0
        if type(lengths[0]) is int:
            return max(lengths[0], 0) * self.num_rows
        try:
            dtype, raw = lengths[0]
            return int(_decode_value(raw, dtype).sum())
        except (BadBody, TypeError, ValueError):
            return 0

    @property
    def stored(self) -> Mapping[int, list[Any]]:
        """Number -> column as it is stored, unchecked: [number, dtype, values, ...]."""
        return self._parts

    def columns(self) -> Columns:
        """Every column this version knows."""
        found = (self.column(number) for number in self._parts)
        return {column.leaf.path: column for column in found if column is not None}

    def _decode(self, part: list[Any]) -> Column:
        leaf = LEAF_BY_NUMBER[part[0]]
        try:
            return self._decode_parts(part + [None] * (7 - len(part)))
        except BadBody as error:
            raise BadBody(f"field {leaf.path}: {error}") from None

    def _decode_parts(self, part: list[Any]) -> Column:
        number, dtype, raw, raw_lengths, raw_present, raw_known, words = part
        leaf = LEAF_BY_NUMBER[number]
        if type(dtype) is not str or dtype not in _DTYPES[leaf.kind]:
            raise BadBody(f"dtype {str(dtype)[:20]!r} is not one of {sorted(_DTYPES[leaf.kind])}")
        values = _decode_value(raw, dtype)
        self._spend(len(values))
        present = _decode_bitmap(raw_present, self.num_rows)
        count = self.num_rows if present is None else int(present.sum())
        lengths = []
        if leaf.depth and (type(raw_lengths) is not list or len(raw_lengths) != leaf.depth):
            raise BadBody(f"{leaf.depth} levels of lengths are needed")
        for level in range(leaf.depth):
            sizes = self._decode_level(number, level, raw_lengths[level], count, present)
            lengths.append(sizes)
            count = int(sizes.sum())
            self._spend(count if level + 1 < leaf.depth else 0)
        known = _decode_bitmap(raw_known, count)
        expected = count if known is None else int(known.sum())
        if len(values) != expected:
            raise BadBody(f"{len(values):,} values where {expected:,} belong")
        if known is not None:
            self._spend(count - expected)
        if known is not None and not leaf.depth and not leaf.key:
            present, known = _narrowed(present, known), None
        return Column(leaf, values, tuple(lengths), present, known, _check_words(leaf.kind, words, values))

    def _spend(self, elements: int) -> None:
        self.num_elements += elements
        if self.num_elements > MAX_ELEMENTS:
            raise BadBody(f"the frame holds more than {MAX_ELEMENTS:,} values")

    def _decode_level(self, number: int, level: int, raw: Any, count: int, present: Array | None) -> Array:
        if type(raw) is list and len(raw) == 2 and raw[0] in _INT_DTYPES[:4]:
            sizes = _decode_value(raw[1], raw[0])
            if len(sizes) != count or (sizes > MAX_ELEMENTS).any():
                raise BadBody(f"{len(sizes):,} lengths where {count:,} belong, or too large a length")
            return sizes.astype(np.int64)
        if type(raw) is not int or not K_PLUS_1_LENGTH <= raw <= MAX_ELEMENTS:
            raise BadBody("a length is a count, -1, -2 or [dtype, values]")
        if raw >= 0:
            return np.full(count, raw, np.int64)
        drafts = self.column(_PROPOSAL) if number != _PROPOSAL and level == 0 else None
        if drafts is None or drafts.present is not None:
            raise BadBody("lengths refer to proposal_ids, which is not there")
        sizes = drafts.lengths[0] if present is None else drafts.lengths[0][present]
        return sizes + 1 if raw == K_PLUS_1_LENGTH else sizes


def is_dtype(kind: str, dtype: str) -> bool:
    """Whether values of a kind may be stored so."""
    return dtype in _DTYPES[kind]


def _narrowed(present: Array | None, known: Array) -> Array:
    """Rows whose scalar is known: one that is null is missing."""
    if present is None:
        return known
    rows = present.copy()
    rows[present] = known
    return rows


def _decode_value(raw: Any, dtype: str) -> Array:
    width = int(dtype[1])
    if type(raw) is list:
        raw = _decompress(raw, width)
    if type(raw) is not bytes or len(raw) % width:
        raise BadBody(f"values are not whole {dtype} items")
    return np.frombuffer(raw, "<" + dtype)


def _decompress(raw: list[Any], width: int) -> bytes:
    if len(raw) != 3 or raw[0] not in (_ZLIB, _SHUFFLED) or type(raw[1]) is not int:
        raise BadBody("values are neither bytes nor [codec, size, bytes]")
    code, size, packed = raw
    if type(packed) is not bytes or not 0 <= size <= min(MAX_ELEMENTS * width, MAX_RATIO * len(packed)):
        raise BadBody(f"compressed values claim {size:,} bytes")
    engine = zlib.decompressobj()
    try:
        plain = engine.decompress(packed, size + 1)
    except zlib.error as error:
        raise BadBody(f"compressed values: {error}") from None
    if len(plain) != size or not engine.eof or engine.unused_data or size % width:
        raise BadBody("compressed values do not have the size they claim")
    if code == _SHUFFLED:
        return np.frombuffer(plain, np.uint8).reshape(width, -1).T.tobytes()
    return plain


def _decode_bitmap(raw: Any, count: int) -> Array | None:
    if raw is None:
        return None
    if type(raw) is not bytes or len(raw) != (count + 7) // 8:
        raise BadBody(f"a bitmap of {count:,} bits is needed")
    return np.unpackbits(np.frombuffer(raw, np.uint8), count=count, bitorder="little").view(bool)


def _check_words(kind: str, words: Any, values: Array) -> tuple[str, ...]:
    if kind != "str":
        return ()
    words = words or []
    if type(words) is not list or not all(type(word) is str for word in words):
        raise BadBody("words are not a list of texts")
    if values.size and (int(values.max()) >= len(words) or int(values.min()) < 0):
        raise BadBody("a text refers to a word that is not there")
    return tuple(words)

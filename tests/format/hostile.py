"""Traces that a stranger could send: well-framed, checksummed, and lying inside.

Builds bytes only. Every file whose header is sound begins with two good steps of a request `good`.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable, Iterable
from typing import Any

import msgpack

from spectrace.format.frames import END, pack_body, pack_frame

Case = Callable[[], bytes]
CASES: dict[str, Case] = {}
MIB = 1 << 20


def case(function: Case) -> Case:
    """Registers a case by the name of its function."""
    CASES[function.__name__] = function
    return function


def cases(name: str, bodies: dict[str, Any]) -> None:
    """Registers a case for each STEP body, behind the good steps."""
    for what, body in bodies.items():
        CASES[f"{name}: {what}"] = lambda body=body: (
            good() + frame(b"STEP", 2, body() if callable(body) else body)
        )  # type: ignore[misc]


# --- pieces ------------------------------------------------------------------------------------


def frame(kind: bytes, first_row: int, body: Any) -> bytes:
    """A frame whose checksum holds."""
    return pack_frame(kind, first_row, body if isinstance(body, bytes) else pack_body(body))


def head(**fields: Any) -> bytes:
    """A header."""
    return frame(
        b"HEAD", 0, {"spectrace": 1, "schema": 1, "run": {}, "run_id": bytes(16), "segment": 0, **fields}
    )


def required(rows: int, **columns: list[Any]) -> list[Any]:
    """A STEP body with the required columns all zero, or as given by name."""
    zeros = bytes(rows)
    body = {
        "request": [1, "u1", zeros],
        "step": [2, "u1", zeros],
        "position": [7, "u1", zeros],
        "proposal_ids": [9, "u1", b"", [0]],
        "num_accepted": [26, "u1", zeros],
        "emitted_ids": [29, "u1", b"", [0]],
    }
    return [rows, *{**body, **columns}.values()]


def good(**fields: Any) -> bytes:
    """A header, a request and two good steps."""
    declared = frame(b"reqs", 0, {"number": 0, "request": "good"})
    return head(**fields) + declared + frame(b"STEP", 0, required(2))


def closed(
    data: bytes,
    *,
    groups: dict[str, Any] | None = None,
    others: Any = None,
    tail: dict[str, Any] | None = None,
) -> bytes:
    """The data with an index and a tail, whose parts may lie."""
    at = len(data)
    columns = {"offset": [len(good()) - len(frame(b"STEP", 0, required(2)))], "row": [0], "rows": [2]}
    columns |= {"proposals": [0], "drafted": [0], "accepted": [0], "rejected": [0], **(groups or {})}
    packed = {
        n: struct.pack(f"<{len(v)}{'Q' if n in ('offset', 'row') else 'I'}", *v) for n, v in columns.items()
    }
    if others is None or isinstance(others, dict):
        others = {"reqs": struct.pack("<Q", len(head())), **(others or {})}
    index = {"prev": None, "rows": 0, "groups": packed, "others": others, "totals": {}, "amends": []}
    data += frame(b"idxw", 2, index)
    body = {
        "end": {},
        "rows": 2,
        "index": [at],
        "totals": {"steps": 2},
        "amends": [],
        "lost": 0,
        **(tail or {}),
    }
    return data + frame(b"tail", 2, body) + frame(END, len(data), b"")


def array32(items: int, content: bytes) -> bytes:
    """The msgpack array of so many items."""
    return b"\xdd" + items.to_bytes(4, "big") + content


def bomb(size: int) -> list[Any]:
    """Zeros, compressed a thousandfold."""
    return [1, size, zlib.compress(bytes(size), 9)]


# --- header ------------------------------------------------------------------------------------

_FULL = 4 * MIB - 200
_START = pack_body({"spectrace": 1, "schema": 1})[1:]
HEADS: dict[str, bytes] = {
    "nested arrays": b"\x83" + _START + b"\xa3run\x81\xa1x" + array32(_FULL, b"\x90" * _FULL),
    "nested maps": b"\x83" + _START + b"\xa3run\x81\xa1x" + array32(_FULL, b"\x80" * _FULL),
    "maps in maps": b"\x83"
    + _START
    + b"\xa3run\x81\xa1x"
    + array32(_FULL // 401, (b"\x81\xa0" * 200 + b"\xc0") * (_FULL // 401)),
    "depth": b"\x83" + _START + b"\xa3run" + b"\x81\xa1x" * 900 + b"\xc0",
    "endless depth": b"\x83" + _START + b"\xa3run" + b"\x91" * _FULL,
    "arrays that claim millions": b"\xdd\x00\x3f\xff\xf0" * 1000 + bytes(4 * MIB - 6000),
    "a map that claims millions": b"\xdf\x00\x3f\xff\xf0" * 500 + bytes(4 * MIB - 6000),
    "short strings": b"\x83" + _START + b"\xa3run\x81\xa1x" + array32(_FULL // 3, b"\xa2ab" * (_FULL // 3)),
    "many keys": b"\x83"
    + _START
    + b"\xa3run\xdf"
    + (200_000).to_bytes(4, "big")
    + b"".join(b"\xa6%06d\x01" % n for n in range(200_000)),
    "wrong flags": pack_body(
        {"spectrace": 1, "schema": 1, "run": {"capture": {"unavailable": {str(n): n for n in range(99_999)}}}}
    ),
    "ext type": b"\x83" + _START + b"\xa3run\x81\xa1x\xd4\x05\x00",
    "timestamp": b"\x83" + _START + b"\xa3run\x81\xa1x" + msgpack.packb(msgpack.Timestamp(1, 2)),
    "bytes as keys": b"\x83" + _START + b"\xa3run\x81\xc4\x01x\xc0",
    "numbers as keys": b"\x83" + _START + b"\xa3run\x81\x01\xc0",
    "no msgpack": b"\xc1" * 50,
    "empty": b"",
    "trailing bytes": pack_body({"spectrace": 1, "schema": 1, "run": {}}) + b"\x00",
    "a list": pack_body([1, 2]),
    "no version": pack_body({"schema": 1, "run": {}}),
    "version 2": pack_body({"spectrace": 2, "schema": 1, "run": {}}),
    "version of lists": pack_body({"spectrace": [[[]]] * 99_999, "schema": 1, "run": {}}),
    "schema 99": pack_body({"spectrace": 1, "schema": 99, "run": {}}),
    "schema of escapes": pack_body({"spectrace": 1, "schema": "\x1b[2J" * 99, "run": {}}),
    "run is a list": pack_body({"spectrace": 1, "schema": 1, "run": []}),
    "broken text": b"\x83" + _START + b"\xa3run\x81\xa1x\xa2\xff\xfe",
}
for _what, _body in HEADS.items():
    CASES[f"head: {_what}"] = lambda body=_body: frame(b"HEAD", 0, body) + good()[len(head()) :]  # type: ignore[misc]

_WRONG = [5, "\x1b]52;c;x\x07", [1, {"a": 2}], {"a": {"b": 1}, "x": [None]}, True, 1.5, b"bytes"]
_RUN_KEYS = [
    "created",
    "recorder",
    "engine",
    "method",
    "target",
    "draft",
    "vocab_map",
    "taps",
    "verification",
    "sampling",
    "speculation",
    "tokenizer",
    "template_digest",
    "training",
    "baseline",
    "reported",
    "capture",
]


@case
def run_of_wrong_types() -> bytes:
    """Every field of the header in every wrong type, by amendments."""
    amends = [frame(b"amnd", 2, dict.fromkeys(_RUN_KEYS, wrong)) for wrong in _WRONG]
    inner = [
        frame(
            b"amnd",
            2,
            {
                key: dict.fromkeys(
                    ("id", "flags", "d2t", "tree", "rope", "fingerprints", "parameters"), wrong
                )
                for key in _RUN_KEYS
            },
        )
        for wrong in _WRONG
    ]
    return good() + b"".join(amends + inner)


@case
def amendments_that_nest() -> bytes:
    """Two deep maps that merge."""
    deep: Any = 1
    for _ in range(90):
        deep = {"x": deep}
    return good(run={"engine": deep}) + frame(b"amnd", 2, {"engine": deep})


# --- STEP bodies -------------------------------------------------------------------------------

_ONE_MILLION = 1_000_000
cases(
    "step",
    {
        "no msgpack": b"\xc1" * 30,
        "empty": b"",
        "a number": [],
        "a map": {"rows": 1},
        "nested arrays": lambda: array32(MIB, b"\x90" * MIB),
        "no rows": [0],
        "negative rows": [-1],
        "billions of rows": [2**40],
        "too many rows": lambda: required(65_537),
        "a column that is none": [1, 5],
        "a column too short": [1, [2, "u1"]],
        "a column too long": [1, [2, "u1", b"\0", None, None, None, None, None]],
        "a column without a number": [1, ["x", "u1", b"\0"]],
        "object dtype": required(1, step=[2, "O", b"\0"]),
        "unknown dtype": required(1, step=[2, "f16", bytes(16)]),
        "a text as dtype": required(1, step=[2, "\x1b[2J" * 1000, b"\0"]),
        "float dtype for integers": required(1, step=[2, "f4", bytes(4)]),
        "values as text": required(1, step=[2, "u1", "0"]),
        "half a value": required(1, step=[2, "u4", bytes(6)]),
        "too few values": required(3, step=[2, "u1", bytes(2)]),
        "too many values": required(1, step=[2, "u1", bytes(9)]),
        "compressed bomb": lambda: required(1, step=[2, "u1", bomb(64 * MIB)]),
        "compressed bomb that fits": lambda: required(1, step=[2, "u1", bomb(_ONE_MILLION)]),
        "compressed lie, too small": required(1, step=[2, "u1", [1, 1, zlib.compress(bytes(999))]]),
        "compressed lie, too large": required(1, step=[2, "u1", [1, 999, zlib.compress(bytes(1))]]),
        "compressed without end": required(1, step=[2, "u1", [1, 1, zlib.compress(b"\0")[:-2]]]),
        "compressed with a rest": required(1, step=[2, "u1", [1, 1, zlib.compress(b"\0") + b"x"]]),
        "compressed garbage": required(1, step=[2, "u1", [1, 1, b"garbage"]]),
        "compressed negative": required(1, step=[2, "u1", [1, -1, zlib.compress(b"\0")]]),
        "compressed beyond all": required(1, step=[2, "u1", [1, 2**62, zlib.compress(b"\0")]]),
        "shuffled odd size": required(1, step=[2, "u4", [2, 6, zlib.compress(bytes(6))]]),
        "shuffled bomb": lambda: required(
            1, step=[2, "u8", [2, 64 * MIB, zlib.compress(bytes(64 * MIB), 9)]]
        ),
        "unknown codec": required(1, step=[2, "u1", [3, 1, b"\0"]]),
        "no lengths": required(1, proposal_ids=[9, "u1", b""]),
        "one level too few": required(1, top=[13, "u1", b"", [0]]),
        "huge equal lengths": required(1, proposal_ids=[9, "u1", b"", [2**40]]),
        "large equal lengths": required(1, proposal_ids=[9, "u1", b"", [16 * MIB]]),
        "huge lengths": required(1, proposal_ids=[9, "u1", b"", [["u8", b"\xff" * 8]]]),
        "lengths that overflow": required(
            2, proposal_ids=[9, "u1", b"", [["u8", struct.pack("<2Q", 2**63, 2**63)]]]
        ),
        "negative lengths": required(1, proposal_ids=[9, "u1", b"", [["i1", b"\xff"]]]),
        "lengths of lists of lists": required(1, top=[13, "u1", b"", [_ONE_MILLION, _ONE_MILLION]]),
        "too few lengths": required(3, proposal_ids=[9, "u1", b"\0", [["u1", b"\1"]]]),
        "lengths by itself": required(1, proposal_ids=[9, "u1", b"", [-1]]),
        "lengths by nothing": [1, [8, "u1", b"", [-1]]],
        "lengths -3": required(1, draft=[8, "u1", b"", [-3]]),
        "short bitmap": required(20, rank=[4, "u1", b"\0", None, b"\1"]),
        "bitmap as text": required(1, rank=[4, "u1", b"\0", None, "\1"]),
        "present that disagrees": required(3, rank=[4, "u1", b"\0", None, b"\7"]),
        "known that disagrees": required(3, rank=[4, "u1", b"\0", None, None, b"\7"]),
        "null in a required field": required(3, num_accepted=[26, "u1", b"\1", None, None, b"\2"]),
        "null times": required(3, times=[53, "u4", bytes(8), None, None, b"\5"]),
        "a word that is not there": required(1, final=[30, "u1", b"\5", None, None, None, ["bonus"]]),
        "a negative word": required(1, final=[30, "i1", b"\xff", None, None, None, ["bonus"]]),
        "words that are none": required(1, final=[30, "u1", b"\0", None, None, None, [5]]),
        "no words": required(1, final=[30, "u1", b"\0"]),
        "many words": lambda: required(
            1, final=[30, "u1", b"\0", None, None, None, [f"w{n}" for n in range(200_000)]]
        ),
        "negative num_accepted": required(1, num_accepted=[26, "i8", struct.pack("<q", -(2**63))]),
        "huge num_accepted": required(1, num_accepted=[26, "u8", b"\xff" * 8]),
        "huge numbers": required(
            1, step=[2, "u8", b"\xff" * 8], position=[7, "u8", b"\xff" * 8], request=[1, "u8", b"\xff" * 8]
        ),
        "parents in a circle": required(
            1, proposal_ids=[9, "u1", bytes(3), [3]], parents=[10, "i1", b"\1\2\0", [-1]]
        ),
        "parents of themselves": required(
            1, proposal_ids=[9, "u1", bytes(3), [3]], parents=[10, "i1", b"\0\1\2", [-1]]
        ),
        "parents out of range": required(
            1,
            proposal_ids=[9, "u1", bytes(3), [3]],
            parents=[10, "i8", struct.pack("<3q", -(2**63), 2**62, -7), [-1]],
        ),
        "fewer parents": required(
            2, proposal_ids=[9, "u1", bytes(6), [3]], parents=[10, "i1", b"\xff", [["u1", b"\1\0"]]]
        ),
        "a chain of parents": lambda: required(
            1,
            proposal_ids=[9, "u1", bomb(500_000), [500_000]],
            parents=[
                10,
                "i4",
                [1, 2_000_000, zlib.compress(struct.pack("<500000i", *range(-1, 499_999)))],
                [-1],
            ],
        ),
        "ids without logprobs": required(1, top=[13, "u1", b"\1", [1, 1]]),
        "ids unlike logprobs": required(
            1, top=[13, "u1", b"\1", [1, 1]], logprob=[14, "f4", bytes(8), [1, 2]]
        ),
        "taps unlike each other": required(
            1, taps=[43, "u1", bytes(2), [2], None, None, ["f"]], rms=[44, "f4", bytes(12), [3]]
        ),
        "taps in other rows": required(
            2, taps=[43, "u1", b"\0", [1], b"\1", None, ["f"]], rms=[44, "f4", bytes(4), [1], b"\2"]
        ),
        "a hundred thousand taps": lambda: required(
            1, taps=[43, "u1", bomb(999_999), [999_999], None, None, ["f"]]
        ),
        "extra that is no JSON": required(
            1, taps=[43, "u1", b"\0", [1], None, None, ["f"]], extra=[47, "u1", b"\0", [1], None, None, ["{"]]
        ),
        "extra that is a list": required(
            1,
            taps=[43, "u1", b"\0", [1], None, None, ["f"]],
            extra=[47, "u1", b"\0", [1], None, None, ["[5]"]],
        ),
        "extra that is a number": required(
            1, inputs=[16, "f4", bytes(4), [1]], extra=[17, "u1", b"\0", [1], None, None, ["5"]]
        ),
        "extra that is deep": required(
            1, nonfinite=[48, "u1", b"\0"], extra=[50, "u1", b"\0", None, None, None, ['{"a":' * 99_999]]
        ),
        "extra with a huge number": required(
            1,
            nonfinite=[48, "u1", b"\0"],
            extra=[50, "u1", b"\0", None, None, None, ['{"a":' + "9" * 9999 + "}"]],
        ),
        "extra over known keys": required(
            1,
            nonfinite=[48, "u1", b"\1"],
            extra=[50, "u1", b"\0", None, None, None, ['{"draft_logits":"x"}']],
        ),
        "unknown keys that are a list": required(1, extra=[56, "u1", b"\0", None, None, None, ["[1]"]]),
        "unknown keys that are no JSON": required(1, extra=[56, "u1", b"\0", None, None, None, ["\x1b[2J"]]),
        "unknown keys over known ones": required(
            1, extra=[56, "u1", b"\0", None, None, None, ['{"record":"run","step":9}']]
        ),
        "missing required columns": [3],
        "unknown columns": required(1, a=[999, "u1", b"\0"], b=[-5, "u1", b"\0"], c=[2**60, "O", []]),
        "the same column twice": [*required(1), [2, "u1", b"\5"]],
        "many columns": lambda: [*required(1), *([n, "u1", b"\0"] for n in range(100, 100_000))],
        "every column a million": lambda: [1, *_bombs(1_000_000)],
        "every column a twentieth": lambda: [1, *_bombs(50_000)],
        "requests that nobody declared": lambda: required(
            9999, request=[1, "u4", struct.pack("<9999I", *range(1, 10_000))]
        ),
    },
)


def _bombs(size: int) -> Iterable[list[Any]]:
    """Lists of zeros for every column that holds lists."""
    for number in (8, 9, 10, 15, 18, 20, 28, 29, 40, 41, 42, 45):
        yield [number, "u1", bomb(size), [size]]
    for number in (11, 12, 16, 19, 21, 24, 44):
        yield [number, "f8", bomb(8 * size), [size]]
    for number in (13, 22, 43):
        yield [number, "u1", bomb(size), [size, 1] if number != 43 else [size], None, None, ["f"]]
    for number in (14, 23, 46):
        yield [number, "f8", bomb(8 * size), [size, 1]]


# --- frames ------------------------------------------------------------------------------------


@case
def many_bombs() -> bytes:
    """Eight frames of a few kilobytes, each of which decodes to megabytes."""
    body = pack_body([1, *required(1)[1:4], required(1)[5], *_bombs(40_000)])
    return good() + b"".join(pack_frame(b"STEP", 2 + n, body) for n in range(8))


@case
def fake_headers() -> bytes:
    """Thousands of headers, each of which claims four megabytes."""
    fake = b"\x94\xa4STEP\xce\0\0\0\0\xcf" + bytes(8) + b"\xc6\x00\x3f\xff\xff"
    return good() + b"\0" + fake * 60_000 + frame(b"STEP", 2, required(1))


@case
def starts_of_headers() -> bytes:
    """Half a megabyte of nothing but the first two bytes of a header."""
    return good() + b"\x94\xa4" * (MIB // 4)


@case
def zeros() -> bytes:
    """A file that was preallocated and never written."""
    return good() + bytes(64 * MIB)


@case
def tiny_frames() -> bytes:
    """Thousands of frames of one step, each with words of its own."""
    parts = [
        frame(b"STEP", 2 + n, required(1, final=[30, "u1", b"\0", None, None, None, [f"{n}"]]))
        for n in range(2000)
    ]
    return good() + b"".join(parts)


@case
def frames_within_frames() -> bytes:
    """Each gap's body holds the frame before, and the index lists them all."""
    data, inner, offsets = good(), b"", []
    for _ in range(4000):
        inner = frame(b"gap_", 2, pack_body({"lost": 1, "reason": "x"})[:0] + _gap_around(inner))
    at = data_end = len(data)
    data += inner
    while (at := data.find(b"\x94\xa4gap_", at)) >= 0:
        offsets.append(at)
        at += 1
    assert len(offsets) > 3000
    assert data_end < len(data) < 4 * MIB
    return closed(data, others={"gap_": struct.pack(f"<{len(offsets)}Q", *offsets)})


def _gap_around(inner: bytes) -> bytes:
    packed: bytes = msgpack.packb({"lost": 1, "reason": "x", "inner": inner}, use_bin_type=True)
    return packed


@case
def first_row_beyond_all() -> bytes:
    """The largest number of steps before a frame."""
    return good() + frame(b"STEP", 2**64 - 1, required(1))


@case
def first_row_jump() -> bytes:
    """A billion steps that were never there."""
    return good() + frame(b"STEP", 10**9, required(1))


@case
def first_row_modest_jump() -> bytes:
    """As many missing steps as a file of this size could have held."""
    return good() + frame(b"STEP", 200_000, required(1))


@case
def first_row_backwards() -> bytes:
    """Frames that say the same step again and again."""
    return good() + frame(b"STEP", 0, required(1)) * 50


@case
def unknown_kinds() -> bytes:
    """A frame that must be understood, one that may be skipped, and kinds that are no text."""
    kinds = (b"XXXX", b"xxxx", b"\x1b[2J", b"\xff\xff\xff\xff", b"HEAD")
    return good() + b"".join(frame(kind, 2, {"a": 1}) for kind in kinds)


@case
def records_of_wrong_types() -> bytes:
    """Every other record, in every wrong type."""
    data = good()
    values = [*_WRONG, -1, 2**63, None, [], {}, [{"position": "x", "projections": 5}], "\u202e\n\x1b[31m"]
    for wrong in values:
        data += frame(b"reqs", 2, {"number": wrong, "request": wrong, "prompt_ids": wrong})
        data += frame(
            b"reqd",
            2,
            {
                "number": 0,
                "prompt_ids": wrong,
                "prompt_digest": wrong,
                "segment_map": wrong,
                "external_id": wrong,
            },
        )
        data += frame(
            b"toks", 2, {"target": wrong, "draft": {"1": wrong, "x": "y", "-1": "z", "9" * 30: "w"}}
        )
        data += frame(b"refs", 2, {"boundary": wrong, "rows": wrong})
        data += frame(b"refs", 2, {"boundary": 1, "rows": [wrong]})
        data += frame(b"gap_", 2, {"lost": wrong, "reason": wrong})
        data += frame(b"amnd", 2, wrong)
        data += frame(b"reqs", 2, wrong)
    return data


@case
def names_of_escapes() -> bytes:
    """A request, a token and a field of the header that would act on a terminal."""
    evil = "\x1b]0;owned\x07\x1b[2J\u202e\u2066\r\n\x9b31m[bold]x[/]\ud800\u200b"
    data = good(run={"target": {"id": evil}, "method": evil, evil: 1})
    data += frame(b"reqs", 2, {"number": 1, "request": evil, "prompt_ids": evil})
    data += frame(b"toks", 2, {"target": {"0": evil}})
    return data + frame(
        b"STEP", 2, required(1, request=[1, "u1", b"\1"], stop=[31, "u1", b"\0", None, None, None, [evil]])
    )


# --- index and tail ----------------------------------------------------------------------------


@case
def a_truthful_index() -> bytes:
    """The case that the lies below are made from."""
    return closed(good())


_TAILS: dict[str, dict[str, Any]] = {
    "more steps": {"rows": 1000},
    "beyond all": {"rows": 2**63},
    "negative": {"rows": -1},
    "no number": {"rows": "2"},
    "no index": {"index": []},
    "index at nothing": {"index": [3]},
    "index beyond": {"index": [10**9]},
    "index negative": {"index": [-5]},
    "index twice": {"index": [len(good()), len(good())]},
    "index a thousand times": {"index": [len(good())] * 99_999},
    "index no list": {"index": 5},
    "amends at steps": {"amends": [len(head())]},
    "amends again and again": {"amends": [len(head())] * 99_999},
    "amends everywhere": {"amends": list(range(len(good())))},
    "end no map": {"end": 5},
    "lost no number": {"lost": "x"},
    "totals no map": {"totals": 5},
    "totals of wrong types": {
        "totals": {
            "steps": "x",
            "accepted": -5,
            "proposed_at": [1, "x"],
            "accepted_at": {"a": 1},
            "final_kinds": {"bonus": [1]},
            "stops": {"eos": {"x": 1}},
            "timed": {"step_ns": [1], "draft_ns": 5},
        }
    },
    "totals without end": {
        "totals": {"proposed_at": [1] * 99_999, "final_kinds": {str(n): n for n in range(99_999)}}
    },
}
for _what, _tail in _TAILS.items():
    CASES[f"tail: {_what}"] = lambda tail=_tail: closed(good(), tail=tail)  # type: ignore[misc]

_GROUPS: dict[str, dict[str, Any]] = {
    "offset beyond": {"offset": [10**12]},
    "offset at nothing": {"offset": [3]},
    "more rows": {"rows": [2**32 - 1]},
    "fewer rows": {"rows": [1]},
    "columns of other lengths": {"rows": [2, 2]},
    "row not zero": {"row": [7]},
    "everything rejected": {"rejected": [2]},
    "two groups backwards": {
        "offset": [len(head()) + 90, len(head())],
        "row": [0, 1],
        "rows": [1, 1],
        "proposals": [0, 0],
        "drafted": [0, 0],
        "accepted": [0, 0],
        "rejected": [1, 1],
    },
}
for _what, _group in _GROUPS.items():
    CASES[f"groups: {_what}"] = lambda group=_group: closed(good(), groups=group)  # type: ignore[misc]

_OTHERS: dict[str, Any] = {
    "requests at the header": {"reqs": struct.pack("<Q", 0)},
    "requests everywhere": {"reqs": struct.pack(f"<{len(good())}Q", *range(len(good())))},
    "requests again and again": {"reqs": struct.pack("<Q", len(head())) * 99_999},
    "gaps at steps": {"gap_": struct.pack("<Q", len(head()))},
    "half an offset": {"reqs": b"\0\0\0"},
    "a kind of escapes": {"\x1b[2J": b""},
    "no bytes": {"reqs": [1]},
    "no map": 5,
}
for _what, _other in _OTHERS.items():
    CASES[f"others: {_what}"] = lambda other=_other: closed(good(), others=other)  # type: ignore[misc]


def chained(previous: int | None, rows: int = 2, **fields: Any) -> bytes:
    """A file without a tail whose last frame is an `indx`."""
    groups = dict.fromkeys(("offset", "row", "rows", "proposals", "drafted", "accepted", "rejected"), b"")
    body: dict[str, Any] = {
        "prev": previous,
        "rows": rows,
        "groups": groups,
        "others": {},
        "totals": {"steps": 2},
        "amends": [],
    }
    return good() + frame(b"indx", 2, {**body, **fields})


for _what, _previous in {
    "itself": len(good()),
    "ahead": 10**9,
    "negative": -1,
    "a step": len(head()),
    "none": None,
}.items():
    CASES[f"chain: to {_what}"] = lambda previous=_previous: chained(previous)  # type: ignore[misc]
CASES["chain: rows beyond all"] = lambda: chained(None, 2**63)
CASES["chain: rows by the thousand"] = lambda: chained(None, 9999)
CASES["chain: amends beyond"] = lambda: chained(None, amends=[10**9])
CASES["chain: no map"] = lambda: good() + frame(b"indx", 2, 5)
CASES["chain: a list of groups"] = lambda: chained(None, groups=[1])


@case
def a_chain_of_overlapping_frames() -> bytes:
    """Each `indx` frame lies within the body of the one before it, which names it as its predecessor."""
    data, inner = good(), b""
    groups = dict.fromkeys(("offset", "row", "rows", "proposals", "drafted", "accepted", "rejected"), b"")
    prefix = len(frame(b"indx", 2, b"")) + len(b"\x87\xa5inner\xc6\0\0\0\0")
    for level in reversed(range(2000)):
        index = {"prev": len(data) + prefix * (level + 1), "rows": 2, "groups": groups, "others": {}}
        rest = pack_body({**index, "totals": {"steps": 2}, "amends": []})[1:]
        inner = frame(b"indx", 2, b"\x87\xa5inner\xc6" + len(inner).to_bytes(4, "big") + inner + rest)
    assert inner[prefix:].startswith(b"\x94\xa4indx")
    return data + inner


def describe(name: str) -> str:
    """What a case is, for the test's id."""
    return json.dumps(name)[1:-1].replace(" ", "_")

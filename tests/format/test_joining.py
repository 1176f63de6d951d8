"""Columns of many frames read at once are those of the frames read one by one, whatever a file holds."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from spectrace.format.chunk import Chunk
from spectrace.format.columns import Columns, concatenate
from spectrace.format.fields import LEAVES
from spectrace.format.frames import STEP, BadBody, Frame, pack_body, unpack_body
from spectrace.format.joining import joined_columns
from spectrace.format.shredding import shred
from spectrace.format.wire import encode_steps
from spectrace.testing import step_fields
from tests.strategies import steps

NUMBERS = [leaf.number for leaf in LEAVES]


class Owner:
    """Stands in for the file of a chunk."""

    def __init__(self) -> None:
        self.complaints: list[str] = []

    def complain(self, sentence: str) -> None:
        """Notes damage."""
        self.complaints.append(sentence)

    def request_name(self, number: int | None) -> str:
        """Name of a request."""
        return f"r{number}"


def chunks_of(bodies: list[bytes]) -> list[Chunk]:
    """A fresh chunk of each body, so that nothing is decoded yet."""
    owner = Owner()
    return [Chunk(owner, Frame(STEP, n, 0, 0, body)) for n, body in enumerate(bodies)]


def bodies_of(frames: list[list[dict[str, Any]]], *, compress: bool = False) -> list[bytes]:
    """The body of a frame for each list of steps."""
    found = []
    for rows in frames:
        numbered = [{**row, "request": 0} for row in rows]
        found.append(encode_steps(len(rows), shred(numbered), compress=compress))
    return found


def same(one: Columns, other: Columns) -> bool:
    """Equal in all that columns say."""
    if list(one) != list(other):
        return False
    for path, mine in one.items():
        theirs = other[path]
        pairs: list[tuple[Any, Any]] = [(mine.values, theirs.values), *zip(mine.lengths, theirs.lengths)]
        pairs += [(mine.present, theirs.present), (mine.known, theirs.known)]
        for a, b in pairs:
            if (a is None) != (b is None):
                return False
            if a is not None and not np.array_equal(a, b, equal_nan=a.dtype.kind == "f"):
                return False
        if mine.words != theirs.words or len(mine.lengths) != len(theirs.lengths):
            return False
    return True


def one_by_one(bodies: list[bytes]) -> Columns:
    """What the frames hold, each decoded by itself."""
    return concatenate([(chunk.num_rows, chunk.columns(*NUMBERS)) for chunk in chunks_of(bodies)])


@settings(max_examples=60)
@given(st.lists(st.lists(steps(), min_size=1, max_size=3), min_size=1, max_size=4), st.booleans())
def test_frames_of_any_steps_are_read_as_one_by_one(
    frames: list[list[dict[str, Any]]], compress: bool
) -> None:
    """Every optional field there or not, in some rows or all, lists of any length, packed or live."""
    bodies = bodies_of(frames, compress=compress)
    assert same(joined_columns(chunks_of(bodies), NUMBERS), one_by_one(bodies))


def alike(number: int) -> list[dict[str, Any]]:
    """Steps as an engine makes them: the same fields in each."""
    return [
        step_fields(
            step=number,
            proposal_ids=[number + 300 * j for j in range(3)],
            num_accepted=j,
            draft_logprobs=[-0.5, -1.0, -float(number)],
            target_ids=[1, 2, 3, 4],
            final_kind="bonus",
        )
        for j in range(2)
    ]


@settings(max_examples=150)
@given(st.integers(0, 3), st.integers(0, 400), st.integers(0, 255))
def test_a_changed_byte_is_met_as_one_by_one(frame: int, at: int, value: int) -> None:
    """Damage that a checksum did not see neither shifts a column nor raises another error."""
    bodies = bodies_of([alike(number) for number in range(4)])
    body = bytearray(bodies[frame])
    body[at % len(body)] = value
    bodies[frame] = bytes(body)
    try:
        expected = one_by_one(bodies)
    except (BadBody, ValueError):
        return  # the frame is none: a reader leaves it out before
    assert same(joined_columns(chunks_of(bodies), NUMBERS), expected)


def test_lengths_that_claim_too_much_are_left_to_the_reader_of_one_frame() -> None:
    """A length of a million in a frame of no values costs no memory."""
    bodies = bodies_of([alike(0), alike(1)])
    outer = unpack_body(bodies[1])
    for part in outer[1:]:
        if part[0] == 9:
            part[3] = [10**9]
    bodies[1] = pack_body(outer)
    found = joined_columns(chunks_of(bodies), NUMBERS)
    assert same(found, one_by_one(bodies))

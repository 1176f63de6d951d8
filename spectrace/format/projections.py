"""The 32 sign projections that fingerprint a hidden state.

``signs[i, j]`` is +1 or -1, taken from bit j of a hash of the coordinate i alone, so that every engine in
every language computes the same 32 numbers. By the lemma of Johnson and Lindenstrauss (1984; with signs:
Achlioptas, "Database-friendly random projections", 2003) they keep distances and angles between states
approximately.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

NUM_PROJECTIONS = 32


def sign_matrix(hidden_size: int) -> npt.NDArray[np.float32]:
    """Signs [hidden_size, 32], each +1 or -1.

    Bit j of ``mix(i + 1)`` gives the sign of row i, column j: 0 is +1, 1 is -1. ``mix`` is the 32-bit
    finaliser of MurmurHash3 (Austin Appleby, public domain): ``h ^= h >> 16; h *= 0x85ebca6b; h ^= h >> 13;
    h *= 0xc2b2ae35; h ^= h >> 16``, all modulo 2**32.

    >>> sign_matrix(3)[:, :6].astype(int).tolist()
    [[-1, -1, -1, 1, -1, -1], [1, -1, -1, 1, 1, 1], [-1, -1, -1, 1, 1, -1]]
    """
    h = np.arange(1, hidden_size + 1, dtype=np.uint32)
    h ^= h >> np.uint32(16)
    h *= np.uint32(0x85EBCA6B)
    h ^= h >> np.uint32(13)
    h *= np.uint32(0xC2B2AE35)
    h ^= h >> np.uint32(16)
    bits = (h[:, None] >> np.arange(NUM_PROJECTIONS, dtype=np.uint32)) & 1
    return (1.0 - 2.0 * bits).astype(np.float32)


def project(rows: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """Projections [n, 32] of hidden states [n, hidden_size], in float32.

    ``rows @ sign_matrix / sqrt(hidden_size)``: a state of RMS 1 with independent coordinates gives
    projections of RMS about 1.
    """
    rows = np.atleast_2d(np.asarray(rows, np.float32))
    size = rows.shape[1]
    result: npt.NDArray[np.float32] = rows @ sign_matrix(size) / np.float32(np.sqrt(size))
    return result

"""Keys and values of the draft's layers: rows are appended and cut, never overwritten."""

from __future__ import annotations

import torch
from torch import Tensor


class DraftCache:
    """One growing pair of keys and values per layer.

    Args:
        num_layers: of the draft.
    """

    def __init__(self, num_layers: int) -> None:
        self.length = 0
        """Rows held; whoever has appended to every layer counts them."""
        self._rows: list[tuple[Tensor, Tensor] | None] = [None] * num_layers

    def append(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Adds rows, [num_kv_heads, n, head_dim] each, and returns all of that layer."""
        held = self._rows[layer]
        if held is not None:
            keys = torch.cat((held[0], keys), dim=1)  # [num_kv_heads, past + n, head_dim]
            values = torch.cat((held[1], values), dim=1)
        self._rows[layer] = keys, values
        return keys, values

    def crop(self, length: int) -> None:
        """Keeps the first rows only."""
        self.length = min(self.length, length)
        self._rows = [None if row is None else (row[0][:, :length], row[1][:, :length]) for row in self._rows]

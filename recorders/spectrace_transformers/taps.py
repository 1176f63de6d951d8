"""Rows of hidden states at chosen boundaries, taken by forward hooks on the target's layers.

Boundary k is the residual stream after k layers: the input of layer k, and for k = n the last layer's
output *before* the final norm (`output_hidden_states` gives it after the norm). Takes a bounded number
of rows and copies them; refuses to keep a hidden state alive.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from spectrace.errors import UsageError

PREFILL_ROWS = 8
"""Most rows taken from the prompt per boundary: evenly spaced from the first, and its last token."""
_LAYER_LISTS = ("layers", "h", "block", "blocks")


class TapRows(NamedTuple):
    """What was taken at one boundary in one forward."""

    boundary: int
    shape: Sequence[int]
    """Shape of the hidden states the rows were taken from, [1, tokens, hidden_size]."""
    dtype: str
    positions: Sequence[int]
    """[r] index in the sequence of the token each row belongs to."""


def find_layers(model: Any) -> nn.ModuleList | None:
    """The decoder layers of a transformers model in the order in which they run, if they are found."""
    decoder = model.get_decoder() if hasattr(model, "get_decoder") else None
    for root in (decoder, getattr(model, "base_model", None)):
        if not isinstance(root, nn.Module):
            continue
        for name, module in root.named_modules():
            if isinstance(module, nn.ModuleList) and name.rpartition(".")[2] in _LAYER_LISTS:
                return module
    return None


def default_boundaries(num_layers: int) -> tuple[int, ...]:
    """The boundaries EAGLE-3 feeds its draft with, 2, n // 2 and n - 3, within 1..n.

    Source: SafeAILab/EAGLE, eagle/model/modeling_llama_kv.py, ``LlamaModel.forward`` (``idx ==
    len(self.layers) - 3 or idx == len(self.layers) // 2 or idx == 2``, taken before layer ``idx`` runs).

    >>> default_boundaries(32), default_boundaries(2), default_boundaries(1)
    ((2, 16, 29), (1, 2), (1,))
    """
    wanted = (2, num_layers // 2, num_layers - 3)
    return tuple(sorted({min(max(k, 1), num_layers) for k in wanted}))


def check_boundaries(boundaries: Sequence[int], num_layers: int) -> tuple[int, ...]:
    """The boundaries as given.

    Raises:
        UsageError: one does not exist or is given twice.
    """
    for k in boundaries:
        if not 0 <= k <= num_layers:
            raise UsageError(
                f"taps: boundary {k} does not exist; this target has 0 (embeddings) to {num_layers}"
            )
    if len(set(boundaries)) != len(boundaries):
        raise UsageError(f"taps: a boundary is given twice in {tuple(boundaries)}")
    return tuple(boundaries)


class Hook:
    """A forward hook of one model: a copy of the model, in another process too, gets one that does nothing.

    Whoever pickles a model while it is recorded, to spawn a process or to save it, must be able to.

    Args:
        action: called with what the hook is given; changes nothing.
    """

    def __init__(self, action: Callable[..., None]) -> None:
        self._action = action

    def __call__(self, *args: Any) -> None:
        """Takes what the hook is given, and returns nothing that torch would use instead."""
        self._action(*args)

    def __reduce__(self) -> tuple[Any, ...]:
        return Hook, (_ignore,)


def _ignore(*_: Any) -> None:
    """What a copy's hook does."""


def hook_boundaries(
    layers: nn.ModuleList, boundaries: Sequence[int], seen: Callable[[int, Tensor], None]
) -> list[Any]:
    """Registers a forward hook for every boundary.

    Args:
        layers: the target's decoder layers.
        boundaries: k of B(k).
        seen: called with k and the hidden states there whenever the target runs.

    Returns:
        The handles that remove the hooks.
    """
    handles: list[Any] = []
    for k in boundaries:
        if k == 0:
            handles.append(layers[0].register_forward_pre_hook(Hook(_before(seen)), with_kwargs=True))
        else:
            handles.append(layers[k - 1].register_forward_hook(Hook(_after(k, seen))))
    return handles


def _before(seen: Callable[[int, Tensor], None]) -> Callable[..., None]:
    def hook(_layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not torch.compiler.is_compiling():
            seen(0, args[0] if args else kwargs["hidden_states"])

    return hook


def _after(k: int, seen: Callable[[int, Tensor], None]) -> Callable[..., None]:
    def hook(_layer: nn.Module, _args: tuple[Any, ...], output: Any) -> None:
        if not torch.compiler.is_compiling():
            seen(k, output if isinstance(output, Tensor) else output[0])

    return hook


def take_rows(
    boundary: int, hidden: Tensor, root_position: int, num_drafted: int
) -> tuple[TapRows, Tensor] | None:
    """The row of the last committed token, and some of the prompt's when the prompt is in the forward.

    Args:
        boundary: k of B(k).
        hidden: [1, tokens, hidden_size], the last ``num_drafted`` tokens being the proposal.
        root_position: index of the last committed token.
        num_drafted: K.

    Returns:
        What was taken and a copy of the rows, [r, hidden_size]; None where the states have another form.
    """
    shape = hidden.shape
    root = shape[1] - 1 - num_drafted if len(shape) == 3 and shape[0] == 1 else -1
    if root < 0:
        return None
    rows = hidden[0, root : root + 1]  # [1, hidden_size]
    positions = [root_position]
    if root > 0:
        stride = -(-root // (PREFILL_ROWS - 1))
        first = root_position - root
        rows = torch.cat((hidden[0, :root:stride], rows))  # [r, hidden_size]
        positions = [*range(first, root_position, stride), root_position]
    else:
        rows = rows.clone()
    return TapRows(boundary, shape, str(hidden.dtype).removeprefix("torch."), positions), rows

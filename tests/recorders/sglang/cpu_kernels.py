"""Stands in for what SGLang's wheels bring for a GPU only: the few kernels that a run on a CPU asks for.

For tests. Trees are built and verified by SGLang's own portable kernels, interpreted; the rest moves indices
and is written here, request by request. Call `install` before SGLang is imported.
"""

from __future__ import annotations

import ctypes
import enum
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock


def install() -> None:
    """Puts `sgl_kernel` and `torchvision` where an import finds them."""
    kernels = _Missing("sgl_kernel", "0.0.0")
    for name, function in _KERNELS.items():
        setattr(kernels, name, function)
    sys.modules["sgl_kernel"] = kernels
    speculative = _Missing("sgl_kernel.speculative", "0.0.0")
    speculative.reconstruct_indices_from_tree_mask = _reconstruct_tree  # type: ignore[attr-defined]
    sys.modules["sgl_kernel.speculative"] = speculative
    for name in ("", ".io", ".transforms", ".transforms.functional", ".transforms.v2",
                 ".transforms.v2.functional"):  # fmt: skip
        sys.modules[f"torchvision{name}"] = _Mocked(f"torchvision{name}", "0.28.0")
    sys.modules["torchvision.transforms"].InterpolationMode = _Interpolation  # type: ignore[attr-defined]


class _Package(ModuleType):
    def __init__(self, name: str, version: str) -> None:
        super().__init__(name)
        self.__spec__ = ModuleSpec(name, None, is_package=True)
        self.__path__ = []
        self.__version__ = version


class _Missing(_Package):
    """Every other kernel is there by name, and says that it is not when it is called."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)

        def missing(*_: Any, **__: Any) -> Any:
            raise NotImplementedError(f"sgl_kernel.{name} is not among the kernels of the tests")

        return missing


class _Mocked(_Package):
    """Pictures: imported by SGLang, never used by a text model."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return MagicMock(name=name)


class _Interpolation(enum.Enum):
    NEAREST = "nearest"
    NEAREST_EXACT = "nearest-exact"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    BOX = "box"
    HAMMING = "hamming"
    LANCZOS = "lanczos"


# --- kernels: results are written into the tensors that come in ------------------------------------


def _build_tree(*args: Any) -> None:
    from sglang.kernels.ops.speculative import spec_tree

    spec_tree.sgl_build_tree_kernel_triton(*args)


def _verify_tree(
    predicts: Any, accept_index: Any, accept_token_num: Any, candidates: Any, retrive_index: Any,
    retrive_next_token: Any, retrive_next_sibling: Any, target_predict: Any,
) -> None:  # fmt: skip
    from sglang.kernels.ops.speculative import spec_tree

    spec_tree.verify_tree_greedy_triton(
        predicts, accept_index, accept_token_num, candidates, retrive_index, retrive_next_token,
        retrive_next_sibling, target_predict,
    )  # fmt: skip


def _reconstruct_tree(*args: Any) -> None:
    from sglang.kernels.ops.speculative import reconstruct_tree

    reconstruct_tree.reconstruct_indices_from_tree_mask_triton(*args)


def _write_slots(rows: Any, table: Any, starts: Any, ends: Any, slots: Any, _width: int) -> None:
    """table[row, start:end] = the next slots, request by request."""
    taken = 0
    for row, start, end in zip(rows.tolist(), starts.tolist(), ends.tolist()):
        table[row, start:end] = slots[taken : taken + end - start].to(table.dtype)
        taken += end - start


def _read_slots(rows: Any, table: Any, starts: Any, ends: Any, slots: Any, _width: int) -> None:
    """The next slots = table[row, start:end], request by request."""
    taken = 0
    for row, start, end in zip(rows.tolist(), starts.tolist(), ends.tolist()):
        slots[taken : taken + end - start] = table[row, start:end].to(slots.dtype)
        taken += end - start


def _read_draft_slots(
    rows: Any, table: Any, lengths: Any, slots: Any, width: int, topk: int, columns: int
) -> None:
    _read_slots(rows, table, lengths, lengths + topk * columns, slots, width)


def _accepted_slots(accept_index: Any, slots: Any, accepted: Any) -> None:
    kept = accept_index[accept_index >= 0].long()
    accepted[: len(kept)] = slots[kept].to(accepted.dtype)


def _last_accepted(tokens: Any, lengths: Any, last: Any, stride: int) -> None:
    at = [row * stride + length - 1 for row, length in enumerate(lengths.tolist())]
    last[:] = tokens.reshape(-1)[at].to(last.dtype)


def _move_cache(pointers: Any, strides: Any, targets: Any, sources: Any) -> None:
    """Copies rows of every layer's cache, by address: all are read before one is written."""
    for pointer, stride in zip(pointers.tolist(), strides.tolist()):
        rows = [ctypes.string_at(pointer + row * stride, stride) for row in sources.tolist()]
        for target, row in zip(targets.tolist(), rows):
            ctypes.memmove(pointer + target * stride, row, stride)


_KERNELS = {
    "assign_draft_cache_locs_contiguous_cpu": _read_draft_slots,
    "assign_extend_cache_locs_cpu": _read_slots,
    "assign_req_to_token_pool_cpu": _write_slots,
    "build_tree_kernel_efficient_cpu": _build_tree,
    "copy_all_layer_kv_cache_cpu": _move_cache,
    "fill_accept_out_cache_loc_cpu": _accepted_slots,
    "fill_bonus_tokens_cpu": _last_accepted,
    "verify_tree_greedy_cpu": _verify_tree,
}

"""Pickled tensors (.pt, .bin): read by torch with `weights_only=True`, or not at all.

Without torch, or with one whose restricted unpickler can be fooled, the answer is a sentence and the file
stays closed. Nothing here unpickles by itself.
"""

from __future__ import annotations

import importlib
import importlib.util
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from spectrace.checkpoint.files import file_size, open_file
from spectrace.checkpoint.records import Fault, Tensor
from spectrace.errors import CheckpointError

_SAFE_SINCE = (2, 6)
"""CVE-2025-32434: `weights_only=True` of earlier versions runs code of the file."""

_UNMAPPED_LIMIT = 64 << 20
"""Largest file, in bytes, that torch may load into memory because it cannot be mapped."""

_DTYPES = {
    "bool": "BOOL",
    "uint8": "U8",
    "int8": "I8",
    "int16": "I16",
    "int32": "I32",
    "int64": "I64",
    "float16": "F16",
    "bfloat16": "BF16",
    "float32": "F32",
    "float64": "F64",
}


class PickledFile:
    """A file that torch saved, opened by torch with `weights_only=True`.

    Args:
        path: the file.
        name: what to call it, relative to the checkpoint.

    Raises:
        CheckpointError: no torch, an unsafe torch, or a file that it refuses.
    """

    def __init__(self, path: Path, name: str) -> None:
        loaded = _load(path)
        self._arrays = {key: value for key, value in loaded.items() if _is_plain(value)}
        self.tensors: Mapping[str, Tensor] = {
            key: Tensor(
                name=key,
                dtype=_DTYPES.get(str(value.dtype).removeprefix("torch."), "?"),
                shape=tuple(value.shape),
                file=name,
                size=value.numel() * value.element_size(),
            )
            for key, value in self._arrays.items()
        }
        what = "is sparse, or claims more values than the file holds"
        self.faults = tuple(Fault(str(path), what, key) for key in loaded if key not in self._arrays)

    def chunks(self, name: str, starts: range, size: int) -> Iterator[memoryview]:
        """See `TensorFile`."""
        torch: Any = importlib.import_module("torch")
        flat = self._arrays[name].detach().contiguous().reshape(-1).view(torch.uint8)
        for start in starts:
            yield memoryview(flat[start : start + size].numpy())


def _is_plain(value: Any) -> bool:
    """Dense values that really lie in the file: a stride of zero lets a tensor claim any size."""
    if str(value.layout) != "torch.strided" or value.device.type != "cpu" or value.is_quantized:
        return False
    return bool(value.numel() * value.element_size() <= value.untyped_storage().nbytes())


def _load(path: Path) -> dict[str, Any]:
    """Name -> torch tensor; a file that holds one tensor is called by the file's name."""
    with open_file(path) as file:
        size = file_size(file)
    is_zip = zipfile.is_zipfile(path)
    if is_zip:
        _refuse_compressed(path)
    elif size > _UNMAPPED_LIMIT:
        raise CheckpointError(path, "a pickle of an old torch; save it again, or convert it to safetensors")
    torch = _torch(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about how the file was pickled
            found = torch.load(path, map_location="cpu", weights_only=True, mmap=is_zip)
    except Exception as error:  # a foreign unpickler fails in any way
        what = f"torch refuses it with weights_only=True ({type(error).__name__})"
        raise CheckpointError(path, f"{what}; it is not read") from error
    if isinstance(found, torch.Tensor):
        return {path.stem: found}
    if not isinstance(found, Mapping):
        raise CheckpointError(path, "holds no tensors by name")
    return {key: value for key, value in found.items() if isinstance(key, str) and torch.is_tensor(value)}


def _refuse_compressed(path: Path) -> None:
    """Torch stores without compression; anything else may grow without bound."""
    try:
        with zipfile.ZipFile(path) as archive:
            packed = [entry for entry in archive.infolist() if entry.compress_type != zipfile.ZIP_STORED]
    except (OSError, zipfile.BadZipFile) as error:
        raise CheckpointError(path, "is no file that torch saved") from error
    if packed:
        raise CheckpointError(path, "is compressed, which torch never does; it is not read")


def _torch(path: Path) -> Any:
    """The module, by name: nothing in spectrace imports an engine, and this file needs one to be read."""
    if importlib.util.find_spec("torch") is None:
        what = "a pickle, not read: that needs torch; or convert it to safetensors"
        raise CheckpointError(path, what, needs="torch")
    torch = importlib.import_module("torch")
    version = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2] if part.isdigit())
    if version < _SAFE_SINCE:
        what = f"a pickle, not read: torch {torch.__version__} cannot do that safely, 2.6 can"
        raise CheckpointError(path, what, needs="torch")
    return torch

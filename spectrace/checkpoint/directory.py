"""Opens a model directory: which files count, what the index says, and everything that could not be read.

One damaged file costs its own contents; only a directory that is no checkpoint raises.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

import numpy as np

from spectrace.checkpoint.config import Config
from spectrace.checkpoint.files import open_file, read_object, reason
from spectrace.checkpoint.pickled import PickledFile
from spectrace.checkpoint.records import Checkpoint, Fault, Tensor, Values, VocabTable
from spectrace.checkpoint.scan import read_array, scan
from spectrace.checkpoint.tensorfile import SafetensorsFile, TensorFile
from spectrace.checkpoint.tokenizer import read_tokenizer
from spectrace.errors import CheckpointError

_INDEX_LIMIT = 8 << 20
_PICKLES = (".bin", ".pt", ".pth")
_NO_WEIGHTS = frozenset(
    {"optimizer.bin", "optimizer.pt", "rng_state.pth", "scheduler.pt", "training_args.bin"}
)
_TABLES = ("d2t", "t2d")
_TABLE_LIMIT = 64 << 20
_OTHER_TOKENIZERS = ("tokenizer.model", "tiktoken.model", "tekken.json", "vocab.json", "qwen.tiktoken")


@dataclass
class _Weights:
    """What the weight files gave so far."""

    files: dict[str, TensorFile] = field(default_factory=dict)
    tensors: dict[str, Tensor] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    unread: list[str] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)

    def fault(self, error: CheckpointError) -> None:
        self.faults.append(Fault(str(error.path), error.what, error.tensor, error.needs))


def open_checkpoint(
    directory: Path,
    *,
    with_values: bool = False,
    ending: tuple[str, ...] = ("",),
    on_progress: Callable[[int], None] | None = None,
) -> Checkpoint:
    """Reads what a model directory says, and with `with_values` looks at every value in it.

    Args:
        directory: holds config.json, weights, or both.
        with_values: also scan the tensors.
        ending: of a checkpoint with an index, open only files with tensors whose names end so.
        on_progress: told the bytes scanned so far.

    Raises:
        CheckpointError: the directory cannot be read, or holds neither.
    """
    names = _names(directory)
    if "config.json" not in names and not any(map(_holds_weights, names)):
        held = "holds neither config.json nor *.safetensors"
        gguf = "; GGUF files are not read" if any(name.endswith(".gguf") for name in names) else ""
        raise CheckpointError(directory, f"no model: {held}{gguf}")
    weights = _Weights()
    config = Config()
    if "config.json" in names:
        try:
            config = Config(read_object(directory / "config.json"))
        except CheckpointError as error:
            weights.fault(error)
    _open_weights(directory, names, weights, ending)
    table = _table(weights, str(directory))
    values: dict[str, Values] = {}
    if with_values:
        values, faults = scan(weights.files, weights.tensors, on_progress)
        weights.faults += faults
    tokenizer, faults = read_tokenizer(directory, config)
    return Checkpoint(
        path=directory,
        config=config,
        tensors=weights.tensors,
        missing=weights.missing,
        files=tuple(weights.files),
        unread=tuple(weights.unread),
        table=table,
        values=values,
        tokenizer=tokenizer,
        other_tokenizer=next((name for name in _OTHER_TOKENIZERS if name in names), None),
        faults=(*weights.faults, *faults),
    )


def open_table(path: Path) -> tuple[tuple[VocabTable, ...], tuple[Fault, ...]]:
    """Every vocabulary map in a folder (or in one file): .safetensors, .npy, .pt, .bin.

    SpecForge writes one .pt per data set, speculators d2t.npy and t2d.npy, a checkpoint has both among its
    weights.

    Raises:
        CheckpointError: the folder cannot be read.
    """
    names = [path.name] if path.is_file() else _names(path)
    folder = path.parent if path.is_file() else path
    found: list[VocabTable] = []
    weights = _Weights()
    for name in filter(_holds_weights, names):
        one = _Weights()
        _open(folder, name, one)
        if (table := _table(one, str(folder / name))) is not None:
            found.append(table)
        weights.faults += one.faults
    arrays = [name for name in names if name.endswith(".npy")]
    if arrays and (table := _numpy_table(folder, arrays, weights)) is not None:
        found.append(table)
    return tuple(found), tuple(weights.faults)


def _names(directory: Path) -> list[str]:
    """File names of a directory, sorted."""
    try:
        return sorted(entry.name for entry in directory.iterdir())
    except OSError as error:
        raise CheckpointError(directory, f"cannot be read: {reason(error)}") from error


def _holds_weights(name: str) -> bool:
    """Whether a file of this name may hold weights."""
    return name.endswith((".safetensors", *_PICKLES)) and name not in _NO_WEIGHTS


def _open_weights(directory: Path, names: list[str], weights: _Weights, ending: tuple[str, ...]) -> None:
    """Opens the files that a loader would take: those of the index, model.safetensors, or all there are."""
    index = next((n for n in names if n.endswith(".safetensors.index.json")), None)
    safe = [name for name in names if name.endswith(".safetensors")]
    if "model.safetensors" in safe:
        wanted = ["model.safetensors"]
    elif index is not None:
        wanted = _indexed(directory / index, weights, ending)
    else:
        wanted = safe or list(filter(_holds_weights, names))
    for name in wanted:
        _open(directory, name, weights)
    if ending == ("",):
        weights.unread += [name for name in names if _holds_weights(name) and name not in wanted]
    weights.missing = tuple(name for name in weights.missing if name not in weights.tensors)


def _indexed(path: Path, weights: _Weights, ending: tuple[str, ...]) -> list[str]:
    """Files that an index names; the tensors it promises are noted as missing until they are found."""
    try:
        places = Config(read_object(path, _INDEX_LIMIT)).section("weight_map")
    except CheckpointError as error:
        weights.fault(error)
        return [entry.name for entry in sorted(path.parent.glob("*.safetensors"))]
    promised = {name: places.text(name) for name in places.names() if name.endswith(ending)}
    weights.missing = tuple(promised)
    wanted = []
    for name in sorted({place for place in promised.values() if place is not None}):
        if PurePosixPath(name).name != name or name == ".." or "\\" in name or "\0" in name:
            weights.faults.append(Fault(str(path), f"names a file outside the checkpoint: {name[:80]}"))
        else:
            wanted.append(name)
    return wanted


def _open(directory: Path, name: str, weights: _Weights) -> None:
    """Adds one weight file; a tensor that an earlier file has too keeps its first place."""
    kind = PickledFile if name.endswith(_PICKLES) else SafetensorsFile
    try:
        file: TensorFile = kind(directory / name, name)
    except CheckpointError as error:
        weights.fault(error)
        weights.unread.append(name)
        return
    weights.files[name] = file
    weights.faults += file.faults
    for key, tensor in file.tensors.items():
        if key in weights.tensors:
            what = f"is in {weights.tensors[key].file} too; which of the two an engine takes is open"
            weights.faults.append(Fault(str(directory / name), what, key))
        else:
            weights.tensors[key] = tensor


def _table(weights: _Weights, source: str) -> VocabTable | None:
    """`d2t` and `t2d` among the tensors, whatever prefix they carry."""
    arrays = {}
    for key in _TABLES:
        name = _named(weights.tensors, key)
        if name is None:
            continue
        tensor = weights.tensors[name]
        try:
            arrays[key] = read_array(weights.files[tensor.file], tensor)
        except CheckpointError as error:
            weights.faults.append(Fault(str(error.path), error.what, name))
    return VocabTable(source=source, **arrays) if arrays else None


def _named(names: Iterable[str], key: str) -> str | None:
    """The tensor called `key`, or `anything.key`."""
    return next((name for name in names if name == key or name.endswith(f".{key}")), None)


def _numpy_table(folder: Path, names: list[str], weights: _Weights) -> VocabTable | None:
    """`d2t.npy` and `t2d.npy`, or whatever is called like them."""
    arrays = {}
    for key in _TABLES:
        name = next((name for name in names if key in name), None)
        if name is None:
            continue
        path = folder / name
        try:
            open_file(path).close()
            mapped = np.load(path, mmap_mode="r", allow_pickle=False)
            if mapped.nbytes > _TABLE_LIMIT:
                raise CheckpointError(path, f"{mapped.nbytes:,} bytes; too large for a table")
            arrays[key] = np.array(mapped)
        except CheckpointError as error:
            weights.fault(error)
        except OSError as error:
            weights.faults.append(Fault(str(path), f"cannot be read: {reason(error)}"))
        except (ValueError, EOFError, SyntaxError, MemoryError) as error:
            what = f"is no array that can be read without unpickling ({type(error).__name__})"
            weights.faults.append(Fault(str(path), what))
    return VocabTable(source=str(folder), **arrays) if arrays else None

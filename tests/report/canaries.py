"""Traces in which every field holds something to be found again, and a search that finds it in any clothing.

`python tests/report/canaries.py 1000` packs a thousand random traces and looks for every canary in each.
"""

from __future__ import annotations

import base64
import io
import json
import random
import re
import struct
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgpack
import numpy as np

import spectrace
from spectrace.format.fields import LEAVES
from spectrace.format.jsonl import export_lines, import_lines
from spectrace.report.packing import pack

FIRST_ID = 1 << 41
"""Ids are planted from here on; no other number of these traces is as large."""


class Planter:
    """Makes canaries and remembers them.

    Args:
        seed: of everything random.
        ids: ids are planted from here on, below twice that.
    """

    def __init__(self, seed: int, ids: int = FIRST_ID) -> None:
        self.random = random.Random(seed)
        self.first_id = ids
        self.texts: dict[str, str] = {}
        """Canary -> where it was planted."""
        self.ids: dict[int, str] = {}
        self.floats: dict[float, str] = {}
        """Numbers that name a token by themselves."""

    def text(self, where: str, dress: str = "") -> str:
        """A text that is nowhere else."""
        core = f"zq{self.random.getrandbits(60):015x}"
        self.texts[core] = where
        return (
            dress or self.random.choice(["{}", "/home/{}/x", "{}@host", "\x1b[31m{}", "{}é", "the {}"])
        ).format(core)

    def id(self, where: str) -> int:
        """An id that is nowhere else."""
        found = self.random.randrange(self.first_id, 2 * self.first_id)
        self.ids[found] = where
        return found

    def float(self, where: str) -> float:
        """A number exact in 32 bits that is nowhere else."""
        found = float(np.float32(1000 + self.random.getrandbits(22) / 4096))
        self.floats[found] = where
        return found

    def holds(self, value: Any) -> bool:
        """Whether a canary lies anywhere in a value."""
        if isinstance(value, dict):
            return any(map(self.holds, (*value, *value.values())))
        if isinstance(value, (list, tuple)):
            return any(map(self.holds, value))
        if isinstance(value, str):
            return any(core in value for core in self.texts)
        return value in self.ids or value in self.floats


_PAIR = {"id": 0, "logprob": 1}


def values_at(value: Any, path: str) -> list[Any]:
    """Everything under a path of the table of redaction: through lists and pairs; `extra`: unknown keys."""
    if not path:
        return [value]
    if isinstance(value, list):
        if path in _PAIR and len(value) == 2 and not isinstance(value[0], list):
            return [value[_PAIR[path]]]
        return [found for item in value for found in values_at(item, path)]
    if not isinstance(value, dict):
        return []
    key, _, rest = path.partition(".")
    if key == "extra":
        return [{name: item for name, item in value.items() if "zq" in name}]
    return values_at(value[key], rest) if key in value else []


def records(plant: Planter) -> Iterator[dict[str, Any]]:
    """A trace as JSON lines, with canaries in every field that is no number."""
    yield {"record": "run", "schema": 1, **_run(plant)}
    requests = [plant.text("request name") for _ in range(plant.random.randint(1, 4))]
    for name in requests:
        yield {
            "record": "request",
            "request": name,
            "prompt_ids": [plant.id("prompt_ids") for _ in range(3)],
            "segment_map": {plant.text("segment_map"): [plant.id("segment_map")]},
            "prompt_digest": plant.text("prompt_digest"),
            "external_id": plant.text("external_id"),
            "reported": {
                "accept_length": 2.5,
                plant.text("request.reported"): plant.text("request.reported"),
            },
            plant.text("unknown key of request"): plant.text("unknown value of request"),
        }
    yield {
        "record": "tokens",
        "target": {str(plant.id("tokens.target")): plant.text("token text")},
        "draft": {str(plant.id("tokens.draft")): plant.text("token text")},
    }
    rows = [{"position": 0, "rms": plant.float("reference"), "projections": [plant.float("reference")] * 32}]
    yield {
        "record": "reference",
        "request": requests[0],
        "boundary": plant.id("reference.boundary"),
        "rows": rows,
        plant.text("unknown key of reference"): plant.text("unknown value of reference"),
    }
    # Some runs are of one id, so that rules which name it speak.
    step: dict[str, Any] = {}
    same = plant.id("constant id") if plant.random.random() < 0.3 else None
    for number in range(plant.random.randint(1, 30) if same is None else 260):
        name = plant.random.choice(requests)
        step = (
            _step(plant, name, number, same) if number < 30 else {**step, "step": number, "position": number}
        )
        yield {"record": "step", **step}
        if plant.random.random() < 0.05:
            yield {"record": "gap", "lost": 3, "reason": plant.text("gap.reason")}
        if plant.random.random() < 0.05:
            yield {"record": "amend", **_run(plant)}
    yield {"record": "end", "totals": {plant.text("end.totals"): 3}, plant.text("end"): plant.text("end")}


def _model(plant: Planter, role: str) -> dict[str, Any]:
    names = ("id", "revision", "dtype", "quantization")
    return {
        **{name: plant.text(f"{role}.{name}") for name in names},
        "vocab_size": 64,
        "num_layers": 8,
        "hidden_size": 16,
        "max_length": 512,
        plant.text(f"unknown key of {role}"): plant.text(f"unknown value of {role}"),
    }


def _run(plant: Planter) -> dict[str, Any]:
    word, choice = plant.text, plant.random.choice
    return {
        "created": word("created"),
        "recorder": {"name": word("recorder.name"), "version": "1.2.3+" + word("recorder.version", "{}")},
        "engine": {
            "name": word("engine.name"),
            "version": choice(["0.11.0.", "", "1."]) + word("engine.version", "{}"),
            "runner": word("engine.runner"),
            "flags": {
                word("flag name", "{}"): word("flag value"),
                "attention": word("known flag"),
                "torch": "2.0+" + word("known flag", "{}"),
                "from_target": [word("flag list")],
                "method": {word("flag map"): word("flag map")},
            },
        },
        "method": choice(["eagle3", "draft_model", word("method")]),
        "target": _model(plant, "target"),
        "draft": {
            **_model(plant, "draft"),
            "head_rows": 64,
            "rope": {"rope_theta": 1e4, "rope_type": word("rope"), word("rope key"): word("rope value")},
            "rope_declared": {"rope_theta": 2e4, "rope_type": word("rope"), word("rope key"): 1},
            "parameters": {
                name: [f"layers.0.{word(name, '{}')}.weight", word(name)]
                for name in ("missing", "unexpected", "unused")
            },
            "fingerprints": {
                word("fingerprint name"): {"shape": [16], "rms": 1.0, "digest": word("fingerprint digest")}
            },
        },
        "vocab_map": {
            "d2t": [plant.id("d2t") for _ in range(4)],
            "t2d": [plant.id("t2d") for _ in range(4)],
            **{n: word(f"vocab_map.{n}") for n in ("source", "applied", "digest", "digest_expected")},
        },
        "taps": {"declared": [2], "boundaries": [2],
                 "numbering": word("numbering"), "origin": word("origin")},
        "verification": {"rule": choice(["greedy", word("rule")]), "lossless": True,
                         word("rule key"): word("rule")},
        "sampling": {"temperature": 0.0, "seed": plant.id("seed"), "processors": [word("processors")]},
        "speculation": {"num_draft_tokens": 3, word("speculation key"): word("speculation value"),
                        "tree": {"topk": 2, word("tree key"): word("tree value")}},
        "tokenizer": {
            "digest": word("tokenizer digest"),
            "vocab_size": 64,
            "bos_id": plant.id("bos"),
            "eos_ids": [plant.id("eos")],
        },
        "template_digest": word("template"),
        "training": {"first_position_accuracy": 0.8, "data": word("training"), word("training key"): 1},
        "baseline": {"token_ns": 1000, "machine": word("baseline")},
        "control": word("control"),
        "reported": {"accept_length": 2.5, word("reported key"): 3.0},
        "capture": {
            "mode": word("capture mode"),
            "text": True,
            "unavailable": {word("unavailable key"): word("reason"),
                            "overlaps": word("reason", "the engine {}")},
        },
        "packed": {
            "by": word("packed"),
            "verdicts": choice([
                {},
                {"findings": [{"id": "tree/" + word("carried id", "{}"), "strength": "hint", "steps": [],
                               "summary": word("carried"), "advice": word("carried"),
                               "evidence": {word("carried"): word("carried")}}]},
            ]),
        },
        "hostname": word("unknown header value"),
        word("unknown header key"): {"user": word("unknown header value")},
    }  # fmt: skip


def _step(plant: Planter, request: str, number: int, same: int | None) -> dict[str, Any]:
    size = plant.random.randint(0, 3) if same is None else 3
    accepted = plant.random.randint(0, size) if same is None else 0
    one = (lambda where: same) if same is not None else plant.id
    proposal = [one("proposal_ids") for _ in range(size)]
    is_prompt = number == 0 or not size
    deep = plant.float("taps of the prompt") if is_prompt else 2.5
    word = plant.text
    return {
        "request": request,
        "step": number,
        "position": 10 + 2 * number,
        "max_batch_length": 600,
        "draft_ids": [one("draft_ids") for _ in range(size)],
        "proposal_ids": proposal,
        "draft_logprobs": [-0.5] * size,
        "draft_top": [[[plant.id("draft_top"), plant.float("draft_top")]] for _ in range(size)],
        "draft_inputs": [
            {"rms": 1.5, "token_position": 3, word("unknown key of input"): word("unknown value of input")}
        ],
        "target_ids": [plant.id("target_ids") for _ in range(size + 1)],
        "target_ranks": [2] * size,
        "target_top": [[[plant.id("target_top"), plant.float("target_top")]] for _ in range(size + 1)],
        "logits_kind": word("logits_kind"),
        "num_accepted": accepted,
        "emitted_ids": [*proposal[:accepted], plant.id("emitted_ids")],
        "final_kind": plant.random.choice(["corrected", word("final_kind")]),
        "stop": word("stop"),
        "segment": word("segment"),
        "mask": [word("mask")],
        "taps": [
            {"boundary": 2, "position": 3, "shape": [16], "dtype": word("taps.dtype"), "rms": deep,
             "projections": [deep] * 32, word("unknown key of tap"): word("unknown value of tap")},
            {"boundary": 0, "position": 3, "shape": [16], "dtype": "float32", "rms": plant.float("embedding"),
             "projections": [plant.float("embedding")] * 32},
        ],
        "nonfinite": {"draft_logits": 0,
                      word("unknown key of nonfinite"): word("unknown value of nonfinite")},
        "started_ns": plant.id("started_ns"),
        "flags": ["summed", word("flags")],
        word("unknown key of step"): {word("unknown key"): [word("unknown value"), plant.id("unknown id")]},
    }  # fmt: skip


# --- the search --------------------------------------------------------------------------------


def clothings(core: str) -> Iterator[bytes]:
    """The ways in which a text may lie in bytes; case is ignored by the search."""
    plain = core.encode()
    yield plain
    yield core.encode("utf-16-le")
    yield core.encode("utf-16-be")
    yield plain.hex().encode()
    for shift in range(3):
        coded = base64.b64encode(b"\0" * shift + plain)
        yield coded[4 if shift else 0 : len(coded) // 4 * 4 - 4]


def haystacks(data: bytes) -> Iterator[bytes]:
    """A zip as it is, every member, every frame's body and every column of the trace decompressed."""
    yield data
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for info in archive.infolist():
            member = archive.read(info)
            yield info.filename.encode() + info.comment + info.extra
            yield member
            if info.filename.endswith(".spectrace"):
                for _, _, _, body in msgpack.Unpacker(io.BytesIO(member)):
                    yield body
                    yield from _decompressed(msgpack.unpackb(body, strict_map_key=False) if body else None)


def _decompressed(value: Any) -> Iterator[bytes]:
    if isinstance(value, list) and [type(item) for item in value] == [int, int, bytes]:
        yield zlib.decompress(value[2])
    elif isinstance(value, list):
        for item in value:
            yield from _decompressed(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _decompressed(key)
            yield from _decompressed(item)


def numbers_in(path: Path) -> tuple[set[int], set[float]]:
    """Every integer and every float of a trace: all columns, decoded, and all other records."""
    integers: set[int] = set()
    floats: set[float] = set()
    with spectrace.open(path) as trace:
        for part in trace.parts:
            for chunk in part.chunks():
                for column in chunk.columns(*(leaf.number for leaf in LEAVES)).values():
                    into = floats if column.values.dtype.kind == "f" else integers
                    into.update(column.values.tolist())
        for line in export_lines(trace):
            _collect(json.loads(line), integers, floats)
    return integers, floats


def _collect(value: Any, integers: set[int], floats: set[float]) -> None:
    if isinstance(value, dict):
        for key, item in value.items():
            integers.update([int(key)] if key.isascii() and key.isdigit() else ())
            _collect(item, integers, floats)
    elif isinstance(value, list):
        for item in value:
            _collect(item, integers, floats)
    elif isinstance(value, float):
        floats.add(value)
    elif isinstance(value, int):
        integers.add(value)


def found_in(path: Path, plant: Planter) -> dict[str, str]:
    """Canaries that are in a zip -> where they were planted."""
    stacks = list(haystacks(path.read_bytes()))
    lower = b"\0".join(stacks).lower()
    exact = b"\0".join(stacks)
    found = {
        core: where
        for core, where in plant.texts.items()
        if any(c.lower() in lower or c in exact for c in clothings(core))
    }
    integers, floats = numbers_in(path)
    written = {int(n.replace(",", "")) for n in re.findall(r"\d[\d,]{7,}", lower.decode("latin-1"))}
    for id_, where in plant.ids.items():
        raw = struct.pack("<Q", id_) in exact or struct.pack(">Q", id_) in exact
        if raw or id_ in integers or id_ in written:
            found[str(id_)] = where
    for number, where in plant.floats.items():
        if number in floats:
            found[str(number)] = where
    return found


def plant_and_pack(seed: int, folder: Path, include: Iterable[str] = ()) -> tuple[Path, Planter]:
    """A random trace, packed: the zip, and what was planted."""
    plant = Planter(seed)
    lines = [json.dumps(record) for record in records(plant)]
    source = folder / plant.text("file name", "{}.spectrace")
    import_lines(lines, source)
    return packed_and_named(source, seed, include), plant


def packed_and_named(source: Path, seed: int, include: Iterable[str] = ()) -> Path:
    """The zip of a trace, beside it."""
    out = source.with_name(f"attach-{seed}.zip")
    with spectrace.open(source) as trace:
        pack(trace, out, name=out.name, include=frozenset(include))
    return out


def main(count: int) -> int:
    """Packs so many random traces and says where something was found; the number of such traces."""
    leaks = 0
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(count):
            out, plant = plant_and_pack(seed, Path(folder))
            found = found_in(out, plant)
            leaks += bool(found)
            if found:
                sys.stdout.write(f"trace {seed}: {', '.join(sorted(set(found.values())))}\n")
            for path in Path(folder).iterdir():
                path.unlink()
    sys.stdout.write(f"{count:,} traces packed, something found in {leaks:,}\n")
    return leaks


if __name__ == "__main__":
    sys.exit(bool(main(int(sys.argv[1]) if len(sys.argv) > 1 else 50)))

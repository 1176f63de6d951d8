"""What came in through an import does not leave either: canaries in what each engine or tool wrote."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from spectrace.importing.sources import import_parquet, import_stream
from tests.importing.test_sources import DATA, FILES, lines
from tests.report import canaries

IDS = 1 << 28
"""Ids are planted from here on: llama.cpp's log is read with at most nine digits."""
ID_LISTS = ("prompt_token_ids", "token_ids", "draft_tokens", "output_ids", "tokens")
ID_KEYS = ("bonus_token",)


def planted(value: Any, plant: canaries.Planter, key: str = "document") -> Any:
    """A document with a canary for each text and token id, and an unknown key in each object."""
    if isinstance(value, dict):
        found = {name: planted(item, plant, name) for name, item in value.items()}
        # A histogram's keys are numbers.
        is_free = not all(name.isdigit() for name in value)
        return found | ({plant.text("unknown key"): plant.text("unknown value")} if is_free else {})
    if isinstance(value, list):
        if key in ID_LISTS:
            return [plant.id(key) for _ in value]
        return [planted(item, plant, key) for item in value]
    if isinstance(value, str):
        return plant.text(key)
    return plant.id(key) if key in ID_KEYS else value


def of_json(name: str, plant: canaries.Planter) -> Iterator[bytes]:
    """A file of JSON documents."""
    whole = b"".join(lines(name))
    documents = [json.loads(whole)] if name.endswith(".json") else map(json.loads, lines(name))
    for document in documents:
        yield json.dumps(planted(document, plant)).encode() + b"\n"


def of_log(name: str, plant: canaries.Planter) -> Iterator[bytes]:
    """A log with the prompts and paths that llama-server writes at this level."""
    yield f"llama_model_loader: loaded meta data from {plant.text('path')}\n".encode()
    yield f'srv log_server_r: request: {{"prompt": "{plant.text("prompt")}"}}\n'.encode()
    ids: dict[bytes, bytes] = {}

    def other(token: bytes) -> bytes:
        return ids.setdefault(token, str(plant.id("token")).encode())

    for line in lines(name):
        yield _with_ids(line, other, plant)
        yield f"slot process_toke: text {plant.text('generated')}\n".encode()


def _with_ids(line: bytes, other: Callable[[bytes], bytes], plant: canaries.Planter) -> bytes:
    import re

    def candidate(found: re.Match[bytes]) -> bytes:
        return found[1] + other(found[2]) + found[3] + plant.text("piece", "{}").encode() + b"'"

    line = re.sub(rb"(draft candidate.*: +)(\d+)( \(.*\) ').*'", candidate, line)
    return re.sub(rb"(sampled=|generate_draft: id=|token, id=)(\d+)", lambda m: m[1] + other(m[2]), line)


def of_parquet(folder: Path, plant: canaries.Planter) -> Path:
    """Drafts and their sequences as specspecs writes them, and texts that it does not."""
    parquet = pytest.importorskip("pyarrow.parquet")
    import pyarrow

    names: dict[str, str] = {}
    ids: dict[int, int] = {}

    def other(row: dict[str, Any]) -> dict[str, Any]:
        row["sequence_id"] = names.setdefault(row["sequence_id"], plant.text("sequence_id"))
        for key in ("draft_tokens", "prompt_token_ids"):
            if key in row:
                row[key] = [ids.setdefault(token, plant.id(key)) for token in row[key]]
        if "emitted_token" in row:
            row["emitted_token"] = ids.setdefault(row["emitted_token"], plant.id("emitted_token"))
        return row | {"prompt_text": plant.text("prompt_text")}

    for name in ("drafts-1-00000.parquet", "sequences-1-00000.parquet"):
        rows = [other(row) for row in parquet.read_table(DATA / "specspecs" / name).to_pylist()]
        parquet.write_table(pyarrow.Table.from_pylist(rows), folder / name)
    return folder / "drafts-1-00000.parquet"


def source_with_canaries(name: str, folder: Path, plant: canaries.Planter) -> Path:
    """The trace of a file in which everything was planted."""
    source = folder / plant.text("file name", "{}.spectrace")
    if name == "specspecs":
        import_parquet(of_parquet(folder, plant), source)
    else:
        given = of_log(name, plant) if name.endswith(".log") else of_json(name, plant)
        found = import_stream(given, source, name=FILES[name])
        assert found.num_steps > 0
    return source


@pytest.mark.parametrize("name", [*FILES, "specspecs"])
def test_nothing_imported_leaves_the_machine(name: str, tmp_path: Path) -> None:
    """Names, models, prompts, paths, pieces and ids of a foreign file are in no member of the zip."""
    plant = canaries.Planter(1, ids=IDS)
    source = source_with_canaries(name, tmp_path, plant)
    assert canaries.found_in(canaries.packed_and_named(source, 1), plant) == {}
    open_zip = canaries.packed_and_named(source, 2, ("text", "paths"))
    assert canaries.found_in(open_zip, plant), "with everything included the search must find something"

"""The parquet files of specspecs: a ``drafts-*.parquet``, and the ``sequences-*.parquet`` beside it.

`draft_tokens` may begin with the token that the step before emitted, which is then always accepted. Where all
steps of a file do so, but the first ones, that token is taken for the last committed one.
Source: specspecs 0.1.0, specspecs/hooks.py ``DRAFT_SCHEMA``, ``SEQ_SCHEMA``, serve.py ``get_steps``.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from spectrace.errors import UsageError
from spectrace.importing.counting import FROM_ZERO, MAX_DRAFTED
from spectrace.importing.reading import MAX_COUNT, Refused, counted
from spectrace.importing.telling import Told

FACTS: Mapping[str, Any] = {"engine": {"name": "specspecs"}}
MAX_ROWS = 1 << 20
"""Most steps read of one file: they are put in the order of their sequences before they are written."""
_DRAFTS = ("sequence_id", "step", "draft_tokens", "acceptance_length", "emitted_token")
_SEQUENCES = ("sequence_id", "prompt_token_ids")
_ROWS_AT_ONCE = 4096

Row = Mapping[str, Any]


def is_parquet(path: Path) -> bool:
    """Whether a file begins as a parquet file does."""
    with path.open("rb") as file:
        return file.read(4) == b"PAR1"


def read_parquet(path: Path) -> Iterator[Told]:
    """The sequences of a file of drafts.

    Raises:
        Refused: it holds no drafts of specspecs.
        UsageError: pyarrow is not installed.
    """
    by_sequence: dict[str, list[Row]] = {}
    for row in _rows(path, _DRAFTS):
        by_sequence.setdefault(str(row["sequence_id"]), []).append(row)
    for rows in by_sequence.values():
        rows.sort(key=lambda row: counted(row["step"], "step"))
    begins_with_last = _begins_with_last(by_sequence.values())
    prompts = _prompts(path)
    for name, rows in by_sequence.items():
        prompt = prompts.get(name)
        yield Told(
            name=name,
            steps=_steps(rows, begins_with_last, 0 if prompt is None else len(prompt)),
            described={} if prompt is None else {"prompt_ids": prompt},
            notes={"position": FROM_ZERO} if prompt is None else {},
        )


def _rows(path: Path, names: Sequence[str]) -> Iterator[Row]:
    """Rows of some columns of a file."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise UsageError(
            "reading parquet needs pyarrow; type: pip install 'spectrace-tui[parquet]'"
        ) from None
    try:
        with parquet.ParquetFile(path) as file:
            missing = [name for name in names if name not in file.schema_arrow.names]
            if missing:
                raise Refused(f"it has no column {', no column '.join(missing)}")
            if file.metadata.num_rows > MAX_ROWS:
                raise Refused(f"{file.metadata.num_rows:,} rows; at most {MAX_ROWS:,} are read")
            for batch in file.iter_batches(_ROWS_AT_ONCE, columns=list(names)):
                yield from batch.to_pylist()
    except (pyarrow.ArrowException, OSError) as error:
        raise Refused(f"no parquet file that can be read ({' '.join(str(error).split())[:200]})") from None


def _prompts(path: Path) -> dict[str, list[int]]:
    """The prompts of the sequences in the same folder."""
    found = {}
    for beside in sorted(path.parent.glob("sequences-*.parquet")):
        for row in _rows(beside, _SEQUENCES):
            found[str(row["sequence_id"])] = _ids(row["prompt_token_ids"], "prompt_token_ids")
    return found


def _begins_with_last(sequences: Iterable[Sequence[Row]]) -> bool:
    """Whether each proposal begins with what the step before emitted."""
    pairs = [
        (before["emitted_token"], (after["draft_tokens"] or [None])[0])
        for rows in sequences
        for before, after in itertools.pairwise(rows)
    ]
    return bool(pairs) and all(emitted == first for emitted, first in pairs)


def _steps(rows: Sequence[Row], begins_with_last: bool, position: int) -> Iterator[dict[str, Any]]:
    for at, row in enumerate(rows):
        drafted = _ids(row["draft_tokens"], "draft_tokens")
        accepted = counted(row["acceptance_length"], "acceptance_length")
        if len(drafted) > MAX_DRAFTED:
            raise Refused(f"{len(drafted):,} draft tokens of one step; at most {MAX_DRAFTED:,} are believed")
        if accepted > len(drafted):
            raise Refused(f"step {at} accepts {accepted:,} of {len(drafted):,} drafted tokens")
        if begins_with_last and at and drafted:
            drafted, accepted = drafted[1:], max(accepted - 1, 0)
        emitted = [*drafted[:accepted], *_ids([row["emitted_token"]], "emitted_token")]
        fields: dict[str, Any] = {
            "position": position,
            "proposal_ids": drafted,
            "num_accepted": accepted,
            "emitted_ids": emitted,
        }
        if accepted == len(drafted):
            fields["final_kind"] = "bonus" if drafted else "none"
        yield fields
        position += len(emitted)


def _ids(value: Any, name: str) -> list[int]:
    if not isinstance(value, list) or not all(type(item) is int and abs(item) < MAX_COUNT for item in value):
        raise Refused(f"field {name} must be a list of token ids")
    return value

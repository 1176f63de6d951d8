"""AIPerf's records: ``profile_export.jsonl`` of ``--export-level records``, or acceptance records alone.

A `SpecDecodeAcceptanceRecord` is vLLM's payload with a sparse histogram ``{accepted: steps}``. The prompt's
length is not in it, but in ``metrics.input_sequence_length`` of the same line.
Source: AIPerf 0.13, common/models/spec_decode_models.py ``SpecDecodeAcceptanceRecord``,
common/models/record_models.py ``MetricRecordInfo.spec_decode_acceptance``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from spectrace.importing.reading import Refused, counted, inside, optional_count, text
from spectrace.importing.telling import Told
from spectrace.importing.vllm import told_of_metrics

FACTS: Mapping[str, Any] = {}
_HISTOGRAM = "acceptance_histogram"


def claims(document: Any) -> bool:
    """Whether a document is AIPerf's and has an acceptance record."""
    return _record(document) is not None


def requests(document: Any) -> Iterator[Told]:
    """The request of a line."""
    record = _record(document)
    if record is not None:
        yield _told(document, record)


def _record(document: Any) -> Mapping[str, Any] | None:
    record = inside(document, "spec_decode_acceptance")
    found = record if record is not None else document
    is_record = (
        isinstance(found, Mapping) and "engine" in found and isinstance(found.get(_HISTOGRAM), Mapping)
    )
    return found if is_record else None


def _told(document: Mapping[str, Any], record: Mapping[str, Any]) -> Told:
    histogram = {
        _key(key): counted(value, f"{_HISTOGRAM}.{key}") for key, value in record[_HISTOGRAM].items()
    }
    prompt = inside(document, "metrics", "input_sequence_length", "value")
    return told_of_metrics(
        record,
        histogram,
        name=text(document, "metadata", "x_request_id") or text(document, "metadata", "request_id"),
        prompt=prompt if type(prompt) is int and prompt >= 0 else None,
        completed=optional_count(record, "completion_tokens"),
        facts={"engine": {"name": text(record, "engine")}},
    )


def _key(key: str) -> int:
    """A key of the histogram, a number as text in JSON."""
    if not (key.isascii() and key.isdigit() and len(key) < 8):
        raise Refused(f"field {_HISTOGRAM} must be keyed by numbers of accepted tokens")
    return int(key)

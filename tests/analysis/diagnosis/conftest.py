"""Traces made as another engine would make them: JSON lines by the names of the trace model, then `import`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import spectrace
from spectrace import Trace
from spectrace.analysis.diagnosis import Diagnosis, Finding, diagnose
from spectrace.format.jsonl import import_lines

Record = Mapping[str, Any]
Diagnose = Callable[..., Diagnosis]


@pytest.fixture
def imported(tmp_path: Path) -> Iterator[Callable[..., Trace]]:
    """Make a trace of a header, steps and other records, and open it."""
    opened: list[Trace] = []

    def make(run: Record, steps: Iterable[Record], others: Iterable[Record] = ()) -> Trace:
        path = tmp_path / f"case{len(opened)}.spectrace"
        records = [{"record": "run", "schema": 1, **run}, *others, *({"record": "step", **s} for s in steps)]
        import_lines([json.dumps(record) for record in records], path)
        opened.append(spectrace.open(path))
        return opened[-1]

    yield make
    for trace in opened:
        trace.close()


@pytest.fixture
def diagnosed(imported: Callable[..., Trace]) -> Diagnose:
    """Diagnose a trace of a header, steps and other records."""

    def run_rules(run: Record, steps: Iterable[Record], others: Iterable[Record] = ()) -> Diagnosis:
        return diagnose(imported(run, steps, others))

    return run_rules


@pytest.fixture
def chain() -> Callable[..., list[dict[str, Any]]]:
    """Make chain steps from how many tokens each had accepted.

    Committed tokens, draft tokens and picks agree with the counts; what is not given is filled in.
    """

    def make(
        accepted: Iterable[int],
        num_draft_tokens: int = 4,
        *,
        request: str = "r0",
        vocab_size: int = 1000,
        start: int = 10,
        **fields: Any,
    ) -> list[dict[str, Any]]:
        steps, position = [], start
        for number, count in enumerate(accepted):
            proposal = [(7 * number + 31 * j) % (vocab_size - 2) + 1 for j in range(num_draft_tokens)]
            own = (proposal[count] + 1) % vocab_size if count < num_draft_tokens else 3
            steps.append(
                {
                    "request": request,
                    "step": number,
                    "position": position,
                    "proposal_ids": proposal,
                    "num_accepted": count,
                    "emitted_ids": [*proposal[:count], own],
                    **{key: value(number) if callable(value) else value for key, value in fields.items()},
                }
            )
            position += count + 1
        return steps

    return make


@pytest.fixture
def found() -> Callable[[Diagnosis, str], Finding]:
    """Return the one finding of an id, or fail with the ids that are there."""

    def find(diagnosis: Diagnosis, id_: str) -> Finding:
        ids = [finding.id for finding in diagnosis.findings]
        assert ids.count(id_) == 1, ids
        return next(finding for finding in diagnosis.findings if finding.id == id_)

    return find

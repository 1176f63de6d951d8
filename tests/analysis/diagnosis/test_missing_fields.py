"""Any field may be missing, in any combination: fewer fields can only mean fewer findings."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import spectrace
from spectrace.analysis.diagnosis import Diagnosis, diagnose
from spectrace.format.fields import REQUIRED
from spectrace.format.jsonl import import_lines

SETTINGS = settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])


def shift_positions(rich: Any) -> None:
    """Run the draft three positions late."""
    for step in rich.steps:
        step["draft_positions"] = [p + 3 for p in step["draft_positions"]]


def lose_a_layer(rich: Any) -> None:
    """Leave a weight out."""
    rich.run["draft"]["parameters"]["missing"] = ["midlayer.mlp.up_proj.weight"]


def read_directly(rich: Any) -> None:
    """Apply the table the wrong way."""
    table = rich.run["vocab_map"]["d2t"]
    for step in rich.steps:
        step["proposal_ids"] = [table[raw] for raw in step["draft_ids"]]


def feed_twice(rich: Any) -> None:
    """Let the draft's cache keep what was rejected, and the processors see one token."""
    for step in rich.steps:
        step["draft_kv_length"] += step["step"]
        step["processor_tokens"] = 1


def ask_nobody(rich: Any) -> None:
    """Take every first token without a value of the target."""
    for step in rich.steps:
        if step["num_accepted"] == 0:
            step |= {"num_accepted": 1, "emitted_ids": [step["proposal_ids"][0], step["target_ids"][1]]}
        step["target_ids"] = [None, *step["target_ids"][1:]]
        step["target_logprobs"] = [None, *step["target_logprobs"][1:]]
        step["target_ranks"] = [None, *step["target_ranks"][1:]]


def read_early(rich: Any) -> None:
    """Let two requests of one beginning start together, one of them with blocks of the other."""
    for record in rich.others:
        if record.get("request") in ("r1", "r2"):
            record["prompt_ids"] = [1, 5, 9]
    for step in rich.steps:
        step["prefix_hit_length"] = 3 if step["request"] == "r2" else 0


def nothing(rich: Any) -> None:
    """Leave the trace healthy."""


BREAKS: dict[str, Callable[[Any], None]] = {
    "healthy": nothing,
    "positions": shift_positions,
    "weights": lose_a_layer,
    "map": read_directly,
    "caches": feed_twice,
    "first token": ask_nobody,
    "prefix blocks": read_early,
}


def paths(section: Mapping[str, Any], prefix: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every field of the header, nested ones too."""
    for key, value in section.items():
        yield (*prefix, key)
        if isinstance(value, dict):
            yield from paths(value, (*prefix, key))


def diagnosed(run: Mapping[str, Any], steps: list[dict[str, Any]], others: list[dict[str, Any]]) -> Diagnosis:
    """What all rules say of a trace."""
    records = [
        {"record": "run", "schema": 1, **run},
        *others,
        *({"record": "step", **step} for step in steps),
    ]
    with TemporaryDirectory() as folder:
        path = Path(folder) / "t.spectrace"
        import_lines([json.dumps(record) for record in records], path)
        with spectrace.open(path) as trace:
            return diagnose(trace)


def rules(items: Iterable[Any]) -> set[str]:
    """First part of each id."""
    return {item.id.partition("/")[0] for item in items}


@pytest.mark.parametrize("name", BREAKS)
@SETTINGS
@given(data=st.data())
def test_dropping_fields_adds_no_finding(name: str, rich: Any, data: st.DataObject) -> None:
    """Whatever is dropped, in every step or in some, in the header or beside it, accuses nobody anew.

    A cause that was found and is no longer is one that could not be checked, and the rule says so.
    """
    rich = copy.deepcopy(rich)
    BREAKS[name](rich)
    steps = [{key: value for key, value in step.items() if value is not None} for step in rich.steps]
    before = diagnosed(rich.run, steps, rich.others).findings
    fields = sorted({key for step in steps for key in step} - set(REQUIRED))
    everywhere = data.draw(st.sets(st.sampled_from(fields)))
    here_and_there = data.draw(st.sets(st.sampled_from(fields), max_size=4))
    modulus = data.draw(st.integers(2, 5))
    for at, step in enumerate(steps):
        for key in everywhere | (here_and_there if at % modulus else set()):
            step.pop(key, None)
    run = copy.deepcopy(rich.run)
    for path in data.draw(st.sets(st.sampled_from(sorted(paths(run))))):
        section: Any = run
        for key in path[:-1]:
            section = section.get(key, {})
        section.pop(path[-1], None)
    kept = [record for record in rich.others if data.draw(st.booleans())]
    after = diagnosed(run, steps, kept)
    ids = {finding.id for finding in before}
    assert {finding.id for finding in after.findings} <= ids | {"workload/too-small"}
    lost = rules(before) - rules(after.findings)
    assert lost <= rules(after.not_checked)

"""Traces as another engine would make them: JSON lines by the names of the trace model, then import."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import spectrace
from spectrace import Trace
from spectrace.analysis.diagnosis import Diagnosis, Finding, diagnose
from spectrace.format.jsonl import import_lines
from spectrace.format.projections import project

Record = Mapping[str, Any]
Diagnose = Callable[..., Diagnosis]


@pytest.fixture
def imported(tmp_path: Path) -> Iterator[Callable[..., Trace]]:
    """Make a trace of a header, steps and other records, and open it."""
    opened: list[Trace] = []

    def make(run: Record, steps: Iterable[Record], others: Iterable[Record] = ()) -> Trace:
        path = tmp_path / f"case{len(opened)}.spectrace"
        records = [
            {"record": "run", "schema": 1, **run},
            *others,
            *({"record": "step", **_there(s)} for s in steps),
        ]
        import_lines([json.dumps(record) for record in records], path)
        opened.append(spectrace.open(path))
        return opened[-1]

    yield make
    for trace in opened:
        trace.close()


def _there(fields: Record) -> Record:
    return {name: value for name, value in fields.items() if value is not None}


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


class Rich:
    """A healthy trace with every field, to be broken in one place."""

    def __init__(
        self, run: dict[str, Any], steps: list[dict[str, Any]], others: list[dict[str, Any]]
    ) -> None:
        self.run = run
        self.steps = steps
        self.others = others


@pytest.fixture
def rich() -> Rich:
    """Return a healthy greedy EAGLE-3 trace of six requests that has every field a rule reads."""
    return make_rich()


KEPT = [*range(64), *range(100, 612, 2)]
VOCAB, DRAFTED, REQUESTS, STEPS, HIDDEN = 640, 3, 6, 40, 64
BOUNDARIES = (1, 2, 3)


def make_rich(seed: int = 0) -> Rich:
    """Build the healthy trace; nothing in it is random but the ids and the states."""
    rng = np.random.default_rng(seed)
    states = {k: rng.normal(size=(8, HIDDEN)) * (1 + k) for k in range(5)}
    run: dict[str, Any] = {
        "method": "eagle3",
        "engine": {"name": "loop", "version": "1"},
        "target": {"vocab_size": VOCAB, "hidden_size": HIDDEN, "num_layers": 4, "dtype": "bfloat16"},
        "draft": {
            "head_rows": len(KEPT),
            "hidden_size": HIDDEN,
            "max_length": 4096,
            "dtype": "bfloat16",
            "rope": {"rope_theta": 10000.0},
            "rope_declared": {"rope_theta": 10000.0},
            "parameters": {"missing": [], "unexpected": [], "unused": []},
        },
        "vocab_map": {"d2t": [id_ - raw for raw, id_ in enumerate(KEPT)], "t2d": KEPT, "source": "checkpoint",
                      "applied": "offset", "digest": "a", "digest_expected": "a"},
        "taps": {"declared": list(BOUNDARIES), "numbering": "input", "origin": "config",
                 "boundaries": list(BOUNDARIES), "order": [0, 1, 2], "normed": False},
        "verification": {"rule": "greedy", "lossless": True},
        "sampling": {"temperature": 0.0, "processors": ["RepetitionPenalty"]},
        "speculation": {"num_draft_tokens": DRAFTED},
        "tokenizer": {"bos_id": 1, "eos_ids": [2]},
        "template_digest": "t",
        "training": {"first_position_accuracy": 0.8, "template_digest": "t"},
        "baseline": {"token_ns": 20_000_000},
    }  # fmt: skip
    others: list[dict[str, Any]] = [
        {"record": "request", "request": f"r{r}", "prompt_ids": [1, 5 + r, 9], "prompt_digest": f"d{r}"}
        for r in range(REQUESTS)
    ]
    others += [
        {"record": "reference", "boundary": k, "rows": [
            {"position": at, **_print(row)} for at, row in enumerate(rows)]}
        for k, rows in states.items()
    ]  # fmt: skip
    others.append({"record": "tokens", "target": {"5": "a", "6": "b"}, "draft": {"5": "a", "6": "b"}})
    steps = [step for r in range(REQUESTS) for step in _rich_steps(rng, r, states)]
    accepted = sum(step["num_accepted"] for step in steps)
    run["reported"] = {"accept_length": round(1 + accepted / len(steps), 2)}
    return Rich(run, steps, others)


def _print(row: Any) -> dict[str, Any]:
    return {"rms": float(np.sqrt((row * row).mean())), "projections": project(row)[0].tolist()}


def _rich_steps(rng: Any, request: int, states: Mapping[int, Any]) -> Iterator[dict[str, Any]]:
    position = 8
    for number in range(STEPS):
        raw = rng.integers(3, len(KEPT), DRAFTED).tolist()
        mapped = [KEPT[r] for r in raw]
        count = int(rng.choice(DRAFTED + 1, p=[0.25, 0.2, 0.2, 0.35]))
        picks = [*mapped[:count], *((mapped[j] + 1) % VOCAB for j in range(count, DRAFTED)), 7]
        emitted = [*mapped[:count], picks[count]]
        logprobs = [-0.3] * count + [-3.0] * (DRAFTED - count)
        started = (number * REQUESTS + request) * 20_000_000
        yield {
            "request": f"r{request}",
            "step": number,
            "batch_row": request,
            "rank": 0,
            "engine_step": number,
            "max_batch_length": position + 9,
            "position": position,
            "draft_ids": raw,
            "proposal_ids": mapped,
            "draft_logprobs": [-0.5] * DRAFTED,
            "draft_entropy": [1.5] * DRAFTED,
            "draft_top": [[[r, -0.5], [1, -2.0]] for r in raw],
            "draft_positions": [position - 2 + j for j in range(DRAFTED)],
            "draft_inputs": [{"rms": 3.0}, {"rms": 2.5}, {"rms": 2.4}],
            "target_ids": picks,
            "target_logprobs": logprobs,
            "target_ranks": [1] * count + [2] * (DRAFTED - count),
            "target_gaps": [4.0] * (DRAFTED + 1),
            "target_top": [[[pick, -0.3], [3, -4.3]] for pick in picks],
            "overlaps": [0.8] * DRAFTED,
            "logits_kind": "processed",
            "num_accepted": count,
            "num_accepted_reported": count,
            "emitted_ids": emitted,
            "final_kind": "bonus" if count == DRAFTED else "corrected",
            "segment": "answer",
            "draft_kv_length": position - 1,
            "target_kv_length": position,
            "prefix_hit_length": 0,
            "mask": ["on"] * len(emitted),
            "processor_tokens": len(emitted),
            "nonfinite": {"draft_logits": 0, "target_logits": 0},
            "draft_ns": 3_000_000,
            "verify_ns": 12_000_000,
            "step_ns": 16_000_000,
            "started_ns": started,
            "flags": ["prefill"] if number == 0 else [],
            "taps": [
                {
                    "boundary": k,
                    "position": at,
                    "shape": [1, 8, HIDDEN],
                    "dtype": "float32",
                    "nonfinite": 0,
                    **_print(
                        states[k][at] if request == 0 else states[k][at] * 0.5 + rng.normal(size=HIDDEN)
                    ),
                }
                for k in BOUNDARIES
                for at in range(8)
            ]
            if number == 0
            else None,
        }
        position += count + 1

"""Files of strangers: whatever they claim ends in one sentence, soon, and nothing is written."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from spectrace.errors import ImportFailed
from spectrace.importing.sources import import_stream
from tests.importing.test_sources import imported, jsonl, lines

VLLM: dict[str, Any] = {
    "metrics": {
        "speculative_decoding": {
            "acceptance_histogram": [1, 0, 1, 0],
            "num_spec_steps": 2,
            "num_accepted_draft_tokens": 2,
            "num_draft_tokens": 6,
            "num_spec_tokens": 3,
            "per_step_accepted": [0, 2],
            "per_step_drafted": [3, 3],
        }
    }
}
SGLANG: dict[str, Any] = {
    "meta_info": {
        "spec_verify_ct": 2,
        "spec_num_proposed_drafts": 6,
        "spec_num_correct_drafts": 2,
        "spec_correct_drafts_histogram": [1, 0, 1],
    }
}
LLAMA: dict[str, Any] = {"timings": {"draft_n": 6, "draft_n_accepted": 2, "predicted_n": 4, "prompt_n": 3}}
AIPERF: dict[str, Any] = {
    "spec_decode_acceptance": {
        "engine": "vllm",
        "acceptance_histogram": {"0": 1, "2": 1},
        "num_spec_steps": 2,
        "num_draft_tokens": 6,
    }
}
DETAIL = {
    "req_pool_index": 0, "prefix_len": 4, "verify_len": 3, "acc_len": 2, "correct_drafts": 1,
    "bonus_token": 7, "draft_tokens": [5, 6],
}  # fmt: skip
DSPARK: dict[str, Any] = {
    "verify_num_draft_tokens": 3,
    "gamma": 2,
    "records": [{"forward_ct": 1, "reqs": [DETAIL]}],
}
MANY = 10**9
ABSURD: tuple[Any, ...] = (-1, 1.5, float("nan"), float("inf"), "7", True, [], {}, 2**70, None)


def vllm(**fields: Any) -> dict[str, Any]:
    """Response of vLLM with other metrics."""
    document = copy.deepcopy(VLLM)
    document["metrics"]["speculative_decoding"].update(fields)
    return document


def without_lists(**fields: Any) -> dict[str, Any]:
    """The same without lists per step."""
    return vllm(per_step_accepted=None, per_step_drafted=None, **fields)


WRONG: list[tuple[dict[str, Any], str]] = [
    (vllm(per_step_accepted=[0, 4]), "step 1 accepts 4 of 3 drafted tokens"),
    (vllm(per_step_accepted=[0]), "differ in length"),
    (vllm(per_step_accepted=[0, -2]), r"per_step_accepted\[1\] must be a count"),
    (vllm(per_step_accepted=[1, 2]), "per_step_accepted comes to 3, acceptance_histogram says 2"),
    (vllm(per_step_drafted=[3, 2]), "per_step_drafted comes to 5, num_draft_tokens says 6"),
    (vllm(per_step_drafted="all"), "per_step_drafted must be a list"),
    (vllm(num_spec_steps=3), "acceptance_histogram comes to 2, num_spec_steps says 3"),
    (vllm(num_accepted_draft_tokens=9), "num_accepted_draft_tokens says 9"),
    (vllm(per_step_drafted=[MANY, 3], num_draft_tokens=MANY + 3), "at most 4,096 are believed"),
    (without_lists(num_draft_tokens=1), "2 tokens are accepted of 1 drafted"),
    (without_lists(num_draft_tokens=7), "7 tokens are more than 2 steps of at most 3 draft"),
    (
        without_lists(acceptance_histogram=[MANY], num_spec_steps=MANY, num_accepted_draft_tokens=0),
        "1,000,000,000 steps of one request",
    ),
    (without_lists(num_spec_tokens=1), "6 tokens are more than 2 steps of at most 1 draft"),
    ({"meta_info": {**SGLANG["meta_info"], "spec_verify_ct": 3}}, "spec_verify_ct is 3"),
    ({"meta_info": {**SGLANG["meta_info"], "spec_num_correct_drafts": 3}}, "spec_num_correct_drafts 3"),
    ({"timings": {"draft_n": 2, "draft_n_accepted": 3}}, "3 tokens are accepted of 2 drafted"),
    ({"timings": {"draft_n": MANY, "draft_n_accepted": 3}}, "at most 262,144 are believed"),
    (
        {"spec_decode_acceptance": {**AIPERF["spec_decode_acceptance"], "acceptance_histogram": {"x": 1}}},
        "keyed by numbers",
    ),
    (
        {**DSPARK, "records": [{"reqs": [{**DETAIL, "acc_len": 9}]}]},
        r"records\[0\].*8 tokens are accepted of 2",
    ),
    ({**DSPARK, "records": [{"reqs": [7]}]}, r"records\[0\].reqs\[0\]: must be an object"),
    ({**DSPARK, "records": [7]}, r"records\[0\] must be an object"),
]


@pytest.mark.parametrize(("document", "says"), WRONG)
def test_contradictions_and_absurd_claims_are_refused(
    tmp_path: Path, document: dict[str, Any], says: str
) -> None:
    """The line and the field are named; the good lines before do not make half a trace."""
    good = LLAMA if "timings" in document else None
    given = jsonl(*([good] if good else []), document)
    with pytest.raises(ImportFailed, match=f"line {len(given)}: .*{says}"):
        imported(tmp_path, given)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("whole", [VLLM, without_lists(), SGLANG, LLAMA, AIPERF, DSPARK])
def test_any_value_anywhere_ends_in_a_trace_or_a_sentence(tmp_path: Path, whole: dict[str, Any]) -> None:
    """Each value of a document in turn is replaced by something absurd, or left out."""
    for change in changes(whole):
        try:
            imported(tmp_path, jsonl(change)).close()
        except ImportFailed as error:
            assert "\n" not in str(error)  # noqa: PT017


def changes(whole: Any) -> list[Any]:
    """The document with one value changed, in every way."""
    found: list[Any] = []

    def walk(value: Any, put: Callable[[Any], Any]) -> None:
        found.extend(put(absurd) for absurd in ABSURD)
        keys = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
        for key in list(keys):
            walk(value[key], partial(_inside, put, value, key))
        if isinstance(value, dict):
            found.extend(put({k: v for k, v in value.items() if k != key}) for key in value)

    walk(whole, lambda new: new)
    return found


def _inside(put: Callable[[Any], Any], value: Any, key: Any, new: Any) -> Any:
    changed = copy.copy(value)
    changed[key] = new
    return put(changed)


@pytest.mark.parametrize(
    "given",
    [
        b"[" * 100_000,
        b'{"metrics":' * 100_000,
        b'{"a": ' + b"9" * 10_000 + b"}",
        b'{"metrics": {"speculative_decoding"',
        b'{"id": "\xff\xfe"}',
        b"data: {\n",
        b'{"a": 1}\n{"b": \n',
    ],
)
def test_broken_json_is_one_sentence(tmp_path: Path, given: bytes) -> None:
    """Deep, endless or cut documents and bytes that are no text."""
    with pytest.raises(ImportFailed) as error:
        imported(tmp_path, given.splitlines(keepends=True))
    assert len(str(error.value)) < 500
    assert "\n" not in str(error.value)


def test_a_document_too_large_is_refused_before_it_is_held(tmp_path: Path) -> None:
    """One that spans lines is read up to a limit."""
    taken = 0

    def endless() -> Any:
        nonlocal taken
        yield b"{\n"
        while True:
            taken += 1
            yield b" " * (1 << 20) + b"\n"

    with pytest.raises(ImportFailed, match="more than"):
        import_stream(endless(), tmp_path / "out.spectrace", name="vllm")
    assert taken < 100


def test_names_and_texts_are_shown_as_escapes(tmp_path: Path) -> None:
    """What a document says of itself reaches no terminal raw."""
    document = {**vllm(num_spec_steps=3), "id": "\x1b[31m"}
    with pytest.raises(ImportFailed) as error:
        imported(tmp_path, jsonl(document))
    assert str(error.value).isprintable()


def test_the_real_files_cut_anywhere(tmp_path: Path) -> None:
    """A file that ends early gives what it holds, or one sentence."""
    for name in (
        "vllm-detailed.jsonl",
        "sglang.jsonl",
        "aiperf.jsonl",
        "llama-timings.jsonl",
        "llama-server.log",
    ):
        whole = b"".join(lines(name))
        for at in range(1, len(whole), max(1, len(whole) // 40)):
            try:
                imported(tmp_path, whole[:at].splitlines(keepends=True)).close()
            except ImportFailed as error:
                assert str(error).isprintable()  # noqa: PT017


def test_json_says_nan(tmp_path: Path) -> None:
    """NaN among the engine's own rates is no number, and no reason to lose the counts."""
    text = json.dumps(vllm(mean_acceptance_length=float("nan"), draft_acceptance_rate=float("inf")))
    with imported(tmp_path, [text.encode()]) as trace:
        assert trace.run.reported is None
        assert trace.counts.accepted == 2

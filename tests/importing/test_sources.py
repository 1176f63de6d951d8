"""What engines write becomes a trace: recognised by itself, and its numbers are the engine's own."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

import spectrace
from spectrace.analysis.acceptance import accept_length, acceptance_rate
from spectrace.analysis.breakdown import break_down
from spectrace.analysis.curves import curves
from spectrace.analysis.series import in_cells, series_of
from spectrace.errors import ImportFailed
from spectrace.importing.sources import NAMES, import_stream
from spectrace.tui.loader import Loader
from spectrace.tui.minimap import rejected_shares

DATA = Path(__file__).parent.parent / "data/imports"
FILES = {
    "vllm-detailed.jsonl": "vllm",
    "vllm-summary.jsonl": "vllm",
    "vllm-offline.json": "vllm",
    "sglang.jsonl": "sglang",
    "dspark.json": "dspark",
    "llama-timings.jsonl": "llama.cpp",
    "llama-server.log": "llama.cpp-log",
    "aiperf.jsonl": "aiperf",
}
COUNTED = [name for name, source in FILES.items() if source not in ("dspark", "llama.cpp-log")]
"""Files that have counts only."""


def lines(name: str) -> list[bytes]:
    """Lines of a file of tests/data/imports."""
    return (DATA / name).read_bytes().splitlines(keepends=True)


def imported(tmp_path: Path, given: Iterable[bytes] | str, name: str | None = None) -> Any:
    """The trace that comes of a file, or of lines; its fields are taken to be there."""
    out = tmp_path / "out.spectrace"
    out.unlink(missing_ok=True)
    import_stream(lines(given) if isinstance(given, str) else given, out, source="given", name=name)
    return spectrace.open(out)


def jsonl(*documents: Any) -> list[bytes]:
    """Documents, one a line."""
    return [json.dumps(document).encode() + b"\n" for document in documents]


def test_every_file_has_its_line() -> None:
    """The table above is the folder, and its README says of each file where it comes from."""
    said = (DATA / "README.md").read_text()
    files = {path.name for path in DATA.iterdir() if path.is_file()} - {"README.md"}
    assert files == set(FILES)
    assert all(f"`{name}`" in said for name in (*files, "specspecs/"))


@pytest.mark.parametrize("name", FILES)
def test_a_source_is_recognised(tmp_path: Path, name: str) -> None:
    """What a file holds tells who wrote it, and naming the source gives the same trace."""
    out = tmp_path / "a.spectrace"
    found = import_stream(lines(name), out)
    assert found.source == FILES[name]
    with spectrace.open(out) as trace, imported(tmp_path, name, FILES[name]) as other:
        assert trace.state == "closed"
        assert len(trace) == found.num_steps > 0
        assert [*trace] == [*other]
        assert trace.problems == []


def test_vllms_own_numbers_come_out(tmp_path: Path) -> None:
    """Of one response, of several, and of an offline run: steps, tokens, histogram and both rates."""
    for name in ("vllm-detailed.jsonl", "vllm-summary.jsonl"):
        for response in map(json.loads, lines(name)):
            metrics = response["metrics"]["speculative_decoding"]
            with imported(tmp_path, jsonl(response)) as trace:
                check_metrics(trace, metrics)
                assert trace.run.reported["accept_length"] == metrics["mean_acceptance_length"]
                assert [request.request for request in trace.requests] == [response["id"]]
    metrics = [
        output["spec_decode_metrics"] for run in json.loads((DATA / "vllm-offline.json").read_text())
        for output in run["outputs"]
    ]  # fmt: skip
    with imported(tmp_path, "vllm-offline.json") as trace:
        told = [step for one in metrics for step in zip(one["per_step_drafted"], one["per_step_accepted"])]
        assert [(len(step.proposal_ids), step.num_accepted) for step in trace] == told


def check_metrics(trace: Any, metrics: Mapping[str, Any]) -> None:
    """A trace against vLLM's payload."""
    counts = trace.counts
    assert counts.proposals == metrics["num_spec_steps"]
    assert counts.drafted == metrics["num_draft_tokens"]
    assert counts.accepted == metrics["num_accepted_draft_tokens"]
    assert accept_length(counts) == metrics["mean_acceptance_length"]
    assert acceptance_rate(counts) == metrics["draft_acceptance_rate"]
    histogram = metrics["acceptance_histogram"]
    while histogram and not histogram[-1]:
        histogram = histogram[:-1]
    assert counts.accepted_histogram == histogram
    if metrics.get("per_step_accepted"):
        assert [step.num_accepted for step in trace] == metrics["per_step_accepted"]
        assert [len(step.proposal_ids) for step in trace] == metrics["per_step_drafted"]


def test_positions_follow_the_prompt(tmp_path: Path) -> None:
    """The first round verifies what comes after the prompt and its own token; each goes on from there."""
    with imported(tmp_path, "vllm-detailed.jsonl") as trace:
        at: dict[str, int] = {}
        prompts = {
            r["id"]: r["usage"]["prompt_tokens"] for r in map(json.loads, lines("vllm-detailed.jsonl"))
        }
        for step in trace:
            assert step.position == at.get(step.request, prompts[step.request] + 1)
            assert set(step.proposal_ids) <= {None}
            assert step.emitted_ids == (None,) * (step.num_accepted + 1)
            at[step.request] = step.position + step.num_accepted + 1
        assert "position" not in trace.run.capture.unavailable


def test_rounds_that_are_not_told_are_noticed(tmp_path: Path) -> None:
    """An answer longer than what the rounds committed has tokens from others: no position is relied on."""
    response = json.loads(lines("vllm-detailed.jsonl")[0])
    for more, reason in ((-3, None), (0, None), (1, "rounds without a draft")):
        other = json.loads(json.dumps(response))
        other["usage"]["completion_tokens"] += more
        with imported(tmp_path, jsonl(other)) as trace:
            said = trace.run.capture.unavailable.get("position")
            assert (said or "").startswith(reason or "")
            assert (said is None) == (reason is None)


def test_sglangs_own_numbers_come_out(tmp_path: Path) -> None:
    """Verifications, drafts, accepted drafts, rate and histogram; the shape of proposals is left open."""
    for response in map(json.loads, lines("sglang.jsonl")):
        meta = response["meta_info"]
        with imported(tmp_path, jsonl(response)) as trace:
            counts = trace.counts
            assert counts.proposals == meta["spec_verify_ct"]
            assert counts.drafted == meta["spec_num_proposed_drafts"]
            assert counts.accepted == meta["spec_num_correct_drafts"]
            assert acceptance_rate(counts) == meta["spec_accept_rate"]
            assert counts.accepted_histogram == meta["spec_correct_drafts_histogram"]
            assert trace.run.reported["accept_length"] == meta["spec_accept_length"]
            assert "tree" in {item.id for item in spectrace.diagnose(trace).not_checked}
    streamed = [{"meta_info": {**meta, "finish_reason": None}}, {"meta_info": meta}]
    with imported(tmp_path, jsonl(*streamed)) as trace:
        assert len(trace.requests) == 1


def test_a_dspark_dump_has_ids(tmp_path: Path) -> None:
    """Every round of every request: what was verified, what was committed, at its place in the text."""
    (state,) = json.loads((DATA / "dspark.json").read_text())["internal_states"]
    with imported(tmp_path, "dspark.json") as trace:
        steps = {(step.request, step.engine_step): step for step in trace}
        details = [
            (record["forward_ct"], row, detail)
            for record in state["dspark_info_record"]["records"]
            for row, detail in enumerate(record["reqs"])
        ]
        assert len(steps) == len(details)
        for forward, row, detail in details:
            step = steps[detail["rid"], forward]
            assert step.batch_row == row
            assert step.position == detail["prefix_len"] + 1
            assert list(step.proposal_ids) == detail["draft_tokens"][: detail["verify_len"] - 1]
            assert step.num_accepted == detail["acc_len"] - 1
            assert step.emitted_ids[-1] == detail["bonus_token"]
        assert spectrace.diagnose(trace).findings[0].id == "workload/too-small"


def test_sums_are_no_proposals(tmp_path: Path) -> None:
    """llama-server's timings give drafted and accepted tokens, and no rate that needs rounds."""
    timings = [json.loads(line)["timings"] for line in lines("llama-timings.jsonl")]
    with imported(tmp_path, "llama-timings.jsonl") as trace:
        counts = trace.counts
        assert counts.drafted == sum(timing["draft_n"] for timing in timings)
        assert counts.accepted == sum(timing["draft_n_accepted"] for timing in timings)
        assert counts.emitted == sum(timing["predicted_n"] for timing in timings)
        assert acceptance_rate(counts) == counts.accepted / counts.drafted
        assert (counts.proposals, accept_length(counts), counts.proposed_at, counts.rejected) == (
            0,
            None,
            [],
            0,
        )
        assert spectrace.diagnose(trace).measured["proposals"] == 0
        assert trace.find_rejected(0) is None
        assert spectrace.compare(trace, trace).acceptance.proposals == (0, 0)
        by_request = [group.counts for group in break_down(trace, "request")]
        assert [(one.drafted, one.proposals, accept_length(one)) for one in by_request] == [
            (timing["draft_n"], 0, None) for timing in timings
        ]
        assert accept_length(in_cells(series_of(trace), 1)[0]) is None
        drawn = curves(trace)
        assert (drawn.over_time, drawn.by_context, drawn.by_row) == ((), (), ())
        assert rejected_shares(Loader(trace), 10) == [None] * 10
    partial = {"stop": False, "timings": timings[0]}
    with imported(tmp_path, jsonl(partial, {"stop": True, "timings": timings[0]})) as trace:
        assert len(trace) == 1


def test_aiperfs_records_are_vllms_numbers(tmp_path: Path) -> None:
    """Each line with an acceptance record is a request; the others are counted, not lost in silence."""
    out = tmp_path / "out.spectrace"
    assert import_stream(lines("aiperf.jsonl"), out).num_silent == 1
    for line in map(json.loads, lines("aiperf.jsonl")):
        record = line.get("spec_decode_acceptance")
        for document in [line, record] if record else ():
            with imported(tmp_path, jsonl(document)) as trace:
                assert trace.counts.drafted == record["num_draft_tokens"]
                assert accept_length(trace.counts) == record["mean_acceptance_length"]
                assert acceptance_rate(trace.counts) == record["draft_acceptance_rate"]
                told = record.get("per_step_accepted")
                assert told is None or [step.num_accepted for step in trace] == told
                assert trace.run.engine.name == "vllm"


ORDERLY = {"positions/falls-with-length", "window/length", "drift/over-time"}
"""Rules that compare early with late, or short texts with long ones."""


def test_no_rule_sees_an_order_that_nobody_told(tmp_path: Path) -> None:
    """A histogram's steps are shuffled, the same way each time, and rules about trends answer nothing of it.

    Laid out by acceptance they would show a fall that is not there.
    """
    histogram = [900, 800, 700, 600]
    metrics = {"acceptance_histogram": histogram, "num_draft_tokens": 9000, "num_spec_tokens": 3}
    responses = [
        {"id": f"r{n}", "usage": {"prompt_tokens": 10}, "metrics": {"speculative_decoding": metrics}}
        for n in range(6)
    ]
    with imported(tmp_path, jsonl(*responses)) as trace:
        accepted = [step.num_accepted for step in trace]
        found = spectrace.diagnose(trace)
        assert accepted[:3000] != sorted(accepted[:3000])
        assert {item.id for item in found.not_checked} >= ORDERLY
        assert [finding.id for finding in found.findings] == []
        for name in ("step", "position"):
            assert "shuffled" in trace.run.capture.unavailable[name]
    with imported(tmp_path, jsonl(*responses)) as trace:
        assert [step.num_accepted for step in trace] == accepted


@pytest.mark.parametrize("name", COUNTED)
def test_rules_that_need_ids_say_so(tmp_path: Path, name: str) -> None:
    """Nothing is cleared by looking at ids that are null, and whatever is missing has its reason."""
    with imported(tmp_path, name) as trace:
        found = spectrace.diagnose(trace)
        about_ids = {
            "draft-head/constant",
            "tokenizer",
            "vocab-map",
            "metrics/after-eos",
            "workload/degenerate",
        }
        assert not {item.id for item in found.cleared} & about_ids
        assert {finding.id for finding in found.findings} <= {"workload/too-small"}
        reasons = trace.run.capture.unavailable
        assert {"proposal_ids", "emitted_ids", "target_logprobs", "draft_top", "taps"} <= set(reasons)
        assert all(reasons.values())


def test_export_gives_the_same_trace_again(tmp_path: Path) -> None:
    """A trace of counts goes through JSON lines like any other, nulls and reasons included."""
    from spectrace.format.jsonl import export_lines, import_lines

    for name in FILES:
        again = tmp_path / f"{name}.spectrace"
        with imported(tmp_path, name) as trace:
            written = list(export_lines(trace))
        import_lines(written, again)
        with spectrace.open(again) as trace:
            assert list(export_lines(trace)) == written


def test_names_that_occur_twice_are_told_apart(tmp_path: Path) -> None:
    """Two responses of one id are two requests."""
    (line, *_) = lines("vllm-detailed.jsonl")
    with imported(tmp_path, [line, line, line]) as trace:
        names = [request.request for request in trace.requests]
        assert len(set(names)) == 3
        assert names[1] == f"{names[0]}#2"


def test_a_streamed_response_is_read(tmp_path: Path) -> None:
    """Server-sent events, of which only the last says anything."""
    response = lines("vllm-detailed.jsonl")[0].strip()
    pieces = [b'data: {"choices":[]}\n', b"\n", b": ping\n", b"data: " + response + b"\n", b"data: [DONE]\n"]
    with imported(tmp_path, pieces) as trace:
        assert len(trace) == json.loads(response)["metrics"]["speculative_decoding"]["num_spec_steps"]


def test_one_document_over_many_lines_is_read(tmp_path: Path) -> None:
    """A list of responses, pretty-printed, behind a byte order mark."""
    responses = [json.loads(line) for line in lines("vllm-detailed.jsonl")]
    text = b"\xef\xbb\xbf" + json.dumps(responses, indent=2).encode()
    with imported(tmp_path, text.splitlines(keepends=True)) as trace:
        assert len(trace.requests) == len(responses)


def test_spectraces_own_lines_are_read_as_ever(tmp_path: Path) -> None:
    """JSON lines that `export` wrote are no foreign format, also behind empty lines."""
    own = [b"\n", *(DATA.parent / "minimal-v1.jsonl").read_bytes().splitlines(keepends=True)]
    with imported(tmp_path, own) as trace:
        assert len(trace) == 3


@pytest.mark.parametrize(
    "given", [b"", b"hello\n", b"{}\n", b'[1, "two", null]\n', b"\x00\xff\n", b'{"a": 1}\n' * 9]
)
def test_an_unknown_format_is_one_sentence_that_names_the_known(tmp_path: Path, given: bytes) -> None:
    """Nothing is written, and what import reads is listed."""
    with pytest.raises(ImportFailed) as error:
        imported(tmp_path, given.splitlines(keepends=True))
    said = str(error.value)
    assert all(name in said for name in NAMES)
    assert "\n" not in said
    assert list(tmp_path.iterdir()) == []


def test_the_wrong_name_says_what_it_looks_for(tmp_path: Path) -> None:
    """--from sglang of vLLM's responses."""
    with pytest.raises(ImportFailed, match="in the way of sglang"):
        imported(tmp_path, "vllm-detailed.jsonl", "sglang")

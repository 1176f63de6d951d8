"""What a pack holds and what it does not: canaries, the table of fields, verdicts, size."""

from __future__ import annotations

import json
import zipfile
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, get_args, get_type_hints

import numpy as np
import pytest

import spectrace
from spectrace.analysis.diagnosis import Diagnosis, diagnose
from spectrace.errors import RecorderError, UsageError
from spectrace.format.fields import LEAVES
from spectrace.format.records import Gap, Reference, Request, Run
from spectrace.report.packing import pack
from spectrace.report.redaction import OTHERS, RUN, STEPS, Rule, reduced_run
from spectrace.testing import write_trace
from tests.report import canaries

SAMPLES = sorted((Path(__file__).parents[2] / "sample_traces").glob("*.spectrace"))


def packed(source: Path, out: Path, **options: Any) -> Path:
    """A trace, packed."""
    with spectrace.open(source) as trace:
        pack(trace, out, name=out.name, **options)
    return out


# --- the table -------------------------------------------------------------------------------------


def test_every_column_has_a_line_in_the_table() -> None:
    """The table of what is kept names every column of a step, in order, and no other."""
    assert [rule.path for rule in STEPS] == [leaf.path for leaf in LEAVES]


def leaves_of(cls: type, path: str = "") -> set[str]:
    """Paths of a header record's fields; those of records within it, not these records themselves."""
    found = set()
    for item in fields(cls):
        kinds = [
            k for k in get_args(get_type_hints(cls)[item.name]) if isinstance(k, type) and is_dataclass(k)
        ]
        whole = f"{path}{item.name}"
        found |= leaves_of(kinds[0], whole + ".") if kinds else {whole}
    return found


def test_every_field_of_the_header_has_a_line_in_the_table() -> None:
    """The table names every field of the run record, and no other."""
    prints = {f"draft.fingerprints.{name}" for name in ("shape", "rms", "digest")}
    assert {rule.path for rule in RUN} - {"draft.fingerprints"} == leaves_of(Run) - prints


def test_every_line_says_how_or_why() -> None:
    """What is reduced says how, what is dropped says why, and what is kept needs no word."""
    for rule in (*STEPS, *RUN, *OTHERS):
        assert bool(rule.note) == (rule.action != "kept"), rule


def test_every_field_of_other_records_has_a_line_in_the_table() -> None:
    """The table names every field of requests, references and gaps."""
    named = {rule.path for rule in OTHERS}
    for name, cls in (("request", Request), ("reference", Reference), ("gap", Gap)):
        assert {f"{name}.{item.name}" for item in fields(cls)} <= named


@pytest.mark.parametrize("rule", RUN, ids=lambda rule: rule.path)
def test_a_header_value_of_any_shape_is_no_way_out(rule: Rule) -> None:
    """Where a number or a list belongs, a stranger's recorder may have written text: it does not leave."""
    word = "zq0123456789abcde"
    for value in (
        word,
        [word],
        {word: word},
        [[word]],
        {"rope_type": word},
        {word: {"shape": word}},
        (word,),
    ):
        assert word not in repr(rule.value(value))
        assert word not in repr(reduced_run(nested(rule.path, value), frozenset()))


def nested(path: str, value: Any) -> Any:
    """A mapping that holds a value under a path of keys."""
    for key in reversed(path.split(".")):
        value = {key: value}
    return value


# --- nothing leaks ---------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(50))
def test_no_canary_leaves_the_machine(seed: int, tmp_path: Path) -> None:
    """Texts, ids, names and paths planted in every field are in no member of the zip, in no encoding."""
    out, plant = canaries.plant_and_pack(seed, tmp_path)
    assert canaries.found_in(out, plant) == {}


def test_every_field_that_is_not_kept_holds_a_canary() -> None:
    """A field that the table reduces or drops is planted in some of the random traces, or this names it."""
    planted: set[str] = set()
    for seed in range(5):
        plant = canaries.Planter(seed)
        for record in canaries.records(plant):
            planted |= {
                rule.path
                for rule, path in lines_of(record["record"])
                if plant.holds(canaries.values_at(record, path))
            }
    missing = {rule.path for rule in (*STEPS, *RUN, *OTHERS) if rule.action != "kept"} - planted
    assert missing == set()


def lines_of(kind: str) -> list[tuple[Rule, str]]:
    """The lines of the table that are about a kind of record, with the path within it."""
    if kind in ("run", "amend", "step"):
        return [(rule, rule.path) for rule in (STEPS if kind == "step" else RUN)]
    inner = [
        (rule, rule.path.removeprefix(f"{kind}.")) for rule in OTHERS if rule.path.startswith(f"{kind}.")
    ]
    return [*inner, *((rule, "extra") for rule in OTHERS if rule.path == "*")]


def test_the_search_finds_what_is_there(tmp_path: Path) -> None:
    """With everything included, the search finds texts, ids and numbers: it is not blind."""
    out, plant = canaries.plant_and_pack(3, tmp_path, ("text", "paths"))
    found = set(canaries.found_in(out, plant).values())
    assert {
        "token text",
        "prompt_ids",
        "emitted_ids",
        "target.id",
        "reference",
        "embedding",
        "segment",
    } <= found


def test_unknown_fields_never_leave(tmp_path: Path) -> None:
    """Whatever is included, a field that this spectrace does not know stays behind."""
    out, plant = canaries.plant_and_pack(3, tmp_path, ("text", "paths"))
    assert not [
        w for w in canaries.found_in(out, plant).values() if w.startswith("unknown") and "header" in w
    ]
    assert not [w for w in canaries.found_in(out, plant).values() if w.startswith("unknown key of step")]


def test_fingerprints_that_stay_match_no_text(tmp_path: Path) -> None:
    """Kept fingerprints keep their angles and lose their values."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((2, 32)).astype(np.float32)
    taps = [
        {"boundary": 2, "shape": [16], "dtype": "float32", "rms": 1.0, "projections": r.tolist()}
        for r in rows
    ]
    source = write_trace(tmp_path / "run.spectrace", [{"step": 1, "taps": taps}])
    with spectrace.open(packed(source, tmp_path / "a.zip")) as trace:
        kept = np.array([tap.projections for tap in trace.steps[0].taps or ()])
    assert np.allclose(kept @ kept.T, rows @ rows.T, atol=1e-4)
    assert not np.isclose(kept, rows, atol=1e-3).all()


# --- what stays ------------------------------------------------------------------------------------


def answers(found: Diagnosis) -> dict[str, list[tuple[str, str]]]:
    """What a diagnosis says, to be compared."""
    return {
        "findings": [(f.id, f.strength.value + f.summary) for f in found.findings],
        "cleared": sorted((c.id, c.summary) for c in found.cleared),
        "not checked": sorted((n.id, n.reason) for n in found.not_checked),
        "what if": [(c.name, c.summary) for c in found.counterfactuals],
    }


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.stem)
def test_a_packed_trace_says_the_same(sample: Path, tmp_path: Path) -> None:
    """Every finding, clearance and counterfactual of a trace is the same after packing, word by word."""
    with spectrace.open(sample) as trace, spectrace.open(packed(sample, tmp_path / "a.zip")) as small:
        before, after = answers(diagnose(trace)), answers(diagnose(small))
        if sample.stem == "full-v1":  # its recorder's reasons and stop words are its own
            assert [n[0] for n in before.pop("not checked")] == [n[0] for n in after.pop("not checked")]
        else:
            known = trace.counts.to_mapping()
            if not trace.counts.steps_reported:  # written before the index held the engine's own count
                known |= {
                    name: getattr(small.counts, name) for name in ("steps_reported", "accepted_reported")
                }
            assert small.counts.to_mapping() == known
        assert after == before


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.stem)
def test_numbers_a_rule_needs_are_the_same(sample: Path, tmp_path: Path) -> None:
    """Positions, ranks, gaps, counts, lengths and times are what they were; ids are unknown."""
    names = ("position", "num_accepted", "target_ranks", "target_gaps", "draft_kv_length", "verify_ns")
    with spectrace.open(sample) as trace, spectrace.open(packed(sample, tmp_path / "a.zip")) as small:
        assert len(small) == len(trace)
        for one, other in zip(small, trace):
            assert repr([getattr(one, n) for n in names]) == repr([getattr(other, n) for n in names])
            assert len(one.emitted_ids) == len(other.emitted_ids)
            assert set(one.emitted_ids) | set(one.proposal_ids) <= {None}


def test_equal_prompts_stay_equal_and_different_packs_do_not(tmp_path: Path) -> None:
    """A pack tells equal prompts from different ones; two packs cannot be held against each other."""
    requests = [{"request": str(n), "prompt_ids": ids} for n, ids in enumerate([[1, 2], [3, 4], [1, 2]])]
    source = write_trace(
        tmp_path / "run.spectrace", [{"request": str(n)} for n in range(3)], requests=requests
    )
    digests = []
    for name in ("a.zip", "b.zip"):
        with spectrace.open(packed(source, tmp_path / name)) as trace:
            digests.append([request.prompt_digest for request in trace.requests])
    (a, b, c), other = digests
    assert a == c != b
    assert not {a, b} & set(other)


def test_included_text_is_lossless(tmp_path: Path) -> None:
    """With text included, steps, prompts and texts are those of the source."""
    sample = next(path for path in SAMPLES if path.stem == "eagle3")
    out = packed(sample, tmp_path / "a.zip", include=frozenset(("text", "paths")))
    with spectrace.open(sample) as trace, spectrace.open(out) as small:
        assert list(small) == list(trace)
        assert small.requests[0].prompt_ids == trace.requests[0].prompt_ids
        assert small.token_text(683) == trace.token_text(683)
        assert small.run.vocab_map == trace.run.vocab_map


# --- parts of a trace ------------------------------------------------------------------------------


@pytest.fixture
def long(tmp_path: Path) -> Path:
    """Two requests of 1,500 steps; acceptance stops at step 2,000."""
    rng = np.random.default_rng(1)
    steps = [
        {
            "request": f"q{n % 2}",
            "step": n // 2,
            "position": 5 + n,
            "num_accepted": int(rng.integers(0, 4)),
            "target_gaps": rng.standard_normal(4).tolist(),
        }
        for n in range(3000)
    ]
    return write_trace(tmp_path / "long.spectrace", steps)


def test_around_and_request_choose_steps(long: Path, tmp_path: Path) -> None:
    """Only the steps asked for are in the pack, and what is missing is declared."""
    with spectrace.open(packed(long, tmp_path / "a.zip", around=1000, request="q1")) as trace:
        assert {step.request for step in trace} == {"r0"}
        assert len(trace) == 64
        assert [(gap.lost, gap.reason) for gap in trace.gaps] == [(2936, "left out by pack")]


def test_a_part_speaks_for_the_whole(long: Path, tmp_path: Path) -> None:
    """Numbers and verdicts of a part are those of the whole trace, from which they were carried."""
    with spectrace.open(long) as trace, spectrace.open(packed(long, tmp_path / "a.zip", around=10)) as part:
        whole = diagnose(trace)
        assert diagnose(part).measured["alpha1"] == whole.measured["alpha1"]
        assert answers(diagnose(part)) == answers(whole)
    report = zipfile.ZipFile(tmp_path / "a.zip").read("report.md").decode()
    assert "| steps | 3,000 |" in report


def test_a_size_limit_is_kept_with_the_telling_steps(long: Path, tmp_path: Path) -> None:
    """A smaller limit leaves steps out, never the first divergence of a request."""
    out = packed(long, tmp_path / "a.zip", max_bytes=30_000)
    assert out.stat().st_size <= 30_000
    with spectrace.open(long) as trace, spectrace.open(out) as part:
        first = trace.steps[trace.find_rejected(0) or 0]
        assert 50 < len(part) < 3000
        assert first.position in {step.position for step in part}


def test_too_small_a_limit_is_refused(long: Path, tmp_path: Path) -> None:
    """Where nothing fits, nothing is written."""
    with pytest.raises(RecorderError, match="too few"):
        packed(long, tmp_path / "a.zip", max_bytes=100)
    assert not (tmp_path / "a.zip").exists()


def test_wrong_steps_and_requests_are_refused(long: Path, tmp_path: Path) -> None:
    """A step or request that is not there is the caller's fault."""
    with pytest.raises(UsageError, match="3,000 steps"):
        packed(long, tmp_path / "a.zip", around=3000)
    with pytest.raises(UsageError, match="no step of a request"):
        packed(long, tmp_path / "a.zip", request="nobody")


# --- the zip ---------------------------------------------------------------------------------------


def test_the_zip_says_nothing_of_this_machine(long: Path, tmp_path: Path) -> None:
    """Members have fixed names, a fixed time and plain rights; the manifest names the source's digest."""
    import hashlib

    with zipfile.ZipFile(packed(long, tmp_path / "a.zip")) as archive:
        infos = archive.infolist()
        assert [i.filename for i in infos] == [
            "trace.spectrace",
            "report.md",
            "environment.txt",
            "manifest.json",
        ]
        assert {i.date_time for i in infos} == {(1980, 1, 1, 0, 0, 0)}
        manifest = json.loads(archive.read("manifest.json"))
    assert manifest["source"] == {"sha256": hashlib.sha256(long.read_bytes()).hexdigest(), "steps": 3000}
    listed = {entry["field"] for entry in manifest["fields"]}
    assert {leaf.path for leaf in LEAVES} <= listed


def test_a_pack_can_be_packed_again(long: Path, tmp_path: Path) -> None:
    """A packed trace is a trace: packing it again keeps what it says."""
    once = packed(long, tmp_path / "a.zip")
    with spectrace.open(once) as first, spectrace.open(packed(once, tmp_path / "b.zip")) as second:
        assert answers(diagnose(second)) == answers(diagnose(first))

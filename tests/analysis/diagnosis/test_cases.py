"""Cases worked out by hand from public reports: what must be said of each, with numbers, and what must not.

Every case comes in through JSON lines, as a trace of another engine does.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from spectrace import Trace
from spectrace.analysis.diagnosis import Diagnosis, Finding, diagnose
from spectrace.analysis.diagnosis.facts import collect
from spectrace.analysis.diagnosis.metrics import CountTally
from spectrace.analysis.formulas import mean_accept_length
from spectrace.format.projections import project

Chain = Callable[..., list[dict[str, Any]]]
Found = Callable[[Diagnosis, str], Finding]

KEPT = [0, 1, 2, 3, 5, 9, 17, 30]
OFFSETS = [0, 0, 0, 0, 1, 4, 11, 23]


def said(diagnosis: Diagnosis) -> list[str]:
    """Ids of all findings that are more than a hint."""
    return [finding.id for finding in diagnosis.findings if finding.strength != "hint"]


def cleared(diagnosis: Diagnosis) -> set[str]:
    """Ids of what was cleared."""
    return {item.id for item in diagnosis.cleared}


def rules(ids: list[str]) -> set[str]:
    """Rules that findings belong to."""
    return {id_.partition("/")[0] for id_ in ids}


def test_h1_an_offset_table_applied_as_target_ids(imported: Callable[..., Trace], found: Found) -> None:
    """The map read directly is certain from one step on; leading zeros are never a finding of their own."""
    run = {
        "method": "eagle3",
        "target": {"vocab_size": 32},
        "draft": {"head_rows": 8},
        "vocab_map": {"d2t": OFFSETS, "t2d": KEPT, "source": "checkpoint"},
        "verification": {"rule": "greedy"},
    }
    steps = []
    for number in range(16):
        raw = number % 8
        wanted = KEPT[raw]  # the draft means what the target picks
        right = OFFSETS[raw] == wanted
        steps.append(
            {
                "request": "r0",
                "step": number,
                "position": 5 + number,
                "draft_ids": [raw],
                "proposal_ids": [OFFSETS[raw]],
                "target_ids": [wanted, 2],
                "num_accepted": int(right),
                "emitted_ids": [wanted, 2] if right else [wanted],
            }
        )
    diagnosis = diagnose(imported(run, steps))
    first = diagnosis.findings[0]
    assert (first.id, first.strength) == ("vocab-map/offset-read-as-direct", "certain")
    evidence = first.evidence
    offset, direct = evidence["offset_reading"], evidence["direct_reading"]
    assert (offset["distinct"], offset["out_of_range"], offset["equals_mask"]) == (8, 0, True)
    assert (direct["distinct"], direct["entries"], direct["in_mask"], direct["wrong"]) == (5, 8, 5, 7)
    assert evidence["mapped_ids_outside_mask"] == [4, 11, 23]
    assert (evidence["alpha1_as_recorded"].successes, evidence["alpha1_as_recorded"].trials) == (2, 16)
    assert evidence["alpha1_if_offset"].successes == 16
    assert first.steps[0] == 1
    assert said(diagnosis) == ["vocab-map/offset-read-as-direct"]
    assert not any("zero" in finding.summary for finding in diagnosis.findings)
    assert any(item.name == "vocab-map-readings" for item in diagnosis.counterfactuals)


def test_h2_a_table_of_zeros_over_equal_vocabularies_is_the_identity(
    imported: Callable[..., Trace], chain: Chain
) -> None:
    """Dv = V with all offsets 0 is right, and alpha1 comes with its interval."""
    run = {
        "method": "eagle3",
        "target": {"vocab_size": 64},
        "draft": {"head_rows": 64},
        "vocab_map": {"d2t": [0] * 64, "t2d": list(range(64))},
        "verification": {"rule": "greedy"},
    }
    steps = chain([1] * 150 + [0] * 50, 1, vocab_size=64)
    for step in steps:
        step["draft_ids"] = step["proposal_ids"]
    diagnosis = diagnose(imported(run, steps))
    assert "vocab-map" in cleared(diagnosis)
    assert not any(finding.id.startswith("vocab-map") for finding in diagnosis.findings)
    assert said(diagnosis) == []
    alpha1 = diagnosis.measured["alpha1"]
    assert (alpha1.successes, alpha1.trials) == (150, 200)
    assert (round(alpha1.low, 3), round(alpha1.high, 3)) == (0.686, 0.805)


def test_h3_a_head_that_was_never_loaded(imported: Callable[..., Trace], chain: Chain, found: Found) -> None:
    """The loader's list makes it certain; acceptance and entropy are those of chance."""
    run = {
        "method": "eagle3",
        "target": {"vocab_size": 1000},
        "draft": {"head_rows": 1000, "parameters": {"missing": ["lm_head.weight"], "unexpected": []}},
        "verification": {"rule": "greedy"},
    }
    diagnosis = diagnose(imported(run, chain([0] * 400, 3, draft_entropy=[6.90] * 3)))
    first = found(diagnosis, "draft-head/not-loaded")
    assert diagnosis.findings[0] is first
    assert first.strength == "certain"
    assert first.evidence["accept_length"] == 1.0
    assert first.evidence["alpha1"].successes == 0
    assert round(first.evidence["alpha1"].high, 4) == 0.0095
    assert first.evidence["accepted_by_chance"] == pytest.approx(0.4)
    assert first.evidence["entropy"] == pytest.approx(6.90)
    assert first.evidence["entropy_at_most"] == pytest.approx(math.log(1000))
    assert rules(said(diagnosis)) == {"draft-head"}


def test_h3_without_the_list_entropy_and_chance_still_name_it(
    imported: Callable[..., Trace], chain: Chain, found: Found
) -> None:
    """Statistics alone make it strong, not certain."""
    run = {"target": {"vocab_size": 1000}, "draft": {"head_rows": 1000}}
    diagnosis = diagnose(imported(run, chain([0] * 400, 3, draft_entropy=[6.90] * 3)))
    assert found(diagnosis, "draft-head/not-loaded").strength == "strong"


# --- hidden states -----------------------------------------------------------------------------


def fingerprint(row: np.ndarray) -> dict[str, Any]:
    """RMS and projections of a hidden state."""
    return {"rms": float(np.sqrt((row * row).mean())), "projections": project(row)[0].tolist()}


def tap(boundary: int, position: int, row: np.ndarray) -> dict[str, Any]:
    """A tap as a recorder writes it."""
    shape = [1, 1, len(row)]
    return {
        "boundary": boundary,
        "position": position,
        "shape": shape,
        "dtype": "float32",
        **fingerprint(row),
    }


def reference(boundary: int, rows: np.ndarray, request: str | None = None) -> dict[str, Any]:
    """A reference record of one boundary."""
    listed = [{"position": at, **fingerprint(row)} for at, row in enumerate(rows)]
    whose = {} if request is None else {"request": request}
    return {"record": "reference", **whose, "boundary": boundary, "rows": listed}


def states(boundaries: list[int], positions: int, size: int = 256) -> dict[int, np.ndarray]:
    """Residual streams: neighbouring boundaries resemble each other, as those of a real model do."""
    rng = np.random.default_rng(0)
    stream, found = rng.normal(size=(positions, size)), {}
    for k in range(max(boundaries) + 1):
        stream = (
            stream
            + 0.38 * rng.normal(size=stream.shape) * np.linalg.norm(stream, axis=1)[:, None] / size**0.5
        )
        if k in boundaries:
            found[k] = stream.copy()
    return found


def test_h4_taps_one_layer_early(imported: Callable[..., Trace], chain: Chain, found: Found) -> None:
    """Fingerprints that match the layer before each declared one are certain."""
    truth = states([1, 2, 29, 30, 56, 57], 6)
    run = {
        "method": "eagle3",
        "target": {"hidden_size": 256, "num_layers": 64},
        "taps": {"declared": [2, 30, 57], "origin": "config"},
        "verification": {"rule": "greedy"},
    }
    steps = chain([1] * 20 + [0] * 180, 3)
    steps[0]["taps"] = [tap(k, at, truth[k - 1][at]) for k in (2, 30, 57) for at in range(6)]
    references = [reference(k, rows) for k, rows in truth.items()]
    control = imported(run | {"taps": None}, chain([1] * 90 + [0] * 110, 3))
    diagnosis = diagnose(imported(run, steps, references), control=control)
    first = diagnosis.findings[0]
    assert (first.id, first.strength) == ("tap-layer/shifted", "certain")
    assert first.evidence["shift"] == -1
    assert "shifts" not in first.evidence
    assert first.advice.startswith("Raise the layer ids given to the engine by 1")
    assert first.evidence["boundaries_nearest"] == [1, 29, 56]
    assert first.evidence["cosine_at_nearest"] == [1.0, 1.0, 1.0]
    assert all(0.85 < cosine < 0.98 for cosine in first.evidence["cosine_at_meant"])
    here, there = first.evidence["alpha1"], first.evidence["alpha1_of_control"]
    assert (here.value, round(here.low, 3), round(here.high, 3)) == (0.10, 0.066, 0.149)
    assert (there.value, round(there.low, 3), round(there.high, 3)) == (0.45, 0.383, 0.519)
    assert said(diagnosis) == ["tap-layer/shifted"]


def two_prompts(shift_of_second: int) -> tuple[dict[str, Any], list[dict[str, Any]], list[dict[str, Any]]]:
    """Run, first steps and references of two prompts whose states have nothing in common."""
    run = {
        "method": "eagle3",
        "target": {"hidden_size": 256, "num_layers": 8},
        "taps": {"boundaries": [2, 4, 5]},
    }
    both = states([1, 2, 3, 4, 5, 6], 12)
    truths = {"a": {k: rows[:6] for k, rows in both.items()}, "b": {k: rows[6:] for k, rows in both.items()}}
    shifts = {"a": 0, "b": shift_of_second}
    steps = [
        {
            "request": name,
            "step": 0,
            "position": 6,
            "proposal_ids": [],
            "num_accepted": 0,
            "emitted_ids": [1],
            "flags": ["prefill"],
            "taps": [tap(k, at, truth[k + shifts[name]][at]) for k in (2, 4, 5) for at in range(6)],
        }
        for name, truth in truths.items()
    ]
    references = [reference(k, rows, name) for name, truth in truths.items() for k, rows in truth.items()]
    return run, steps, references


def test_references_of_two_prompts_are_each_held_against_their_own(imported: Callable[..., Trace]) -> None:
    """Equal positions of two requests hold different states, and every row counts."""
    run, steps, references = two_prompts(shift_of_second=0)
    diagnosis = diagnose(imported(run, steps, references))
    found = next(item for item in diagnosis.cleared if item.id == "tap-layer")
    assert found.evidence["cosine_at_meant"] == [1.0, 1.0, 1.0]
    assert found.evidence["rows_compared"] == 36


def test_a_shift_in_the_second_request_only_is_not_missed(imported: Callable[..., Trace]) -> None:
    """The first prompt alone would have cleared the taps."""
    run, steps, references = two_prompts(shift_of_second=1)
    diagnosis = diagnose(imported(run, steps, references))
    assert "tap-layer" not in {item.id for item in diagnosis.cleared}


def test_h4_the_header_alone_can_show_the_shift(
    imported: Callable[..., Trace], chain: Chain, found: Found
) -> None:
    """Declared ids, their numbering and the boundaries captured are enough."""
    run = {"taps": {"declared": [2, 30, 57], "numbering": "output", "boundaries": [2, 30, 57]}}
    diagnosis = diagnose(imported(run, chain([1, 0, 0])))
    assert found(diagnosis, "tap-layer/shifted").evidence["shift"] == -1


def test_h5_a_state_captured_before_the_final_norm(
    imported: Callable[..., Trace], chain: Chain, found: Found
) -> None:
    """A reference of constant RMS that points the tap's way is its norm, not another layer."""
    rng = np.random.default_rng(5)
    rows = rng.normal(size=(12, 256))
    rows *= 14.2 / np.sqrt((rows * rows).mean(axis=1, keepdims=True))
    weight = np.exp(rng.normal(size=256) * 0.65)
    weight /= np.sqrt((weight * weight).mean())
    normed = rows / np.sqrt((rows * rows).mean(axis=1, keepdims=True)) * weight
    normed /= np.sqrt((normed * normed).mean(axis=1, keepdims=True))
    run = {"method": "eagle3", "target": {"hidden_size": 256, "num_layers": 4}, "taps": {"boundaries": [4]}}
    steps = chain([1, 0, 0, 1], 3)
    steps[0]["taps"] = [tap(4, at, row) for at, row in enumerate(rows)]
    diagnosis = diagnose(
        imported(run, steps, [reference(4, normed), reference(3, rng.normal(size=(12, 256)))])
    )
    first = diagnosis.findings[0]
    assert (first.id, first.strength) == ("tap-form/norm", "certain")
    assert "before the final norm" in first.summary
    assert first.evidence["rms"] == pytest.approx(14.2)
    assert first.evidence["rms_of_reference"] == pytest.approx(1.0, abs=0.01)
    assert first.evidence["cosine"] == pytest.approx(0.81, abs=0.06)
    assert said(diagnosis) == ["tap-form/norm"]


def test_h6_the_fed_back_state_was_normed(imported: Callable[..., Trace], chain: Chain, found: Found) -> None:
    """A fine first token, a second that collapses, an RMS a twelfth of the first input: the feedback."""
    accepted = [0] * 190 + [1] * 273 + [2] * 33 + [3] * 4
    run = {"method": "eagle3", "verification": {"rule": "greedy"}}
    inputs = [{"rms": 11.8}, {"rms": 1.0}, {"rms": 1.0}, {"rms": 1.0}]
    diagnosis = diagnose(imported(run, chain(accepted, 4, draft_inputs=inputs)))
    first = found(diagnosis, "tap-form/feedback-norm")
    assert diagnosis.findings[0] is first
    assert first.strength == "strong"
    alpha1, second = first.evidence["alpha1"], first.evidence["c_2"]
    assert (alpha1.value, round(alpha1.low, 3), round(alpha1.high, 3)) == (0.62, 0.577, 0.661)
    assert (second.successes, second.trials) == (37, 310)
    assert (round(second.low, 3), round(second.high, 3)) == (0.088, 0.160)
    assert first.evidence["accept_length"] == pytest.approx(1.702)
    assert first.evidence["rms_of_first_input"] == pytest.approx(11.8)
    assert first.steps[0] == 190
    assert len(first.steps) == 5
    assert "before the norm" in first.advice
    assert not rules(said(diagnosis)) & {"vocab-map", "tap-layer"}


# --- state -------------------------------------------------------------------------------------


def test_h7_the_draft_cache_is_trimmed_too_far(
    imported: Callable[..., Trace], chain: Chain, found: Found
) -> None:
    """A lag that grows with each rejection is certain; the target's cache and so the text are right."""
    drafted, cache, lags = 4, 10, []
    steps = chain([2, 4, 0, 3, 1, 4, 2, 0, 0], drafted)
    for step in steps:
        lags.append(step["position"] - cache)
        step |= {"draft_kv_length": cache, "target_kv_length": step["position"]}
        rejected = drafted - step["num_accepted"]
        # A full acceptance trims nothing and feeds its last token with the next step.
        cache += drafted - min(rejected + 1, drafted) if rejected else drafted + 1
    assert lags == [0, 2, 2, 3, 5, 7, 7, 9, 10]
    diagnosis = diagnose(imported({"verification": {"rule": "greedy"}}, steps))
    first = diagnosis.findings[0]
    assert (first.id, first.strength) == ("kv-state/over-trimmed", "certain")
    assert first.evidence["rows_missing_of_the_committed_text_at_step_start"][1:] == [2, 2, 3, 5, 7, 7, 9, 10]
    assert "kv-state/target-length" in cleared(diagnosis)
    assert said(diagnosis) == ["kv-state/over-trimmed"]


def test_h8_the_drafter_is_gated_for_the_whole_batch(
    imported: Callable[..., Trace], chain: Chain, found: Found
) -> None:
    """Placeholder drafts set in where the longest request passes the limit, for the short one too."""
    run = {"method": "eagle3", "draft": {"max_length": 4096}, "verification": {"rule": "greedy"}}
    pattern = [1, 1, 0, 1, 1, 1, 0, 1, 1, 0]
    before = [pattern[n % 10] for n in range(60)]
    advance = sum(before) + 60
    long = chain(before + [0] * 40, 3, request="X", start=4094 - advance)
    short = chain(before + [0] * 40, 3, request="Y", start=100)
    for a, b in zip(long, short):
        for step in (a, b):
            step["max_batch_length"] = a["position"]
            if a["position"] + 3 > 4096:
                step |= {"proposal_ids": [0, 0, 0]}
    diagnosis = diagnose(imported(run, [step for pair in zip(long, short) for step in pair]))
    first = diagnosis.findings[0]
    assert (first.id, first.strength) == ("window/gated", "certain")
    assert first.evidence["onset_batch_length"] == 4094
    assert first.evidence["accepted_beyond"] == 0
    assert first.evidence["same_id_beyond"].value == 1.0
    assert first.evidence["requests_affected"] == ["Y"]
    assert first.steps[0] == 120
    assert said(diagnosis) == ["window/gated"]


# --- verification ------------------------------------------------------------------------------


def test_h9_two_texts_part_in_a_tie(imported: Callable[..., Trace], found: Found) -> None:
    """A gap of one unit in the last place and the runner-up taken is rounding."""
    run = {
        "target": {"dtype": "bfloat16"},
        "verification": {"rule": "greedy", "lossless": True},
        "sampling": {"temperature": 0},
    }

    def text(own: int, after: int) -> list[dict[str, Any]]:
        ids = [*range(100, 157), own, *([after] * 10)]
        return [
            {
                "request": "r0",
                "step": number,
                "position": 8 + number,
                "proposal_ids": [],
                "num_accepted": 0,
                "emitted_ids": [id_],
                "target_ids": [id_],
                "target_gaps": [21.375 - 21.250 if number == 57 else 5.0],
                "target_top": [[[7, -0.6], [8, -0.725]] if number == 57 else [[id_, -0.1], [1, -5.1]]],
            }
            for number, id_ in enumerate(ids)
        ]

    prompt = [{"record": "request", "request": "r0", "prompt_digest": "sha256:1"}]
    diagnosis = diagnose(imported(run, text(7, 9), prompt), control=imported(run, text(8, 10), prompt))
    first = found(diagnosis, "numeric-tie/benign")
    assert first.evidence["token"] == 57
    assert first.evidence["gap"] == pytest.approx(0.125)
    assert first.evidence["units_in_last_place"] == pytest.approx(1.0)
    assert first.evidence["rank_of_other"] == 2
    assert "verification" not in rules(said(diagnosis))
    assert said(diagnosis) == ["numeric-tie/benign"]


def test_h10_the_sampler_ignores_the_drafts_distribution(
    imported: Callable[..., Trace], found: Found
) -> None:
    """Acceptance that fits sum p q and not sum min(p, q) names the sampler, not the draft."""
    p, q = [0.5, 0.3, 0.15, 0.05], [0.4, 0.35, 0.15, 0.10]
    expected = sum(a * b for a, b in zip(p, q))
    assert expected == pytest.approx(0.3325)
    drafts = [token for token, share in enumerate(q) for _ in range(round(1000 * share))]
    accepted = [n for n, token in enumerate(drafts) if n % 1000 < 332]  # which ones does not matter
    order = np.random.default_rng(1).permutation(1000)
    steps = []
    for number, at in enumerate(order.tolist()):
        token, took = drafts[at], number in accepted
        steps.append(
            {
                "request": f"r{number % 8}",
                "step": number // 8,
                "position": 4 + number,
                "proposal_ids": [token],
                "draft_logprobs": [math.log(q[token])],
                "target_logprobs": [math.log(p[token])],
                "overlaps": [0.9],
                "num_accepted": int(took),
                "emitted_ids": [token, 1] if took else [(token + 1) % 4],
            }
        )
    run = {
        "target": {"vocab_size": 4},
        "draft": {"head_rows": 4},
        "verification": {"rule": "rejection_sampling", "lossless": True},
        "sampling": {"temperature": 1.0},
    }
    diagnosis = diagnose(imported(run, steps))
    first = found(diagnosis, "verification/q-not-used")
    assert diagnosis.findings[0] is first
    assert first.strength == "strong"
    assert first.evidence["expected_by_full_rule"] == pytest.approx(0.9)
    assert first.evidence["expected_ignoring_q"] == pytest.approx(0.3325)
    observed = first.evidence["observed"]
    assert (observed.successes, observed.trials) == (332, 1000)
    assert "output law stays right" in first.summary
    assert said(diagnosis) == ["verification/q-not-used"]


# --- interpretation ----------------------------------------------------------------------------


def test_h11_the_ranking_flips_with_the_formula(
    imported: Callable[..., Trace], chain: Chain, found: Found
) -> None:
    """One engine leads pooled, the other averaged over requests: no regression, another formula."""
    x = chain([3] * 100, 4, request="a") + chain([1] * 900, 4, request="b")
    y = chain([1, 2, 2, 1, 2] * 100, 4, request="a") + chain([2, 1, 2, 1, 2] * 100, 4, request="b")
    run = {"verification": {"rule": "greedy"}}
    diagnosis = diagnose(imported(run | {"engine": {"name": "x"}}, x), control=imported(run, y))
    first = found(diagnosis, "metrics/formula")
    assert first.evidence["accept_length_pooled"] == [pytest.approx(2.2), pytest.approx(2.6)]
    assert first.evidence["accept_length_mean_of_requests"] == [pytest.approx(3.0), pytest.approx(2.6)]
    assert not any(finding.id.startswith("drift") for finding in diagnosis.findings)


def test_h12_tokens_after_the_end_are_counted(imported: Callable[..., Trace], found: Found) -> None:
    """The engine's 16/3 is 13/3 of what was committed."""
    steps = [
        {"proposal_ids": [1, 2, 3, 4, 5], "num_accepted": 5, "emitted_ids": [1, 2, 3, 4, 5, 6]},
        {"proposal_ids": [11, 12, 13, 14, 15], "num_accepted": 3, "emitted_ids": [11, 12, 13, 20]},
        {
            "proposal_ids": [21, 22, 2, 24, 25],
            "num_accepted": 3,
            "num_accepted_reported": 5,
            "emitted_ids": [21, 22, 2],
            "stop": "eos",
        },
    ]
    position = 4
    for number, step in enumerate(steps):
        step |= {"request": "r0", "step": number, "position": position}
        position += len(step["emitted_ids"])  # type: ignore[arg-type]
    diagnosis = diagnose(imported({"tokenizer": {"eos_ids": [2]}, "verification": {"rule": "greedy"}}, steps))
    first = found(diagnosis, "metrics/after-eos")
    assert first.evidence["accept_length_as_counted"] == pytest.approx(16 / 3)
    assert first.evidence["accept_length"] == pytest.approx(13 / 3)
    assert first.evidence["tokens_after_end"] == 3
    assert "verification" not in rules(said(diagnosis))


def test_h13_acceptance_depends_on_the_segment(
    imported: Callable[..., Trace], chain: Chain, found: Found
) -> None:
    """Thinking and answer differ by far while nothing structural does."""
    # Over five requests: 120 steps with 1,019 accepted tokens, 380 with 722.
    thinks = [[9] * 12 + [8] * 12, *([[9] * 12 + [8] * 12] * 3), [9] * 11 + [8] * 13]
    answers = [[2] * 68 + [1] * 8, *([[2] * 68 + [1] * 8] * 3), [2] * 70 + [1] * 6]
    steps = []
    for number, (think, answer) in enumerate(zip(thinks, answers)):
        name = f"r{number}"
        first = chain(think, 16, request=name, segment="think")
        after = chain(answer, 16, request=name, segment="answer", start=first[-1]["position"] + 10)
        steps += first + [step | {"step": step["step"] + 24} for step in after]
    diagnosis = diagnose(imported({"verification": {"rule": "greedy"}}, steps))
    first_finding = found(diagnosis, "workload/segment")
    assert diagnosis.findings[0] is first_finding
    assert first_finding.strength == "strong"
    think_mean = first_finding.evidence["accept_length_think"]
    answer_mean = first_finding.evidence["accept_length_answer"]
    assert (think_mean.count, round(think_mean.value or 0, 2)) == (120, 9.49)
    assert (answer_mean.count, round(answer_mean.value or 0, 2)) == (380, 2.90)
    assert first_finding.evidence["accept_length"] == pytest.approx(4.48, abs=0.005)
    assert rules(said(diagnosis)) == {"workload"}


def test_h14_well_accepted_and_slower_by_arithmetic(
    imported: Callable[..., Trace], chain: Chain, found: Found
) -> None:
    """A step that costs 2.91 tokens and gives 2.90 is slower; fewer draft tokens would pay."""
    survivors = [300, 200, 150, 130, 90, 130]  # of 1,000: accepted exactly 0, 1, ... 5
    milliseconds = 1_000_000

    def timed(drafted: int, verify: int, counts: list[int], request: str) -> list[dict[str, Any]]:
        accepted = [a for a, n in enumerate(counts) for _ in range(n)]
        return chain(
            accepted,
            drafted,
            request=request,
            draft_ns=6 * drafted * milliseconds,
            verify_ns=verify * milliseconds,
        )

    steps = timed(5, 34, survivors, "r0")
    steps += timed(1, 25, [30, 70], "r1")
    steps += timed(2, 27, [30, 20, 50], "r2")
    steps += timed(3, 29, [30, 20, 15, 35], "r3")
    run = {"baseline": {"token_ns": 22 * milliseconds}, "verification": {"rule": "greedy"}}
    diagnosis = diagnose(imported(run, steps))
    first = found(diagnosis, "cost/below-break-even")
    assert diagnosis.findings[0] is first
    assert first.evidence["num_draft_tokens"] == 5
    assert first.evidence["accept_length_of_those_proposals"] == pytest.approx(2.90)
    assert first.evidence["break_even"] == pytest.approx(64 / 22)
    assert first.evidence["speedup"] == pytest.approx(0.997, abs=0.0005)
    assert first.evidence["best_num_draft_tokens"] == 2
    by_number = first.evidence["speedup_by_num_draft_tokens"]
    assert [round(by_number[k], 2) for k in ("1", "2", "3")] == [1.21, 1.24, 1.19]
    best = next(item for item in diagnosis.counterfactuals if item.name == "best-num-draft-tokens")
    assert "2.20" in best.summary
    assert said(diagnosis) == ["cost/below-break-even"]
    assert "low acceptance" not in " ".join(finding.summary for finding in diagnosis.findings)


def test_h15_the_map_is_cleared_and_the_form_of_the_states_is_named(
    imported: Callable[..., Trace], chain: Chain, found: Found
) -> None:
    """The story: a table that begins with zeros is right, the hidden states are not those of training."""
    kept = [*range(10), *range(12, 412, 4)]
    table = [id_ - raw for raw, id_ in enumerate(kept)]
    assert table[:10] == [0] * 10
    truth = states([2, 16, 29], 8)
    rng = np.random.default_rng(9)
    mix = {
        k: rows + 1.9 * rng.normal(size=rows.shape) * np.sqrt((rows * rows).mean())
        for k, rows in truth.items()
    }
    accepted = [0] * 140 + [3] * 60
    steps = chain(accepted, 16)
    for number, step in enumerate(steps):
        raw = [(number * 5 + j) % len(kept) for j in range(16)]
        mapped = [kept[r] for r in raw]
        count = step["num_accepted"]
        step |= {
            "draft_ids": raw,
            "proposal_ids": mapped,
            "target_ids": [*mapped[:count], *([411] * (17 - count))],
            "emitted_ids": [*mapped[:count], 411],
        }
    steps[0]["taps"] = [tap(k, at, mix[k][at]) for k in (2, 16, 29) for at in range(8)]
    run = {
        "method": "eagle3",
        "target": {"vocab_size": 512, "hidden_size": 256, "num_layers": 32},
        "draft": {"head_rows": len(kept)},
        "vocab_map": {"d2t": table, "t2d": kept, "applied": "offset"},
        "taps": {"boundaries": [2, 16, 29], "origin": "config"},
        "training": {"first_position_accuracy": 0.78},
        "verification": {"rule": "greedy"},
    }
    references = [reference(k, rows) for k, rows in truth.items()]
    diagnosis = diagnose(imported(run, steps, references))
    first = diagnosis.findings[0]
    assert (first.id, first.strength) == ("tap-form/unknown", "strong")
    assert max(first.evidence["cosine_at_nearest"]) < 0.75
    assert "training row" in first.advice
    assert diagnosis.measured["accept_length"] == pytest.approx(1.90)
    rate = diagnosis.measured["acceptance_rate"]
    assert (rate.successes, rate.trials, round(rate.value, 3)) == (180, 3200, 0.056)
    assert "vocab-map" in cleared(diagnosis)
    readings = next(item for item in diagnosis.counterfactuals if item.name == "vocab-map-readings")
    assert readings.evidence["alpha1_direct"].successes < readings.evidence["alpha1_offset"].successes
    assert not any("map" in finding.summary for finding in diagnosis.findings)
    assert said(diagnosis) == ["tap-form/unknown"]


def test_mean_of_requests_weighs_each_request_alike(imported: Callable[..., Trace], chain: Chain) -> None:
    """A long request counts no more than a short one."""
    trace = imported({}, chain([3] * 10, request="a") + chain([1] * 90, request="b"))
    facts = collect(trace, [CountTally])
    assert mean_accept_length(facts.of(CountTally).requests) == pytest.approx(3.0)
    assert facts.sample.accept_length == pytest.approx(2.2)

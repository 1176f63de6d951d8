"""A healthy trace with every field stays clear; broken in one place, that place is the first finding."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from spectrace.analysis.diagnosis import Diagnosis

Diagnose = Callable[..., Diagnosis]
Break = Callable[[Any], None]

RULES = {
    "vocab-map", "draft-head", "tap-layer", "tap-form", "weights", "positions", "window", "kv-state",
    "verification", "numeric-tie", "processors", "tokenizer", "workload", "metrics", "cost", "batch", "tree",
    "drift", "reporting", "nonfinite",
}  # fmt: skip


def worth(diagnosis: Diagnosis) -> list[str]:
    """Ids of findings that are more than a hint."""
    return [finding.id for finding in diagnosis.findings if finding.strength != "hint"]


def test_a_healthy_trace_has_no_finding_and_names_what_it_clears(rich: Any, diagnosed: Diagnose) -> None:
    """Every rule that the trace can answer is cleared by name, none is found."""
    diagnosis = diagnosed(rich.run, rich.steps, rich.others)
    assert [finding.id for finding in diagnosis.findings] == []
    cleared = {item.id.partition("/")[0] for item in diagnosis.cleared}
    assert cleared >= {"vocab-map", "draft-head", "tap-layer", "tap-form", "weights", "positions", "kv-state"}
    assert cleared >= {"verification", "processors", "tokenizer", "metrics", "cost", "nonfinite", "trace"}


def test_every_rule_answers(rich: Any, diagnosed: Diagnose) -> None:
    """No rule is silent: found, cleared or not checked, also on a trace with required fields only."""
    for run, steps, others in (
        (rich.run, rich.steps, rich.others),
        (
            {},
            [
                {
                    "request": "r",
                    "step": 0,
                    "position": 1,
                    "proposal_ids": [1],
                    "num_accepted": 0,
                    "emitted_ids": [2],
                }
            ],
            [],
        ),
    ):
        diagnosis = diagnosed(run, steps, others)
        answers = [finding.id for finding in diagnosis.findings]
        answers += [item.id for item in diagnosis.cleared]
        answers += [item.id for item in diagnosis.not_checked]
        assert {id_.partition("/")[0] for id_ in answers} - {"trace"} == RULES


def each(field: str, change: Callable[[Any, dict[str, Any]], Any]) -> Break:
    """Break one field of every step."""

    def apply(rich: Any) -> None:
        for step in rich.steps:
            step[field] = change(step[field], step)

    return apply


def header(**sections: Any) -> Break:
    """Break fields of the header."""

    def apply(rich: Any) -> None:
        for name, value in sections.items():
            own = rich.run[name]
            rich.run[name] = {**own, **value} if isinstance(own, dict) else value

    return apply


def once(field: str, value: Any, at: int = 5) -> Break:
    """Break one step."""

    def apply(rich: Any) -> None:
        rich.steps[at][field] = value

    return apply


def both(*breaks: Break) -> Break:
    """Break in several places."""

    def apply(rich: Any) -> None:
        for change in breaks:
            change(rich)

    return apply


def taps(change: Callable[[dict[str, Any]], None]) -> Break:
    """Break every tap."""

    def apply(rich: Any) -> None:
        for step in rich.steps:
            for tap in step["taps"] or ():
                change(tap)

    return apply


def references(boundary: int, change: Callable[[dict[str, Any]], None]) -> Break:
    """Change the reference rows of one boundary."""

    def apply(rich: Any) -> None:
        for record in rich.others:
            if record["record"] == "reference" and record["boundary"] == boundary:
                for row in record["rows"]:
                    change(row)

    return apply


def swap_references(pairs: dict[int, int]) -> Break:
    """Name the boundaries of the reference otherwise."""

    def apply(rich: Any) -> None:
        for record in rich.others:
            if record["record"] == "reference":
                record["boundary"] = pairs.get(record["boundary"], record["boundary"])

    return apply


def scaled(factor: float) -> Callable[[dict[str, Any]], None]:
    """Scale a fingerprint."""

    def apply(row: dict[str, Any]) -> None:
        row["rms"] *= factor
        row["projections"] = [factor * value for value in row["projections"]]

    return apply


def unit(row: dict[str, Any]) -> None:
    """Give a fingerprint RMS 1, as a norm does."""
    scaled(1 / row["rms"])(row)


def turned(row: dict[str, Any]) -> None:
    """Rotate a fingerprint: swap neighbouring coordinates and the sign of one."""
    values = row["projections"]
    row["projections"] = [x for a, b in zip(values[::2], values[1::2]) for x in (-b, a)]


def no_residual(rich: Any) -> None:
    """Leave boundary 2 out of boundary 3."""
    two = next(r["rows"] for r in rich.others if r["record"] == "reference" and r["boundary"] == 2)
    for tap in rich.steps[0]["taps"]:
        if tap["boundary"] == 3:
            row = two[tap["position"]]
            tap["projections"] = [a - b for a, b in zip(tap["projections"], row["projections"])]
            tap["rms"] = math.sqrt(sum(x * x for x in tap["projections"]) / 32)


def decode_differs(rich: Any) -> None:
    """Give rows after the prompt that match nothing."""
    first = rich.steps[0]["taps"]
    kept = [tap for tap in first if tap["position"] < 4]
    late = [{**tap, "projections": tap["projections"][::-1]} for tap in first if tap["position"] >= 4]
    rich.steps[0]["taps"] = kept
    rich.steps[1]["taps"] = late


def stale(rich: Any) -> None:
    """Feed the state of one token again for the next."""
    rows = rich.steps[0]["taps"]
    rows[1] = {**rows[0], "position": rows[1]["position"]}


def dead_second(rich: Any) -> None:
    """Let no second token be accepted, with a fed-back state twelve times smaller."""
    for step in rich.steps:
        count = min(step["num_accepted"], 1)
        picks = step["target_ids"]
        picks[1:] = [
            (x + 1) % 640 if x == y else x for x, y in zip(picks[1:], [*step["proposal_ids"][1:], -1])
        ]
        step |= {
            "num_accepted": count,
            "num_accepted_reported": count,
            "emitted_ids": [*step["proposal_ids"][:count], picks[count]],
            "draft_inputs": [{"rms": 12.0}, {"rms": 1.0}, {"rms": 1.0}],
            "processor_tokens": count + 1,
            "mask": ["on"] * (count + 1),
        }
    rich.run["reported"] = {}


def lagging(rate: int) -> Break:
    """Let the draft's cache lose or keep tokens step by step."""

    def apply(rich: Any) -> None:
        for step in rich.steps:
            step["draft_kv_length"] += rate * step["step"]

    return apply


def poisoned(rich: Any) -> None:
    """Add a request that never has anything accepted."""
    template = rich.steps[-1]
    for number in range(60):
        position = 8 + number
        rich.steps.append(
            {
                **template,
                "request": "dead",
                "step": number,
                "position": position,
                "num_accepted": 0,
                "num_accepted_reported": 0,
                "target_ids": [639, 639, 639, 639],
                "emitted_ids": [639],
                "draft_kv_length": position - 1,
                "target_kv_length": position,
                "prefix_hit_length": 64,
                "draft_positions": [position - 2 + j for j in range(3)],
                "target_ranks": [2, 2, 2],
                "processor_tokens": 1,
                "mask": ["on"],
                "taps": None,
            }
        )
    rich.run["reported"] = {}


def unmasked(rich: Any) -> None:
    """End a segment inside a step and verify what follows without a mask."""
    step = next(s for s in rich.steps if len(s["emitted_ids"]) == 4 and s["step"] < 39)
    step |= {"segment": "think", "segment_boundary": 1, "mask": ["off", "off", "off", "off"]}


def rows_differ(rich: Any) -> None:
    """Let the requests of the upper rows have nothing accepted."""
    template = [dict(step, taps=None) for step in rich.steps]
    rich.steps = []
    for copy in range(2):
        for step in template:
            row = step["batch_row"] + 6 * copy
            step = dict(step, request=f"{step['request']}c{copy}", batch_row=row)
            if row >= 6 and step["step"] % 8:
                step |= {
                    "num_accepted": 0,
                    "num_accepted_reported": 0,
                    "target_ids": [639] * 4,
                    "emitted_ids": [639],
                    "target_ranks": [2] * 3,
                    "processor_tokens": 1,
                    "mask": ["on"],
                }
            rich.steps.append(step)
    rich.run["reported"] = {}


BREAKS: dict[str, tuple[Break, str, str]] = {
    "digest": (header(vocab_map={"digest": "b"}), "vocab-map/stale", "certain"),
    "map of another length": (header(draft={"head_rows": 300}), "vocab-map/stale", "certain"),
    "another map in use": (
        each("proposal_ids", lambda ids, _: [i ^ 1 for i in ids]), "vocab-map/stale", "certain",
    ),
    "map not applied": (
        each("proposal_ids", lambda _, step: step["draft_ids"]), "vocab-map/missing", "certain",
    ),
    "absolute table": (
        both(lambda r: r.run["vocab_map"].update(d2t=r.run["vocab_map"]["t2d"], applied="offset")),
        "vocab-map/absolute-table", "certain",
    ),
    "default table": (
        lambda r: r.run["vocab_map"].update(d2t=list(range(320))), "vocab-map/ramp-default", "certain",
    ),
    "map lost": (
        both(lambda r: r.run.update(vocab_map={"source": "missing", "applied": "none"}),
             each("proposal_ids", lambda _, step: step["draft_ids"])),
        "vocab-map/missing", "certain",
    ),
    "placeholder": (once("proposal_ids", [-1, -1, -1]), "vocab-map/out-of-range", "certain"),
    "id beyond the target": (once("target_ids", [999, 999, 999, 999]), "tokenizer/mismatch", "certain"),
    "texts differ": (lambda r: r.others[-1].update(draft={"5": "z"}), "tokenizer/mismatch", "certain"),
    "start token twice": (
        lambda r: r.others[0].update(prompt_ids=[1, 1, 9]), "tokenizer/mismatch", "certain",
    ),
    "head overwritten": (header(draft={"head_rows": 640}), "draft-head/overwritten", "certain"),
    "head missing": (
        header(draft={"parameters": {"missing": ["lm_head.weight"]}}), "draft-head/not-loaded", "certain",
    ),
    "layer missing": (
        header(draft={"parameters": {"missing": ["midlayer.mlp.up_proj.weight"]}}),
        "weights/not-loaded", "certain",
    ),
    "layer ignored": (
        header(draft={"parameters": {"unexpected": ["midlayer.mlp.up_proj.weight"]}}),
        "weights/not-loaded", "certain",
    ),
    "packed head": (
        header(draft={"fingerprints": {"embed_tokens": {"shape": [320, 8]}}}), "weights/precision", "certain",
    ),
    "taps shifted": (swap_references({0: 1, 1: 2, 2: 3, 3: 4, 4: 0}), "tap-layer/shifted", "certain"),
    "taps guessed": (header(taps={"origin": "guess"}), "tap-layer/guessed", "strong"),
    "taps out of range": (
        header(taps={"declared": [1, 2, 9], "boundaries": [1, 2, 9]}), "tap-layer/out-of-range", "certain",
    ),
    "taps in another order": (swap_references({1: 2, 2: 1}), "tap-form/order", "certain"),
    "joined in another order": (header(taps={"order": [2, 1, 0]}), "tap-form/order", "certain"),
    "width": (taps(lambda tap: tap.update(shape=[1, 8, 32])), "tap-form/width", "certain"),
    "normed": (references(3, unit), "tap-form/norm", "certain"),
    "rotated": (taps(turned), "tap-form/rotated", "certain"),
    "no residual": (no_residual, "tap-form/residual", "certain"),
    "decode rows differ": (decode_differs, "tap-form/prefill-decode", "strong"),
    "stale rows": (stale, "tap-form/stale-rows", "strong"),
    "feedback": (dead_second, "tap-form/feedback-norm", "strong"),
    "positions late": (
        each("draft_positions", lambda p, _: [x + 3 for x in p]), "positions/shifted", "certain",
    ),
    "positions stand still": (
        each("draft_positions", lambda p, _: [p[0]] * 3), "positions/shifted", "certain",
    ),
    "positions drift": (once("draft_positions", [9, 10, 11]), "positions/shifted", "certain"),
    "rotary": (header(draft={"rope": {"rope_theta": 500000.0}}), "positions/rotary-config", "certain"),
    "target cache": (once("target_kv_length", 99), "kv-state/target-length", "certain"),
    "draft cache trimmed too far": (lagging(-1), "kv-state/over-trimmed", "certain"),
    "draft cache not trimmed": (lagging(1), "kv-state/not-trimmed", "certain"),
    "poisoned blocks": (poisoned, "kv-state/poisoned", "strong"),
    "processors fed one token": (
        each("processor_tokens", lambda *_: 1), "processors/under-applied", "certain",
    ),
    "mask skipped": (unmasked, "processors/mask-skipped", "certain"),
    "nan": (once("nonfinite", {"draft_logits": 0, "target_logits": 3}), "nonfinite/values", "certain"),
    "statistics are nan": (once("target_gaps", ["NaN"] * 4), "nonfinite/values", "strong"),
    "template": (header(template_digest="other"), "workload/template", "strong"),
    "other formula": (
        lambda r: r.run.update(reported={"accept_length": r.run["reported"]["accept_length"] - 1}),
        "metrics/formula", "certain",
    ),
    "slower": (header(baseline={"token_ns": 2_000_000}), "cost/below-break-even", "certain"),
    "rows": (rows_differ, "batch/row-cliff", "strong"),
    "counts": (once("num_accepted", 9), "trace/contradiction", "certain"),
}  # fmt: skip


@pytest.mark.parametrize("name", BREAKS)
def test_a_fault_is_the_first_finding(name: str, rich: Any, diagnosed: Diagnose) -> None:
    """Broken in one place, the trace names that place first, with steps or numbers, and says what to do."""
    change, id_, strength = BREAKS[name]
    change(rich)
    diagnosis = diagnosed(rich.run, rich.steps, rich.others)
    first = diagnosis.findings[0]
    assert (first.id, first.strength) == (id_, strength)
    assert first.evidence
    assert first.summary.endswith(".")
    assert first.advice.endswith(".")


def test_greedy_contradictions_are_found_and_ties_are_not(rich: Any, diagnosed: Diagnose) -> None:
    """An accepted token that is not the pick is a fault, unless the two logits are a rounding apart."""
    step = next(s for s in rich.steps if s["num_accepted"] == 3)
    step["target_ids"] = [600, *step["target_ids"][1:]]
    step["target_ranks"] = [2, 1, 1]
    assert worth(diagnosed(rich.run, rich.steps, rich.others)) == ["verification/unjustified-accept"]
    step["target_gaps"] = [0.125, 4.0, 4.0, 4.0]
    assert worth(diagnosed(rich.run, rich.steps, rich.others)) == []


def test_a_refused_pick_and_a_wrong_own_token_are_found(rich: Any, diagnosed: Diagnose) -> None:
    """Greedy verification that refuses the pick, or commits another token at its end, contradicts itself."""
    step = next(s for s in rich.steps if s["num_accepted"] == 0)
    step["emitted_ids"] = [601]
    assert worth(diagnosed(rich.run, rich.steps, rich.others)) == ["verification/biased"]


def test_a_lossy_rule_is_reported_and_not_flagged(rich: Any, diagnosed: Diagnose) -> None:
    """What a typical-acceptance rule accepts is declared."""
    rich.run["verification"] = {"rule": "typical", "lossless": False}
    each("target_ids", lambda ids, _: [600] * 4)(rich)
    diagnosis = diagnosed(rich.run, rich.steps, rich.others)
    assert worth(diagnosis) == []
    assert any(item.id == "verification" and "lossy" in item.reason for item in diagnosis.not_checked)


def test_tokens_behind_a_rejection_never_count(rich: Any, diagnosed: Diagnose) -> None:
    """Target values that hang on refused tokens may be anything."""
    for step in rich.steps:
        count = step["num_accepted"]
        for j in range(count + 1, 3):
            step["target_ids"][j] = step["proposal_ids"][j]
            step["target_ranks"][j] = 1
    assert worth(diagnosed(rich.run, rich.steps, rich.others)) == []


def test_the_feedback_of_a_short_trace_is_a_hint(rich: Any, diagnosed: Diagnose) -> None:
    """Fewer than 200 proposals point at the fed-back state and do not convict it."""
    dead_second(rich)
    rich.steps = rich.steps[:80]
    diagnosis = diagnosed(rich.run, rich.steps, rich.others)
    assert worth(diagnosis) == []
    assert diagnosis.findings[0].id == "tap-form/feedback-norm"


def test_another_size_of_the_feedback_alone_is_no_fault(rich: Any, diagnosed: Diagnose) -> None:
    """Some heads are made so: only a second token that collapses makes it one."""
    each("draft_inputs", lambda *_: [{"rms": 12.0}, {"rms": 1.0}])(rich)
    assert diagnosed(rich.run, rich.steps, rich.others).findings == []


def test_the_recorders_own_reason_is_given(rich: Any, diagnosed: Diagnose) -> None:
    """Where an engine cannot give a field, the answer says why."""
    each("draft_positions", lambda *_: None)(rich)
    rich.run["capture"] = {"unavailable": {"draft_positions": "graph capture hides them"}}
    diagnosis = diagnosed(rich.run, rich.steps, rich.others)
    item = next(item for item in diagnosis.not_checked if item.id == "positions/shifted")
    assert item.reason == "graph capture hides them"
    assert item.missing == ("draft_positions",)


def test_few_steps_or_prompts_allow_no_comparison_of_texts(rich: Any, diagnosed: Diagnose) -> None:
    """Below 200 proposals or five prompts the size itself is a hint, and nothing statistical is strong."""
    rich.steps = [step for step in rich.steps if step["request"] in ("r0", "r1")]
    for step in rich.steps:
        step["segment"] = "think" if step["num_accepted"] > 1 else "answer"
    rich.others = [record for record in rich.others if record.get("request") in (None, "r0", "r1")]
    rich.run["reported"] = {}
    diagnosis = diagnosed(rich.run, rich.steps, rich.others)
    assert worth(diagnosis) == []
    assert {finding.id for finding in diagnosis.findings} == {"workload/too-small", "workload/segment"}


def test_workload_is_not_named_while_a_structural_fault_stands(rich: Any, diagnosed: Diagnose) -> None:
    """The text is only to blame when the engine is not."""
    for step in rich.steps:
        step["segment"] = "think" if step["num_accepted"] > 1 else "answer"
    assert worth(diagnosed(rich.run, rich.steps, rich.others)) == ["workload/segment"]
    rich.run["draft"]["parameters"]["missing"] = ["midlayer.mlp.up_proj.weight"]
    diagnosis = diagnosed(rich.run, rich.steps, rich.others)
    assert worth(diagnosis) == ["weights/not-loaded"]
    assert any(item.id == "workload/segment" and "weights" in item.reason for item in diagnosis.not_checked)


def test_a_confidence_gate_is_no_sign_of_quality(rich: Any, diagnosed: Diagnose) -> None:
    """Acceptance of nearly everything with proposals less than half as long as asked for is a hint."""
    rich.run["speculation"] = {"num_draft_tokens": 8}
    for step in rich.steps:
        step["num_accepted"] = step["num_accepted_reported"] = 3
        step["target_ids"] = [*step["proposal_ids"], 7]
        step["emitted_ids"] = [*step["proposal_ids"], 7]
        step["target_ranks"] = [1, 1, 1]
        step["processor_tokens"] = 4
        step["mask"] = ["on"] * 4
    rich.run["reported"] = {}
    diagnosis = diagnosed(rich.run, rich.steps, rich.others)
    assert "verification/confidence-gate" in {finding.id for finding in diagnosis.findings}
    assert worth(diagnosis) == []


def test_reported_logprobs_are_compared_where_a_recorder_adds_them(rich: Any, diagnosed: Diagnose) -> None:
    """Zeros where the recorded log-probability is none are certain."""
    for step in rich.steps:
        step["reported_logprobs"] = [-0.3] * step["num_accepted"] + [-1.0]
    diagnosis = diagnosed(rich.run, rich.steps, rich.others)
    assert "reporting/logprob" in {item.id for item in diagnosis.cleared}
    for step in rich.steps:
        step["reported_logprobs"] = [0.0] * (step["num_accepted"] + 1)
    assert worth(diagnosed(rich.run, rich.steps, rich.others)) == ["reporting/logprob"]


def test_a_fall_over_the_uptime_is_found(rich: Any, diagnosed: Diagnose) -> None:
    """Ten-minute windows that fall one after the other are strong."""
    steps = []
    for window in range(8):
        for at, step in enumerate(rich.steps[:120]):
            count = min(3, max(0, step["num_accepted"] - (at % 8 < window)))
            picks = [*step["proposal_ids"][:count], 639, 639, 639, 639][:4]
            steps.append(
                {
                    "request": f"{step['request']}w{window}",
                    "step": step["step"],
                    "position": 8 + 4 * step["step"],
                    "proposal_ids": step["proposal_ids"],
                    "num_accepted": count,
                    "emitted_ids": picks[: count + 1],
                    "started_ns": window * 600_000_000_000 + at,
                }
            )
    diagnosis = diagnosed({"verification": {"rule": "greedy"}}, steps)
    assert worth(diagnosis) == ["drift/over-time"]
    assert diagnosis.findings[0].evidence["p"] < 0.01


# --- trees -------------------------------------------------------------------------------------


def tree_steps(path: list[int], picks: list[int], accepted: int) -> list[dict[str, Any]]:
    """Steps of one tree: two children of the root, two of the first of them."""
    ids = [11, 12, 13, 14]
    return [
        {
            "request": f"r{n % 5}",
            "step": n // 5,
            "position": 3 + n,
            "proposal_ids": ids,
            "parents": [-1, -1, 0, 0],
            "accepted_nodes": path,
            "num_accepted": accepted,
            "target_ids": picks,
            "emitted_ids": [*[ids[node] for node in path], 50],
        }
        for n in range(20)
    ]


def test_a_tree_is_judged_by_its_own_paths(diagnosed: Diagnose) -> None:
    """A sound path is cleared, and the chain inside the tree is counted."""
    run = {"verification": {"rule": "greedy"}, "speculation": {"tree": {"topk": 2}}}
    diagnosis = diagnosed(run, tree_steps([0, 3], [11, 14, 50, 50, 50], 2))
    assert worth(diagnosis) == []
    assert {"tree/not-ancestor", "tree/worse-than-chain"} <= {item.id for item in diagnosis.cleared}
    chain = next(item for item in diagnosis.counterfactuals if item.name == "chain-of-first-children")
    assert chain.evidence["accept_length_of_chain"] == 2.0
    assert chain.evidence["accept_length_of_tree"] == 3.0


def test_a_path_that_jumps_is_found(diagnosed: Diagnose) -> None:
    """A node whose parent is not the one before it was never on the path."""
    run = {"verification": {"rule": "greedy"}}
    diagnosis = diagnosed(run, tree_steps([1, 3], [12, 50, 14, 50, 50], 2))
    assert worth(diagnosis)[0] == "tree/not-ancestor"


def test_a_tree_worse_than_its_chain_is_found(diagnosed: Diagnose) -> None:
    """The tree holds the chain: it cannot have fewer tokens accepted."""
    run = {"verification": {"rule": "greedy"}}
    diagnosis = diagnosed(run, tree_steps([0], [11, 13, 50, 50, 50], 1))
    assert worth(diagnosis) == ["tree/worse-than-chain"]


# --- bad input ---------------------------------------------------------------------------------


def test_an_empty_trace_and_one_of_a_single_step_are_answered(diagnosed: Diagnose) -> None:
    """Nothing to divide by is no reason to fail."""
    step = {
        "request": "r",
        "step": 0,
        "position": 1,
        "proposal_ids": [],
        "num_accepted": 0,
        "emitted_ids": [],
    }
    for steps in (
        [],
        [step],
        [{**step, "proposal_ids": [1, 2], "num_accepted": 2, "emitted_ids": [1, 2, 3]}],
    ):
        diagnosis = diagnosed({}, steps)
        assert [finding.id for finding in diagnosis.findings] == ["workload/too-small"]


def test_steps_without_proposals_are_no_proposals(diagnosed: Diagnose) -> None:
    """K = 0 throughout: nothing was drafted, nothing is accused."""
    steps = [
        {"request": "r", "step": n, "position": n, "proposal_ids": [], "num_accepted": 0, "emitted_ids": [n]}
        for n in range(300)
    ]
    diagnosis = diagnosed({"verification": {"rule": "greedy"}}, steps)
    assert worth(diagnosis) == []
    assert diagnosis.measured["proposals"] == 0


def test_wild_values_are_findings_about_the_trace_at_most(rich: Any, diagnosed: Diagnose) -> None:
    """Ids, counts, positions and lists of the wrong length reach a rule as unknown or out of range."""
    rich.steps[3] |= {
        "proposal_ids": [2**62, -(2**62), 5],
        "position": -(2**62),
        "num_accepted": -(2**62),
        "target_ids": [1],
        "target_ranks": [],
        "draft_positions": [2**62] * 3,
        "accepted_nodes": [99],
        "draft_kv_length": 2**62,
        "batch_row": -5,
        "started_ns": -1,
        "target_logprobs": ["NaN", "Infinity", "-Infinity"],
    }
    diagnosis = diagnosed(rich.run, rich.steps, rich.others)
    assert "trace/contradiction" in worth(diagnosis)
    assert all(math.isfinite(m) for m in (diagnosis.measured["accept_length"],))


def test_a_number_that_no_formula_gives_is_not_explained(rich: Any, diagnosed: Diagnose) -> None:
    """A reported value that fits nothing is said to fit nothing."""
    rich.run["reported"] = {"accept_length": 9.99}
    diagnosis = diagnosed(rich.run, rich.steps, rich.others)
    assert worth(diagnosis) == []
    assert any("9.99" in item.reason for item in diagnosis.not_checked)


# --- sampling ----------------------------------------------------------------------------------


def sampled_steps(accepts: Callable[[float, float, float], bool]) -> list[dict[str, Any]]:
    """Steps of one draft token, p and q moving from step to step, accepted by a rule of p, q and a number."""
    steps = []
    for n in range(600):
        p, q, u = 0.1 + 0.8 * (n % 17) / 16, 0.1 + 0.8 * (n % 13) / 12, (n * 0.618) % 1
        took = accepts(p, q, u)
        steps.append(
            {
                "request": f"r{n % 6}",
                "step": n // 6,
                "position": 5 + n // 6,
                "proposal_ids": [n % 500],
                "draft_logprobs": [math.log(q)],
                "target_logprobs": [math.log(p)],
                "num_accepted": int(took),
                "emitted_ids": [n % 500, 501] if took else [502],
            }
        )
    return steps


SAMPLED = {"verification": {"rule": "rejection_sampling"}, "sampling": {"temperature": 1.0}}


@pytest.mark.parametrize(
    ("accepts", "expected"),
    [
        (lambda p, q, u: u < p / q, []),
        (lambda p, q, u: u < p, ["verification/q-not-used"]),
        (lambda p, q, u: u < 0.95, ["verification/biased"]),
    ],
    ids=["min(1, p/q)", "p", "neither"],
)
def test_a_sampler_is_known_by_what_it_accepts(
    accepts: Callable[[float, float, float], bool], expected: list[str], diagnosed: Diagnose
) -> None:
    """The full rule is cleared, one that ignores q is named, and one that fits neither is called biased."""
    diagnosis = diagnosed(SAMPLED, sampled_steps(accepts))
    assert worth(diagnosis) == expected
    if expected == ["verification/q-not-used"]:
        assert diagnosis.findings[0].steps

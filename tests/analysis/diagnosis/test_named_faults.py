"""Faults that the fault matrix injects for real, each by its sign, and the healthy run that looks like it."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from spectrace.analysis.diagnosis import Diagnosis, Finding
from spectrace.format.projections import project

Diagnose = Callable[..., Diagnosis]
Find = Callable[[Diagnosis, str], Finding]
Chain = Callable[..., list[dict[str, Any]]]

VOCAB, ROWS = 1000, 200
EAGLE: dict[str, Any] = {
    "method": "eagle3",
    "target": {"vocab_size": VOCAB, "hidden_size": 8, "num_layers": 4},
    "draft": {"head_rows": ROWS},
    "verification": {"rule": "greedy"},
    "sampling": {"temperature": 0.0},
}


def ids(diagnosis: Diagnosis) -> list[str]:
    """Ids of all findings, hints included."""
    return [finding.id for finding in diagnosis.findings]


def prompts(count: int = 8) -> list[dict[str, Any]]:
    """Requests of different prompts."""
    return [
        {"record": "request", "request": f"r{n}", "prompt_ids": [1, n], "prompt_digest": f"d{n}"}
        for n in range(count)
    ]


def many(chain: Chain, accepted: list[int], count: int = 8, **fields: Any) -> list[dict[str, Any]]:
    """The same chain in several requests."""
    return [step for n in range(count) for step in chain(accepted, request=f"r{n}", **fields)]


# --- maps ------------------------------------------------------------------------------------------

OFFSETS = [*([0] * 20), *range(1, ROWS - 19)]
"""Target ids 0..19, then 21, 23, ...: some raw ids equal their own offset less something, as real maps do."""


def _mapped(table: Callable[[int], int], seed: int = 0) -> list[dict[str, Any]]:
    """Steps of raw ids that went to the target by a table."""
    draws = random.Random(seed)
    steps = []
    for number in range(60):
        raw = [draws.randrange(ROWS) for _ in range(4)]
        proposal = [table(r) for r in raw]
        steps.append(
            {
                "request": "r0",
                "step": number,
                "position": 10 + number,
                "draft_ids": raw,
                "proposal_ids": proposal,
                "num_accepted": 0,
                "emitted_ids": [999],
                "target_ids": [999] * 5,
            }
        )
    return steps


def test_ids_passed_on_unmapped_are_not_taken_for_the_direct_reading(
    diagnosed: Diagnose, found: Find
) -> None:
    """A raw id may equal its own offset by chance; all ids being unmapped says more."""
    offsets = [*OFFSETS[:-1], ROWS - 1]  # the last raw id equals its offset
    run = {**EAGLE, "vocab_map": {"d2t": offsets, "applied": "offset"}}
    steps = _mapped(lambda raw: raw)
    steps[0]["draft_ids"][0] = steps[0]["proposal_ids"][0] = ROWS - 1
    assert found(diagnosed(run, steps), "vocab-map/missing").strength == "certain"


def test_another_table_that_agrees_here_and_there_with_the_direct_reading_is_stale(
    diagnosed: Diagnose, found: Find
) -> None:
    """Which reading explains more ids decides, not the first that meets one."""
    run = {**EAGLE, "vocab_map": {"d2t": OFFSETS, "applied": "offset"}}
    steps = _mapped(lambda raw: OFFSETS[raw] if raw == 150 else 400 + raw)
    steps[0]["draft_ids"][0], steps[0]["proposal_ids"][0] = 150, OFFSETS[150]
    diagnosis = diagnosed(run, steps)
    assert found(diagnosis, "vocab-map/stale").strength == "certain"
    assert "vocab-map/offset-read-as-direct" not in ids(diagnosis)


def _beside_picks(says: Callable[[int], int], method: str, steps: int = 600) -> tuple[Any, Any]:
    """A header and steps in which the target picks words of a text and the draft says something of them."""
    draws = random.Random(3)
    text = [draws.choice(range(40)) for _ in range(steps)]
    made = []
    for number, pick in enumerate(text):
        word = says(pick)
        hit = word == pick
        emitted = [pick, 7] if hit else [pick]
        made.append(
            {
                "request": f"r{number % 8}",
                "step": number // 8,
                "position": 10 + number,
                "draft_ids": [word],
                "proposal_ids": [word],
                "target_ids": [pick, 7],
                "num_accepted": int(hit),
                "emitted_ids": emitted,
            }
        )
    run = {
        "method": method,
        "target": {"vocab_size": VOCAB},
        "draft": {"head_rows": VOCAB},
        "vocab_map": {"applied": "identity"},
    }
    return run, made


@pytest.mark.parametrize(
    ("method", "id_"), [("draft_model", "tokenizer/mismatch"), ("eagle3", "vocab-map/stale")]
)
def test_ids_that_always_stand_for_another_are_told_by_the_picks_beside_them(
    diagnosed: Diagnose, found: Find, method: str, id_: str
) -> None:
    """A permuted vocabulary accepts nothing, and each draft id has one pick beside it."""
    run, steps = _beside_picks(lambda pick: (pick + 100) % VOCAB, method)
    finding = found(diagnosed(run, steps, prompts()), id_)
    assert finding.strength == "strong"
    assert finding.evidence["alpha1_by_learned_ids"].value > 0.9


@pytest.mark.parametrize("name", ["bad", "behind", "good"])
def test_a_draft_that_is_bad_or_a_token_behind_has_no_other_map(diagnosed: Diagnose, name: str) -> None:
    """Random words have no relation; words that many picks share are none that is one-to-one."""
    draws = random.Random(4)
    says = {"bad": lambda _: draws.randrange(40), "behind": lambda pick: 500 + pick // 8, "good": lambda p: p}
    run, steps = _beside_picks(says[name], "draft_model")
    assert "tokenizer/mismatch" not in ids(diagnosed(run, steps, prompts()))


# --- weights and states ----------------------------------------------------------------------------


def test_matrices_of_zeros_were_never_filled(diagnosed: Diagnose, chain: Chain, found: Find) -> None:
    """The loader's list says nothing, the fingerprint does; a norm or a head of zeros is another matter."""
    prints = {
        "layers.0.self_attn.q_proj.weight": {"shape": [8, 8], "rms": 0.0},
        "layers.0.bias": {"shape": [8], "rms": 0.0},
    }
    draft = {"parameters": {"missing": [], "unexpected": []}, "fingerprints": prints}
    diagnosis = diagnosed({**EAGLE, "draft": draft}, chain([1, 2]))
    assert found(diagnosis, "weights/not-loaded").evidence["zero"] == ["layers.0.self_attn.q_proj.weight"]
    assert "weights" not in [item.id for item in diagnosis.cleared]


def _fed_back(is_declared_normed: bool, rms: Callable[[int], float]) -> tuple[Any, Any]:
    run = {
        **EAGLE,
        "engine": {"name": "x", "flags": {"norm_output": is_declared_normed}},
        "draft": {"fingerprints": {"norm.weight": {"shape": [8], "rms": 1.5}}},
    }
    return run, {"draft_inputs": lambda n: [{"rms": 9.0}, {"rms": rms(n)}]}


@pytest.mark.parametrize(
    ("is_declared_normed", "rms", "is_fault"),
    [
        (False, lambda n: 1.5, True),
        (True, lambda n: 8.0 + n % 5, True),
        (True, lambda n: 1.5, False),
        (False, lambda n: 8.0 + n % 5, False),
        (False, lambda n: 9.0, False),
    ],
    ids=["normed", "un-normed", "normed as meant", "un-normed as meant", "steady, of another size"],
)
def test_the_size_that_a_norm_leaves_tells_what_is_fed_back(
    diagnosed: Diagnose, chain: Chain, is_declared_normed: bool, rms: Callable[[int], float], is_fault: bool
) -> None:
    """A contradiction between config and states is certain, whatever is accepted."""
    run, fields = _fed_back(is_declared_normed, rms)
    findings = diagnosed(run, chain([2] * 30, **fields)).findings
    certain = [f.id for f in findings if f.strength == "certain"]
    assert certain == (["tap-form/feedback-norm"] if is_fault else [])


def _states(shift: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """A reference over twenty tokens, and taps of one request that are so many rows off."""
    rng = np.random.default_rng(0)
    rows = {k: rng.normal(size=(24, 64)) for k in (1, 2, 3)}

    def fingerprint(row: Any) -> dict[str, Any]:
        return {"rms": float(np.sqrt((row * row).mean())), "projections": project(row)[0].tolist()}

    references = [
        {
            "record": "reference",
            "boundary": k,
            "rows": [{"position": at, **fingerprint(rows[k][at])} for at in range(2, 20)],
        }
        for k in rows
    ]
    taps = [
        {"boundary": k, "position": at, "shape": [1, 20, 64], "dtype": "float32"}
        | fingerprint(rows[k][at + shift])
        for k in rows
        for at in range(2, 20)
    ]
    return references, taps


@pytest.mark.parametrize("shift", [-1, 0, 1])
def test_states_of_a_neighbouring_token_are_named_by_how_far_they_are_off(
    diagnosed: Diagnose, chain: Chain, found: Find, shift: int
) -> None:
    """Each row matches the reference of the token before or after, and not that of its own."""
    references, taps = _states(shift)
    run = {**EAGLE, "target": {"vocab_size": VOCAB, "hidden_size": 64, "num_layers": 3}}
    run["taps"] = {"declared": [1, 2, 3], "numbering": "input", "boundaries": [1, 2, 3]}
    steps = chain([2] * 20)
    steps[0]["taps"] = taps
    diagnosis = diagnosed(run, steps, references)
    if shift:
        assert found(diagnosis, "tap-form/stale-rows").evidence["shift"] == shift
    else:
        assert "tap-form/stale-rows" not in ids(diagnosis)


def test_less_than_training_promised_is_a_hint_once_nothing_else_is_found(
    diagnosed: Diagnose, chain: Chain, found: Find
) -> None:
    """Other text does the same, so it accuses nobody."""
    run = {**EAGLE, "training": {"first_position_accuracy": 0.85}}
    finding = found(diagnosed(run, many(chain, [0, 2] * 20), prompts()), "tap-form/unknown")
    assert finding.strength == "hint"
    assert "tap-form/unknown" not in ids(diagnosed(run, many(chain, [2] * 40), prompts()))


# --- how the draft is run --------------------------------------------------------------------------


@pytest.mark.parametrize("distance", [-1, 0, 1])
def test_the_token_beside_the_first_state_is_the_last_committed_one(
    diagnosed: Diagnose, chain: Chain, found: Find, distance: int
) -> None:
    """One before it is what an engine reads that forgets to shift the ids."""
    steps = chain([1] * 20)
    for step in steps:
        step["draft_inputs"] = [{"rms": 1.0, "token_position": step["position"] - 1 + distance}]
    diagnosis = diagnosed(EAGLE, steps)
    if distance:
        assert found(diagnosis, "positions/shifted").evidence["distance"] == distance
    else:
        assert "positions/token-shift" in [item.id for item in diagnosis.cleared]


def _window(draft: dict[str, Any], chain: Chain) -> tuple[Any, Any]:
    run = {**EAGLE, "draft": {"head_rows": ROWS, **draft}}
    steps = many(chain, [1] * 40)
    for step in steps:
        step["draft_kv_length"] = min(step["position"] - 1, 16)
    return run, steps


@pytest.mark.parametrize(
    ("draft", "strength"),
    [
        ({"window_declared": 0}, "certain"),
        ({"window_declared": 512}, "certain"),
        ({}, "hint"),
        ({"window_declared": 16}, None),
    ],
)
def test_a_cache_that_stops_growing_is_a_window_and_not_over_trimmed(
    diagnosed: Diagnose, chain: Chain, found: Find, draft: dict[str, Any], strength: str | None
) -> None:
    """It is a fault where the checkpoint declares another, and nothing is known where it was not recorded."""
    diagnosis = diagnosed(*_window(draft, chain), prompts())
    assert "kv-state/over-trimmed" not in ids(diagnosis)
    if strength is None:
        assert "window/length" not in ids(diagnosis)
    else:
        assert found(diagnosis, "window/length").strength == strength


@pytest.mark.parametrize(("window", "is_fault"), [(8, True), (0, False)])
def test_the_window_of_the_header_is_held_against_the_declared_one(
    diagnosed: Diagnose, chain: Chain, window: int, is_fault: bool
) -> None:
    """A draft that sees all is as it should be where no window is declared."""
    run = {**EAGLE, "draft": {"window": window, "window_declared": 0}}
    assert ("window/length" in ids(diagnosed(run, chain([1] * 5)))) is is_fault


# --- verifier, processors, counts ------------------------------------------------------------------


def test_a_refused_token_that_is_committed_in_its_place_is_a_contradiction(
    diagnosed: Diagnose, chain: Chain, found: Find
) -> None:
    """What is left of p after a refusal is 0 at the refused token, by every lossless rule."""
    run = {**EAGLE, "verification": {"rule": "rejection_sampling"}, "sampling": {"temperature": 1.0}}
    fields: dict[str, Any] = {"target_logprobs": lambda n: [-0.7] * 4, "draft_logprobs": lambda n: [-0.4] * 4}
    steps = many(chain, [3] * 40, **fields)
    assert "verification/biased" not in [
        f.id for f in diagnosed(run, steps).findings if f.strength == "certain"
    ]
    steps[7]["emitted_ids"][-1] = steps[7]["proposal_ids"][3]
    finding = next(f for f in diagnosed(run, steps).findings if f.strength == "certain")
    assert (finding.id, list(finding.steps)) == ("verification/biased", [7])


@pytest.mark.parametrize(("name", "is_fault"), [("above", True), ("below", False), ("anywhere", False)])
def test_a_gate_that_stops_at_sure_tokens_is_on_the_wrong_side(
    diagnosed: Diagnose, chain: Chain, name: str, is_fault: bool
) -> None:
    """Chains end behind tokens of high probability; a right gate ends them behind low ones."""
    draws = random.Random(5)
    run = {**EAGLE, "speculation": {"num_draft_tokens": 4}}
    steps = []
    for number in range(200):
        high, low = np.log(draws.uniform(0.91, 1.0)), np.log(draws.uniform(0.1, 0.89))
        inner, last = {"above": (low, high), "below": (high, low)}.get(name, (high, high))
        (step,) = chain([1], 2, request=f"r{number}")
        steps.append({**step, "draft_logprobs": [inner, last]})
    assert ("verification/confidence-gate" in ids(diagnosed(run, steps))) is is_fault


@pytest.mark.parametrize(("mask", "strength"), [("on", "strong"), ("off", "hint")])
def test_refusals_of_what_the_processors_rule_out_show_a_draft_that_does_not_know_them(
    diagnosed: Diagnose, chain: Chain, found: Find, mask: str, strength: str
) -> None:
    """Under a grammar it is worth mending; with top-k alone engines do it on purpose."""
    run = {**EAGLE, "sampling": {"temperature": 0.0, "processors": ["grammar"]}}
    fields: dict[str, Any] = {
        "target_logprobs": lambda n: [-0.1, "-Infinity" if n % 2 else -2.0, None, None],
        "mask": lambda n: [mask, mask],
    }
    finding = found(diagnosed(run, many(chain, [1] * 40, **fields), prompts()), "processors/draft-unaware")
    assert finding.strength == strength
    assert finding.evidence["refused_as_ruled_out"].value == 0.5


@pytest.mark.parametrize(("said", "is_fault"), [(3, True), (2, False)])
def test_a_count_that_holds_the_targets_own_token_is_a_miscount(
    diagnosed: Diagnose, chain: Chain, said: int, is_fault: bool
) -> None:
    """At the end of a text an engine may count what it did not commit; elsewhere it may not."""
    steps = chain([2] * 10, num_accepted_reported=said)
    steps[-1] |= {"num_accepted_reported": 4, "stop": "eos"}
    assert ("metrics/formula" in ids(diagnosed(EAGLE, steps))) is is_fault


SAMPLED: dict[str, Any] = {
    "verification": {"rule": "rejection_sampling"},
    "sampling": {"temperature": 1.0},
}


def _sampled_steps(chain: Chain, accepts: Callable[[float], float], seed: int = 6) -> list[dict[str, Any]]:
    """Steps of one draft token, likelier or unlikelier under the target than under the draft, by any rule."""
    draws = random.Random(seed)
    steps = []
    for number in range(1500):
        ratio = draws.choice([0.3, 0.6, 1.0, 1.0])
        (step,) = chain([int(draws.random() < accepts(ratio))], 1, request=f"r{number % 8}")
        logq = np.log(0.5)
        steps.append(
            {**step, "step": number, "draft_logprobs": [logq], "target_logprobs": [logq + np.log(ratio)]}
        )
    return steps


@pytest.mark.parametrize(
    ("accepts", "is_fault"),
    [(lambda r: r, False), (lambda r: 1.0 if r < 0.5 else 0.6 if r < 1 else 0.65 + 0.0 * r, True)],
    ids=["min(1, p / q)", "the same mean, other tokens"],
)
def test_acceptance_that_is_right_on_the_mean_only_is_biased(
    diagnosed: Diagnose, chain: Chain, accepts: Callable[[float], float], is_fault: bool
) -> None:
    """What is accepted too often and what too seldom may cancel; classes of p / q do not."""
    diagnosis = diagnosed({**EAGLE, **SAMPLED}, _sampled_steps(chain, accepts), prompts())
    assert ("verification/biased" in ids(diagnosis)) is is_fault


def _behind_prompt(off: float, tree: bool = False) -> tuple[Any, list[dict[str, Any]], list[dict[str, Any]]]:
    """A header, a reference, and taps of the prompt as they should be, of later tokens so far off."""
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(20, 64))

    def fingerprint(row: Any) -> dict[str, Any]:
        return {"rms": float(np.sqrt((row * row).mean())), "projections": project(row)[0].tolist()}

    def tap(at: int) -> dict[str, Any]:
        state = rows[at] + (off * rng.normal(size=64) if at >= 10 else 0.0)
        return {"boundary": 2, "position": at, "shape": [1, 1, 64], "dtype": "float32"} | fingerprint(state)

    run = {**EAGLE, "target": {"vocab_size": VOCAB, "hidden_size": 64, "num_layers": 4}}
    run["taps"] = {"declared": [2], "numbering": "input", "boundaries": [2]}
    if tree:
        run["speculation"] = {"num_draft_tokens": 4, "tree": {"topk": 2, "depth": 2, "num_nodes": 4}}
    whole = [{"position": at, **fingerprint(row)} for at, row in enumerate(rows)]
    reference = [{"record": "reference", "boundary": 2, "rows": whole}]
    return run, reference, [tap(at) for at in range(20)]


@pytest.mark.parametrize(
    ("off", "tree", "id_"),
    [
        (0.0, False, None),
        (0.005, False, None),
        (0.2, False, "kv-state/poisoned"),
        (0.2, True, "tree/mask"),
        (3.0, False, None),
    ],
)
def test_states_behind_the_prompt_tell_whether_the_target_read_the_committed_text(
    diagnosed: Diagnose, chain: Chain, off: float, tree: bool, id_: str | None
) -> None:
    """A wrong cache or mask moves them a little; rounding less, another layer much more."""
    run, reference, taps = _behind_prompt(off, tree)
    steps = chain([1] * 12)
    steps[0] |= {"taps": taps[:10], "flags": ["prefill"]}
    for step, tap in zip(steps[1:], taps[10:]):
        step["taps"] = [tap]
    found = ids(diagnosed(run, steps, reference))
    named = [name for name in found if name in ("kv-state/poisoned", "tree/mask")]
    assert named == ([id_] if id_ else [])


def _requests(chain: Chain, alphas: list[float]) -> list[dict[str, Any]]:
    """Requests of sixty steps, the first token accepted in such a share of them."""
    return [
        step
        for number, alpha in enumerate(alphas)
        for step in chain([int(at < 60 * alpha) for at in range(60)], request=f"r{number}")
    ]


@pytest.mark.parametrize(
    ("alphas", "is_fault"),
    [
        ([0.0, 0.7, 0.7, 0.7, 0.7, 0.7], True),
        ([0.03, 0.03, 0.7, 0.7, 0.7, 0.7], True),
        ([0.03, 0.7, 0.7, 0.7, 0.7, 0.7], False),
        ([0.03, 0.03, 0.2, 0.7, 0.7, 0.7], False),
    ],
    ids=["never", "twice by chance", "one hard text", "texts of every difficulty"],
)
def test_requests_at_chance_are_poisoned_where_they_stand_apart(
    diagnosed: Diagnose, chain: Chain, alphas: list[float], is_fault: bool
) -> None:
    """Garbage now and then meets a frequent word; one hard text does so too."""
    diagnosis = diagnosed(EAGLE, _requests(chain, alphas), prompts(6))
    assert ("kv-state/poisoned" in ids(diagnosis)) is is_fault


@pytest.mark.parametrize(("cycle", "is_fault"), [(25, True), (400, False)])
def test_a_text_that_goes_round_in_circles_is_degenerate(
    diagnosed: Diagnose, chain: Chain, cycle: int, is_fault: bool
) -> None:
    """A sentence of many words, said over and over, has few runs of four tokens."""
    steps = []
    for request in range(8):
        at = 0
        for number in range(100):
            emitted = [10 + (at + j) % cycle for j in range(3)]
            steps.append(
                {
                    "request": f"r{request}",
                    "step": number,
                    "position": 10 + at,
                    "proposal_ids": [*emitted[:2], 5],
                    "num_accepted": 2,
                    "emitted_ids": emitted,
                }
            )
            at += 3
    assert ("workload/degenerate" in ids(diagnosed(EAGLE, steps, prompts()))) is is_fault


def test_rows_that_all_keep_their_length_are_rotated_though_few_projections_blur_their_angles(
    diagnosed: Diagnose, chain: Chain, found: Find
) -> None:
    """Lengths that differ by a fifth from row to row and all agree are no chance."""
    rng = np.random.default_rng(2)
    rows = rng.normal(size=(12, 64)) * rng.uniform(0.6, 1.4, (12, 1))
    other = rng.normal(size=(12, 64))
    turned = other * (np.linalg.norm(rows, axis=1) / np.linalg.norm(other, axis=1))[:, None]

    def fingerprint(row: Any) -> dict[str, Any]:
        return {"rms": float(np.sqrt((row * row).mean())), "projections": project(row)[0].tolist()}

    run = {**EAGLE, "target": {"vocab_size": VOCAB, "hidden_size": 64, "num_layers": 4}}
    run["taps"] = {"declared": [2], "numbering": "input", "boundaries": [2]}
    steps = chain([1] * 5)
    steps[0]["taps"] = [
        {"boundary": 2, "position": at, "shape": [1, 12, 64], "dtype": "float32", **fingerprint(row)}
        for at, row in enumerate(turned)
    ]
    whole = [{"position": at, **fingerprint(row)} for at, row in enumerate(rows)]
    diagnosis = diagnosed(run, steps, [{"record": "reference", "boundary": 2, "rows": whole}])
    assert found(diagnosis, "tap-form/rotated").strength == "certain"


@pytest.mark.parametrize(("rank", "is_fault"), [(30, False), (700, True)])
def test_a_draft_of_little_training_is_not_taken_for_a_random_head(
    diagnosed: Diagnose, chain: Chain, rank: int, is_fault: bool
) -> None:
    """Both are unsure and accepted by chance; what the trained one says ranks far better."""
    fields: dict[str, Any] = {
        "draft_entropy": lambda n: [0.97 * float(np.log(VOCAB))] * 4,
        "target_ranks": lambda n: [rank] * 4,
    }
    run = {**EAGLE, "method": "draft_model", "draft": {"head_rows": VOCAB}}
    diagnosis = diagnosed(run, many(chain, [0] * 40, **fields), prompts())
    assert ("draft-head/not-loaded" in ids(diagnosis)) is is_fault

"""Rules about state that acceptance does not show: recurrent slots, prefix blocks, ranks, the first token."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

import spectrace
from spectrace import Trace
from spectrace.analysis.diagnosis import Diagnosis, Finding, diagnose
from spectrace.analysis.diagnosis.sample import PerRequest
from spectrace.analysis.diagnosis.slope import SlopeTally, fitted
from spectrace.format.jsonl import import_lines
from spectrace.format.records import Run

Diagnose = Callable[..., Diagnosis]
Find = Callable[[Diagnosis, str], Finding]
Step = dict[str, Any]
GREEDY = {"verification": {"rule": "greedy", "lossless": True}, "target": {"dtype": "float32"}}


FOUND_AS = {
    "draft-head/ranks-disagree": "batch/rank",
    "kv-state/behind-rejection": "kv-state/not-trimmed",
    "kv-state/prefix-reuse": "kv-state/poisoned",
    "kv-state/read-before-written": "kv-state/poisoned",
    "positions/falls-with-length": "positions/rotary-config",
    "verification/unverified-first": "verification/unjustified-accept",
}
"""What is looked at -> the id of the finding, where several looks lead to one."""


def said(diagnosis: Diagnosis, id_: str) -> str:
    """What became of a cause: found, cleared, not checked, or silence."""
    if any(finding.id == FOUND_AS.get(id_, id_) for finding in diagnosis.findings):
        return "found"
    if any(item.id == id_ for item in diagnosis.cleared):
        return "cleared"
    return "not checked" if any(item.id == id_ for item in diagnosis.not_checked) else "silent"


# --- recurrent slot --------------------------------------------------------------------------------


def replayed(replay_pick: int | None, gap: float | None = 3.0, *, apart: int = 0) -> list[Step]:
    """An acceptance, a step without proposal, others, and the replay of that step."""
    steps: list[Step] = [
        {"proposal_ids": [5, 6], "num_accepted": 2, "emitted_ids": [5, 6, 7], "target_ids": [5, 6, 7],
         "target_gaps": [3.0] * 3, "position": 4},
        {"proposal_ids": [], "num_accepted": 0, "emitted_ids": [8], "target_ids": [8], "target_gaps": [gap],
         "position": 7},
    ]  # fmt: skip
    steps += [{"proposal_ids": [9], "num_accepted": 0, "emitted_ids": [3], "position": 8}] * apart
    if replay_pick is not None:
        steps.append({**steps[1], "target_ids": [replay_pick], "flags": ["replay"]})
    kept = [{key: value for key, value in step.items() if value != [None]} for step in steps]
    return [{"request": "r0", "step": number, **step} for number, step in enumerate(kept)]


@pytest.mark.parametrize("apart", [0, 9000])
def test_a_replay_that_picks_another_token_is_a_recurrent_slot(
    diagnosed: Diagnose, found: Find, apart: int
) -> None:
    """Right behind the step and many blocks later."""
    first = found(diagnosed(GREEDY, replayed(4, apart=apart)), "kv-state/recurrent-slot")
    assert first.strength == "certain"
    assert first.steps == [2 + apart]


@pytest.mark.parametrize(
    ("steps", "answer"),
    [
        (replayed(8), "cleared"),
        (replayed(None), "not checked"),
        (replayed(4, gap=1e-6), "silent"),  # a tie that rounding decides
        (replayed(4, gap=None), "silent"),  # nobody knows whether it is one
        ([replayed(4)[0] | {"num_accepted": 0}, *replayed(4)[1:]], "silent"),  # nothing was accepted before
        (replayed(4)[1:], "silent"),
    ],
)
def test_other_replays_are_no_recurrent_slot(diagnosed: Diagnose, steps: list[Step], answer: str) -> None:
    """The same pick clears; ties, unknown gaps and steps behind a rejection say nothing."""
    assert said(diagnosed(GREEDY, steps), "kv-state/recurrent-slot") == answer


# --- blocks read before they are written -----------------------------------------------------------


def beginnings(*requests: tuple[int | None, int | None, list[int] | None]) -> tuple[list[Step], list[Step]]:
    """A step of each request (engine step, prefix hit, prompt), and the request records."""
    steps = [
        {"request": f"r{n}", "step": 0, "position": 9, "proposal_ids": [5], "num_accepted": 1,
         "emitted_ids": [5, 6], "engine_step": at, "prefix_hit_length": hit}
        for n, (at, hit, _) in enumerate(requests)
    ]  # fmt: skip
    others = [
        {"record": "request", "request": f"r{n}", **({} if ids is None else {"prompt_ids": ids})}
        for n, (_, _, ids) in enumerate(requests)
    ]
    return steps, others


LONG = [1, 2, 3, 4, 5, 6, 7, 8]


def test_a_block_found_in_the_step_that_writes_it(diagnosed: Diagnose, found: Find) -> None:
    """Two requests of one beginning start together: one writes, the other has found already."""
    steps, others = beginnings((7, 0, [*LONG, 9]), (7, 8, [*LONG, 10]))
    first = found(diagnosed(GREEDY, steps, others), FOUND_AS["kv-state/read-before-written"])
    assert first.strength == "certain"
    assert first.evidence["requests"] == ["r1"]


@pytest.mark.parametrize(
    ("requests", "answer"),
    [
        (((6, 0, LONG), (7, 8, LONG)), "cleared"),  # written a step before
        (((7, 0, [9, *LONG]), (7, 8, LONG)), "cleared"),  # another beginning: the cache was warm
        (((7, 8, LONG), (7, 8, LONG)), "cleared"),  # warm for both
        (((6, 8, LONG), (7, 0, LONG), (7, 8, LONG)), "cleared"),  # an earlier one had it
        (((7, 0, LONG), (7, 8, None)), "not checked"),
        (((7, None, LONG), (7, 8, LONG)), "not checked"),
        (((None, 0, LONG), (7, 8, LONG)), "not checked"),
        (((7, 0, LONG), (7, 0, LONG)), "cleared"),  # nothing was reused
        (((7, None, LONG), (7, None, LONG)), "not checked"),
    ],
)
def test_other_prefix_hits_are_in_order(diagnosed: Diagnose, requests: Any, answer: str) -> None:
    """A warm cache, an earlier writer and another text excuse; what is not known is said."""
    steps, others = beginnings(*requests)
    steps = [{key: value for key, value in step.items() if value is not None} for step in steps]
    assert said(diagnosed(GREEDY, steps, others), "kv-state/read-before-written") == answer


# --- the first token -------------------------------------------------------------------------------


def unasked(count: int, *, refused: int = 0, lossless: bool = True) -> tuple[dict[str, Any], list[Step]]:
    """Steps whose first token has no value of the target."""
    steps = []
    for number in range(count):
        accepted = 0 if number < refused else 1
        steps.append(
            {
                "request": f"r{number % 6}", "step": number, "position": 5 + 2 * number,
                "proposal_ids": [11, 12], "num_accepted": accepted, "emitted_ids": [11] * accepted + [14],
                "target_ids": [None, 14, 15], "target_logprobs": [None, -4.0],
            }
        )  # fmt: skip
    return {"verification": {"rule": "greedy", "lossless": lossless}}, steps


def test_a_first_token_that_nobody_verifies(diagnosed: Diagnose, found: Find) -> None:
    """Values at every place but the first, and the first is never refused."""
    run, steps = unasked(40)
    first = found(diagnosed(run, steps), FOUND_AS["verification/unverified-first"])
    assert first.strength == "certain"
    assert first.evidence["accepted_without_target"].trials == 40


def test_a_gap_in_the_recording_is_no_unverified_token(
    rich: Any, diagnosed: Diagnose, imported: Callable[..., Trace]
) -> None:
    """Refused ones show that somebody asked; few steps, lossy rules and healthy traces accuse nobody."""
    id_ = "verification/unverified-first"
    assert said(diagnosed(*unasked(40, refused=1)), id_) == "not checked"
    assert said(diagnosed(*unasked(19)), id_) == "not checked"
    assert said(diagnosed(*unasked(40, lossless=False)), id_) == "silent"
    assert said(diagnosed(rich.run, rich.steps, rich.others), id_) == "cleared"
    run, steps = unasked(40)
    for dropped in ("target_ids", "target_logprobs"):
        fewer = [{key: value for key, value in step.items() if key != dropped} for step in steps]
        assert said(diagnosed(run, fewer), id_) == "not checked"


# --- ranks -----------------------------------------------------------------------------------------


def ranks(folder: Path, *parts: tuple[dict[str, Any], Iterable[Step]]) -> Diagnosis:
    """Diagnose the files of one run, a rank each."""
    paths: list[Path] = []
    folder = folder / f"run{len(list(folder.iterdir()))}"
    folder.mkdir()
    for rank, (run, steps) in enumerate(parts):
        path = folder / f"rank{rank}.spectrace"
        records = [{"record": "run", "schema": 1, **run}]
        records += [{"record": "step", "rank": rank, **step} for step in steps]
        import_lines([json.dumps(record) for record in records], path)
        paths.append(path)
    with spectrace.open(paths) as trace:
        return diagnose(trace)


def test_ranks_that_propose_differently_disagree(tmp_path: Path, chain: Callable[..., list[Step]]) -> None:
    """Both commit the same tokens, so they share the target; their drafts are not the same."""
    one = chain([0, 1, 2] * 8)
    other = copy.deepcopy(one)
    for step in other[::2]:
        step["proposal_ids"][-1] = 999
    found = ranks(tmp_path, (GREEDY, one), (GREEDY, other))
    first = next(finding for finding in found.findings if finding.id == "batch/rank")
    assert first.strength == "certain"
    assert first.evidence["steps_that_differ"].successes == 12
    assert said(ranks(tmp_path, (GREEDY, one), (GREEDY, one)), first.id) == "cleared"


def test_ranks_with_requests_of_their_own_do_not_disagree(
    tmp_path: Path, chain: Callable[..., list[Step]]
) -> None:
    """Data-parallel ranks may both call a request r0; what they committed tells them apart."""
    one, other = chain([0, 1, 2] * 8), chain([2, 1, 0] * 8, vocab_size=700)
    assert said(ranks(tmp_path, (GREEDY, one), (GREEDY, other)), "draft-head/ranks-disagree") == "silent"


@pytest.mark.parametrize(
    ("drafts", "answer"),
    [
        (({"parameters": {"missing": ["lm_head.weight"]}}, {"parameters": {"missing": []}}), "found"),
        (({"parameters": {"missing": ["norm.weight"]}}, {"parameters": {"missing": []}}), "silent"),
        (
            (
                {"fingerprints": {"lm_head": {"digest": "a"}, "target.lm_head": {"digest": "a"}}},
                {"fingerprints": {"lm_head": {"digest": "b"}, "target.lm_head": {"digest": "c"}}},
            ),
            "found",
        ),
        (  # shards of a head differ from rank to rank by right
            (
                {"fingerprints": {"lm_head": {"digest": "a"}, "target.lm_head": {"digest": "x"}}},
                {"fingerprints": {"lm_head": {"digest": "b"}, "target.lm_head": {"digest": "y"}}},
            ),
            "silent",
        ),
        (({"id": "a", "parameters": {"missing": ["lm_head"]}}, {"id": "b", "parameters": {}}), "silent"),
        (({"parameters": {"missing": ["lm_head"]}}, {"parameters": {}}), "silent"),  # one does not say
    ],
)
def test_ranks_must_load_the_head_alike(tmp_path: Path, drafts: Any, answer: str) -> None:
    """One rank that shares the target's head while another has its own is named from the headers alone."""
    step = {
        "request": "r",
        "step": 0,
        "position": 1,
        "proposal_ids": [],
        "num_accepted": 0,
        "emitted_ids": [1],
    }
    found = ranks(tmp_path, *(({"draft": draft}, [step]) for draft in drafts))
    assert said(found, "draft-head/ranks-disagree") == answer


# --- slope -----------------------------------------------------------------------------------------


def growing(chance: Callable[[int], int], chain: Callable[..., list[Step]], requests: int = 6) -> list[Step]:
    """Texts of some thousand tokens; how many of four are accepted hangs on the step."""
    return [
        step
        for n in range(requests)
        for step in chain([chance(i) for i in range(1200)], 4, request=f"r{n}", start=10 + 100 * n)
    ]


def test_a_steady_fall_within_texts_is_a_hint(
    diagnosed: Diagnose, chain: Callable[..., list[Step]], found: Find
) -> None:
    """From four of four to three over some thousand tokens: too little for a limit."""
    steps = growing(lambda i: 4 - (i * 7919 % 1200 < 0.9 * i), chain)
    tally = found(diagnosed(GREEDY, steps), FOUND_AS["positions/falls-with-length"])
    assert tally.strength == "hint"
    assert tally.evidence["at_most"] < -0.02


@pytest.mark.parametrize(
    ("chance", "requests", "answer"),
    [
        (lambda i: i % 5, 6, "cleared"),
        (lambda i: max(0, 4 - (i * 3) // 1200), 4, "not checked"),  # of too few prompts
    ],
)
def test_no_fall_or_too_few_prompts_is_no_hint(
    diagnosed: Diagnose, chain: Callable[..., list[Step]], chance: Any, requests: int, answer: str
) -> None:
    """Level acceptance clears; four prompts are no statistics."""
    found = diagnosed(GREEDY, growing(chance, chain, requests))
    assert said(found, "positions/falls-with-length") == answer


def test_prompts_of_different_length_make_no_slope() -> None:
    """Long prompts that are accepted less are another task: the line is drawn within each request."""
    tally = SlopeTally(Run())
    tally.sums = [PerRequest(float) for _ in range(6)]
    for request, level in enumerate((0.9, 0.5, 0.1)):
        for at in range(50):
            x, y = 5.0 * request + at / 50, level + 0.01 * (-1) ** at
            for sums, value in zip(tally.sums, (1, x, y, x * x, x * y, y * y)):
                sums.upto(request + 1)[request] += value
    line = fitted(tally)
    assert line is not None
    assert abs(line.slope) < 0.02
    assert (line.steps, line.requests) == (150, 3)


# --- with a control --------------------------------------------------------------------------------


def pair(imported: Callable[..., Trace], wrong: Iterable[int], reused: Iterable[int]) -> Diagnosis:
    """Ten requests; some part from the control by a wide gap, some reused cached blocks."""

    def run_of(tamper: bool) -> list[Step]:
        return [
            {"request": f"r{n}", "step": 0, "position": 4, "proposal_ids": [5], "num_accepted": 0,
             "emitted_ids": [9 if tamper and n in wrong else 6], "target_ids": [6, 7],
             "target_gaps": [3.0, 3.0], "target_top": [[[6, -0.1], [9, -3.1]], [[7, -0.1]]],
             "prefix_hit_length": 16 if n in reused else 0}
            for n in range(10)
        ]  # fmt: skip

    return diagnose(imported(GREEDY, run_of(True)), control=imported(GREEDY, run_of(False)))


@pytest.mark.parametrize(
    ("wrong", "reused", "answer"),
    [
        (range(3), range(4), "found"),
        (range(2), range(4), "silent"),  # too few
        (range(3, 7), range(4), "silent"),  # also without reuse
        ((), range(4), "cleared"),
        (range(3), (), "silent"),
    ],
)
def test_wrong_text_only_with_reuse_is_prefix_reuse(
    imported: Callable[..., Trace], wrong: Iterable[int], reused: Iterable[int], answer: str
) -> None:
    """Texts that are wrong elsewhere too, or hardly ever, accuse no cache."""
    assert said(pair(imported, wrong, reused), "kv-state/prefix-reuse") == answer


def states(off_behind: float, off_elsewhere: float, imported: Callable[..., Trace]) -> Diagnosis:
    """One text with and without a draft; the gaps of the first differ behind rejections or elsewhere."""
    steps: list[Step] = []
    position, rejected = 4, False
    for number in range(90):
        accepted = number % 2
        gap = 5.0 + (off_behind if rejected else off_elsewhere)
        emitted = [position + i for i in range(accepted + 1)]
        steps.append(
            {"request": "r0", "step": number, "position": position,
             "proposal_ids": [position if accepted else 900], "num_accepted": accepted,
             "emitted_ids": emitted, "target_ids": [position, position + 1], "target_gaps": [gap, 5.0]}
        )  # fmt: skip
        position, rejected = position + accepted + 1, not accepted
    plain = [
        {"request": "r0", "step": n, "position": 4 + n, "proposal_ids": [], "num_accepted": 0,
         "emitted_ids": [4 + n], "target_ids": [4 + n], "target_gaps": [5.0]}
        for n in range(position - 4)
    ]  # fmt: skip
    return diagnose(imported(GREEDY, steps), control=imported(GREEDY, plain))


@pytest.mark.parametrize(
    ("behind", "elsewhere", "answer"),
    [(1.0, 0.0, "found"), (0.0, 0.0, "cleared"), (1.0, 1.0, "cleared"), (1e-5, 0.0, "cleared")],
)
def test_a_state_that_keeps_the_rejected_shows_against_a_run_without_a_draft(
    imported: Callable[..., Trace], behind: float, elsewhere: float, answer: str
) -> None:
    """Differences everywhere are another engine's arithmetic, small ones are rounding."""
    assert said(states(behind, elsewhere, imported), "kv-state/behind-rejection") == answer

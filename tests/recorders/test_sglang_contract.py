"""The SGLang recorder against stand-ins for its scheduler and workers: runs wherever torch does."""

from __future__ import annotations

import gc
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from spectrace.errors import UnsupportedEngine

pytestmark = pytest.mark.engine
torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from spectrace_serving.settings import Settings  # noqa: E402
from spectrace_sglang.recording import attach  # noqa: E402
from tests.recorders import sglang_fakes as fakes  # noqa: E402
from tests.recorders.serving_fakes import EOS, HIDDEN, KEPT, OFFSET, target_logits  # noqa: E402
from tests.recorders.serving_traces import by_request, header  # noqa: E402
from tests.recorders.sglang_fake_models import draft_logits  # noqa: E402
from tests.recorders.sglang_records import PROMPTS, parents_in, record, scheduler  # noqa: E402


@pytest.fixture(params=[1, 2], ids=["chain", "tree"])
def live(request: pytest.FixtureRequest) -> Any:
    """A scheduler that proposes chains, and one that proposes trees."""
    return scheduler(request.param)


def test_what_the_engine_emits_is_in_the_trace(live: Any, tmp_path: Path) -> None:
    """Every token that is committed is an emitted token of a step, in order, and accepted as SGLang says."""
    steps = by_request(record(live, tmp_path))
    for at, request in enumerate(live.requests):
        own = steps[request.rid]
        emitted = [token for step in own for token in step.emitted_ids]
        assert emitted == request.text[len(PROMPTS[request.rid]) :]
        reported = [report[at] for report in live.reports]
        assert [step.num_accepted for step in own[1:]] == reported
        assert [step.num_accepted_reported for step in own[1:]] == reported


def test_the_first_step_reads_the_prompt(live: Any, tmp_path: Path) -> None:
    """It proposes nothing, commits one token, and holds states of the prompt's tokens."""
    for name, steps in by_request(record(live, tmp_path)).items():
        first = steps[0]
        assert (first.proposal_ids, first.flags, first.final_kind) == ((), ("prefill",), "none")
        assert first.position == len(PROMPTS[name]) == first.target_kv_length
        assert first.target_ids == first.emitted_ids
        assert [tap.position for tap in first.taps if tap.boundary == 4] == list(range(len(PROMPTS[name])))


def test_each_node_is_what_the_draft_said(live: Any, tmp_path: Path) -> None:
    """Raw id, log q and alternatives of a node are those of the token that it follows."""
    for steps in by_request(record(live, tmp_path)).values():
        for step, before in zip(steps[1:], steps):
            parents = parents_in(step)
            read = [before.emitted_ids[-1], *step.proposal_ids]
            for node, parent in enumerate(parents):
                row = draft_logits(torch.tensor(read[parent + 1 : parent + 2])).log_softmax(-1)[0]
                assert step.draft_ids[node] == step.proposal_ids[node] - OFFSET
                assert step.draft_logprobs[node] == pytest.approx(row[step.draft_ids[node]].item(), abs=1e-4)
                assert step.draft_top[node][0][0] == row.argmax().item()
                entropy = -(row.exp() * row).sum().item()
                assert step.draft_entropy[node] == pytest.approx(entropy, abs=1e-3)


def test_positions_follow_the_path(live: Any, tmp_path: Path) -> None:
    """The first node is made at the last token but one, each other at the place of its parent."""
    for steps in by_request(record(live, tmp_path)).values():
        for before, step in pairwise(steps):
            assert step.position == before.position + len(before.emitted_ids) == step.target_kv_length
            depths: list[int] = []
            for parent in parents_in(step):
                depths.append(0 if parent < 0 else depths[parent] + 1)
            assert list(step.draft_positions) == [step.position - 2 + depth for depth in depths]
            assert [entry["rms"] for entry in step.draft_inputs[1:]] == pytest.approx([1.0, 2.0])


def test_the_target_judges_a_node_where_its_parent_was_read(live: Any, tmp_path: Path) -> None:
    """Rank and log p of a node come from the row of its parent, a pick from the row of the node itself."""
    for steps in by_request(record(live, tmp_path)).values():
        for step, before in zip(steps[1:], steps):
            read = [before.emitted_ids[-1], *step.proposal_ids]
            logits = target_logits(torch.tensor(read))
            assert list(step.target_ids) == logits.argmax(-1).tolist()
            for node, parent in enumerate(parents_in(step)):
                row, token = logits[parent + 1], step.proposal_ids[node]
                assert step.target_ranks[node] == int((row > row[token]).sum()) + 1
                assert step.target_logprobs[node] == pytest.approx(
                    row.log_softmax(-1)[token].item(), abs=1e-4
                )


def test_a_tree_saves_what_a_chain_loses(tmp_path: Path) -> None:
    """Where the draft's second choice is right, the tree's path goes through it and the chain ends."""
    chain, tree = (by_request(record(scheduler(topk), tmp_path / str(topk))) for topk in (1, 2))
    assert all(step.parents is None for steps in chain.values() for step in steps)
    second = [
        step
        for steps in tree.values()
        for step in steps[1:]
        if any(step.draft_top[node][0][0] != step.draft_ids[node] for node in step.accepted_nodes)
    ]
    assert second
    for step in second:
        path = list(step.accepted_nodes)
        assert [step.proposal_ids[node] for node in path] == list(step.emitted_ids[: len(path)])
        assert [parents_in(step)[node] for node in path] == [-1, *path[:-1]]
    assert sum(len(steps) for steps in chain.values()) == sum(len(steps) for steps in tree.values())
    emitted = [sum(len(s.emitted_ids) for own in found.values() for s in own) for found in (chain, tree)]
    assert emitted[1] > emitted[0]


def test_the_last_token_says_why_it_is_there(live: Any, tmp_path: Path) -> None:
    """Bonus behind a leaf, corrected where a child was refused."""
    for steps in by_request(record(live, tmp_path)).values():
        for step in steps[1:]:
            path = list(step.accepted_nodes) if step.parents is not None else range(step.num_accepted)
            last = path[-1] if path else -1
            assert step.final_kind == ("corrected" if last in parents_in(step) else "bonus")


def test_the_states_of_the_root_are_fingerprinted(live: Any, tmp_path: Path) -> None:
    """One row per boundary, cut out of the one tensor that SGLang hands over."""
    path = record(live, tmp_path)
    for steps in by_request(path).values():
        for step in steps[1:]:
            assert [tap.boundary for tap in step.taps] == [2, 4, 5]
            assert {tap.position for tap in step.taps} == {step.position - 1}
            assert {tap.shape[1] for tap in step.taps} == {HIDDEN}
            assert all(len(tap.projections) == 32 for tap in step.taps)
    assert list(header(path).taps.boundaries) == [2, 4, 5]


def test_the_header_says_what_runs(tmp_path: Path) -> None:
    """Method, map, shape of the tree; K leaves out the root that SGLang counts."""
    run = header(record(scheduler(2), tmp_path))
    assert (run.engine.name, run.method) == ("sglang", "eagle3")
    assert run.vocab_map.d2t == tuple([OFFSET] * KEPT)
    assert run.speculation.num_draft_tokens == 6
    assert (run.speculation.tree.topk, run.speculation.tree.depth) == (2, fakes.STEPS)
    assert (run.verification.rule, run.verification.lossless) == ("greedy", True)
    assert run.capture.mode == "eager"


def test_a_hook_that_does_not_fit_is_in_the_header(tmp_path: Path) -> None:
    """What is missing, why, and what to do: the log of a server is seldom at hand beside its trace."""
    recording = attach(scheduler(), Settings(out=tmp_path), ["eagle_sample is not there"])
    assert recording is not None
    recording.close()
    missing = header(recording.writer.path).capture.unavailable["hook 0"]
    assert missing.startswith("eagle_sample is not there; install")
    assert missing.endswith("newer spectrace-tui")


def test_a_fraction_among_the_settings_is_kept(tmp_path: Path) -> None:
    """Thresholds of acceptance are no whole numbers; what is no single word or number is left out."""
    live = scheduler()
    live.server_args.speculative_accept_threshold_acc = 0.9
    live.server_args.attention_backend = ["a", "list"]
    flags = header(record(live, tmp_path, rounds=1)).engine.flags
    assert flags["speculative_accept_threshold_acc"] == 0.9
    assert "attention_backend" not in flags


def test_requests_are_sampled(live: Any, tmp_path: Path) -> None:
    """Every second request: the other one leaves nothing in the trace."""
    assert set(by_request(record(live, tmp_path, every=2))) == {"a"}


def test_ids_alone(live: Any, tmp_path: Path) -> None:
    """SPECTRACE_CAPTURE=ids keeps tokens and decisions, and neither probabilities nor states."""
    step = by_request(record(live, tmp_path, is_full=False))["a"][2]
    assert step.target_ids is not None
    assert [raw + OFFSET for raw in step.draft_ids] == list(step.proposal_ids)
    assert (step.target_logprobs, step.draft_logprobs, step.taps) == (None, None, None)


def test_a_text_ends_where_the_scheduler_ends_it(live: Any, tmp_path: Path) -> None:
    """Tokens behind a limit and rounds behind the end, which SGLang throws away, are not committed here."""
    live.requests[0].sampling_params.max_new_tokens = 4
    steps = by_request(record(live, tmp_path))["a"]
    assert sum(len(step.emitted_ids) for step in steps) == 4
    assert steps[-1].stop == "length"


def test_the_end_of_text_ends_it(live: Any, tmp_path: Path) -> None:
    """The token that ends a text is the last that is committed."""
    live.requests[0].text[:] = [56, 57, 58]
    steps = by_request(record(live, tmp_path))["a"]
    assert steps[-1].stop == "eos"
    assert steps[-1].emitted_ids[-1] == EOS


def test_a_part_of_a_prompt_is_no_step(tmp_path: Path) -> None:
    """The token that a chunk of a prompt yields is thrown away, and counts as nothing."""
    live = scheduler()
    recording = attach(live, Settings(out=tmp_path), [])
    assert recording is not None
    live.around = lambda name: getattr(recording.follower, name)
    live.prefill(chunked=live.requests[0])
    live.prefill()
    recording.close()
    assert [step.step for step in by_request(recording.writer.path)["a"]] == [0]


@pytest.mark.parametrize("algorithm", ["DFLASH", "DSPARK"])
def test_what_decides_in_functions_of_its_own_is_refused(tmp_path: Path, algorithm: str) -> None:
    """A trace without a decision would look like a run that never proposed; there is none, and a reason."""
    live = scheduler()
    live.spec_algorithm.name = algorithm
    with pytest.raises(UnsupportedEngine, match=f"{algorithm} verifies in functions that are not hooked"):
        attach(live, Settings(out=tmp_path), [])
    assert not list(tmp_path.iterdir())


def test_a_request_that_is_gone_is_forgotten(live: Any, tmp_path: Path) -> None:
    """A server runs for months: what is known of a request goes with the scheduler's own object."""
    recording = attach(live, Settings(out=tmp_path), [])
    assert recording is not None
    live.around = lambda name: getattr(recording.follower, name)
    live.prefill()
    recording.writer.flush()
    assert set(recording.joiner.requests) == {"a", "b"}
    live.requests.pop()
    live._seeds.topk_p, live._seeds.topk_index = live._seeds.topk_p[:1], live._seeds.topk_index[:1]
    gc.collect()
    live.round()
    recording.writer.flush()
    assert set(recording.joiner.requests) == {"a"}
    recording.close()


def test_a_name_that_is_used_again_is_another_request(tmp_path: Path) -> None:
    """A caller may give a name twice; while the first is held, the second has a name of its own."""
    live = fakes.Scheduler([fakes.Request("a", [1, 2, 3]), fakes.Request("a", [7, 8])])
    steps = by_request(record(live, tmp_path, rounds=2))
    assert set(steps) == {"a", "a#2"}
    assert [step.step for step in steps["a#2"]] == [0, 1, 2]
    assert steps["a#2"][0].position == 2


def test_a_lookup_is_recorded_without_a_draft(tmp_path: Path) -> None:
    """NGRAM has no draft model: decisions, and what the target thought of them, are all there."""
    live = scheduler(2)
    live.spec_algorithm.name = "NGRAM"
    live.draft_worker.draft_worker = None
    recording = attach(live, Settings(out=tmp_path), [])
    assert recording is not None
    passed = ("eagle_sample", "forward_batch_generation")
    live.around = lambda name: getattr(recording.follower, name) if name in passed else None
    live.prefill()
    for _ in range(4):
        live.round()
    recording.close()
    run, steps = header(recording.writer.path), by_request(recording.writer.path)["a"]
    assert run.method == "ngram"
    assert run.draft is None
    assert "distribution" in run.capture.unavailable["draft_logprobs"]
    assert [step.num_accepted for step in steps[1:]] == [report[0] for report in live.reports]
    assert (steps[1].draft_ids, steps[1].taps) == (None, None)
    assert steps[1].target_logprobs is not None


def test_a_sampled_request_on_a_cpu_is_verified_greedily(tmp_path: Path) -> None:
    """SGLang takes the first choice there whatever was asked for, which is another distribution."""
    live = scheduler()
    for request in live.requests:
        request.sampling_params.top_k, request.sampling_params.temperature = 1 << 30, 0.7
    run = header(record(live, tmp_path))
    assert (run.verification.rule, run.verification.lossless) == ("greedy", False)
    assert run.sampling.temperature == 0.7

"""A loop written by hand says what it does, and the trace tells it; whatever it says, it goes on.

The loops here have the shape of EAGLE's reference: a flat tree of candidates behind the last committed
token, `retrieve_indices` from the root to each leaf, logits gathered along them, an `evaluate_posterior`
that chooses a path and an `update_inference_inputs` that commits it.
"""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import spectrace
import spectrace_demo
from spectrace.errors import RecorderError, UsageError

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

import spectrace_loop  # noqa: E402
from tests.recorders.eagle3_zoo import bundled_target, bundled_tokenizer, prompt_ids  # noqa: E402

pytestmark = pytest.mark.engine

NEW_TOKENS = 20
WIDTHS = (3, 2, 1)
"""Children of each node, by depth."""


@cache
def bundled_draft() -> Any:
    """The bundled draft model."""
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(spectrace_demo.draft_path()).eval()


def logits_of(model: Any, ids: Sequence[int]) -> Any:
    """[n, V] of one text."""
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0].float()


def opened(path: Path) -> Any:
    """A trace whose fields are taken to be there."""
    return spectrace.open(path)


class Tree:
    """Candidates behind a committed text, in the form of EAGLE's loop."""

    def __init__(self, committed: list[int], kept: Any = None) -> None:
        self.flat = [committed[-1]]
        """Root, then the nodes, depth by depth."""
        self.rows: list[Any] = []
        """For each node the row of the draft that it comes from."""
        paths: list[list[int]] = [[0]]
        for width in WIDTHS:
            paths = [path for parent in paths for path in self._grown(committed, parent, width, kept)]
        self.retrieve_indices = torch.tensor(paths)
        self.candidates = torch.tensor(self.flat)[self.retrieve_indices]
        self.parents = {path[d + 1]: path[d] for path in paths for d in range(len(WIDTHS))}

    def _grown(self, committed: list[int], parent: list[int], width: int, kept: Any) -> Iterator[list[int]]:
        row = logits_of(bundled_draft(), [*committed, *(self.flat[node] for node in parent[1:])])[-1]
        row = row if kept is None else row[kept]
        for raw in row.topk(width).indices.tolist():
            self.flat.append(raw if kept is None else int(kept[raw]))
            self.rows.append(row)
            yield [*parent, len(self.flat) - 1]

    def gathered(self, committed: list[int]) -> Any:
        """[leaves, depth + 1, V] the target's logits along each path."""
        depth = len(WIDTHS) + 1
        texts = [[*committed, *path[1:]] for path in self.candidates.tolist()]
        return torch.stack([logits_of(bundled_target(), text)[-depth:] for text in texts])


def evaluate_posterior(logits: Any, candidates: Any) -> tuple[int, int, int]:
    """The path of which the target itself would say most, how much of it, and the token after that."""
    picks = logits.argmax(-1)
    lengths = (candidates[:, 1:] == picks[:, :-1]).int().cumprod(1).sum(1)
    best = int(lengths.argmax())
    return best, int(lengths[best]), int(picks[best, lengths[best]])


def tree_loop(
    tell: Callable[[Tree, Any, list[int]], None], prompt: Sequence[int], kept: Any = None
) -> tuple[list[int], list[Tree]]:
    """Generates, and tells each round: the tree, the logits along its paths, what is committed."""
    ids, trees = list(prompt), []
    while len(ids) < len(prompt) + NEW_TOKENS:
        tree = Tree(ids, kept)
        logits = tree.gathered(ids)
        best, accept_length, token = evaluate_posterior(logits, tree.candidates)
        new = [*tree.candidates[best, 1 : accept_length + 1].tolist(), token]
        tell(tree, logits, new)
        ids += new  # what update_inference_inputs does
        trees.append(tree)
    return ids, trees


GREEDY = {"method": "other", "verification": {"rule": "greedy"}}


def test_a_tree_loop_is_recorded_with_what_it_has_in_hand(tmp_path: Path) -> None:
    """Flat candidates, retrieve_indices and gathered logits become nodes, parents and the target's view."""
    path, prompt = tmp_path / "tree.spectrace", prompt_ids(0)
    with spectrace_loop.record(path, GREEDY, tokenizer=bundled_tokenizer(), strict=True) as recorder:
        request = recorder.request(torch.tensor([prompt]))

        def tell(tree: Tree, logits: Any, new: list[int]) -> None:
            draft_tokens = torch.tensor([tree.flat])
            request.step(
                draft_tokens[:, 1:],
                logits,
                new,
                paths=tree.retrieve_indices,
                draft_logits=torch.stack(tree.rows),
                num_accepted_reported=torch.tensor(len(new) - 1),
            )

        ids, trees = tree_loop(tell, prompt)
    alone = list(prompt)
    while len(alone) < len(ids):
        alone.append(int(logits_of(bundled_target(), alone)[-1].argmax()))
    assert ids == alone
    with opened(path) as trace:
        assert trace.problems == []
        assert [token for step in trace for token in step.emitted_ids] == ids[len(prompt) :]
        at = len(prompt)
        for number, (step, tree) in enumerate(zip(trace, trees, strict=True)):
            assert (step.step, step.position) == (number, at)
            check_step(step, tree, ids[:at])
            at += len(step.emitted_ids)
        assert trace.counts.accepted > 0
        assert trace.token_text(ids[-1]) is not None
        assert "taps" in trace.run.capture.unavailable


def check_step(step: Any, tree: Tree, before: list[int]) -> None:
    """One step against plain forwards over each node's own text."""
    assert step.proposal_ids == tuple(tree.flat[1:])
    assert step.parents == tuple(tree.parents[node] - 1 for node in range(1, len(tree.flat)))
    assert step.num_accepted == step.num_accepted_reported == len(step.accepted_nodes)
    path = [step.proposal_ids[node] for node in step.accepted_nodes]
    assert list(step.emitted_ids[:-1]) == path
    assert step.final_kind == ("bonus" if len(path) == len(WIDTHS) else "corrected")
    for node, token in enumerate(step.proposal_ids):
        text: list[int] = []
        parent = step.parents[node]
        while parent >= 0:
            text.insert(0, step.proposal_ids[parent])
            parent = step.parents[parent]
        row = logits_of(bundled_target(), [*before, *text])[-1]
        assert step.target_logprobs[node] == pytest.approx(float(row.log_softmax(-1)[token]), abs=2e-3)
        # Rounding may swap two that are all but equal.
        higher = [int((row > row[token] + slack).sum()) for slack in (2e-3, -2e-3)]
        assert higher[0] < step.target_ranks[node] <= higher[1] + 1
        q = tree.rows[node].log_softmax(-1)
        assert step.draft_logprobs[node] == pytest.approx(float(q[token]), abs=1e-4)
        assert step.draft_entropy[node] == pytest.approx(float(-(q.exp() * q).sum()), abs=1e-3)
        overlap = float(torch.minimum(q.exp(), row.softmax(-1)).sum())
        assert step.overlaps[node] == pytest.approx(overlap, abs=1e-3)
    row = logits_of(bundled_target(), before)[-1]
    first, second = row.topk(2).values.tolist()
    assert step.target_gaps[0] == pytest.approx(first - second, abs=2e-3)
    assert step.target_ids[0] == int(row.argmax())


def test_parents_say_the_same_as_paths(tmp_path: Path) -> None:
    """A tree told by parents and flat logits gives the steps of one told by paths and gathered logits."""
    traces = [tmp_path / "paths.spectrace", tmp_path / "parents.spectrace"]
    with (
        spectrace_loop.record(traces[0], GREEDY, strict=True) as by_paths,
        spectrace_loop.record(traces[1], GREEDY, strict=True) as by_parents,
    ):
        a, b = by_paths.request([1, 2]), by_parents.request([1, 2])
        torch.manual_seed(3)
        paths = torch.tensor([[0, 1, 3], [0, 2, -1]])
        for _ in range(4):
            flat, ids = torch.randn(4, 30), torch.randint(30, (3,))
            a.step(ids, flat[paths], [7], paths=paths)
            b.step(ids.tolist(), flat.numpy(), [7], parents=[-1, -1, 0])
    with spectrace.open(traces[0]) as one, spectrace.open(traces[1]) as other:
        assert len(one) == 4
        assert list(one) == list(other)


def test_a_map_is_applied_where_the_loop_gives_raw_ids_only(tmp_path: Path) -> None:
    """Raw ids are mapped by the offsets; both kinds of ids, and what each side thought, are in the trace."""
    kept = torch.tensor([token for token in range(len(bundled_tokenizer())) if token % 3 != 1])
    d2t = kept - torch.arange(len(kept))
    path, prompt = tmp_path / "map.spectrace", prompt_ids(1)
    with spectrace_loop.record(path, GREEDY, d2t=d2t, strict=True) as recorder:
        request = recorder.request(prompt)

        def tell(tree: Tree, logits: Any, new: list[int]) -> None:
            raw = torch.searchsorted(kept, torch.tensor(tree.flat[1:]))
            request.step(
                None,
                logits,
                new,
                draft_ids=raw,
                paths=tree.retrieve_indices,
                draft_logits=torch.stack(tree.rows),
            )

        tree_loop(tell, prompt, kept)
    with opened(path) as trace:
        for step in trace:
            assert step.proposal_ids == tuple(raw + int(d2t[raw]) for raw in step.draft_ids)
            q = [dict(top).get(raw) for top, raw in zip(step.draft_top, step.draft_ids)]
            assert q == pytest.approx(step.draft_logprobs)
            assert all(0 <= overlap <= 1.001 for overlap in step.overlaps)
    with opened(path) as trace:
        found = {finding.id for finding in spectrace.diagnose(trace).findings}
    assert not [cause for cause in found if cause.startswith("vocab-map")]


def test_a_loop_that_maps_wrongly_is_caught(tmp_path: Path) -> None:
    """Where a loop gives both ids, the trace holds what it did, and the diagnosis names the wrong reading."""
    kept = torch.arange(3, len(bundled_tokenizer()), 2)
    d2t = kept - torch.arange(len(kept))
    path = tmp_path / "wrong.spectrace"
    with spectrace_loop.record(path, GREEDY, d2t=d2t, strict=True) as recorder:
        for number in range(4):
            prompt = prompt_ids(number)
            request, ids = recorder.request(prompt), list(prompt)
            for _ in range(6):
                row = logits_of(bundled_draft(), ids)[-1][kept]
                raw = int(row.argmax())
                proposed = int(d2t[raw])  # an offset taken for an id
                logits = logits_of(bundled_target(), [*ids, proposed])[-2:]
                new = [int(logits[0].argmax())]
                new += [int(logits[1].argmax())] if new[0] == proposed else []
                request.step([proposed], logits, new, draft_ids=[raw], draft_logits=row[None])
                ids += new
    with opened(path) as trace:
        assert all(step.overlaps is None for step in trace)
        assert "vocab-map/offset-read-as-direct" in {f.id for f in spectrace.diagnose(trace).findings}


def test_a_round_without_a_draft_and_a_cut_one(tmp_path: Path) -> None:
    """The prompt's own round is a prefill; a text that ends in the proposal has no token of the target's."""
    path = tmp_path / "run.spectrace"
    logits = torch.eye(5)
    with spectrace_loop.record(path, GREEDY, strict=True) as recorder:
        request = recorder.request([1, 1, 1], name="mine")
        request.step([], logits[:1], [0], verify_ns=7)
        request.step([0, 1, 2], logits[:4], [0, 1], stop="eos", segment="answer")
        request.step([0, 1], logits[:3], [0, 1, 2])
    with opened(path) as trace:
        first, cut, full = trace
        assert (first.request, first.final_kind, first.verify_ns) == ("mine", "none", 7)
        assert first.flags == ("prefill",)
        assert (cut.position, cut.num_accepted, cut.final_kind, cut.flags) == (4, 2, "draft", ("truncated",))
        assert (cut.stop, cut.segment) == ("eos", "answer")
        assert (full.position, full.num_accepted, full.final_kind) == (6, 2, "bonus")


def test_a_refusal_by_an_unknown_rule_has_no_name(tmp_path: Path) -> None:
    """Corrected or recovered is said only where the header names the rule."""
    kinds = {}
    for rule in (None, "greedy", "rejection_sampling"):
        path = tmp_path / f"{rule}.spectrace"
        run = {} if rule is None else {"verification": {"rule": rule}}
        with spectrace_loop.record(path, run, strict=True) as recorder:
            recorder.request([1]).step([2], torch.randn(2, 9), [3])
        with opened(path) as trace:
            kinds[rule] = [step.final_kind for step in trace]
    assert kinds == {None: [None], "greedy": ["corrected"], "rejection_sampling": ["recovered"]}


def test_ruled_out_tokens_are_no_fault_and_nan_is(tmp_path: Path) -> None:
    """Minus infinity comes from a processor; NaN and plus infinity are counted."""
    masked, broken = torch.full((2, 9), -torch.inf), torch.zeros(2, 9)
    masked[:, 4] = 1.0
    broken[0, 3], broken[1, 5] = torch.nan, torch.inf
    path = tmp_path / "run.spectrace"
    with spectrace_loop.record(path, strict=True) as recorder:
        request = recorder.request([1])
        request.step([4], masked, [4, 4], draft_logits=masked[:1])
        request.step([4], broken, [2])
    with opened(path) as trace:
        good, bad = trace
    assert good.nonfinite == {"target_logits": 0, "draft_logits": 0}
    assert (good.target_ranks, good.target_logprobs, good.draft_entropy) == ((1,), (0.0,), (0.0,))
    assert good.overlaps == (1.0,)
    assert bad.nonfinite["target_logits"] == 2


def test_the_loops_own_memory_may_change_at_once(tmp_path: Path) -> None:
    """Logits and ids are read before the call returns, and are left as they were."""
    path, logits, ids = tmp_path / "run.spectrace", torch.eye(6)[:3], torch.tensor([0, 1])
    before = logits.clone()
    with torch.inference_mode(), spectrace_loop.record(path, strict=True) as recorder:
        request = recorder.request(ids)
        request.step(ids, logits, ids, draft_logprobs=logits[0, :2])
        assert torch.equal(logits, before)
        logits.fill_(5), ids.fill_(3)
    with opened(path) as trace:
        (step,) = trace
        assert step.proposal_ids == step.emitted_ids == (0, 1)
        assert step.target_ids == (0, 1, 2)
        assert step.draft_logprobs == (1.0, 0.0)


WRONG: dict[str, dict[str, Any]] = {
    "rows": {"target_logits": torch.zeros(5, 9)},
    "no logits": {"target_logits": None},
    "words": {"emitted_ids": "seven"},
    "no ids": {"proposal_ids": None},
    "parents": {"parents": [-1]},
    "paths": {"paths": [0, 1, 2]},
    "draft rows": {"draft_logits": torch.zeros(7, 9)},
    "draft ids": {"draft_ids": [1]},
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_call_ends_the_recording_and_not_the_loop(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """One warning, no exception; the steps before are there and the trace says why it ends."""
    path = tmp_path / "run.spectrace"
    good = {"proposal_ids": [1, 2], "target_logits": torch.zeros(3, 9), "emitted_ids": [4]}
    with caplog.at_level(logging.WARNING), spectrace_loop.record(path) as recorder:
        request = recorder.request([1])
        request.step(**good)
        request.step(**{**good, **WRONG[name]})
        request.step(**good)
    assert recorder.failed is not None
    assert len(caplog.records) == 1
    with opened(path) as trace:
        assert len(trace) == 1
        assert trace.run.capture.unavailable["steps"] == recorder.failed


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"parents": [-1, 5]}, "node 1 of 2 is given the parent 5"),
        ({"paths": [[0, 1], [0, 1]]}, "node 1 of 2 is on no path"),
        ({"draft_ns": "long"}, "draft_ns must be an integer"),
    ],
)
def test_a_wrong_value_costs_its_step(tmp_path: Path, more: dict[str, Any], says: str) -> None:
    """Values are seen later: a step that makes no sense is counted as lost, the next is kept."""
    path = tmp_path / "run.spectrace"
    good = {"proposal_ids": [1, 2], "target_logits": torch.zeros(3, 9), "emitted_ids": [4]}
    recorder = spectrace_loop.record(path, strict=True)
    request = recorder.request([1])
    for fields in (more, {}):
        request.step(**good, **fields)
    with pytest.raises(RecorderError, match=says):
        recorder.close()
    with opened(path) as trace:
        assert [step.step for step in trace] == [1]
        assert trace.gaps[0].lost == 1


def test_ids_out_of_range_are_recorded_as_they_are(tmp_path: Path) -> None:
    """An id that no vocabulary has is what a trace is for; on the device nothing is looked up with it."""
    path = tmp_path / "run.spectrace"
    with spectrace_loop.record(path, d2t=[0, 90, -9], strict=True) as recorder:
        request = recorder.request([1])
        request.step([999, -7], torch.zeros(3, 9), [4], draft_ids=[50, -1], draft_logits=torch.zeros(2, 3))
        request.step(None, torch.zeros(3, 9), [4], draft_ids=[1, 2], draft_logits=torch.zeros(2, 3))
    with opened(path) as trace:
        given, mapped = trace
        assert (given.proposal_ids, given.draft_ids) == ((999, -7), (50, -1))
        assert mapped.proposal_ids == (91, -7)


def test_strict_says_it_at_the_end_and_not_over_the_loops_own_error(tmp_path: Path) -> None:
    """A strict recorder raises its first fault when it is closed, unless the loop has raised itself."""
    with pytest.raises(RecorderError, match="5 rows for 1 draft tokens"):  # noqa: SIM117
        with spectrace_loop.record(tmp_path / "a.spectrace", strict=True) as recorder:
            recorder.request([1]).step([1], torch.zeros(5, 9), [4])
    with pytest.raises(KeyError):  # noqa: SIM117, PT012
        with spectrace_loop.record(tmp_path / "b.spectrace", strict=True) as recorder:
            recorder.request([1]).step([1], torch.zeros(5, 9), [4])
            raise KeyError("the loop's own")


def test_what_is_wrong_from_the_start_is_said_at_once(tmp_path: Path) -> None:
    """A file that is there, and an option out of range, are errors of the caller's."""
    (tmp_path / "a.spectrace").touch()
    with pytest.raises(RecorderError):
        spectrace_loop.record(tmp_path / "a.spectrace")
    with pytest.raises(UsageError):
        spectrace_loop.record(tmp_path / "b.spectrace", top=1)


def test_it_needs_torch_and_no_transformers() -> None:
    """A loop that has only torch can be recorded."""
    program = "import sys, spectrace_loop; sys.exit('transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=120).returncode == 0


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_the_device_is_not_waited_for(tmp_path: Path) -> None:
    """On a GPU a call neither synchronises nor reads a value."""
    path, device = tmp_path / "run.spectrace", torch.device("cuda")
    torch.manual_seed(1)
    flat, ids = torch.randn(4, 5000, device=device), torch.randint(5000, (3,), device=device)
    paths = torch.tensor([[0, 1, 3], [0, 2, -1]], device=device)
    with spectrace_loop.record(path, strict=True) as recorder:
        request = recorder.request([1])
        told: dict[str, Any] = {"paths": paths, "draft_logits": flat[:3, :900]}
        request.step(ids, flat[paths], ids[:2], **told)
        torch.cuda.set_sync_debug_mode("error")
        try:
            request.step(ids, flat[paths], ids[:2], **told)
        finally:
            torch.cuda.set_sync_debug_mode("default")
    with opened(path) as trace:
        one, other = trace
        assert one.target_logprobs == other.target_logprobs

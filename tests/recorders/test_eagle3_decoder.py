"""What the decoder generates is what the target generates alone, whatever is proposed."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import spectrace_demo

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from spectrace.errors import UsageError  # noqa: E402
from spectrace_eagle3 import (  # noqa: E402
    Chain,
    DynamicTree,
    Eagle3Decoder,
    Sampler,
    StaticTree,
    decoder,
    generate_alone,
    load_draft,
)
from spectrace_eagle3.proposal import Proposal, propose  # noqa: E402
from spectrace_eagle3.target import Target  # noqa: E402
from tests.recorders.eagle3_zoo import (  # noqa: E402
    EOS,
    PLANS,
    bundled_target,
    config_json,
    prompt_ids,
    random_target,
    random_weights,
    write_draft,
)

pytestmark = pytest.mark.engine

NEW_TOKENS = 40
TIE = 1e-3
"""Logits that far apart may be ordered either way by rounding."""


def _assert_equal_up_to_ties(
    model: Any, prompt: Sequence[int], found: Sequence[int], alone: Sequence[int]
) -> None:
    """The same tokens; where the first differs, the target's two choices there must be a tie."""
    if list(found) == list(alone):
        return
    at = next(i for i in range(max(len(found), len(alone))) if found[i : i + 1] != alone[i : i + 1])
    with torch.no_grad():
        logits = model(torch.tensor([[*prompt, *alone[:at]]])).logits[0, -1]
    assert at < min(len(found), len(alone)), f"token {at}: one of the two texts ends there"
    gap = float(logits[alone[at]] - logits[found[at]])
    assert abs(gap) < TIE, f"token {at}: {found[at]} instead of {alone[at]}, logit gap {gap:.4g}"


def _bundled() -> Any:
    return load_draft(spectrace_demo.eagle3_path(), bundled_target())


@pytest.mark.parametrize("plan", PLANS)
def test_greedy_output_is_that_of_the_target_alone(plan: str) -> None:
    """Token by token that of transformers' own generate, with many tokens accepted and many rejected."""
    model = bundled_target()
    accepted = rejected = 0
    with Eagle3Decoder(model, _bundled(), PLANS[plan], eos_ids=[EOS]) as run:
        for number in range(4):
            ids = prompt_ids(number)
            rounds = list(run.rounds(ids, NEW_TOKENS))
            found = [token for done in rounds for token in done.emitted]
            alone = model.generate(torch.tensor([ids]), max_new_tokens=NEW_TOKENS, do_sample=False)
            _assert_equal_up_to_ties(model, ids, found, alone[0, len(ids) :].tolist())
            accepted += sum(len(done.decision.path) for done in rounds)
            rejected += sum(len(done.decision.path) < PLANS[plan].depth for done in rounds[1:])
    assert accepted > NEW_TOKENS
    assert rejected > 5


def test_generating_alone_is_what_transformers_generates() -> None:
    """The plain loop that runs are compared with is no other than the target's own."""
    model, ids = bundled_target(), prompt_ids(5)
    theirs = model.generate(torch.tensor([ids]), max_new_tokens=NEW_TOKENS, do_sample=False)
    assert generate_alone(model, ids, NEW_TOKENS, [EOS]) == theirs[0, len(ids) :].tolist()


class _Oracle:
    """Replaces some proposed tokens with those of the target's text: random drafts are accepted too."""

    def __init__(self, text: Sequence[int]) -> None:
        self._text = list(text)
        self._propose = propose
        self._calls = 0

    def __call__(self, rows: Any, *args: Any) -> Proposal:
        proposal = self._propose(rows, *args)
        self._calls += 1
        at, ids = -1, list(proposal.target_ids)
        start = rows.committed + 1  # index of the first proposed token
        for depth in range(self._calls % 5):
            children = [i for i, node in enumerate(proposal.nodes) if node.parent == at]
            if not children or start + depth >= len(self._text):
                break
            at = children[(self._calls + depth) % len(children)]
            ids[at] = self._text[start + depth]
        return replace(proposal, target_ids=ids)


@pytest.mark.parametrize("kind", ["llama", "qwen3", "gemma2", "phi3"])
@pytest.mark.parametrize("plan", PLANS)
def test_any_decoder_keeps_its_output_however_much_is_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, plan: str
) -> None:
    """Models of four families, with 0 to 4 tokens accepted in turn: the text is the target's own."""
    model, prompt = random_target(kind), [5, 17, 42, 8, 30]
    alone = generate_alone(model, prompt, 30)
    draft = load_draft(write_draft(tmp_path / "draft", config_json(), random_weights(config_json())), model)
    monkeypatch.setattr(decoder, "propose", _Oracle([*prompt, *alone]))
    with Eagle3Decoder(model, draft, PLANS[plan]) as run:
        rounds = list(run.rounds(prompt, 30))
    found = [token for done in rounds for token in done.emitted]
    _assert_equal_up_to_ties(model, prompt, found, alone)
    assert len({len(done.decision.path) for done in rounds}) >= 3


@pytest.mark.parametrize("plan", PLANS)
def test_the_target_cache_holds_what_was_committed(plan: str) -> None:
    """After every round keys, values and lengths are those of a plain forward over the committed text."""
    model, ids = bundled_target(), prompt_ids(1)
    plain = Target(model, ())
    with Eagle3Decoder(model, _bundled(), PLANS[plan]) as run:
        committed = list(ids)
        for done in run.rounds(ids, 16):
            plain.reset()
            plain.run(committed, range(len(committed)))
            for ours, theirs in zip(run._target._cache.layers, plain._cache.layers, strict=True):
                length = len(committed) if done.number == 0 else len(committed) + len(done.decision.path)
                assert ours.keys.shape[2] == length
                for name in ("keys", "values"):
                    held = getattr(ours, name)[:, :, : len(committed)]
                    torch.testing.assert_close(held, getattr(theirs, name), atol=1e-4, rtol=1e-4)
            assert done.target_kv_length == len(committed) == done.position
            committed += done.emitted


@pytest.mark.parametrize("plan", PLANS)
def test_the_states_fed_to_the_draft_are_those_of_a_plain_forward(plan: str) -> None:
    """Taps of root and accepted nodes, in the draft's order, at the positions that are stated."""
    model, ids = bundled_target(), prompt_ids(0)
    with Eagle3Decoder(model, _bundled(), PLANS[plan]) as run:
        rounds = list(run.rounds(ids, 20))
    text = [*ids, *(token for done in rounds for token in done.emitted)]
    with torch.no_grad():
        states = model(torch.tensor([text]), output_hidden_states=True).hidden_states
    expected_positions = iter(range(len(text)))
    for done in rounds:
        assert list(done.tap_positions) == [next(expected_positions) for _ in done.tap_positions]
        for boundary, tap in zip(run.draft.taps.boundaries, done.taps, strict=True):
            expected = states[boundary][0, list(done.tap_positions)]
            torch.testing.assert_close(tap, expected, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("plan", PLANS)
def test_the_length_is_kept_exactly(plan: str) -> None:
    """Never a token more than asked for, and the reason is given once."""
    for wanted in (1, 2, 3, 7):
        with Eagle3Decoder(bundled_target(), _bundled(), PLANS[plan]) as run:
            rounds = list(run.rounds(prompt_ids(2), wanted))
        assert sum(len(done.emitted) for done in rounds) == wanted
        assert [done.stop for done in rounds] == [None] * (len(rounds) - 1) + ["length"]


def test_the_end_of_the_text_ends_it() -> None:
    """Whichever token is declared the end, it is the last, also in the midst of accepted ones."""
    model, ids = bundled_target(), prompt_ids(3)
    alone = generate_alone(model, ids, 24)
    for token in sorted(set(alone))[:6]:
        with Eagle3Decoder(model, _bundled(), eos_ids=[token]) as run:
            rounds = list(run.rounds(ids, 24))
        found = [token for done in rounds for token in done.emitted]
        assert found == alone[: alone.index(token) + 1]
        assert rounds[-1].stop == "eos"


def test_a_seed_repeats_a_sample() -> None:
    """The same seed gives the same text, another one another text."""
    texts = []
    for seed in (1, 1, 2):
        sampler = Sampler(1.2, top_k=50, top_p=0.95, seed=seed)
        with Eagle3Decoder(bundled_target(), _bundled(), Chain(3), sampler=sampler) as run:
            texts.append(run.generate(prompt_ids(0), 20))
    assert texts[0] == texts[1] != texts[2]


def test_temperature_near_zero_samples_the_greedy_text() -> None:
    """Both sampling rules come to the target's own picks as the temperature goes to zero."""
    model, ids = bundled_target(), prompt_ids(4)
    alone = generate_alone(model, ids, 24)
    for plan in (Chain(4), DynamicTree(3, 3, 8)):
        with Eagle3Decoder(model, _bundled(), plan, sampler=Sampler(1e-4)) as run:
            assert run.generate(ids, 24) == alone


@pytest.mark.parametrize("plan", ["chain", "dynamic", "static"])
def test_sampled_text_is_distributed_as_the_targets(tmp_path: Path, plan: str) -> None:
    """Two tokens, the second of them drafted and verified: every pair as often as the target alone says."""
    model, prompt = random_target(), [5, 6, 7]
    folder = write_draft(tmp_path / "draft", config_json(), random_weights(config_json()))
    sampler, draws = Sampler(0.9, top_k=3, seed=21), 200
    with Eagle3Decoder(model, load_draft(folder, model), PLANS[plan], sampler=sampler) as run:
        counts = Counter(tuple(run.generate(prompt, 3)[:2]) for _ in range(draws))
    with torch.no_grad():
        first = sampler.processed(model(torch.tensor([prompt])).logits[:, -1])[0].softmax(-1)
        for one in first.nonzero().flatten().tolist():
            then = sampler.processed(model(torch.tensor([[*prompt, one]])).logits[:, -1])[0].softmax(-1)
            for two in then.nonzero().flatten().tolist():
                p = float(first[one] * then[two])
                assert abs(counts.pop((one, two), 0) / draws - p) <= 4 * (p * (1 - p) / draws) ** 0.5
    assert not counts


def test_hooks_are_gone_after_use() -> None:
    """The model is as it was, also after an error in the middle."""
    model = random_target()
    before = [len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules()]
    target = Target(model, (0, 2, 6))
    target.close()
    after = [len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules()]
    assert before == after


@pytest.mark.parametrize(
    "plan", [Chain(0), Chain(50), DynamicTree(1000, 3, 400), DynamicTree(3, 3, 0), StaticTree(())]
)
@pytest.mark.parametrize("length", [0, 1, 2, 7])
def test_plans_of_any_size_keep_output_and_length(plan: Any, length: int) -> None:
    """No draft token at all, more than are wanted, more choices than the draft has ids."""
    ids = prompt_ids(0)
    with Eagle3Decoder(bundled_target(), _bundled(), plan) as run:
        assert run.generate(ids, length) == generate_alone(bundled_target(), ids, length)
        assert run.generate(ids[:1], length) == generate_alone(bundled_target(), ids[:1], length)


@pytest.mark.parametrize("plan", [Chain(5), DynamicTree(3, 4, 10)])
def test_an_end_among_accepted_tokens_cuts_them(plan: Any) -> None:
    """Whichever token ends the text, nothing comes after it."""
    ids = prompt_ids(0)
    alone = generate_alone(bundled_target(), ids, 24)
    for end in set(alone[2:14]):
        with Eagle3Decoder(bundled_target(), _bundled(), plan, eos_ids=[end]) as run:
            assert run.generate(ids, 24) == alone[: alone.index(end) + 1]


@pytest.mark.parametrize(
    ("prompt", "plan", "sentence"),
    [
        ([], Chain(2), "prompt: has no tokens"),
        ([3, 5000], Chain(2), "there is no token 5,000; the target has 1,280"),
        ([-1], Chain(2), "there is no token -1"),
        ([3], StaticTree(((0,), (600,))), "there is no choice 600 among the draft's 560 ids"),
    ],
)
def test_what_cannot_be_generated_is_a_sentence(prompt: list[int], plan: Any, sentence: str) -> None:
    """Before the target is asked."""
    with pytest.raises(UsageError, match=sentence), Eagle3Decoder(bundled_target(), _bundled(), plan) as run:
        run.generate(prompt, 4)


def test_passing_the_limit_of_the_target_is_said(caplog: pytest.LogCaptureFixture) -> None:
    """Rotary positions go on for ever, so the output is still the target's own."""
    ids = (prompt_ids(0) * 60)[:505]
    with Eagle3Decoder(bundled_target(), _bundled(), Chain(4)) as run:
        assert run.generate(ids, 16) == generate_alone(bundled_target(), ids, 16)
    assert "521 tokens passes the target's limit of 512" in caplog.text


@pytest.mark.parametrize("is_draft_wide", [False, True])
@pytest.mark.parametrize("plan", [Chain(4), DynamicTree(3, 3, 8)])
def test_half_precision_runs_beside_any_draft(tmp_path: Path, plan: Any, is_draft_wide: bool) -> None:
    """The draft takes the target's dtype; one that was made wider afterwards is fed all the same."""
    model = copy.deepcopy(random_target()).to(torch.bfloat16)
    folder = write_draft(tmp_path / "draft", config_json(), random_weights(config_json()))
    draft = load_draft(folder, model)
    assert draft.head.fc.weight.dtype == torch.bfloat16
    if is_draft_wide:
        draft.head.float()
    with Eagle3Decoder(model, draft, plan) as run:
        found = run.generate([5, 6, 7], 20)
    alone = generate_alone(model, [5, 6, 7], 20)
    at = next((i for i, pair in enumerate(zip(found, alone)) if pair[0] != pair[1]), None)
    if at is not None:  # in eight bits of mantissa two choices are often a tie
        with torch.no_grad():
            logits = model(torch.tensor([[5, 6, 7, *alone[:at]]])).logits[0, -1].float()
        assert abs(float(logits[alone[at]] - logits[found[at]])) < 0.05

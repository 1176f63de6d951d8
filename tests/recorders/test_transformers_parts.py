"""The recorder's small parts by themselves: reductions, token texts, boundaries."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytestmark = pytest.mark.engine

from spectrace_transformers.facts import eos_ids  # noqa: E402
from spectrace_transformers.reduction import (  # noqa: E402
    Pack,
    Workspace,
    num_nonfinite,
    reduce_logits,
    top_choices,
)
from spectrace_transformers.rows import Backlog, Capture, Rules, num_accepted  # noqa: E402
from spectrace_transformers.taps import default_boundaries, find_layers, take_rows  # noqa: E402
from spectrace_transformers.token_text import (  # noqa: E402
    Vocabulary,
    byte_level_text,
    sentencepiece_text,
)


@pytest.mark.parametrize("vocab_size", [100, 8192, 8193, 50257])
def test_top_choices_are_those_of_topk(vocab_size: int) -> None:
    """Narrow and wide vocabularies, divisible or not: the same values, and ids that have them."""
    torch.manual_seed(vocab_size)
    logits = torch.randn(6, vocab_size)
    logits[2, -3:] = 9.0  # the best at the end, tied
    logits[3] = 0.0
    values, ids = top_choices(logits, 5)
    assert torch.equal(values, logits.topk(5).values)
    assert torch.equal(logits.gather(1, ids), values)
    assert all(len(set(row.tolist())) == 5 for row in ids)


def test_top_choices_of_a_wide_row_with_few_possible_tokens() -> None:
    """Where all but three tokens are ruled out, the three come first."""
    logits = torch.full((1, 20_000), -torch.inf)
    logits[0, [5, 70, 19_999]] = torch.tensor([1.0, 3.0, 2.0])
    values, ids = top_choices(logits, 4)
    assert ids[0, :3].tolist() == [70, 19_999, 5]
    assert values[0, 3] == -torch.inf


def test_nonfinite_values_are_counted_by_row() -> None:
    """NaN and both infinities count, ordinary numbers do not."""
    rows = torch.tensor([[1.0, torch.nan, torch.inf], [0.0, -torch.inf, 3e38], [1.0, 2.0, -3e38]])
    counted = num_nonfinite(rows, torch.empty(3, 3))
    assert counted is not None
    assert counted.tolist() == [2, 1, 0]
    assert num_nonfinite(rows[2:], torch.empty(1, 3)) is None


def test_a_pack_arrives_as_it_was_sent() -> None:
    """Floats and integers, any shape, empty ones too."""
    pack = Pack(torch.device("cpu"))
    parts: dict[str, Any] = {
        "a": torch.arange(6).reshape(2, 3),
        "b": torch.rand(4, 2),
        "c": torch.zeros(0, dtype=torch.int64),
        "d": torch.tensor(5),
        "e": torch.rand(1),
    }
    for name, tensor in parts.items():
        pack.add(name, tensor)
    for arrived in (pack.send()(), pack.send_packed()()):
        found = {name: array.tolist() for name, array in arrived.items()}
        assert found == {name: tensor.tolist() for name, tensor in parts.items()}


def test_two_widths_are_compared_over_the_shared_tokens() -> None:
    """A draft with a narrower head than the target's, as with padded vocabularies."""
    torch.manual_seed(0)
    target, draft, proposal = torch.randn(3, 12), torch.randn(2, 10), torch.tensor([3, 9])
    pack = Pack(torch.device("cpu"))
    reduce_logits(pack, Workspace(), proposal, target, draft, 2, masked=False)
    arrays = pack.send()()
    p, q = target.softmax(-1)[:2, :10], draft.softmax(-1)
    assert np.allclose(arrays["overlaps"], torch.minimum(p, q).sum(-1), atol=1e-6)
    assert np.allclose(arrays["chosen"][3:, 0], draft.gather(1, proposal[:, None])[:, 0])


@given(st.lists(st.integers(0, 3), max_size=6), st.lists(st.integers(0, 3), max_size=6))
def test_accepted_is_the_common_prefix(proposal: list[int], emitted: list[int]) -> None:
    """Counted from the ids alone, whatever their lengths."""
    expected = 0
    while expected < min(len(proposal), len(emitted)) and proposal[expected] == emitted[expected]:
        expected += 1
    assert num_accepted(np.array(proposal, int), np.array(emitted, int)) == expected


def _capture(rules: Rules, proposal: list[int], emitted: list[int]) -> Capture:
    """A step over four tokens, of which the target finds the last emitted one best everywhere."""
    logits = torch.zeros(len(proposal) + 1, 4)
    logits[:, emitted[-1]] = 2.0
    pack = Pack(torch.device("cpu"))
    pack.add("proposal", torch.tensor(proposal, dtype=torch.int64))
    pack.add("emitted", torch.tensor(emitted))
    reduce_logits(pack, Workspace(), torch.tensor(proposal), logits, None, 2, masked=False)
    return Capture(rules, {"request": "r0", "step": 0, "position": 5}, pack.send())


def _rules(eos_id: int) -> Rules:
    return Rules(
        is_greedy=False,
        is_rejection_sampling=False,
        eos_ids=frozenset([eos_id]),
        max_length=None,
        raw_ids=None,
        has_draft_ids=True,
    )


def test_a_backlog_joins_what_fits_and_loses_nothing() -> None:
    """Steps of one kind, of one request or several, come as one; one that ends its text comes alone."""
    backlog, rules = Backlog(), _rules(eos_id=3)
    for proposal, emitted in ([1], [1, 2]), ([1, 1], [2]), ([1], [3]), ([1], [2]):
        backlog.put(_capture(rules, proposal, emitted))
    backlog.put(_capture(_rules(eos_id=0), [1], [2]))
    assert len(backlog) == 5
    first = backlog.take()
    assert first is not None
    number, fields = first
    assert number == 2
    assert fields["num_accepted"] == [1, 0]
    assert fields["final_kind"] == ["bonus", "corrected"]
    assert fields["target_ids"][0].tolist() == [2, 2, 2, 2, 2]
    assert fields["target_ranks"][0].tolist() == [2, 2, 2]
    assert [list(lengths) for _, lengths in (fields["proposal_ids"], fields["target_ids"])] == [
        [1, 2],
        [2, 3],
    ]
    assert "stop" not in fields
    numbers = []
    while (taken := backlog.take()) is not None:
        numbers.append((taken[0], taken[1].get("stop")))
    assert numbers == [(1, ["eos"]), (2, None)]
    assert len(backlog) == 0


@pytest.mark.parametrize(
    ("token", "text"),
    [
        ("hello", "hello"),
        ("Ġhello", " hello"),
        ("Ċ", "\n"),
        ("Ã©", "é"),
        ("ðŁĺĢ", "😀"),
        ("ðŁĺ", "\\xf0\\x9f\\x98"),
        ("<｜end▁of▁text｜>", "<｜end▁of▁text｜>"),
    ],
)
def test_byte_level_tokens_are_readable(token: str, text: str) -> None:
    """Bytes become text, and what is no text shows its bytes."""
    assert byte_level_text(token) == text


@pytest.mark.parametrize(
    ("token", "text"),
    [("▁the", " the"), ("the", "the"), ("<0x41>", "A"), ("<0xF0>", "\\xf0"), ("<0xZZ>", "<0xZZ>")],
)
def test_sentencepiece_tokens_are_readable(token: str, text: str) -> None:
    """The mark for a space becomes one, and byte pieces become their byte."""
    assert sentencepiece_text(token) == text


def test_a_vocabulary_reads_every_token_as_its_tokenizer_does(zoo: Any) -> None:
    """Wherever a token alone decodes to text, both texts are equal."""
    vocabulary = Vocabulary(zoo.tokenizer)
    for token in range(len(zoo.tokenizer)):
        decoded = zoo.tokenizer.decode([token], skip_special_tokens=False)
        assert "\ufffd" in decoded or vocabulary.text(token) == decoded
    assert vocabulary.text(-1) is None
    assert vocabulary.text(len(zoo.tokenizer)) is None


def test_a_digest_tells_vocabularies_apart(zoo: Any) -> None:
    """Equal for the same tokens in the same order only."""
    assert Vocabulary(zoo.tokenizer).digest == Vocabulary(zoo.tokenizer).digest
    assert Vocabulary(zoo.tokenizer).digest != Vocabulary(zoo.other_tokenizer).digest


@pytest.mark.parametrize("num_layers", range(1, 60))
def test_default_boundaries_exist_and_differ(num_layers: int) -> None:
    """However few layers there are."""
    boundaries = default_boundaries(num_layers)
    assert boundaries == tuple(sorted(set(boundaries)))
    assert 1 <= boundaries[0] <= boundaries[-1] <= num_layers


def test_layers_are_found_in_models_of_other_shapes(zoo: Any) -> None:
    """Llama calls them `layers`, GPT-2 `h`; a module without any gives none."""
    from transformers import GPT2Config, GPT2LMHeadModel

    small = GPT2LMHeadModel(GPT2Config(n_embd=8, n_head=2, n_layer=3, vocab_size=10, n_positions=8))
    assert find_layers(small) is small.transformer.h
    assert find_layers(zoo.target) is zoo.target.model.layers
    assert find_layers(torch.nn.Linear(1, 1)) is None


def test_states_of_another_form_are_left_out() -> None:
    """Four axes, a batch, or fewer tokens than the proposal: no row is guessed."""
    assert take_rows(1, torch.zeros(2, 1, 5, 4), 3, 2) is None
    assert take_rows(1, torch.zeros(2, 5, 4), 3, 2) is None
    assert take_rows(1, torch.zeros(1, 2, 4), 3, 2) is None


def test_end_ids_are_read_from_any_form() -> None:
    """None, one id, several, or only the tensor that `generate` prepared."""

    class Config:
        def __init__(self, ids: Any, tensor: Any = None) -> None:
            self.eos_token_id = ids
            self._eos_token_tensor = tensor

    assert eos_ids(Config(None)) == frozenset()
    assert eos_ids(Config(2)) == {2}
    assert eos_ids(Config([2, 3])) == {2, 3}
    assert eos_ids(Config(None, torch.tensor([4]))) == {4}

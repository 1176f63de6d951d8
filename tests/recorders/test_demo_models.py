"""The bundled models: they load quietly, repeat themselves, and agree as often as promised.

The first-proposal acceptance is counted here by a teacher-forced walk of its own, without assisted
decoding and without the recorder.
"""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import spectrace_demo
from spectrace_demo.corpus import iter_documents

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

NEW_TOKENS = 64
NUM_DRAFT_TOKENS = 5


@pytest.fixture(scope="module")
def target() -> Any:
    """Return the bundled target."""
    return transformers.AutoModelForCausalLM.from_pretrained(spectrace_demo.target_path())


@pytest.fixture(scope="module")
def draft() -> Any:
    """Return the bundled draft."""
    return transformers.AutoModelForCausalLM.from_pretrained(spectrace_demo.draft_path())


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    """Return the tokenizer that both models share."""
    return transformers.AutoTokenizer.from_pretrained(spectrace_demo.target_path())


class _Warnings(logging.Handler):
    """Keeps what is logged; transformers' logger does not pass its records on to pytest's."""

    def __init__(self, level: int) -> None:
        super().__init__(level)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


def _greedy(model: Any, tokenizer: Any, prompt: str) -> tuple[int, list[int]]:
    """Return the prompt's length and all ids of one greedy run."""
    inputs = tokenizer(prompt, return_tensors="pt")
    output = model.generate(
        inputs["input_ids"],
        attention_mask=inputs["attention_mask"],
        max_new_tokens=NEW_TOKENS,
        do_sample=False,
    )
    return inputs["input_ids"].shape[1], output[0].tolist()


def _walk(draft: Any, ids: list[int], start: int) -> list[int]:
    """Return the accepted count of each step.

    One pass over the target's text is enough: up to its first mistake the draft has seen that text.
    """
    with torch.no_grad():
        picks = draft(torch.tensor([ids])).logits[0].argmax(-1).tolist()
    accepted, position = [], start
    while position < len(ids):
        count = 0
        while (
            count < NUM_DRAFT_TOKENS
            and position + count < len(ids)
            and picks[position + count - 1] == ids[position + count]
        ):
            count += 1
        accepted.append(count)
        position += count + 1
    return accepted


def test_finding_the_models_needs_no_torch() -> None:
    """Importing the package and asking for paths and prompts loads no engine."""
    code = (
        "import sys, spectrace_demo as demo; demo.target_path(); demo.draft_path(); demo.prompts();"
        "print({'torch', 'transformers', 'tokenizers'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(Path(spectrace_demo.__file__).parents[1])},
    )
    assert done.stdout.strip() == "set()"


def test_the_same_seed_gives_the_same_text() -> None:
    """Two generators with one seed yield equal documents, and another seed yields others."""
    first, again, other = (list(islice(iter_documents(seed), 50)) for seed in (3, 3, 4))
    assert first == again != other


def test_no_training_document_begins_with_a_held_out_prompt() -> None:
    """Of the first 5,000 training documents none begins like a prompt."""
    documents = list(islice(iter_documents(21), 5000))
    assert not [text for text in documents if text.startswith(spectrace_demo.prompts())]


def test_all_files_together_stay_small() -> None:
    """Both model folders together take at most 10 MB."""
    files = [
        file
        for folder in (spectrace_demo.target_path(), spectrace_demo.draft_path())
        for file in folder.iterdir()
    ]
    assert 0 < sum(file.stat().st_size for file in files) <= 10_000_000


def test_models_load_and_generate_without_a_warning() -> None:
    """Loading both folders and one greedy run log nothing at warning level."""
    handler = _Warnings(logging.WARNING)
    logger = logging.getLogger("transformers")
    logger.addHandler(handler)
    try:
        for folder in (spectrace_demo.target_path(), spectrace_demo.draft_path()):
            model = transformers.AutoModelForCausalLM.from_pretrained(folder)
            _greedy(
                model,
                transformers.AutoTokenizer.from_pretrained(folder),
                spectrace_demo.prompts()[0],
            )
    finally:
        logger.removeHandler(handler)
    assert handler.messages == []


def test_models_compute_in_float32_and_share_one_vocabulary(target: Any, draft: Any, tokenizer: Any) -> None:
    """Weights load as float32, and target, draft and tokenizer agree on size and special ids."""
    assert target.dtype == draft.dtype == torch.float32
    assert target.config.vocab_size == draft.config.vocab_size == len(tokenizer)
    for model in (target, draft):
        settings = model.generation_config
        special = (settings.bos_token_id, settings.eos_token_id, settings.pad_token_id)
        assert special == (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id)
    files = [
        folder / "tokenizer.json" for folder in (spectrace_demo.target_path(), spectrace_demo.draft_path())
    ]
    assert json.loads(files[0].read_text("utf-8")) == json.loads(files[1].read_text("utf-8"))


def test_the_draft_asks_for_five_tokens_every_time(draft: Any) -> None:
    """The stored generation config pins what would otherwise change from run to run."""
    settings = draft.generation_config
    assert settings.num_assistant_tokens == NUM_DRAFT_TOKENS
    assert settings.num_assistant_tokens_schedule == "constant"
    assert settings.assistant_confidence_threshold == 0


def test_the_draft_is_far_smaller(target: Any, draft: Any) -> None:
    """The draft has at most a tenth of the target's parameters and a fraction of its layers."""
    assert draft.num_parameters() * 10 <= target.num_parameters()
    assert draft.config.num_hidden_layers * 4 <= target.config.num_hidden_layers


@pytest.mark.parametrize("text", [*spectrace_demo.prompts(), "Größe, naïve, 日本 and\ttabs\n\n  x = 3"])
def test_tokenizer_round_trip(tokenizer: Any, text: str) -> None:
    """Any text comes back unchanged, and the start token stands before it."""
    ids = tokenizer(text)["input_ids"]
    assert ids[0] == tokenizer.bos_token_id
    assert tokenizer.decode(ids[1:]) == text


def test_greedy_text_is_the_same_twice_and_reads_like_words(target: Any, tokenizer: Any) -> None:
    """Two greedy runs give the same ids, and the new text is made of plain words."""
    prompt = spectrace_demo.prompts()[0]
    start, ids = _greedy(target, tokenizer, prompt)
    assert _greedy(target, tokenizer, prompt) == (start, ids)
    text = tokenizer.decode(ids[start:], skip_special_tokens=True)
    assert len(re.findall(r"[A-Za-z]{3,}", text)) >= 20


def test_first_proposals_are_accepted_often_but_not_always(target: Any, draft: Any, tokenizer: Any) -> None:
    """On the held-out prompts alpha1 is within .5 and .9, and steps differ in length."""
    accepted = []
    for prompt in spectrace_demo.prompts():
        start, ids = _greedy(target, tokenizer, prompt)
        accepted += _walk(draft, ids, start)
    alpha1 = sum(count > 0 for count in accepted) / len(accepted)
    assert 0.5 <= alpha1 <= 0.9
    assert 0.5 <= sum(accepted) / len(accepted) <= 4.0

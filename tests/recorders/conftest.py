"""Tiny models for recorders: random weights, fixed seeds, a vocabulary of a few hundred tokens.

The draft is the target with noise added to its weights, so that some of its tokens are accepted and some
are not. Everything is made once per session; tests that change a model restore it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers  # noqa: E402
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast  # noqa: E402

VOCAB = 320
TEXT = [
    "the old miller walked to the river and counted the boats on the water",
    "a boat on the river carried flour from the mill to the town in the valley",
    "in the town the baker waited for the flour and the children waited for the bread",
    "the children walked to the mill and asked the old miller for a song about the river",
]


def _tokenizer(vocab_size: int, text: list[str]) -> Any:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=["<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(text, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>")


def _llama(layers: int, vocab_size: int, seed: int) -> Any:
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        initializer_range=0.1,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=0,
    )
    model = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        model.lm_head.weight[1] = 0.0  # no text ends by itself: every run is cut by its length
    settings = model.generation_config
    settings.num_assistant_tokens = 4
    settings.num_assistant_tokens_schedule = "constant"
    settings.assistant_confidence_threshold = 0.0
    return model


def _with_noise(model: Any, share: float, seed: int) -> Any:
    """A copy of the model with noise of this share of each weight's spread."""
    draft = copy.deepcopy(model)
    torch.manual_seed(seed)
    with torch.no_grad():
        for weight in draft.parameters():
            if weight.dim() > 1:
                weight.add_(torch.randn_like(weight) * weight.std() * share)
    return draft


@dataclass(frozen=True)
class Way:
    """One way to speculate: a target and what `generate` is called with."""

    name: str
    target: Any
    tokenizer: Any
    input_ids: Any
    options: dict[str, Any] = field(default_factory=dict)
    draft: Any = None

    @property
    def is_sampled(self) -> bool:
        """Whether tokens are drawn."""
        return bool(self.options.get("do_sample"))

    def generate(self, **more: Any) -> Any:
        """Runs the assisted generation with a fixed seed, and restores what transformers leaks.

        Some versions write settings of a call to the model's own generation config.
        """
        torch.manual_seed(7)
        options = {"max_new_tokens": 32, "do_sample": False, **self.options, **more}
        models = [self.target] if self.draft is None else [self.target, self.draft]
        settings = [copy.deepcopy(model.generation_config) for model in models]
        try:
            return self.target.generate(self.input_ids, **options)
        finally:
            for model, before in zip(models, settings):
                model.generation_config = before

    def generate_unassisted(self, **more: Any) -> Any:
        """Runs plain greedy generation over the same prompt."""
        return self.target.generate(self.input_ids, **{"max_new_tokens": 32, "do_sample": False, **more})


WAYS = (
    "draft",
    "draft_sampled",
    "uag",
    "usd",
    "lookup",
    "lookup_sampled",
    "early_exit",
    "early_exit_sampled",
)
SAMPLED: dict[str, Any] = {"do_sample": True, "temperature": 0.9, "top_k": 40}


@dataclass(frozen=True)
class Zoo:
    """The models and tokenizers of a session."""

    tokenizer: Any
    other_tokenizer: Any
    target: Any
    draft: Any
    other_draft: Any
    pruned_draft: Any

    working: set[str] = field(default_factory=set)
    """Ways that ran once without a recorder."""

    def way(self, name: str) -> Way:
        """One of `WAYS`; skips the test where transformers itself fails without a recorder.

        That is so for a draft with another tokenizer from 5.0 to 5.8 at least, and for early exit in 5.0.
        The first call of some ways also changes the draft for good.
        """
        way = self._made(name)
        if name not in self.working:
            num_layers = self.target.config.num_hidden_layers
            try:
                way.generate(max_new_tokens=2)
            except (RuntimeError, TypeError) as error:
                self.target.config.num_hidden_layers = num_layers
                pytest.skip(f"transformers {transformers.__version__} without a recorder: {error}")
            self.working.add(name)
        return way

    def _made(self, name: str) -> Way:
        options: dict[str, Any] = {}
        draft = None
        text = f"{TEXT[0]} and {TEXT[0][:30]}"
        if name.startswith("draft"):
            draft = self.draft
        elif name in ("uag", "usd"):
            draft = self.other_draft if name == "uag" else self.pruned_draft
            options = {"tokenizer": self.tokenizer, "assistant_tokenizer": self.other_tokenizer}
        elif name.startswith("lookup"):
            options = {"prompt_lookup_num_tokens": 3}
        else:
            options = {"assistant_early_exit": 3}
        if draft is not None:
            options["assistant_model"] = draft
        if name == "usd" or name.endswith("_sampled"):
            options |= SAMPLED
        input_ids = self.tokenizer(text, return_tensors="pt").input_ids
        return Way(name, self.target, self.tokenizer, input_ids, options, draft)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """One thread: tiny matrices, and a machine that others use too."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def zoo() -> Zoo:
    """Return the models, made once."""
    transformers.utils.logging.set_verbosity_error()
    tokenizer = _tokenizer(VOCAB, TEXT)
    other = _tokenizer(300, [line.upper() + line for line in TEXT])
    target = _llama(4, VOCAB, seed=2)
    return Zoo(
        tokenizer=tokenizer,
        other_tokenizer=other,
        target=target,
        draft=_with_noise(target, 0.05, seed=2),
        other_draft=_llama(2, len(other), seed=3),
        pruned_draft=_llama(2, len(other), seed=3),
    )


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, zoo: Zoo) -> Way:
    """Return each way to speculate in turn."""
    return zoo.way(request.param)


@pytest.fixture
def recorded(tmp_path: Path) -> Callable[..., Any]:
    """Return a function that runs something inside a recorder and opens the trace."""
    import spectrace
    import spectrace_transformers

    numbers = iter(range(100))

    def record(model: Any, action: Callable[[], Any], **options: Any) -> Any:
        path = tmp_path / f"{next(numbers)}.spectrace"
        with spectrace_transformers.record(path, model, strict=True, **options):
            action()
        return spectrace.open(path)

    return record

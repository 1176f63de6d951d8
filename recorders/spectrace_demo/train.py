"""Train the bundled models from nothing: `python -m spectrace_demo.train --out DIR`.

Owns the tokenizer, the sizes, the training of the target and of the draft that is distilled from
it. The text comes from `corpus.py`, the figures of README.md from `measure.py` (`--measure`).
Needs torch 2.9 or later, transformers and tokenizers, nothing from the network, and a quarter of
an hour on two cores.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from torch.nn import functional
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from spectrace_demo import target_path
from spectrace_demo.corpus import iter_documents
from spectrace_demo.measure import measure

SEED = 20
BOS, EOS, PAD = "<s>", "</s>", "<pad>"
VOCAB_SIZE = 1280
MAX_LENGTH = 512
ROW_LENGTH = 256
BATCH_ROWS = 8
MATRIX_RATE = 0.02
OTHER_RATE = 3e-3
TARGET_STEPS = 1100
DRAFT_STEPS = 200
NUM_DRAFT_TOKENS = 5
TARGET_SIZES: dict[str, Any] = {
    "hidden_size": 192,
    "intermediate_size": 448,
    "num_hidden_layers": 8,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
DRAFT_SIZES: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def main() -> None:
    """Train both models into `--out`, or print the figures of trained ones with `--measure`."""
    parser = argparse.ArgumentParser(description="Train or measure the models that spectrace bundles.")
    parser.add_argument("--out", type=Path, help="folder to write target/ and draft/ into")
    parser.add_argument("--measure", action="store_true", help="print alpha1 and accept length of the models")
    arguments = parser.parse_args()
    if arguments.out is None and not arguments.measure:
        parser.error("nothing to do: give --out DIR, --measure or both")
    if arguments.out is not None:
        train(arguments.out)
    if arguments.measure:
        print(measure(arguments.out or target_path().parent))


def train(out: Path) -> None:
    """Train the tokenizer, the target and the draft, and write both folders below `out`."""
    tokenizer = build_tokenizer()
    target = build_model(tokenizer, TARGET_SIZES)
    fit(target, tokenizer, TARGET_STEPS, text_loss(target), "target")
    save(target, tokenizer, out / "target")
    train_draft(out, tokenizer)


def train_draft(out: Path, tokenizer: PreTrainedTokenizerFast) -> None:
    """Distil a draft from the stored target in `out` and write it beside that."""
    target = LlamaForCausalLM.from_pretrained(out / "target")
    draft = build_model(tokenizer, DRAFT_SIZES)
    fit(draft, tokenizer, DRAFT_STEPS, distillation_loss(target, draft), "draft")
    save(draft, tokenizer, out / "draft")


def build_tokenizer() -> PreTrainedTokenizerFast:
    """Learn a byte-level BPE from the generated text; it puts the start token before every text."""
    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        special_tokens=[BOS, EOS, PAD],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    inner.train_from_iterator(itertools.islice(iter_documents(SEED), 5000), trainer)
    inner.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A",
        pair=f"{BOS} $A {BOS} $B",
        special_tokens=[(BOS, inner.token_to_id(BOS))],
    )
    if inner.get_vocab_size() != VOCAB_SIZE:
        raise ValueError(
            f"the text gives only {inner.get_vocab_size()} tokens; enlarge it or lower VOCAB_SIZE"
        )
    return PreTrainedTokenizerFast(
        tokenizer_object=inner,
        bos_token=BOS,
        eos_token=EOS,
        pad_token=PAD,
        model_max_length=MAX_LENGTH,
        clean_up_tokenization_spaces=False,
    )


def build_model(tokenizer: PreTrainedTokenizerFast, sizes: dict[str, Any]) -> LlamaForCausalLM:
    """Make an untrained Llama with tied embeddings and a quiet, reproducible generation config."""
    torch.manual_seed(SEED)
    config = LlamaConfig(
        **sizes,
        vocab_size=VOCAB_SIZE,
        max_position_embeddings=MAX_LENGTH,
        tie_word_embeddings=True,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        initializer_range=0.04,
        dtype="float32",
    )
    return LlamaForCausalLM(config)


def iter_batches(tokenizer: PreTrainedTokenizerFast, seed: int) -> Iterator[torch.Tensor]:
    """Yield [BATCH_ROWS, ROW_LENGTH + 1] token ids; every row begins where a document begins."""
    documents = iter_documents(seed)
    rows: list[list[int]] = []
    while True:
        row: list[int] = []
        while len(row) <= ROW_LENGTH:
            row += [*tokenizer(next(documents)).input_ids, tokenizer.eos_token_id]
        rows.append(row[: ROW_LENGTH + 1])
        if len(rows) == BATCH_ROWS:
            yield torch.tensor(rows)
            rows = []


def text_loss(model: LlamaForCausalLM) -> Loss:
    """Cross entropy with the text, in nats per token."""

    def loss(inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        logits = model(inputs, use_cache=False).logits  # [rows, length, vocabulary]
        return functional.cross_entropy(logits.flatten(0, 1), labels.flatten())

    return loss


def distillation_loss(target: LlamaForCausalLM, draft: LlamaForCausalLM) -> Loss:
    """Cross entropy of the draft with the target's distribution, in nats per token."""

    def loss(inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            wanted = target(inputs, use_cache=False).logits.softmax(-1)
        logits = draft(inputs, use_cache=False).logits
        return functional.cross_entropy(logits.flatten(0, 1), wanted.flatten(0, 1))

    return loss


def fit(
    model: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    steps: int,
    loss_of: Loss,
    name: str,
) -> None:
    """Train for `steps` batches, printing the mean loss of the last fifty steps as it goes."""
    model.train()
    optimizers = _optimizers(model)
    schedules = [
        torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _rate(step, steps))
        for optimizer in optimizers
    ]
    losses: list[float] = []
    started = time.monotonic()
    for step, batch in enumerate(itertools.islice(iter_batches(tokenizer, SEED + 1), steps), 1):
        loss = loss_of(batch[:, :-1], batch[:, 1:])
        model.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer, schedule in zip(optimizers, schedules, strict=True):
            optimizer.step()
            schedule.step()
        losses.append(loss.item())
        if step % 50 == 0 or step == steps:
            recent, seconds = statistics.fmean(losses[-50:]), time.monotonic() - started
            print(f"{name}: step {step}/{steps}, loss {recent:.3f}, {seconds:.0f} s", file=sys.stderr)
    model.eval()


def _optimizers(model: LlamaForCausalLM) -> list[torch.optim.Optimizer]:
    """Muon for the matrices inside the layers, AdamW for the embeddings and the norms.

    In a trial of 100 batches the loss came to 1.30 that way and to 1.56 with AdamW for everything.
    """
    embeddings = model.get_input_embeddings().weight
    parameters = list(model.parameters())
    matrices = [p for p in parameters if p.ndim == 2 and p is not embeddings]
    others = [p for p in parameters if p.ndim != 2 or p is embeddings]
    return [
        torch.optim.Muon(matrices, lr=MATRIX_RATE, weight_decay=0.05),
        torch.optim.AdamW(others, lr=OTHER_RATE, betas=(0.9, 0.95), weight_decay=0.0),
    ]


def _rate(step: int, steps: int) -> float:
    """Share of the full learning rate: fifty steps up, then a cosine down to 2 %."""
    return min(1.0, (step + 1) / 50) * (0.02 + 0.98 * (1 + math.cos(math.pi * step / steps)) / 2)


def save(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Write one model folder: weights stored as float16, a config that says float32.

    Half the bytes on disk; `from_pretrained` follows the config and computes in float32.
    """
    model.generation_config = GenerationConfig(
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        num_assistant_tokens=NUM_DRAFT_TOKENS,
        num_assistant_tokens_schedule="constant",
        assistant_confidence_threshold=0.0,
    )
    model.half().save_pretrained(folder)
    model.float()
    tokenizer.save_pretrained(folder)
    _amend(folder / "config.json", dtype="float32")
    # The name that every supported version of transformers knows.
    _amend(folder / "tokenizer_config.json", tokenizer_class="PreTrainedTokenizerFast")
    for file in folder.iterdir():
        file.chmod(0o644)  # safetensors writes files that only their owner may read


def _amend(file: Path, **values: str) -> None:
    settings = json.loads(file.read_text(encoding="utf-8")) | values
    file.write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

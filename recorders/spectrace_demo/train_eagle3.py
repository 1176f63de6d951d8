"""Train the bundled EAGLE-3 head: `python -m spectrace_demo.train_eagle3 --out DIR`.

Owns the draft vocabulary, the unrolled training and the files of the head. It trains the very network that
`spectrace_eagle3` runs, and drafts each token in training as it is drafted in use. Needs what `train.py`
needs, the trained target, and about ten minutes on two cores.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from spectrace.checkpoint.config import Config
from spectrace_demo import prompts, target_path
from spectrace_demo.corpus import iter_documents
from spectrace_demo.train import SEED, iter_batches
from spectrace_eagle3.cache import DraftCache
from spectrace_eagle3.config import read_config
from spectrace_eagle3.decoder import Eagle3Decoder
from spectrace_eagle3.draft import load_draft
from spectrace_eagle3.head import Eagle3Head
from spectrace_eagle3.target import Target
from spectrace_eagle3.tree import Chain, DynamicTree, Plan

DRAFT_VOCAB_SIZE = 560
KEPT_FIRST = 16
"""The first ids are kept whatever their frequency: special tokens and the start of the alphabet."""
BOUNDARIES = (2, 4, 5)
DEPTHS = 3
"""Tokens drafted one after the other in training."""
DEPTH_WEIGHT = 0.8
STEPS = 450
ROWS_PER_STEP = 4
MATRIX_RATE = 0.02
OTHER_RATE = 2e-3
NEW_TOKENS = 96


def main() -> None:
    """Train the head into `--out`, or print the figures of a trained one with `--measure`."""
    parser = argparse.ArgumentParser(description="Train or measure the EAGLE-3 head that spectrace bundles.")
    parser.add_argument("--out", type=Path, help="folder to write the head into")
    parser.add_argument("--measure", type=Path, metavar="DIR", help="print acceptance of a trained head")
    arguments = parser.parse_args()
    if arguments.out is None and arguments.measure is None:
        parser.error("nothing to do: give --out DIR or --measure DIR")
    if arguments.out is not None:
        train(arguments.out)
    print(measure(arguments.out or arguments.measure))


def train(out: Path) -> None:
    """Choose the vocabulary, train the head for the bundled target and write its folder."""
    tokenizer = PreTrainedTokenizerFast.from_pretrained(target_path())
    model = LlamaForCausalLM.from_pretrained(target_path()).eval().requires_grad_(False)
    kept = choose_vocabulary(tokenizer)
    config = draft_config(model)
    torch.manual_seed(SEED)
    head = Eagle3Head(
        read_config(out, Config(config), ()),
        num_taps=len(BOUNDARIES),
        target_hidden_size=model.config.hidden_size,
        draft_vocab_size=len(kept),
    )
    start_from_target(head, model, kept)
    config["training"] = fit(head, model, tokenizer, kept)
    save(head, config, kept, model.config.vocab_size, out)


def choose_vocabulary(tokenizer: PreTrainedTokenizerFast) -> Tensor:
    """The target ids [draft_vocab_size] that the draft knows, ascending: the most frequent in the text."""
    counts = Counter[int]()
    for document in itertools.islice(iter_documents(SEED + 2), 3000):
        counts.update([*tokenizer(document).input_ids, tokenizer.eos_token_id])
    ids = set(range(KEPT_FIRST))
    for token, _ in counts.most_common():
        if len(ids) == DRAFT_VOCAB_SIZE:
            break
        ids.add(token)
    covered = sum(count for token, count in counts.items() if token in ids) / counts.total()
    print(f"vocabulary: {len(ids)} of {len(tokenizer)} ids cover {covered:.1%} of the text", file=sys.stderr)
    return torch.tensor(sorted(ids))


def draft_config(model: LlamaForCausalLM) -> dict[str, Any]:
    """config.json of the head, with the layer ids where vLLM, speculators and llama.cpp look for them."""
    same = ("hidden_size", "num_attention_heads", "num_key_value_heads", "rms_norm_eps", "vocab_size")
    return {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        **{name: getattr(model.config, name) for name in same},
        "intermediate_size": 384,
        "hidden_act": "silu",
        "num_hidden_layers": 1,
        "max_position_embeddings": model.config.max_position_embeddings,
        "rope_theta": 10000.0,
        "draft_vocab_size": DRAFT_VOCAB_SIZE,
        "eagle_aux_hidden_state_layer_ids": list(BOUNDARIES),
        "norm_before_residual": False,
        "tie_word_embeddings": False,
        "torch_dtype": "float16",
    }


def start_from_target(head: Eagle3Head, model: LlamaForCausalLM, kept: Tensor) -> None:
    """Share the target's embeddings, for good, and begin with its final norm and LM head."""
    embeddings = model.model.embed_tokens.weight  # [target_vocab_size, hidden_size]
    head.embed_tokens.weight = torch.nn.Parameter(embeddings.detach(), requires_grad=False)
    with torch.no_grad():
        head.lm_head.weight.copy_(model.lm_head.weight[kept])
        head.norm.weight.copy_(model.model.norm.weight)


def fit(
    head: Eagle3Head, model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, kept: Tensor
) -> dict[str, Any]:
    """Train, and return what the last fifty steps looked like."""
    optimizers = _optimizers(head)
    schedules = [torch.optim.lr_scheduler.LambdaLR(optimizer, _rate) for optimizer in optimizers]
    target = Target(model, BOUNDARIES)
    losses: list[list[float]] = []
    hits: list[list[float]] = []
    started = time.monotonic()
    for step, rows in enumerate(itertools.islice(_iter_rows(tokenizer), STEPS), 1):
        head.zero_grad()
        results = [unrolled_loss(head, target, row.tolist(), kept) for row in rows]
        for optimizer, schedule in zip(optimizers, schedules, strict=True):
            torch.nn.utils.clip_grad_norm_(head.parameters(), float(len(rows)))
            optimizer.step()
            schedule.step()
        losses.append(_means([loss for loss, _ in results]))
        hits.append(_means([hit for _, hit in results]))
        if step % 50 == 0 or step == STEPS:
            loss, right = _means(losses[-50:]), _means(hits[-50:])
            seconds = time.monotonic() - started
            print(f"step {step}/{STEPS}, loss {loss}, right {right}, {seconds:.0f} s", file=sys.stderr)
    target.close()
    return {"first_position_accuracy": right[0], "accuracy_per_depth": right, "loss_per_depth": loss}


def unrolled_loss(
    head: Eagle3Head, target: Target, ids: list[int], kept: Tensor
) -> tuple[list[float], list[float]]:
    """Draft `DEPTHS` tokens after every position of one text, as in use, and add the gradients.

    A row at depth d starts from position s, is run at s + d, reads the true token s + d + 1 and the state
    that its chain's row at depth d - 1 gave. It sees the target's states up to s and its own chain only.
    Source: Li et al. 2025, arXiv 2503.01840, section 3.2 (training-time test).

    Returns:
        Cross entropy with the target's distribution per depth, and the share of its picks that were hit.
    """
    target.reset()
    forward = target.run(ids, range(len(ids)))
    n = len(ids) - 1 - DEPTHS  # chains
    wanted = forward.logits.softmax(-1)[:, kept]  # [tokens, draft_vocab_size]
    picks = forward.logits.argmax(-1)  # [tokens]
    cache = DraftCache(1)
    states = head.fuse(forward.taps[:, :n])  # [n, hidden_size]
    mask = torch.ones(n, n, dtype=torch.bool).tril()
    losses, hits = [], []
    total = torch.zeros(())
    for depth in range(DEPTHS):
        tokens = torch.tensor(ids[depth + 1 : depth + 1 + n])
        logits, states = head(tokens, states, torch.arange(n) + depth, mask, cache)
        at = slice(depth + 1, depth + 1 + n)
        loss = -(wanted[at] * logits.log_softmax(-1)).sum(-1).mean()
        total = total + DEPTH_WEIGHT**depth * loss
        losses.append(loss.item())
        hits.append((kept[logits.argmax(-1)] == picks[at]).float().mean().item())
        mask = torch.cat((mask, torch.eye(n, dtype=torch.bool)), dim=1)  # [n, (depth + 2) * n]
    torch.autograd.backward(total)
    return losses, hits


def _iter_rows(tokenizer: PreTrainedTokenizerFast) -> Iterator[Tensor]:
    """Yield [ROWS_PER_STEP, length] token ids."""
    for batch in iter_batches(tokenizer, SEED + 3):
        yield from batch.split(ROWS_PER_STEP)


def _optimizers(head: Eagle3Head) -> list[torch.optim.Optimizer]:
    """Muon for the matrices of the layer and fc, AdamW for LM head and norms."""
    named = [(name, weight) for name, weight in head.named_parameters() if weight.requires_grad]
    matrices = [weight for name, weight in named if weight.ndim == 2 and name != "lm_head.weight"]
    others = [weight for name, weight in named if weight.ndim != 2 or name == "lm_head.weight"]
    return [
        torch.optim.Muon(matrices, lr=MATRIX_RATE, weight_decay=0.05),
        torch.optim.AdamW(others, lr=OTHER_RATE, betas=(0.9, 0.95), weight_decay=0.0),
    ]


def _rate(step: int) -> float:
    """Share of the full learning rate: thirty steps up, then a cosine down to 2 %."""
    return min(1.0, (step + 1) / 30) * (0.02 + 0.98 * (1 + math.cos(math.pi * step / STEPS)) / 2)


def _means(table: list[list[float]]) -> list[float]:
    """Mean of each column, to three decimals."""
    return [round(statistics.fmean(column), 3) for column in zip(*table, strict=True)]


def save(head: Eagle3Head, config: dict[str, Any], kept: Tensor, target_vocab_size: int, out: Path) -> None:
    """Write the folder in EAGLE's naming: `midlayer.*`, `d2t` as offsets, `t2d` as a mask; no embeddings."""
    out.mkdir(parents=True, exist_ok=True)
    tensors = {
        name.replace("layers.0.", "midlayer."): weight.detach().half().contiguous()
        for name, weight in head.state_dict().items()
        if name != "embed_tokens.weight"
    }
    tensors["d2t"] = kept - torch.arange(len(kept))
    tensors["t2d"] = torch.zeros(target_vocab_size, dtype=torch.bool).index_fill(0, kept, True)
    save_file(tensors, out / "model.safetensors", metadata={"format": "pt"})
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    for file in out.iterdir():
        file.chmod(0o644)  # safetensors writes files that only their owner may read


def measure(folder: Path) -> str:
    """Acceptance on the held-out prompts, greedy, as Markdown."""
    tokenizer = PreTrainedTokenizerFast.from_pretrained(target_path())
    model = LlamaForCausalLM.from_pretrained(target_path()).eval()
    lines = ["| proposals | steps | alpha1 | accept length |", "|---|---|---|---|"]
    plans: dict[str, Plan] = {
        "chain of 4": Chain(4),
        "tree of 16 nodes, depth 4, top 4": DynamicTree(topk=4, depth=4, num_nodes=16),
    }
    for name, plan in plans.items():
        accepted: list[int] = []
        draft = load_draft(folder, model)
        with Eagle3Decoder(model, draft, plan, eos_ids=[tokenizer.eos_token_id]) as decoder:
            for prompt in prompts():
                for done in decoder.rounds(tokenizer(prompt).input_ids, NEW_TOKENS):
                    if done.proposal is not None:
                        accepted.append(len(done.decision.path))
        alpha1 = sum(count > 0 for count in accepted) / len(accepted)
        lines.append(f"| {name} | {len(accepted)} | {alpha1:.2f} | {1 + statistics.fmean(accepted):.2f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()

"""The stand-alone test of a draft, done right: teacher-forced, beside every way of doing it wrong.

Each text is read once by the target. Then the draft drafts after every position, as in use, from the true
tokens; and, for a recorded run, after every step from the tokens that were proposed there. Counts only: what
they mean is for `spectrace.analysis.probing`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from spectrace.errors import UsageError
from spectrace_eagle3.cache import DraftCache
from spectrace_eagle3.draft import Draft, load_draft
from spectrace_eagle3.target import Target, final_norm
from spectrace_eagle3.variants import Variant, table_of, variants, varied
from spectrace_transformers.loading import be_quiet, load_model, load_tokenizer
from spectrace_transformers.taps import find_layers

Step = tuple[int, Sequence[int], Sequence[float]]
"""Committed length, proposed target ids, and log q of each or nothing."""
Recorded = tuple[Sequence[int], int, Sequence[Step]]
"""Token ids of a text, length of its prompt, and its steps."""


@dataclass(slots=True)
class _Text:
    ids: list[int]
    first: int
    """First row that is judged."""
    steps: Sequence[Step]


@dataclass(slots=True)
class _Tally:
    """Counts of one variant."""

    right: list[int]
    """Per depth, hits of the target's pick."""
    judged: int = 0
    same: int = 0
    """Proposed tokens that the variant proposes too."""
    proposed: int = 0
    apart: float = 0.0
    """Sum over those of the difference in log q, where it was recorded."""


@dataclass(slots=True)
class _Reading:
    """What the target said of a text."""

    states: Tensor
    """[n + 1, tokens, hidden_size] at all boundaries."""
    picks: Tensor
    """[tokens] its own choice after each."""


def probe(
    *,
    target: Path,
    draft: Path,
    prompts: Sequence[str] = (),
    recorded: Sequence[Recorded] = (),
    depth: int = 3,
    dtype: str = "auto",
    device: str | None = None,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, Any]:
    """Counts how often a draft is right, under every variant.

    Args:
        target: folder of the target.
        draft: folder of an EAGLE-3 checkpoint.
        prompts: texts to read.
        recorded: texts of a trace and what was proposed in them.
        depth: tokens drafted after each position.
        dtype: auto (as the target's checkpoint says), or a torch dtype's name.
        device: a torch device; a GPU where there is one by default.
        on_progress: told how many variants of how many are done.

    Returns:
        ``rows`` of {name, right: [[hits, trials] per depth], same: [hits, trials], apart}, the unchanged one
        first, where ``apart`` is the mean difference in log q of the tokens that are the same; and
        ``declared_accuracy`` of the checkpoint's training, or None.

    Raises:
        CheckpointError: the draft cannot be read, or does not fit the target.
        UnsupportedEngine: the target cannot be loaded.
        UsageError: no text is long enough.
    """
    be_quiet()
    model = load_model(target, dtype, device)
    loaded = load_draft(draft, model)
    texts = [_Text(list(ids), max(prompt - 2, 0), steps) for ids, prompt, steps in recorded]
    if prompts:
        tokenizer = load_tokenizer(target)
        texts += [_Text(list(tokenizer(prompt).input_ids), 0, []) for prompt in prompts]
    texts = [text for text in texts if len(text.ids) >= text.first + depth + 2]
    if not texts:
        raise UsageError(f"probe: no text has the {depth + 2} tokens that drafting {depth} of them takes")
    return _probed(model, loaded, texts, depth, on_progress)


def _probed(
    model: Any, draft: Draft, texts: Sequence[_Text], depth: int, on_progress: Callable[[int, int], None]
) -> dict[str, Any]:
    layers = find_layers(model)
    assert layers is not None  # load_draft has found them
    readings = [_read(model, len(layers), text) for text in texts]
    tried = variants(draft, len(layers))
    rows = []
    for done, variant in enumerate(tried, 1):
        tally = _Tally([0] * depth)
        with varied(draft, variant, model):
            for text, reading in zip(texts, readings, strict=True):
                _judge(model, draft, variant, text, reading, tally)
        right = [[hits, tally.judged] for hits in tally.right]
        same = [tally.same, tally.proposed]
        apart = tally.apart / tally.same if tally.same else None
        rows.append({"name": variant.name, "right": right, "same": same, "apart": apart})
        on_progress(done, len(tried))
    accuracy = draft.head.config.training.get("first_position_accuracy")
    return {"rows": rows, "declared_accuracy": accuracy}


def _read(model: Any, num_layers: int, text: _Text) -> _Reading:
    reader = Target(model, range(num_layers + 1))
    reader.reset()
    try:
        forward = reader.run(text.ids, range(len(text.ids)))
    finally:
        reader.close()
    return _Reading(states=forward.taps, picks=forward.logits.argmax(-1).cpu())


@torch.no_grad()
def _judge(model: Any, draft: Draft, variant: Variant, text: _Text, reading: _Reading, tally: _Tally) -> None:
    """Adds what one variant gets right in one text."""
    ids, depth = torch.tensor(text.ids), len(tally.right)
    table = table_of(draft, variant)
    rows = _Rows(model, draft, variant, ids, reading.states)
    starts = torch.arange(text.first, len(ids) - 1 - depth)  # rows with all their picks in the text
    feeds = [ids[starts + d + variant.token_shift] for d in range(1, depth)]
    for d, logits in enumerate(rows.unrolled(starts, feeds)):
        tally.right[d] += int((table[logits.argmax(-1)] == reading.picks[starts + 1 + d]).sum())
    tally.judged += len(starts)
    steps = [step for step in text.steps if 2 <= step[0] <= len(ids) and step[1]]
    if steps:
        _replay(rows, table, variant, ids, steps, tally)


def _replay(
    rows: _Rows, table: Tensor, variant: Variant, ids: Tensor, steps: Sequence[Step], tally: _Tally
) -> None:
    """Adds how much of what was proposed in recorded steps a variant proposes too, and with what log q."""
    # The first row of a step reads the last committed token beside the state before it.
    starts = torch.tensor([length - 2 for length, _, _ in steps])
    longest = max(len(chain) for _, chain, _ in steps)
    proposed = _padded([chain for _, chain, _ in steps], longest, -1)  # [m, K]
    recorded = _padded([logq for _, _, logq in steps], longest, float("nan"))  # [m, K]
    read = torch.cat((ids[starts + 1].unsqueeze(1), proposed.clamp(min=0)), dim=1)  # [m, K+1]
    feeds = [read[:, d - 1 + variant.token_shift] for d in range(1, longest)]
    for d, logits in enumerate(rows.unrolled(starts, feeds)):
        logq, raw = logits.log_softmax(-1).max(-1)  # [m]
        same = table[raw] == proposed[:, d]
        tally.same += int(same.sum())
        tally.apart += float((logq - recorded[:, d]).abs()[same].nan_to_num().sum())
    tally.proposed += int((proposed >= 0).sum())


def _padded(lists: Sequence[Sequence[Any]], length: int, filler: Any) -> Tensor:
    return torch.tensor([[*items, *[filler] * (length - len(items))] for items in lists])


class _Rows:
    """The draft after it has read a text from beginning to end."""

    def __init__(self, model: Any, draft: Draft, variant: Variant, ids: Tensor, states: Tensor) -> None:
        self._head, self._shift = draft.head, variant.position_shift
        self._device = draft.head.fc.weight.device
        order = variant.order or range(len(draft.taps.boundaries))
        taps = states[[draft.taps.boundaries[place] + variant.tap_shift for place in order], :-1]
        if variant.is_tap_normed:
            taps = final_norm(model)(taps)
        n = len(ids) - 1
        self._cache = DraftCache(draft.head.config.num_layers)
        fused = draft.head.fuse(taps.to(self._device))  # [n, hidden_size]
        tokens = ids[variant.token_shift :][:n]
        causal = torch.ones(n, n, dtype=torch.bool).tril()
        self._logits, self._states = self._run(tokens, fused, torch.arange(n), causal)

    def _run(self, tokens: Tensor, states: Tensor, positions: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        tokens, positions, mask = (x.to(self._device) for x in (tokens, positions, mask))
        logits, out = self._head(tokens, states, positions, mask, self._cache)
        return logits, out

    def unrolled(self, starts: Tensor, feeds: Sequence[Tensor]) -> list[Tensor]:
        """Drafts on from some rows at once.

        Args:
            starts: [m] rows; each sees the rows up to its own, and its own chain.
            feeds: per depth after the first, [m] tokens to read.

        Returns:
            Per depth, logits [m, draft_vocab_size] over raw ids.
        """
        past, m = self._cache.length, len(starts)
        mask = torch.arange(past) <= starts.unsqueeze(1)  # [m, past]
        states = self._states[starts]
        found = [self._logits[starts].float().cpu()]
        for depth, tokens in enumerate(feeds, 1):
            mask = torch.cat((mask, torch.eye(m, dtype=torch.bool)), dim=1)  # [m, past + depth * m]
            logits, states = self._run(tokens, states, starts + depth + self._shift, mask)
            found.append(logits.float().cpu())
        self._cache.crop(past)
        return found

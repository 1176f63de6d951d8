"""The stand-alone test of a draft, done right: teacher-forced, beside every way of doing it wrong.

Each text is read once by the target. Then the draft drafts after every position, as in use, from the true
tokens; and, for a recorded run, after every step from the tokens that were proposed there. The variant whose
tokens are those of the recording is what the engine did.
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

Recorded = tuple[Sequence[int], int, Sequence[tuple[int, Sequence[int]]]]
"""Token ids of a text, length of its prompt, and (committed length, proposed target ids) of its steps."""


@dataclass(slots=True)
class _Text:
    ids: list[int]
    first: int
    """First row that is judged."""
    chains: list[tuple[int, list[int]]]
    """(row that the chain starts from, proposed target ids)"""


@dataclass(slots=True)
class _Tally:
    """Counts of one variant."""

    right: list[int]
    """Per depth, hits of the target's pick."""
    judged: int = 0
    same: int = 0
    """Proposed tokens that the variant proposes too."""
    proposed: int = 0


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
        ``rows`` of {name, right: [[hits, trials] per depth], same: [hits, trials]}, the unchanged first;
        ``best`` the number of a row; ``declared_accuracy`` of the checkpoint's training, or None.

    Raises:
        CheckpointError: the draft cannot be read, or does not fit the target.
        UnsupportedEngine: the target cannot be loaded.
        UsageError: no text is long enough.
    """
    be_quiet()
    model = load_model(target, dtype, device)
    loaded = load_draft(draft, model)
    texts = [_Text(list(ids), max(prompt - 2, 0), _chains(ids, steps)) for ids, prompt, steps in recorded]
    if prompts:
        tokenizer = load_tokenizer(target)
        texts += [_Text(list(tokenizer(prompt).input_ids), 0, []) for prompt in prompts]
    texts = [text for text in texts if len(text.ids) >= text.first + depth + 2]
    if not texts:
        raise UsageError(f"probe: no text has the {depth + 2} tokens that drafting {depth} of them takes")
    return _probed(model, loaded, texts, depth, on_progress)


def _chains(ids: Sequence[int], steps: Sequence[tuple[int, Sequence[int]]]) -> list[tuple[int, list[int]]]:
    """Chains by the row they start from: that of the last committed token, read beside the state before it."""
    return [(length - 2, list(chain)) for length, chain in steps if 2 <= length <= len(ids) and chain]


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
        rows.append({"name": variant.name, "right": right, "same": [tally.same, tally.proposed]})
        on_progress(done, len(tried))
    accuracy = draft.head.config.training.get("first_position_accuracy")
    return {"rows": rows, "best": best_row(rows), "declared_accuracy": accuracy}


def best_row(rows: Sequence[dict[str, Any]]) -> int:
    """The row that proposes most of what was proposed or, without a recording, that is right most often."""
    is_recorded = rows[0]["same"][1] > 0

    def score(number: int) -> tuple[int, int]:
        row = rows[number]
        hits = row["same"][0] if is_recorded else sum(hits for hits, _ in row["right"])
        return hits, -number

    return max(range(len(rows)), key=score)


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
    shift = variant.token_shift
    feeds = [ids[starts + d + shift] for d in range(1, depth)]
    for d, raw in enumerate(rows.unrolled(starts, feeds)):
        tally.right[d] += int((table[raw] == reading.picks[starts + 1 + d]).sum())
    tally.judged += len(starts)
    if not text.chains:
        return
    starts = torch.tensor([start for start, _ in text.chains])
    longest = max(len(chain) for _, chain in text.chains)
    proposed = torch.tensor([[*chain, *[-1] * (longest - len(chain))] for _, chain in text.chains])  # [m, K]
    told = torch.cat(
        (ids[starts + 1].unsqueeze(1), proposed.clamp(min=0)), dim=1
    )  # last committed, then proposed
    picks = rows.unrolled(starts, [told[:, d - 1 + shift] for d in range(1, longest)])
    for d, raw in enumerate(picks):
        tally.same += int((table[raw] == proposed[:, d]).sum())
    tally.proposed += int((proposed >= 0).sum())


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
            Per depth, [m] most probable raw ids.
        """
        past, m = self._cache.length, len(starts)
        mask = torch.arange(past) <= starts.unsqueeze(1)  # [m, past]
        states = self._states[starts]
        picks = [self._logits[starts].argmax(-1).cpu()]
        for depth, tokens in enumerate(feeds, 1):
            mask = torch.cat((mask, torch.eye(m, dtype=torch.bool)), dim=1)  # [m, past + depth * m]
            logits, states = self._run(tokens, states, starts + depth + self._shift, mask)
            picks.append(logits.argmax(-1).cpu())
        self._cache.crop(past)
        return picks

"""The stand-alone test of a draft, done right: teacher-forced, beside every way of doing it wrong.

Each text is read once by the target. Then the draft drafts after every position, as in use, from the true
tokens; and, for a recorded run, after every step from the tokens that were proposed there. Counts only: what
they mean is for `spectrace.analysis.probing`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from spectrace.errors import CheckpointError, UsageError
from spectrace.format.records import Run
from spectrace_eagle3.draft import Draft, load_draft
from spectrace_eagle3.facts import other_weights
from spectrace_eagle3.faults import Faults
from spectrace_eagle3.forced import ForcedRows
from spectrace_eagle3.replay import Paths, Replay, Step, count_depth, paths_of
from spectrace_eagle3.rows import DraftRows, Node
from spectrace_eagle3.states import nearest_boundaries, read_states
from spectrace_eagle3.target import Target, final_norm
from spectrace_eagle3.variants import Variant, table_of, variants, varied
from spectrace_transformers.loading import be_quiet, load_model, load_tokenizer
from spectrace_transformers.taps import find_layers

Recorded = tuple[str, Sequence[int], int, Sequence[tuple[Any, ...]]]
"""Name of a request, token ids of its text, length of its prompt, and its proposals: see `Step`."""

_PART = 256
"""Chains drafted at once: bounds the memory that attention takes."""


@dataclass(slots=True)
class _Text:
    request: str
    ids: list[int]
    first: int
    """First row that is judged."""
    steps: list[Step]


@dataclass(slots=True)
class _Tally:
    """Counts of one variant."""

    right: list[int]
    """Per depth, hits of the target's pick."""
    judged: int = 0
    replay: Replay = field(default_factory=Replay)

    def shares(self) -> list[list[int]]:
        """Per depth, hits and trials."""
        return [[hits, self.judged] for hits in self.right]


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
    trace: Path | None = None,
    run: Run | None = None,
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
        trace: where it lies; raw states are looked for beside it.
        run: its header.
        depth: tokens drafted after each position.
        dtype: auto (as the target's checkpoint says), or a torch dtype's name.
        device: a torch device; a GPU where there is one by default.
        on_progress: told how many variants of how many are done.

    Returns:
        ``rows`` of {name, right: [[hits, trials] per depth], same: [hits, trials], apart}, the unchanged one
        first, where ``apart`` is the mean difference in log q of the tokens that are the same;
        ``declared_accuracy`` of the checkpoint's training, or None; ``other_weights``, names of those that
        the recorded run had otherwise; ``states``, the same accuracy on the raw states of the trace, or None.

    Raises:
        CheckpointError: the draft or the raw states cannot be read, or do not fit the target.
        UnsupportedEngine: the target cannot be loaded.
        UsageError: no text is long enough.
    """
    be_quiet()
    model = load_model(target, dtype, device)
    loaded = load_draft(draft, model)
    texts = [
        _Text(request, list(ids), max(prompt - 2, 0), [Step(*step) for step in steps])
        for request, ids, prompt, steps in recorded
    ]
    if prompts:
        tokenizer = load_tokenizer(target)
        texts += [_Text("", list(tokenizer(prompt).input_ids), 0, []) for prompt in prompts]
    _check_ids(texts, target, model.get_input_embeddings().weight.shape[0])
    texts = [text for text in texts if len(text.ids) >= text.first + depth + 2]
    if not texts:
        raise UsageError(f"probe: no text has the {depth + 2} tokens that drafting {depth} of them takes")
    states = {} if trace is None or run is None else read_states(trace, run.created)
    with torch.no_grad():
        found = _probed(model, loaded, texts, depth, _temperature(run), states, on_progress)
    accuracy = loaded.head.config.training.get("first_position_accuracy")
    names = [] if run is None or run.draft is None else other_weights(loaded, model, run.draft)
    return {**found, "declared_accuracy": accuracy, "other_weights": names}


def _check_ids(texts: Sequence[_Text], target: Path, vocab_size: int) -> None:
    """A trace of another target has ids that this one lacks."""
    for text in texts:
        ids = [*text.ids, *(token for step in text.steps for token in step.token_ids)]
        wrong = next((token for token in ids if not 0 <= token < vocab_size), None)
        if wrong is not None:
            what = f"has {vocab_size:,} ids; the trace holds id {wrong:,}, so it is of another target"
            raise CheckpointError(target, what)


def _temperature(run: Run | None) -> float | None:
    """What the recorded tokens were drawn at; None where they are the most probable ones."""
    if run is None or run.verification is None or run.verification.rule != "rejection_sampling":
        return None
    temperature = None if run.sampling is None else run.sampling.temperature
    return temperature if temperature else 1.0


def _probed(
    model: Any,
    draft: Draft,
    texts: Sequence[_Text],
    depth: int,
    temperature: float | None,
    states: Mapping[str, Tensor],
    on_progress: Callable[[int, int], None],
) -> dict[str, Any]:
    layers = find_layers(model)
    assert layers is not None  # load_draft has found them
    readings = [_read(model, len(layers), text) for text in texts]
    has_chains = any(step.parents is None for text in texts for step in text.steps)
    tried = variants(draft, len(layers), has_chains=has_chains)
    rows = []
    for done, variant in enumerate(tried, 1):
        tally = _Tally([0] * depth)
        with varied(draft, variant, model):
            for text, reading in zip(texts, readings, strict=True):
                if variant.keeps_rejected:
                    _replay_keeping(draft, text, reading, tally.replay, temperature)
                else:
                    rows_read = ForcedRows(draft, variant, text.ids, _taps(model, draft, variant, reading))
                    _judge(rows_read, table_of(draft, variant), text, reading.picks, tally)
                    _replay(rows_read, table_of(draft, variant), text, tally.replay, temperature)
        replay = tally.replay
        rows.append(
            {
                "name": variant.name,
                "right": tally.shares(),
                "same": [replay.same, replay.proposed],
                "apart": replay.mean_apart,
            }
        )
        on_progress(done, len(tried))
    return {"rows": rows, "states": _on_states(model, draft, texts, readings, depth, states)}


def _on_states(
    model: Any,
    draft: Draft,
    texts: Sequence[_Text],
    readings: Sequence[_Reading],
    depth: int,
    states: Mapping[str, Tensor],
) -> dict[str, Any] | None:
    """Accuracy with the states that the run fed the draft, beside that with the target's, same positions."""
    usual = Variant(name="")
    fed, own = _Tally([0] * depth), _Tally([0] * depth)
    given, truths = [], []
    for text, reading in zip(texts, readings, strict=True):
        if text.request not in states:
            continue
        wanted = _taps(model, draft, usual, reading)
        raw = _fitting(states[text.request], wanted, draft)
        n = raw.shape[1]
        given.append(raw)
        truths.append(reading.states[:, :n])
        part = _Text(text.request, text.ids[: n + 1], text.first, [])
        if len(part.ids) >= part.first + depth + 2:
            for tally, taps in ((fed, raw), (own, wanted[:, :n])):
                rows = ForcedRows(draft, usual, part.ids, taps)
                _judge(rows, draft.vocab.table, part, reading.picks, tally)
    if not given:
        return None
    nearest = nearest_boundaries(torch.cat(given, 1), torch.cat(truths, 1), final_norm(model))
    return {
        "right": fed.shares(),
        "own": own.shares(),
        "taps": [{"declared": k, **found} for k, found in zip(draft.taps.boundaries, nearest)],
    }


def _fitting(raw: Tensor, wanted: Tensor, draft: Draft) -> Tensor:
    """Recorded states, no more tokens than the text has, as the target's are.

    Raises:
        CheckpointError: this draft takes states of another number or width.
    """
    if raw.shape[0] != wanted.shape[0] or raw.shape[2] != wanted.shape[2]:
        what = f"takes {len(wanted)} taps {wanted.shape[2]:,} wide; the recorded states are {list(raw.shape)}"
        raise CheckpointError(draft.path, what)
    return raw[:, : wanted.shape[1]].to(wanted)


def _read(model: Any, num_layers: int, text: _Text) -> _Reading:
    reader = Target(model, range(num_layers + 1))
    reader.reset()
    try:
        forward = reader.run(text.ids, range(len(text.ids)))
    finally:
        reader.close()
    return _Reading(states=forward.taps, picks=forward.logits.argmax(-1).cpu())


def _taps(model: Any, draft: Draft, variant: Variant, reading: _Reading) -> Tensor:
    """[taps, tokens, hidden_size] states that the draft is fed under a variant."""
    order = variant.order or range(len(draft.taps.boundaries))
    taps = reading.states[[draft.taps.boundaries[place] + variant.tap_shift for place in order]]
    fed: Tensor = final_norm(model)(taps) if variant.is_tap_normed else taps
    return fed


def _judge(rows: ForcedRows, table: Tensor, text: _Text, picks: Tensor, tally: _Tally) -> None:
    """Adds what one variant gets right in one text."""
    ids, depth = torch.tensor(text.ids), len(tally.right)
    starts = torch.arange(text.first, len(ids) - 1 - depth)  # rows with all their picks in the text
    tally.judged += len(starts)
    for part in starts.split(_PART):
        feeds = [ids[part + d + rows.token_shift] for d in range(1, depth)]
        for d, logits in enumerate(rows.unrolled(part, feeds)):
            tally.right[d] += int((table[logits.argmax(-1)] == picks[part + 1 + d]).sum())


def _replay(rows: ForcedRows, table: Tensor, text: _Text, replay: Replay, temperature: float | None) -> None:
    """Adds how much of what was proposed in recorded steps a variant proposes too."""
    ids = torch.tensor(text.ids)
    for paths in _parts(paths_of(_usable(text))):
        # The first row of a step reads the last committed token beside the state before it.
        read = torch.cat((ids[paths.starts + 1].unsqueeze(1), paths.tokens.clamp(min=0)), dim=1)  # [m, D+1]
        feeds = [read[:, d - 1 + rows.token_shift] for d in range(1, paths.tokens.shape[1])]
        for d, logits in enumerate(rows.unrolled(paths.starts, feeds)):
            count_depth(replay, logits, table, paths, d, temperature)


def _replay_keeping(
    draft: Draft, text: _Text, reading: _Reading, replay: Replay, temperature: float | None
) -> None:
    """The same with a cache that nothing is ever cut from, which takes one step after the other."""
    rows = DraftRows(draft.head, draft.vocab.table, Faults(keep_draft_kv=True))
    table, raw_ids = draft.vocab.table, {int(t): raw for raw, t in enumerate(draft.vocab.table.tolist())}
    taps, first = reading.states[list(draft.taps.boundaries)], 0
    for step in _usable(text):
        if step.parents is not None:
            continue
        rows.begin(text.ids[first + 1 : step.length], taps[:, first : step.length - 1], first)
        first = step.length - 1
        nodes: list[Node] = []
        paths = paths_of([step])
        for depth, token in enumerate(step.token_ids):
            if depth:
                rows.read([depth - 1], nodes)
            count_depth(replay, rows.logits[depth].cpu().unsqueeze(0), table, paths, depth, temperature)
            if token not in raw_ids:  # the map was another one: what follows is not this draft's
                break
            nodes.append(Node(raw_ids[token], depth - 1, depth, depth))


def _usable(text: _Text) -> list[Step]:
    """Proposals inside the text, which has the two tokens that drafting starts from."""
    return [step for step in text.steps if 2 <= step.length <= len(text.ids) and step.token_ids]


def _parts(paths: Paths) -> Iterator[Paths]:
    return (paths.part(first, _PART) for first in range(0, len(paths.starts), _PART))

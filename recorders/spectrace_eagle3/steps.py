"""One round of the decoder as the fields of a step: every number trace-model names, at full precision.

Tensors come in, plain lists leave. Counts what was accepted from the ids, whatever the decoder says.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from spectrace.format.projections import project
from spectrace_eagle3.decoder import Round
from spectrace_eagle3.proposal import Proposal
from spectrace_eagle3.sampling import Sampler

PREFILL_ROWS = 8
"""Most rows kept of the prompt per boundary: evenly spaced from the first, and the last."""


def step_fields(
    done: Round, sampler: Sampler, table: Tensor, boundaries: Sequence[int], top: int
) -> dict[str, Any]:
    """The fields of one step, without the name of its request.

    Args:
        done: the round.
        sampler: how tokens were picked.
        table: [draft_vocab_size] target id of each raw id.
        boundaries: of the taps.
        top: alternatives kept per position.
    """
    logits = sampler.processed(done.logits)  # [K+1, vocab_size]
    fields: dict[str, Any] = {
        "step": done.number,
        "position": done.position,
        "proposal_ids": [] if done.proposal is None else list(done.proposal.target_ids),
        "logits_kind": "processed" if sampler.processors else "raw",
        "target_kv_length": done.target_kv_length,
        "verify_ns": done.ended_ns - done.drafted_ns,
        "step_ns": done.ended_ns - done.started_ns,
        "nonfinite": {"target_logits": num_nonfinite(done.logits)},
        "taps": tap_rows(done.taps, done.tap_positions, done.tap_shape, boundaries),
        **_target_fields(logits, top),
        **_outcome(done, sampler),
    }
    if done.proposal is not None:
        fields |= _proposal_fields(done.proposal, top)
        fields["draft_inputs"] = _inputs(done)
        fields |= _judged(done.proposal, logits, table)
        fields["nonfinite"]["draft_logits"] = num_nonfinite(done.proposal.logits)
    if done.number > 0:
        fields["draft_ns"] = done.drafted_ns - done.started_ns
    else:
        fields["flags"] = [*fields.get("flags", ()), "prefill"]
    return fields


def num_nonfinite(values: Tensor) -> int:
    """How many are NaN or infinite."""
    return int((~values.isfinite()).sum())


def _outcome(done: Round, sampler: Sampler) -> dict[str, Any]:
    """What was accepted and committed, and why it ended there."""
    proposal, path = done.proposal, list(done.decision.path)
    fields: dict[str, Any] = {"emitted_ids": list(done.emitted)}
    if done.stop is not None:
        fields["stop"] = done.stop
    if proposal is None:
        return fields | {"num_accepted": 0, "final_kind": "none"}
    accepted = path[: len(done.emitted)]  # the end of the text or the length limit may cut the path
    # This decoder counts what it commits; an engine that counts beyond the end would say more here.
    fields |= {"num_accepted": len(accepted), "num_accepted_reported": len(accepted)}
    if not proposal.is_chain:
        fields["accepted_nodes"] = accepted
    has_children = any(node.parent == (path[-1] if path else -1) for node in proposal.nodes)
    if len(accepted) == len(done.emitted):
        return fields | {"final_kind": "draft", "flags": ["truncated"]}
    if not has_children:
        return fields | {"final_kind": "bonus"}
    return fields | {"final_kind": "corrected" if sampler.is_greedy else "recovered"}


def _target_fields(logits: Tensor, top: int) -> dict[str, Any]:
    """What the target would say at the root and after each node, from logits [K+1, vocab_size]."""
    values, ids = logits.topk(top)  # [K+1, m]
    logprobs = logits.log_softmax(-1).gather(1, ids)
    return {
        "target_ids": logits.argmax(-1).tolist(),
        "target_gaps": (values[:, 0] - values[:, 1]).tolist(),
        "target_top": _pairs(ids, logprobs),
    }


def _judged(proposal: Proposal, logits: Tensor, table: Tensor) -> dict[str, Any]:
    """What the target thought of each node: its row is that of the node's parent."""
    rows = logits[[node.parent + 1 for node in proposal.nodes]]  # [K, vocab_size]
    chosen = rows.gather(1, torch.tensor(proposal.target_ids, device=rows.device).unsqueeze(1))  # [K, 1]
    p = rows.softmax(-1)  # [K, vocab_size]
    q = proposal.logits.softmax(-1)[[node.source for node in proposal.nodes]]  # [K, draft_vocab_size]
    spread = torch.zeros_like(p).index_add_(1, table.to(p.device), q.to(p.device))  # [K, vocab_size]
    return {
        "target_logprobs": (chosen - rows.logsumexp(-1, keepdim=True))[:, 0].tolist(),
        "target_ranks": ((rows > chosen).sum(-1) + 1).tolist(),
        "overlaps": torch.minimum(p, spread).sum(-1).tolist(),
    }


def _proposal_fields(proposal: Proposal, top: int) -> dict[str, Any]:
    """What the draft thought: each node's values are those of the row it comes from."""
    nodes = proposal.nodes
    sources = [node.source for node in nodes]
    logq = proposal.logits.log_softmax(-1)  # [R, draft_vocab_size]
    entropy = torch.special.entr(logq.exp()).sum(-1)  # [R]
    values, ids = logq.topk(min(top, logq.shape[1]))  # [R, m]
    pairs = _pairs(ids, values)
    fields: dict[str, Any] = {
        "draft_ids": [node.draft_id for node in nodes],
        "draft_logprobs": logq[sources, [node.draft_id for node in nodes]].tolist(),
        "draft_entropy": entropy[sources].tolist(),
        "draft_top": [pairs[source] for source in sources],
        "draft_positions": [proposal.positions[source] for source in sources],
        "draft_kv_length": proposal.draft_kv_length,
    }
    if not proposal.is_chain:
        fields["parents"] = [node.parent for node in nodes]
    return fields


def _inputs(done: Round) -> list[dict[str, Any]]:
    """What the draft read at each depth: RMS of the state, and which token beside it where that is known."""
    assert done.proposal is not None
    read = itertools.zip_longest(done.proposal.input_rms, done.read_positions)
    return [{"rms": rms} if at is None else {"rms": rms, "token_position": at} for rms, at in read]


def _pairs(ids: Tensor, values: Tensor) -> list[list[tuple[int, float]]]:
    """[rows][m] of (id, value)."""
    return [list(zip(a, b)) for a, b in zip(ids.tolist(), values.tolist())]


def tap_rows(
    taps: Tensor, positions: Sequence[int], shape: Sequence[int], boundaries: Sequence[int]
) -> list[dict[str, Any]]:
    """Fingerprints of states.

    Args:
        taps: [taps, n, hidden_size].
        positions: [n] index of the token of each row; of a long prompt some are left out.
        shape: of the states that the rows were taken from.
        boundaries: k of B(k) of each tap.
    """
    kept = kept_rows(len(positions))
    dtype = str(taps.dtype).removeprefix("torch.")
    return [
        {"boundary": boundary, "position": positions[row], "shape": list(shape), "dtype": dtype, **print_}
        for boundary, states in zip(boundaries, taps)
        for row, print_ in zip(kept, fingerprints(states[kept]))
    ]


def kept_rows(num_rows: int) -> list[int]:
    """Which rows are kept: all of a few, else evenly spaced ones and the last.

    >>> kept_rows(3), kept_rows(30)
    ([0, 1, 2], [0, 5, 10, 15, 20, 25, 29])
    """
    stride = -(-(num_rows - 1) // (PREFILL_ROWS - 1)) or 1
    return [*range(0, num_rows - 1, stride), num_rows - 1]


def fingerprints(states: Tensor) -> list[dict[str, Any]]:
    """RMS, non-finite values and projections of each row of [n, hidden_size]."""
    rows = states.float().cpu()
    projections = project(rows.numpy()).tolist()
    rms = rows.pow(2).mean(-1).sqrt().tolist()
    nonfinite = (~rows.isfinite()).sum(-1).tolist()
    return [
        {"rms": r, "nonfinite": n, "projections": p}
        for r, n, p in zip(rms, nonfinite, projections, strict=True)
    ]

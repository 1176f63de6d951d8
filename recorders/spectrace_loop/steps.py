"""A round's numbers, once they have arrived, as the fields of a step; on the writer's thread.

What was accepted is read off the ids, whatever the loop says. numpy only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from spectrace_transformers.reduction import Array, log_normaliser

PICKED = frozenset(("greedy", "match"))
"""Rules that hold a draft token against the target's pick: what replaces it is a correction."""


def step_fields(arrays: Mapping[str, Array], d2t: Array | None, rule: str | None) -> dict[str, Any]:
    """The fields of one step that come from ids and logits.

    Args:
        arrays: by the names of `reduction`.
        d2t: [draft_vocab_size] offsets, where there is a map.
        rule: of verification, where it is known.

    Raises:
        ValueError: the ids and the tree do not fit each other.
    """
    proposal, emitted = arrays["proposal"].tolist(), arrays["emitted"].tolist()
    parents = None if "judges" not in arrays else (arrays["judges"] - 1).tolist()
    _check(parents, len(proposal))
    path = accepted_path(proposal, parents, emitted)
    fields: dict[str, Any] = {
        "proposal_ids": proposal,
        "emitted_ids": emitted,
        "num_accepted": len(path),
        **_target_fields(arrays, path, emitted, rule),
        **_ending(proposal, parents, emitted, path, rule),
    }
    if parents is not None:
        fields |= {"parents": parents, "accepted_nodes": path}
    if "draft_ids" in arrays:
        fields["draft_ids"] = arrays["draft_ids"].tolist()
    if "draft_top" in arrays:
        fields |= _draft_fields(arrays)
        if _is_mapped(proposal, fields.get("draft_ids"), d2t):
            fields["overlaps"] = arrays["overlaps"].tolist()
        fields["nonfinite"]["draft_logits"] = int(arrays["draft_nonfinite"].sum())
    return fields


def accepted_path(
    proposal: Sequence[int], parents: Sequence[int] | None, emitted: Sequence[int]
) -> list[int]:
    """The nodes that were committed, root to leaf: as far down as they spell what was emitted.

    >>> accepted_path([5, 6, 7], None, [5, 6, 9])
    [0, 1]
    >>> accepted_path([5, 8, 6, 7], [-1, -1, 1, 1], [8, 7, 4])
    [1, 3]
    """
    children: dict[int, list[int]] = {}
    for node in range(len(proposal)):
        children.setdefault(node - 1 if parents is None else parents[node], []).append(node)
    path: list[int] = []
    at = -1
    for token in emitted:
        at = next((node for node in children.get(at, ()) if proposal[node] == token), -2)
        if at < 0:
            break
        path.append(at)
    return path


def _check(parents: Sequence[int] | None, num_nodes: int) -> None:
    for node, parent in enumerate(parents or ()):
        if not -1 <= parent < num_nodes or parent == node:
            where = "on no path" if parent == -2 else f"given the parent {parent}"
            raise ValueError(f"node {node} of {num_nodes} is {where}")


def _ending(
    proposal: Sequence[int],
    parents: Sequence[int] | None,
    emitted: Sequence[int],
    path: Sequence[int],
    rule: str | None,
) -> dict[str, Any]:
    """What the last token was; of a refusal by a rule that nobody named it is not said."""
    if not proposal or not emitted:
        return {"final_kind": "none"}
    if len(path) == len(emitted):  # the end of the text or a limit came before the target's own token
        return {"final_kind": "draft", "flags": ["truncated"]}
    last = path[-1] if path else -1
    if last not in (range(-1, len(proposal) - 1) if parents is None else parents):
        return {"final_kind": "bonus"}
    if rule is None:
        return {}
    return {"final_kind": "corrected" if rule in PICKED else "recovered"}


def _target_fields(
    arrays: Mapping[str, Array], path: Sequence[int], emitted: Sequence[int], rule: str | None
) -> dict[str, Any]:
    """What the target thought at the root and after each node, and of each node."""
    norm = log_normaliser(arrays["top"][:, :1], arrays["first"])  # [K+1, 1]
    ids, top = arrays["top_ids"], arrays["top"]
    picks = ids[:, 0].copy()
    fields: dict[str, Any] = {
        "target_top": _pairs(ids, top - norm),
        "nonfinite": {"target_logits": int(arrays["nonfinite"].sum())},
    }
    if top.shape[1] > 1:
        with np.errstate(invalid="ignore"):  # infinity - infinity, where all other tokens are ruled out
            gaps = top[:, 0] - top[:, 1]
        fields["target_gaps"] = gaps.tolist()
        if rule == "greedy":  # of two equal logits, the one that the loop took
            for row, token in zip([0, *(node + 1 for node in path)], emitted):
                picks[row] = token if gaps[row] == 0 else picks[row]
    judges = arrays.get("judges", np.arange(len(arrays["proposal"])))  # [K]
    return fields | {
        "target_ids": picks.tolist(),
        "target_logprobs": (arrays["chosen"][:, 0] - norm[judges, 0]).tolist(),
        "target_ranks": (arrays["better"] + 1).tolist(),
    }


def _draft_fields(arrays: Mapping[str, Array]) -> dict[str, Any]:
    norm = log_normaliser(arrays["draft_top"][:, :1], arrays["draft_first"])  # [K, 1]
    fields: dict[str, Any] = {
        "draft_top": _pairs(arrays["draft_top_ids"], arrays["draft_top"] - norm),
        "draft_entropy": arrays["draft_entropy"].tolist(),
    }
    if "draft_chosen" in arrays:
        fields["draft_logprobs"] = (arrays["draft_chosen"] - norm)[:, 0].tolist()
    return fields


def _is_mapped(proposal: Sequence[int], raw: Sequence[int] | None, d2t: Array | None) -> bool:
    """Whether p and q were held against each other as the loop itself maps ids."""
    if d2t is None:
        return raw is None or list(raw) == list(proposal)
    if raw is None:
        return False
    return all(0 <= r < len(d2t) and r + d2t[r] == p for r, p in zip(raw, proposal))


def _pairs(ids: Array, values: Array) -> list[list[tuple[int, float]]]:
    """[rows][m] of (id, value)."""
    return [list(zip(a, b)) for a, b in zip(ids.tolist(), values.tolist())]

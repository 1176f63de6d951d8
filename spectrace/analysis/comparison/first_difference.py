"""Where two runs of the same prompts part: proposal, target pick, decision, committed token.

Rows are compared where they begin at the same committed length of the same request, tokens where they stand
at the same place of the text, so that two engines may cut a text into other steps. Behind the first token in
which the texts differ nothing is compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from spectrace.analysis.comparison.alignment import Pair
from spectrace.analysis.comparison.difference import INPUTS, Difference, FirstDifferences, Kind
from spectrace.analysis.comparison.hits import Hits, Proposals, differing_picks, forks
from spectrace.analysis.comparison.inputs import differing_inputs, nothing_compared
from spectrace.analysis.comparison.row_pairs import (
    BEHIND_FORK,
    DECISION,
    EMITTED,
    INPUT,
    PROPOSAL,
    TARGET_PICK,
    standing_beside,
)
from spectrace.analysis.comparison.rows import Rows
from spectrace.analysis.comparison.text_pair import TextPair, places
from spectrace.format.columns import Array

_BITS = {
    **dict.fromkeys(INPUTS, INPUT),
    "proposal": PROPOSAL,
    "target_pick": TARGET_PICK,
    "decision": DECISION,
    "emitted": EMITTED,
}
_WITHOUT_IDS = ("draft_positions", "kv_lengths")
"""What hangs on no token."""
_LISTED = 64
"""Requests whose first difference a result lists."""


def compare_rows(
    a: Rows, b: Rows, texts: TextPair, pairs: Sequence[Pair], *, has_ids: bool = True
) -> tuple[FirstDifferences, Array]:
    """Everything that differs before the texts part.

    Args:
        a: rows of A.
        b: rows of B.
        texts: of both.
        pairs: the requests.
        has_ids: both hold token ids; without them no token is compared, nor what hangs on one.

    Returns:
        The differences, and [rows of A] bits of `RowPairs.differs`.
    """
    rows = _rows_to_compare(a, b, texts.fork)
    proposals = Proposals(a, b, *rows)
    hits = {
        **differing_inputs(a, b, rows, proposals),
        "proposal": proposals.hits(),
        "target_pick": differing_picks(a, b, texts),
        "decision": proposals.decisions(),
        "emitted": forks(a, b, texts),
    }
    if not has_ids:
        hits = {name: found if name in _WITHOUT_IDS else nothing_compared() for name, found in hits.items()}
    marks = np.where(a.positions > texts.fork[a.pairs], BEHIND_FORK, 0).astype(np.uint8)
    for name, found in hits.items():
        marks[found.a] |= _BITS[name]
    told = _Teller(a, b, texts, pairs)
    first = {name: _first_of_each(a, found) for name, found in hits.items()}
    prompts = [told.prompt(pair) for pair in pairs if pair.prompt_difference is not None]
    kinds = {"prompt": _prompt_kind(pairs, prompts)}
    for name, found in hits.items():
        kinds[name] = Kind(
            compared=found.compared,
            differing=len(found.a),
            requests=len(first[name]),
            first=told.earliest(
                name, found, proposals.telling() if name == "proposal" and len(found.a) else None
            ),
        )
    parting = hits["emitted"]
    order = np.argsort(a.numbers[parting.a], kind="stable")[:_LISTED]
    return FirstDifferences(
        kinds=kinds,
        only_length=int(proposals.only_length.sum()) if has_ids else 0,
        other_shape=proposals.num_other_shape if has_ids else 0,
        same_raw_other_id=proposals.same_raw_other_id,
        ends_earlier=texts.ends_earlier() if has_ids else 0,
        unseen=texts.unseen() if has_ids else 0,
        forks=[told.difference("emitted", parting, int(at)) for at in order],
        by_request=(prompts + list(told.by_request(hits, first)))[:_LISTED],
    ), marks


def _rows_to_compare(a: Rows, b: Rows, fork: Array) -> tuple[Array, Array]:
    """Rows of A and B that begin at the same place, before the texts part; each once."""
    beside, is_same = standing_beside(a, b)
    mine = np.flatnonzero(is_same)
    last = np.append(np.diff(a.keys[mine]) != 0, True)[: len(mine)]
    mine = mine[last]
    mine = mine[a.positions[mine] <= fork[a.pairs[mine]]]
    return mine, beside[mine]


@dataclass(frozen=True, slots=True)
class _Teller:
    """Makes a `Difference` of a hit."""

    a: Rows
    b: Rows
    texts: TextPair
    pairs: Sequence[Pair]

    def prompt(self, pair: Pair) -> Difference:
        index, mine, theirs = pair.prompt_difference or (0, None, None)
        return Difference(
            kind="prompt",
            request=pair.names,
            position=index,
            token=None,
            steps=None,
            index=index,
            values=(mine, theirs),
        )

    def difference(self, kind: str, hits: Hits, at: int) -> Difference:
        row, other_row, index = int(hits.a[at]), int(hits.b[at]), int(hits.index[at])
        pair = int(self.a.pairs[row])
        position = self._position(kind, hits, at)
        pairs, starts = self.texts.a.starts
        place = int(np.searchsorted(pairs, pair))
        has_text = place < len(pairs) and int(pairs[place]) == pair
        start = int(places(starts[place])) if has_text else position
        values = [v[at].item() if has[at] else None for v, has in zip(hits.values, hits.has)]
        raw: list[int | None] = [None, None]
        if kind == "proposal":
            raw = [_raw(self.a, row, index), _raw(self.b, other_row, index)]
        return Difference(
            kind=kind,
            request=self.pairs[pair].names,
            position=position,
            token=max(position - start, 0),
            steps=(int(self.a.numbers[row]), int(self.b.numbers[other_row])),
            index=index,
            values=(values[0], values[1]),
            raw=(raw[0], raw[1]),
        )

    def _position(self, kind: str, hits: Hits, at: int) -> int:
        """Index within prompt and text; a cache has its length before the first token."""
        start = int(self.a.positions[hits.a[at]])
        return start if kind == "kv_lengths" else start + int(hits.index[at])

    def earliest(self, kind: str, hits: Hits, chosen: Array | None = None) -> Difference | None:
        """Of the hits, or of those chosen, the one in the earliest step of A."""
        among = np.arange(len(hits.a)) if chosen is None else chosen
        if not len(among):
            return None
        return self.difference(kind, hits, int(among[np.argmin(self.a.numbers[hits.a[among]])]))

    def by_request(self, hits: Mapping[str, Hits], first: Mapping[str, Array]) -> Iterator[Difference]:
        """The first difference of each request, of whatever kind."""
        best: dict[int, tuple[int, int, str, int]] = {}
        for rank, (kind, found) in enumerate(hits.items()):
            for at in first[kind][: 4 * _LISTED].tolist():
                row = int(found.a[at])
                place = self._position(kind, found, at), rank, kind, at
                pair = int(self.a.pairs[row])
                best[pair] = min(best.get(pair, place), place)
        for pair in sorted(best)[:_LISTED]:
            _, _, kind, at = best[pair]
            yield self.difference(kind, hits[kind], at)


def _prompt_kind(pairs: Sequence[Pair], differing: Sequence[Difference]) -> Kind:
    return Kind(
        compared=sum(pair.is_checked for pair in pairs),
        differing=len(differing),
        requests=len(differing),
        first=differing[0] if differing else None,
    )


def _first_of_each(a: Rows, hits: Hits) -> Array:
    """The first hit of each pair of requests."""
    _, first = np.unique(a.pairs[hits.a], return_index=True)
    return first


def _raw(rows: Rows, row: int, index: int) -> int | None:
    if rows.raw.is_empty or index >= int(rows.drafted[row]):
        return None
    at = np.array([int(rows.draft_starts[row]) + index])
    return int(rows.raw.values[at[0]]) if rows.raw.known_at(at)[0] else None

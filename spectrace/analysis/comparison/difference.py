"""What `first_difference` finds: one place, one kind of thing, everything. Frozen results, no arithmetic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

INPUTS = ("draft_positions", "kv_lengths", "fed_back")
"""What the draft was run with."""
KINDS = ("prompt", *INPUTS, "proposal", "target_pick", "decision", "emitted")
"""What is compared, in the order in which one causes the next."""
KIND_WORDS = {
    "prompt": "prompt",
    "draft_positions": "positions",
    "kv_lengths": "KV lengths",
    "fed_back": "fed back",
    "proposal": "proposal",
    "target_pick": "target pick",
    "decision": "decision",
    "emitted": "text",
}
"""Short words for each of `KINDS`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One place in which two runs differ."""

    kind: str
    """One of `KINDS`."""
    request: tuple[str, str]
    position: int
    """Index of the token within prompt and text."""
    token: int | None
    """The same counted from the first committed token of the request; None in the prompt."""
    steps: tuple[int, int] | None
    """Numbers of the steps within their traces; None in the prompt."""
    index: int
    """Within the proposal, or within what the step of A committed; within the prompt; of KV lengths, 0 is the
    draft's, 1 the target's."""
    values: tuple[float | None, float | None]
    """Ids in the target's vocabulary; of a decision, how many of the shared draft tokens were accepted; of
    inputs, positions, lengths or RMS. None where one proposal ends."""
    raw: tuple[int | None, int | None] = (None, None)
    """Of a proposal, ids in the draft's vocabulary."""

    def to_mapping(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        pairs = ("request", "steps", "values", "raw")
        found = {name: getattr(self, name) for name in self.__slots__}
        return {k: list(v) if k in pairs and v is not None else v for k, v in found.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """What came out of comparing one kind of thing."""

    compared: int
    """Requests of a prompt, steps of a proposal or a decision, tokens of a pick or of the text."""
    differing: int
    requests: int
    """Requests with a difference."""
    first: Difference | None
    """The one in the earliest step of A."""

    def to_mapping(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "compared": self.compared,
            "differing": self.differing,
            "requests": self.requests,
            "first": None if self.first is None else self.first.to_mapping(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstDifferences:
    """Everything that was compared step by step."""

    kinds: Mapping[str, Kind]
    """One entry for each of `KINDS`."""
    only_length: int
    """Proposals that differ only in how many tokens they have."""
    other_shape: int
    """Proposals, a tree and a chain, that are not compared."""
    same_raw_other_id: int
    """Draft tokens with the same raw id and another mapped id."""
    ends_earlier: int
    """Texts that are the same as far as the shorter one goes."""
    unseen: int
    """Tokens before the end of the comparison that only one trace holds; a difference there is not seen."""
    forks: Sequence[Difference]
    """First token in which each pair of texts differs, in the order of A's steps."""
    by_request: Sequence[Difference]
    """First difference of each request, of whatever kind; the first requests."""

    def to_mapping(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            **{name: kind.to_mapping() for name, kind in self.kinds.items()},
            "proposal_only_length": self.only_length,
            "proposal_other_shape": self.other_shape,
            "same_raw_other_id": self.same_raw_other_id,
            "texts_that_end_earlier": self.ends_earlier,
            "tokens_unseen": self.unseen,
            "by_request": [difference.to_mapping() for difference in self.by_request],
        }

"""What a comparison of two traces says: one frozen object. No arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from spectrace.analysis.comparison.acceptance_change import AcceptanceChange
from spectrace.analysis.comparison.alignment import Alignment
from spectrace.analysis.comparison.difference import FirstDifferences
from spectrace.analysis.comparison.fork import Fork
from spectrace.analysis.comparison.headers import HeaderDifference
from spectrace.analysis.comparison.row_pairs import RowPairs
from spectrace.analysis.comparison.tap_match import TapMatch


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two traces of the same prompts, A and B."""

    alignment: Alignment
    """How the requests pair; ``alignment.problem`` says why nothing but the headers was compared."""
    headers: Sequence[HeaderDifference]
    """What differs in the headers, the most telling first."""
    same_weights: bool | None
    """Whether the drafts hold the same weights, by fingerprint; None where a trace has none."""
    first_differences: FirstDifferences
    without_ids: str
    """Which traces hold no token ids, pack having removed them: A, B or "A and B"; "" when both have them."""
    fork: Fork | None
    """The token at which texts part, with its verdict; None where none do."""
    taps: Sequence[TapMatch]
    acceptance: AcceptanceChange
    next: Sequence[str]
    """What to look at, one to three sentences."""
    rows: RowPairs
    """For a viewer: which step of B stands where a step of A does, and the next step that differs."""

    @property
    def is_equal(self) -> bool:
        """Nothing differs in what was compared, and every request has a partner."""
        kinds = self.first_differences.kinds.values()
        return (
            self.alignment.problem is None
            and not any(kind.differing for kind in kinds)
            and not self.first_differences.ends_earlier
            and self.alignment.num_requests == (len(self.alignment.pairs),) * 2
        )

    def to_mapping(self) -> dict[str, Any]:
        """Plain values, for JSON, without `rows`. The names are stable; more may come.

        Pairs are [of A, of B]; step numbers are those of ``spectrace steps``; what is not known is null.

        * ``is_equal``: nothing differs in what was compared, and nothing was left over.
        * ``alignment``: ``ways`` (prompt_digest | prompt_ids | request | order -> pairs), ``pairs``,
          ``unchecked_prompts``, ``requests``, ``left_over`` and ``left_over_names``, ``unplaced_steps``,
          ``problem`` (why nothing but the headers was compared).
        * ``headers``: list of ``field`` (path), ``words``, ``a``, ``b``.
        * ``same_weights``: whether the drafts' fingerprints agree; null where a trace has none.
        * ``first_differences``: under each of ``prompt``, ``draft_positions``, ``kv_lengths``, ``fed_back``,
          ``proposal``, ``target_pick``, ``decision``, ``emitted`` the counts ``compared``, ``differing``,
          ``requests``, and ``first``: ``kind``,
          ``request``, ``position`` (within prompt and text), ``token`` (within the text), ``steps``,
          ``index`` (within the proposal or the step), ``values``, ``raw``. Beside them
          ``proposal_only_length``, ``proposal_other_shape``, ``same_raw_other_id``,
          ``texts_that_end_earlier``, ``tokens_unseen``, and ``by_request``, a list of first differences.
        * ``without_ids``: which traces hold no ids ("A", "B", "A and B", ""): then no token is compared.
        * ``fork``: null, or ``request``, ``position``, ``token``, ``steps``, ``ids``, ``verdict`` (tie |
          no_tie | off_pick | sampled | unknown), ``gap`` and ``limit`` in logits, ``rank_of_other``,
          ``picks``, ``was_draft``, ``forks`` (requests whose texts part), ``judged`` (verdict -> requests).
        * ``taps``: list of ``side``, ``tap``, ``by_index``, ``n``, ``same_name_cosine``, ``best``,
          ``best_in`` (tap | reference), ``cosine``, ``rms_ratio``, ``is_same``, ``is_match``, ``shift``.
        * ``acceptance``: ``proposals``, ``simulated`` (left out), ``is_shown``, and ``alpha1``,
          ``acceptance_rate``, ``accept_length`` and the list ``positions``, each with ``name``, ``a``,
          ``b``, ``n``, ``difference``, ``low``, ``high``, ``is_shown``.
        * ``next``: list of sentences.
        """
        return {
            "is_equal": self.is_equal,
            "alignment": self.alignment.to_mapping(),
            "headers": [item.to_mapping() for item in self.headers],
            "same_weights": self.same_weights,
            "first_differences": self.first_differences.to_mapping(),
            "without_ids": self.without_ids,
            "fork": None if self.fork is None else self.fork.to_mapping(),
            "taps": [match.to_mapping() for match in self.taps],
            "acceptance": self.acceptance.to_mapping(),
            "next": list(self.next),
        }

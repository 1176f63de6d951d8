"""What a comparison of two traces says: one frozen object. No arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from spectrace.analysis.comparison.acceptance_change import AcceptanceChange
from spectrace.analysis.comparison.alignment import Alignment
from spectrace.analysis.comparison.first_difference import FirstDifferences
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
    first_differences: FirstDifferences
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
        """Plain values, for JSON, without `rows`."""
        return {
            "is_equal": self.is_equal,
            "alignment": self.alignment.to_mapping(),
            "headers": [item.to_mapping() for item in self.headers],
            "first_differences": self.first_differences.to_mapping(),
            "fork": None if self.fork is None else self.fork.to_mapping(),
            "taps": [match.to_mapping() for match in self.taps],
            "acceptance": self.acceptance.to_mapping(),
            "next": list(self.next),
        }

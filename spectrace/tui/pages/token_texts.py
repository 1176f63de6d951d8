"""The token texts a page needs, taken out of the trace once, so that its lines can be made without it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from spectrace.format.records import Step
from spectrace.tui.loader import Loader


@dataclass(frozen=True, slots=True)
class TokenTexts:
    """Escaped texts by id."""

    target: Mapping[int, str | None] = field(default_factory=dict)
    draft: Mapping[int, str | None] = field(default_factory=dict)

    def token(self, token_id: int | None, *, draft: bool = False) -> str | None:
        """Text of a token, None where the trace has none."""
        return None if token_id is None else (self.draft if draft else self.target).get(token_id)


def texts_of(
    loader: Loader, target_ids: Iterable[int | None], draft_ids: Iterable[int | None] = ()
) -> TokenTexts:
    """The texts of some tokens."""
    return TokenTexts(
        {token: loader.token(token) for token in target_ids if token is not None},
        {token: loader.token(token, draft=True) for token in draft_ids if token is not None},
    )


def step_texts(loader: Loader, step: Step | None, more: Iterable[int | None] = ()) -> TokenTexts:
    """The texts of everything a step names."""
    if step is None:
        return TokenTexts()
    tops = [token for top in step.target_top or () for token, _ in top]
    raws = [token for top in step.draft_top or () for token, _ in top]
    target = [*(step.proposal_ids or ()), *(step.target_ids or ()), *(step.emitted_ids or ()), *tops, *more]
    return texts_of(loader, target, [*raws, *(step.draft_ids or ())])

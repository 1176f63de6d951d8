"""The viewer's screens beside the list of steps, one file each; text and facts only, no Textual.

What a page is called stands here, so that its keys are known before its file is loaded, and with it the
rules of the diagnosis: that takes longer than the first screen.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from spectrace.tui.loader import Loader
from spectrace.tui.pages.page import Page, PageLine


def _page(
    name: str, key: str, description: str, *, hint: str = "", also: str = "", follows_cursor: bool = False
) -> Page:
    """The page whose `gather` and `lines` are in the file of its name, loaded when it is opened."""

    def gather(loader: Loader, row: int) -> Any:
        return import_module(f"{__name__}.{name}").gather(loader, row)

    def lines(facts: Any, width: int) -> list[PageLine]:
        found: list[PageLine] = import_module(f"{__name__}.{name}").lines(facts, width)
        return found

    return Page(
        id=name,
        title=name.capitalize(),
        key=key,
        description=description,
        gather=gather,
        lines=lines,
        hint=hint,
        also=also,
        follows_cursor=follows_cursor,
    )


PAGES: tuple[Page, ...] = (
    _page(
        "overview",
        "o",
        "the run on one page: causes, acceptance, what ran",
        hint="why",
        also="why diagnose findings verdict stats",
    ),
    _page(
        "step",
        "s",
        "everything about one step: tokens, alternatives of both sides, context",
        hint="step",
        also="top logprobs",
        follows_cursor=True,
    ),
    _page(
        "tree", "T", "the proposal of a step as a tree, and the path the target wanted", follows_cursor=True
    ),
    _page(
        "taps",
        "H",
        "the hidden states the draft is fed: boundary, form, length over the run",
        also="layers norm",
    ),
    _page(
        "vocabulary", "V", "the id map in both readings, and the tokens the draft cannot say", also="d2t t2d"
    ),
    _page("requests", "R", "every request with its acceptance, the worst first", also="prompts by"),
    _page(
        "diff",
        "C",
        "another trace of the same prompts beside this one (:diff FILE)",
        also="compare against",
        follows_cursor=True,
    ),
)
"""Every page, in the order in which the help lists them."""

__all__ = ["PAGES", "Page", "PageLine"]

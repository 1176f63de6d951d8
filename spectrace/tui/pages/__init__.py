"""The viewer's screens beside the list of steps, one file each; text and facts only, no Textual."""

from spectrace.tui.pages.diff import DIFF
from spectrace.tui.pages.overview import OVERVIEW
from spectrace.tui.pages.page import Page, PageLine
from spectrace.tui.pages.requests import REQUESTS
from spectrace.tui.pages.step import STEP
from spectrace.tui.pages.taps import TAPS
from spectrace.tui.pages.tree import TREE
from spectrace.tui.pages.vocabulary import VOCABULARY

PAGES: tuple[Page, ...] = (OVERVIEW, STEP, TREE, TAPS, VOCABULARY, REQUESTS, DIFF)
"""Every page, in the order in which the help lists them."""

__all__ = ["PAGES", "Page", "PageLine"]

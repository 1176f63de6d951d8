"""The screens beside the list of steps, each as facts and lines; `screens/page.py` shows them."""

from spectrace.tui.pages.page import Page

PAGES: tuple[Page, ...] = ()

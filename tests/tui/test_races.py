"""What comes from the background when a screen is not there yet, or not any more; and what a fault leaves."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest

import spectrace
from spectrace.tui import minimap, viewer
from spectrace.tui.background import Outcome
from spectrace.tui.listed import Filter
from spectrace.tui.loader import Loader
from spectrace.tui.messages import DiagnosisMade, PageGathered, RequestsCounted, TaskAdvanced, TraceGrew
from spectrace.tui.needles import TextNeedle
from spectrace.tui.pages import PAGES
from spectrace.tui.screens.page import PageScreen
from tests.tui.driving import PLAIN, Driven, viewing
from tests.tui.ptys import Session
from tests.tui.traces import make_trace

NAMES = sorted(page.id for page in PAGES)


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace of three hundred steps."""
    return make_trace(tmp_path_factory.mktemp("traces") / "run.spectrace", 300)


async def _tell_all(driven: Driven) -> None:
    """Everything that the background tells, at once."""
    steps = driven.steps
    steps.on_diagnosis_made(DiagnosisMade(None, "a word of the background"))
    steps.on_requests_counted()
    steps.on_trace_grew()
    task = Filter(steps.loader, TextNeedle("req-003", steps.loader))
    steps.on_task_advanced(TaskAdvanced(task))
    steps.say("a word of the background")


@pytest.mark.parametrize("page", NAMES)
async def test_a_page_takes_what_is_told_before_it_is_composed(trace: Path, page: str) -> None:
    """Nothing fails, and the row and the word are there as soon as the page is."""
    async with viewing(trace) as driven:
        driven.app.open_page(page)
        assert not driven.app.screen.is_mounted
        await _tell_all(driven)
        driven.steps.jump_to(7, "a word of the background")
        await driven.settle()
        follows = driven.app.pages[page].follows_cursor
        assert ("step 7" in driven.lines[0], "a word of the background" in driven.text) == (follows, follows)


@pytest.mark.parametrize("page", NAMES)
async def test_a_page_that_was_left_takes_what_is_told(trace: Path, page: str) -> None:
    """It is on its way out, and Textual still hands it what was queued."""
    async with viewing(trace) as driven:
        driven.app.open_page(page)
        await driven.settle()
        left = driven.app.screen
        assert isinstance(left, PageScreen)
        driven.app.close_screen()
        left.on_page_gathered(PageGathered(0, Outcome(error="too late")))
        await _tell_all(driven)
        await driven.settle()
        assert driven.app.screen is driven.steps


async def test_threads_tell_an_app_that_has_ended(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reading that ends after the viewer did prints nothing and raises nothing."""
    gate = threading.Event()
    raised: list[object] = []
    monkeypatch.setattr(threading, "excepthook", lambda fault: raised.append(fault.exc_value))

    def waits(*_: object) -> None:
        gate.wait()

    with spectrace.open(trace) as opened:
        app = viewer.Viewer(Loader(opened), PLAIN)
        threads = []
        async with app.run_test() as pilot:
            await pilot.pause()
            monkeypatch.setattr(viewer, "find", waits)
            app.diagnose()
            threads.append(app._diagnosing._thread)
            for name in NAMES:
                monkeypatch.setattr(type(app.pages[name]), "gather", waits, raising=False)
                app.gathered.clear()
                app.open_page(name)
                await pilot.pause()
                # Left without being stopped, as at the end of the app.
                assert isinstance(app.screen, PageScreen)
                threads.append(app.screen.gathering._thread)
        gate.set()
        for thread in threads:
            assert thread is not None
            thread.join()
    assert raised == []


async def test_the_main_screen_takes_what_is_told_at_the_end(trace: Path) -> None:
    """The messages lie in its queue when the app closes it."""
    with spectrace.open(trace) as opened:
        app = viewer.Viewer(Loader(opened), PLAIN)
        async with app.run_test() as pilot:
            await pilot.pause()
            app.open_page("step")
            app.exit()
            for message in (TraceGrew(), RequestsCounted(), DiagnosisMade(None, "too late")):
                app.steps.post_message(message)
    assert app.fault == []


@pytest.mark.parametrize("more", [-7, 7])
def test_the_minimap_bears_a_trace_that_grows_meanwhile(
    trace: Path, monkeypatch: pytest.MonkeyPatch, more: int
) -> None:
    """A reading thread finds steps between two looks of the drawing one; those found first are drawn."""
    with spectrace.open(trace) as opened:
        loader, whole = Loader(opened), Loader(opened)
        weights, shares = minimap._weights, minimap.rejected_shares(whole, 80)

        def grows(_: Loader, total: int) -> Any:
            loader.total += more
            return weights(loader, total)

        monkeypatch.setattr(minimap, "_weights", grows)
        assert minimap.rejected_shares(loader, 80) == shares
        # The trace has them already, the loader has not been told.
        monkeypatch.setattr(minimap, "_weights", weights)
        loader.total = len(opened) - 7
        assert len(minimap.rejected_shares(loader, 80)) == 80


@pytest.mark.skipif(os.name != "posix", reason="needs a pseudo-terminal")
@pytest.mark.parametrize("options", [(), ("--stock-driver",)])
def test_a_fault_is_told_in_words_and_is_no_success(trace: Path, options: tuple[str, ...]) -> None:
    """The screen is given back, then what, where and what now; no text of the trace."""
    with Session(trace, "--faulty", *options, size=(300, 60)) as session:
        session.until("step 0/300", "── step 0 ")
        session.send("j")
        session.until("step 1/300", "── step 1 ")
        session.send("\x0c")
        assert session.wait() == 1
        told = session.output.rpartition("\x1b[?1004l")[2]
        assert "\x1b[?1049l" in session.output
        assert "please report it" in told
        assert "--plain" in told
        assert "ZeroDivisionError" in told
        assert "req-0" not in told
        assert "Traceback" not in told

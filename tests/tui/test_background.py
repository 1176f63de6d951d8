"""Work beside the viewer: what was stopped never speaks, however close the end of the work is."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from spectrace.tui import background
from spectrace.tui.background import Background, Outcome


class _SlowLook(threading.Event):
    """Between the look and what follows from it, somebody else gets a turn."""

    turn: Any = None

    def is_set(self) -> bool:
        """Looks, and lets the other one act."""
        found = super().is_set()
        if self.turn is not None:
            turn, self.turn = self.turn, None
            turn()
        return found


def test_an_outcome_is_never_told_behind_a_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped at the very moment at which the work is done, it has told before or it does not tell."""
    monkeypatch.setattr(background, "Event", _SlowLook)
    happened: list[str] = []
    one, begun, told = Background(), threading.Event(), threading.Event()

    def stop() -> None:
        one.stop()
        happened.append("stopped")

    stopper = threading.Thread(target=stop)

    def turn() -> None:
        stopper.start()
        stopper.join(0.2)  # it gets through where nothing keeps it

    def work(event: Any) -> None:
        event.turn = turn
        begun.wait()

    def tell(_outcome: Outcome) -> None:
        happened.append("told")
        told.set()

    one.start(work, tell)
    thread = one._thread
    assert thread is not None
    begun.set()
    thread.join()
    stopper.join()
    assert happened == ["told", "stopped"]


def test_new_work_is_waited_for_while_the_old_one_ends() -> None:
    """The end of unwanted work does not make the new work look done."""
    one, gate = Background(), threading.Event()
    told: list[Outcome] = []
    one.start(lambda _: gate.wait(), told.append)
    first = one._thread
    assert first is not None
    done = threading.Event()
    one.start(lambda _: done.wait(), told.append)
    gate.set()
    first.join()
    assert one.is_running
    second = one._thread
    assert second is not None
    done.set()
    second.join()
    assert [outcome.value for outcome in told] == [True]
    assert not one.is_running

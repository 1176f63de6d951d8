"""Where the lines of a serving recorder come out, and how they begin; needs no engine and no torch."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator

import pytest

from spectrace.errors import UsageError
from spectrace_serving import plugin

ENGINE = "an_engine"


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> logging.Logger:
    """Our logger in a process whose root has no handler, as a worker's."""
    logger = logging.Logger("spectrace")
    monkeypatch.setattr(plugin, "logger", logger)
    return logger


@pytest.fixture
def theirs() -> Iterator[io.StringIO]:
    """What an engine's own handler writes."""
    written, logger = io.StringIO(), logging.getLogger(ENGINE)
    handler = logging.StreamHandler(written)
    handler.setFormatter(logging.Formatter("(Worker pid=7) %(levelname)s %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield written
    logger.removeHandler(handler)


def test_lines_come_out_where_the_engines_do(alone: logging.Logger, theirs: io.StringIO) -> None:
    """With its level and its process, each once, however often the plugin asks."""
    for _ in range(2):
        plugin.speak_as(ENGINE)
    alone.info("spectrace: recording")
    assert theirs.getvalue() == "(Worker pid=7) INFO spectrace: recording\n"


def test_an_engine_without_a_handler_gets_whole_lines_too(
    alone: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    """Level, time and process, on the standard error."""
    plugin.speak_as("no_engine")
    alone.info("spectrace: recording")
    line = capsys.readouterr().err
    assert line.startswith("INFO ")
    assert " pid=" in line
    assert line.endswith(" spectrace: recording\n")


def test_a_log_that_somebody_set_up_is_left_alone(alone: logging.Logger, theirs: io.StringIO) -> None:
    """Their handler and their level stand."""
    own = io.StringIO()
    alone.addHandler(logging.StreamHandler(own))
    alone.setLevel(logging.ERROR)
    plugin.speak_as(ENGINE)
    alone.warning("quiet")
    alone.error("loud")
    assert (own.getvalue(), theirs.getvalue()) == ("loud\n", "")


def test_wrong_values_are_a_warning_that_says_all_of_them(
    alone: logging.Logger, theirs: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by grep for its level and for our name; there is nothing left that a doctor would add."""
    for name, value in (("OUT", "traces"), ("CAPTURE", "all"), ("SAMPLE", "2"), ("MAX_BYTES", "500M")):
        monkeypatch.setenv(f"SPECTRACE_{name}", value)
    plugin.guarded(ENGINE, plugin.begun, ENGINE, lambda settings: pytest.fail("recorded"))
    assert theirs.getvalue() == (
        "(Worker pid=7) WARNING spectrace: nothing is recorded: SPECTRACE_CAPTURE='all': say full or ids; "
        "SPECTRACE_SAMPLE='2': say 1/10 for every tenth request, or a share such as 0.1\n"
    )


@pytest.mark.parametrize(("error", "is_named"), [(UsageError("say 1/10"), False), (ValueError("7"), True)])
def test_the_doctor_is_named_where_it_knows_more(
    alone: logging.Logger, theirs: io.StringIO, error: Exception, is_named: bool
) -> None:
    """An error of ours says itself what to do; of an engine that has changed the doctor can tell."""

    def fails() -> None:
        raise error

    plugin.guarded(ENGINE, fails)
    assert ("try: spectrace doctor" in theirs.getvalue()) is is_named

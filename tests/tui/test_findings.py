"""From a finding to what shows it: the page, the step, the value that is wrong and what it should be."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tui.driving import viewing


@pytest.mark.parametrize(
    ("name", "title"),
    [("taps-normed", "Taps"), ("taps-shifted", "Taps"), ("map-as-direct", "Vocabulary")],
)
async def test_enter_on_a_finding_opens_the_page_that_shows_it(
    name: str, title: str, sample_traces: Path
) -> None:
    """The proof is not in the step: Enter goes to the page, which says so in its status."""
    async with viewing(sample_traces / f"eagle3-{name}.spectrace", size=(100, 40)) as driven:
        await driven.type("o")
        await driven.type("\r")
        assert driven.lines[0].startswith(f" {title}")
        assert "shows it" in driven.row_of(" line ")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("draft-kv-kept", "kv-state/not-trimmed: draft kv length 21, should be 18"),
        ("positions-shifted", "positions/shifted: draft positions 12 14 15 16, should be 12 13 14 15"),
    ],
)
async def test_what_is_wrong_stands_in_the_step(name: str, words: str, sample_traces: Path) -> None:
    """On the page of the step and in the pane below the list, with the value that there should be."""
    async with viewing(sample_traces / f"eagle3-{name}.spectrace", size=(120, 40)) as driven:
        await driven.type("o")
        await driven.type("\r")
        assert driven.lines[0].startswith(" Step · step ")
        assert f"! {words}" in driven.text
        await driven.type("q")
        assert f"! {words}" in driven.text


async def test_the_same_is_said_however_a_step_was_come_to(sample_traces: Path) -> None:
    """`)` and Enter on the finding: the place and the finding stand in the status row, at 80 columns too."""
    async with viewing(sample_traces / "eagle3-draft-kv-kept.spectrace") as driven:
        await driven.type(")")
        by_key = driven.row_of("step 2/20")
        await driven.type("0go")
        await driven.type("\r")
        await driven.type("q")
        assert driven.row_of("step 2/20") == by_key
        assert "kv-state/not-trimmed: s shows it" in by_key
        assert "token 3/4" in by_key


async def test_steps_that_a_finding_names_are_marked(sample_traces: Path) -> None:
    """As soon as a screen has asked for the findings; before that nothing is marked."""
    async with viewing(sample_traces / "eagle3-draft-kv-kept.spectrace", size=(120, 40)) as driven:
        assert " !  " not in driven.text
        await driven.type(")")
        marked = [line.split()[1].lstrip("!") for line in driven.lines if line[:2] in (" !", ">!")]
        assert [row for row in marked if row.isdecimal()] == ["2", "3", "4", "5", "6"]


async def test_a_filter_that_hides_the_witness_is_named(sample_traces: Path) -> None:
    """Another step is not shown in its place."""
    async with viewing(sample_traces / "eagle3-draft-kv-kept.spectrace", size=(120, 40)) as driven:
        await driven.type("&accepted == 4\ro")
        await driven.type("\r")
        assert "step 2 is not listed: u undoes the filter" in driven.text

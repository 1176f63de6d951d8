"""`spectrace doctor`: what each recorder would hook in the engines that are installed, and what does not fit.

Found by the entry points `spectrace.doctors`; each examines its own engine, and no engine is imported.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from importlib.metadata import entry_points
from typing import Any

import click

from spectrace.cli.arguments import json_option
from spectrace.cli.output import print_json, print_lines
from spectrace.format.text import visible

GROUP = "spectrace.doctors"


@click.command("doctor")
@json_option("what was found as one JSON object")
def command(as_json: bool) -> None:
    """Say what would be recorded here, what does not fit, and what to do.

    Every recorder that follows an engine from within compares the functions it hooks with those of the
    version that is installed. Nothing is started and no model is loaded. The exit code is 0 whatever the
    answer says; a script reads "fits" and "advice" of --json.
    """
    found = [_examined(entry) for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name)]
    if as_json:
        print_json({"recorders": found})
    else:
        print_lines(_lines(found))


def _examined(entry: Any) -> dict[str, Any]:
    """One recorder: ``engine``, ``version`` or None, ``hooks`` and ``advice``.

    Where all is well also ``records``: where to and what would be recorded; it may be None.

    Each hook has ``runner``, ``name``, ``needed``, ``fits`` and, where it does not fit, ``problem`` and
    ``loses``: what a trace lacks without it.
    """
    try:
        state: dict[str, Any] = entry.load()()
    except Exception as error:  # noqa: BLE001  an engine's broken installation is a finding
        advice = [f"the recorder cannot be loaded: {type(error).__name__}: {error}"]
        state = {"engine": entry.name, "version": None, "hooks": [], "advice": advice}
    return {"recorder": entry.name, **state}


def _lines(found: list[dict[str, Any]]) -> Iterator[str]:
    if not found:
        yield "no recorder that follows an engine from within is installed"
    # The environment is one for all.
    told = Counter(advice for state in found for advice in dict.fromkeys(state["advice"]))
    common = [advice for advice, times in told.items() if times > 1]
    for at, state in enumerate(found):
        if at:
            yield ""
        yield visible(f"{state['engine']} {state['version'] or ''}".rstrip())
        runners = dict.fromkeys(hook["runner"] for hook in state["hooks"])
        for runner in runners:
            yield from _runner_lines(runner, [h for h in state["hooks"] if h["runner"] == runner])
        for advice in state["advice"]:
            if advice not in common:
                yield f"  next: {visible(advice)}"
    wanted = dict.fromkeys(state["records"] for state in found if state.get("records"))
    last = [f"next: {visible(advice)}" for advice in common]
    last += [f"would record to {visible(records)}" for records in wanted]
    yield from ["", *last] if last else []


def _runner_lines(runner: str, hooks: list[Mapping[str, Any]]) -> Iterator[str]:
    """One runner: its hooks that fit in a line, each that does not in its own."""
    fitting = [visible(hook["name"]) for hook in hooks if hook["fits"]]
    if fitting:
        yield f"  {visible(runner)} fits: {', '.join(fitting)}"
    for hook in hooks:
        if not hook["fits"]:
            what = f"{hook['problem']}; without it a trace lacks {hook['loses']}"
            yield f"  {visible(runner)} does not fit: {visible(what)}"

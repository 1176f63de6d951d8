"""What the READMEs say of recording a server: its variables, commands, plugins and flags exist."""

from __future__ import annotations

import re
import shlex
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import spectrace
import spectrace_sglang.doctor
import spectrace_vllm.doctor
from spectrace.cli import COMMANDS
from spectrace.report.command import command_line
from spectrace_serving.settings import CAPTURE, MAX_BYTES, OUT, SAMPLE, from_environment
from tests.recorders.serving_traces import header

_ROOT = Path(__file__).parents[2]
_VLLM, _SGLANG = (_ROOT / f"recorders/spectrace_{name}/README.md" for name in ("vllm", "sglang"))
_VARIABLES = {OUT, CAPTURE, SAMPLE, MAX_BYTES}
_FLAGS = {"vllm": "vllm/engine/arg_utils.py", "sglang": "sglang/srt/arg_groups/field_order.py"}
"""Where an engine lists the flags of its server."""

_OF_THE_MACHINE = "--gpu-memory-utilization"
"""Bears on no step, and a trace does not keep it."""


def commands() -> list[list[str]]:
    """Every command of a shell block that records a server, in words."""
    found = []
    for path in (_ROOT / "README.md", _VLLM, _SGLANG):
        fenced = re.findall(r"^( *)```\w*\n(.*?)^\1```$", path.read_text(), re.MULTILINE | re.DOTALL)
        for block in (text.replace("\\\n", " ") for _, text in fenced if OUT in text):
            found += [words for line in block.splitlines() if (words := shlex.split(line, comments=True))]
    return found


def servers() -> list[tuple[str, list[str]]]:
    """Engine and command of each server that is started."""
    started = [words for words in commands() if words[0].startswith(OUT)]
    return [(words[words.index("-m") + 1].split(".")[0], words) for words in started]


def flags_of(words: list[str]) -> set[str]:
    """The options of a command."""
    return {word for word in words if word.startswith("--")}


def test_every_readme_starts_its_servers() -> None:
    """There is something to test: the front page and vLLM's, twice, start vLLM, SGLang's starts SGLang."""
    assert [engine for engine, _ in servers()] == ["vllm", "vllm", "vllm", "sglang"]


def test_variables_and_commands_exist() -> None:
    """Before a command stand variables that are read; what is installed, and what follows, is ours."""
    extras = (
        (_ROOT / "pyproject.toml").read_text().split("[project.optional-dependencies]")[1].split("\n[")[0]
    )
    ours = {name for group in COMMANDS.values() for name in group}
    for words in commands():
        if words[:2] == ["pip", "install"]:
            extra = re.fullmatch(r"spectrace-tui\[(\w+)\]", words[2])
            assert extra is not None
            assert re.search(rf"^{extra[1]} = ", extras, re.MULTILINE)
        elif words[0] == "spectrace":
            assert words[1] in ours
        elif words[0].startswith(("TARGET=", "DRAFT=")):
            assert re.search(r"import (target_path|eagle3_path); print\(\1\(\)\)\)$", " ".join(words))
        else:
            variable, _, value = words[0].partition("=")
            assert from_environment({variable: value}) is not None
            assert words[1:3] == ["python", "-m"]


@pytest.mark.parametrize(("engine", "words"), servers())
def test_a_server_is_started_as_a_report_would(engine: str, words: list[str]) -> None:
    """By the module and the flags that `spectrace report` gives for a trace of that engine."""
    given = [
        shlex.split(command_line(header(path)) or "")
        for path in sorted((_ROOT / "sample_traces").glob(f"{engine}*.spectrace"))
    ]
    assert given
    assert all(own[:4] == words[:4] for own in given)
    known = {flag for own in given for flag in flags_of(own)} | {_OF_THE_MACHINE}
    assert flags_of(words) <= known


@pytest.mark.parametrize(("engine", "words"), servers())
def test_the_engine_has_these_flags(engine: str, words: list[str]) -> None:
    """The module and each flag stand in the engine's source, where it is installed; it is not imported."""
    spec = find_spec(engine)
    if spec is None or spec.origin is None:
        pytest.skip(f"{engine} is not installed here")
    folder = Path(spec.origin).parents[1]
    assert folder.joinpath(*words[3].split(".")).with_suffix(".py").is_file()
    source = (folder / _FLAGS[engine]).read_text()
    for flag in flags_of(words):
        assert f'"{flag}"' in source or f'"{flag[2:].replace("-", "_")}"' in source, flag


def test_the_variables_are_those_that_are_read() -> None:
    """VLLM's README has a line for each, SGLang's names the same, and the recorders know no other."""
    assert set(re.findall(r"^\| `(SPECTRACE_\w+)` \|", _VLLM.read_text(), re.MULTILINE)) == _VARIABLES
    for path in (_VLLM, _SGLANG, *(_ROOT / "recorders/spectrace_serving").glob("*.py")):
        named = set(re.findall(r"\bSPECTRACE_[A-Z_]+", path.read_text()))
        assert named <= _VARIABLES, path
    assert set(re.findall(r"`(SPECTRACE_\w+)`", _SGLANG.read_text())) == _VARIABLES


@pytest.mark.parametrize("variable", [CAPTURE, SAMPLE, MAX_BYTES])
def test_every_value_of_the_table_is_taken(variable: str) -> None:
    """Each value in backticks means something, and not the same as saying nothing, but for the default."""
    (line,) = re.findall(rf"^\| `{variable}` \| (.*) \|$", _VLLM.read_text(), re.MULTILINE)
    found = [from_environment({OUT: "traces", variable: value}) for value in re.findall(r"`(\S+)`", line)]
    assert len(found) == len(set(map(repr, found))) == 2
    unset = from_environment({OUT: "traces"})
    assert [one == unset for one in found] == [variable == CAPTURE, False]


@pytest.mark.parametrize(
    ("path", "group", "doctor"),
    [
        (_VLLM, "vllm.general_plugins", spectrace_vllm.doctor),
        (_SGLANG, "sglang.srt.plugins", spectrace_sglang.doctor),
    ],
)
def test_the_plugin_has_the_name_that_a_list_of_plugins_needs(path: Path, group: str, doctor: Any) -> None:
    """The README's variable is the one that the doctor reads, and its name is that of the entry point."""
    ((variable, name),) = re.findall(r"Where `(\w+)` is set, `(\w+)` must be in it", path.read_text())
    assert variable == doctor.PLUGINS
    packaging = (_ROOT / "pyproject.toml").read_text()
    assert f'[project.entry-points."{group}"]\n{name} = "spectrace_' in packaging
    assert name == spectrace.__name__

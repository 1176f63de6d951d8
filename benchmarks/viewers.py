"""The programs that are measured side by side, and the keys that do the same in each of them.

`spectrace view` reads the trace, its peers the same steps as JSON lines; the floors need no file. Runs
nothing.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

FLOOR = Path(__file__).parent / "floor.py"
VIEW = (sys.executable, "-m", "spectrace", "view")


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A program, and what its screen shows when it has done something (regular expressions)."""

    name: str
    command: tuple[str, ...]
    ready: str
    """Rows that can be read."""
    loaded: str = ""
    """Every row can be gone to; "" = as soon as it is ready."""
    first_key: tuple[str, str]
    """A key that is pressed as soon as it is ready, and what shows that it was handled."""
    line: str = "j"
    page: str = "<PgDn>"
    start: tuple[str, str] = ("", "")
    """Goes to the first row."""
    end: tuple[str, str] = ("", "")
    """Goes to the last row."""
    has_cursor: bool = True
    """A line key moves a cursor; the page moves when it has come to its end."""
    before_search: tuple[str, ...] = ()
    search: tuple[str, str] = ("", "")
    """The last keys of a search for the needle, and what shows that it was found."""
    quiet: float = 0.15
    """Seconds without a byte after which a key is done with."""
    presses: int = 20
    """Of each key, in one round."""
    version_of: str = ""
    """Its distribution, or the option that prints its version."""

    @property
    def is_installed(self) -> bool:
        """Whether it can be started."""
        return shutil.which(self.command[0]) is not None

    @property
    def version(self) -> str:
        """Its name and version."""
        if not self.version_of:
            return self.name
        if not self.version_of.startswith("-"):
            return f"{self.name} {version(self.version_of)}"
        asked = subprocess.run(
            [self.command[0], self.version_of], capture_output=True, text=True, check=False
        )
        number = re.search(r"\d+(\.\d+)*", asked.stdout + asked.stderr)
        return f"{self.name} {number[0]}" if number else self.name


def spectrace_view(path: Path, name: str, rows: int) -> Program:
    """The viewer on a trace."""
    last = rf"^ step {rows - 1:,}/"
    return Program(
        name=name,
        command=(*VIEW, str(path)),
        ready="req-0000000",
        first_key=("G", last),
        start=("g", "^ step 0/"),
        end=("G", last),
        search=("/needle<Enter>", r"^ step \S+/.*/needle: 1 of"),
        version_of="spectrace-tui",
    )


def peers(lines: Path, rows: int, fewer_lines: Path, fewer: int) -> list[Program]:
    """The peers, on the same steps as JSON lines.

    Args:
        lines: the steps.
        rows: number of the steps.
        fewer_lines: the first tenth of them, for the keys of a program that takes a minute to load all.
        fewer: number of those.
    """
    first, last = '"row":0,', f'"row":{rows - 1}'
    found = f'"row":{needle_row(rows)},'
    return [
        Program(
            name="less",
            command=("less", "-n", "-S", str(lines)),
            ready=first,
            first_key=("G", last),
            start=("g", first),
            end=("G", last),
            has_cursor=False,
            search=("/needle<Enter>", found),
            version_of="--version",
        ),
        Program(
            name="lnav",
            command=("lnav", str(lines)),
            ready=r'\A(?![\s\S]*Loading)[\s\S]*"row":',
            first_key=("g", first),
            start=("g", first),
            end=("G", last),
            has_cursor=False,
            search=("/needle<Enter>", "1 hits for"),
            quiet=0.2,
            version_of="-V",
        ),
        visidata(fewer_lines, "visidata", fewer),
        Program(
            name="toolong",
            command=("tl", str(lines)),
            ready='"row":',
            loaded=r'\A(?![\s\S]*Scanning)[\s\S]*"row"',
            first_key=("<Home>", first),
            start=("<Home>", first),
            end=("<End>", last),
            has_cursor=False,
            before_search=("/", "needle"),
            search=("<Down>", found),
            quiet=0.3,
            presses=5,
            version_of="--version",
        ),
    ]


def visidata(lines: Path, name: str, rows: int) -> Program:
    """VisiData, whose search looks through one column."""
    return Program(
        name=name,
        command=("vd", str(lines)),
        ready="req-00",
        loaded=rf"\A(?![\s\S]*reading…)[\s\S]* {rows}\b",
        first_key=("G", r"\A(?![\s\S]*\n *0 +#)[\s\S]*req-"),
        start=("gg", "^ *0 "),
        end=("G", "go-bottom"),
        before_search=("gg", "l"),
        search=("/needle<Enter>", "req-needle"),
        quiet=0.6,
        presses=4,
        version_of="--version",
    )


def floors() -> list[Program]:
    """What every Textual program costs."""
    command = (sys.executable, str(FLOOR))
    return [
        Program(
            name="Textual lines",
            command=(*command, "lines"),
            ready="req-0000000",
            first_key=("G", "^ *999999 req"),
            start=("g", "^ *0 req"),
            end=("G", "^ *999999 req"),
        ),
        Program(
            name="Textual hello",
            command=(*command, "hello"),
            ready="hello world",
            first_key=("j", "handled"),
            presses=0,
        ),
    ]


def needle_row(rows: int) -> int:
    """Row of the needle, at nine tenths."""
    return rows * 9 // 10

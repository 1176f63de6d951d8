"""Nothing a trace says acts, whatever field it stands in: not on a terminal, in Markdown or in a browser."""

from __future__ import annotations

import json
import re
import unicodedata
import zipfile
from html.parser import HTMLParser
from pathlib import Path

import pytest

from spectrace.cli import main
from tests.report.nasty import NASTY, nasty_trace


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


HIDDEN = frozenset(("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"))
ELEMENTS = _words(
    "html head meta title style body h1 h2 p ul li div table tr th td meter pre figure figcaption svg g path "
    "defs rect text use clippath tspan"
)
ATTRIBUTES = _words(
    "lang charset http-equiv content name class min max value id d style x y width height viewbox xmlns "
    "xmlns:xlink xlink:href role aria-label transform clip-path type"
)


@pytest.fixture(scope="module", params=sorted(NASTY))
def trace(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace that holds one nasty text everywhere."""
    return nasty_trace(tmp_path_factory.mktemp("nasty") / "run.spectrace", NASTY[request.param])


@pytest.fixture(autouse=True)
def _no_plots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave plots out: they are drawn of numbers alone, and drawing costs most of the time."""
    monkeypatch.setattr("spectrace.cli.report.plots", lambda report: [])


def is_plain(text: str) -> bool:
    """Whether a text holds nothing that a terminal or an editor acts on, newlines apart."""
    return not any(unicodedata.category(char) in HIDDEN for char in text if char != "\n")


def run(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[str, str]:
    """Output of a command that must succeed."""
    assert main([str(argument) for argument in arguments]) == 0
    captured = capsys.readouterr()
    return captured.out, captured.err


@pytest.mark.parametrize("command", ["stats", "steps", "diagnose", "stats --by request"])
def test_commands_print_plain_text(trace: Path, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What the reading commands print holds no control, format or bidi character, and no line of its own."""
    out, err = run(capsys, *command.split(), trace)
    assert is_plain(out)
    assert is_plain(err)
    assert max(map(len, out.splitlines())) < 10_000


@pytest.mark.parametrize("include", [(), ("--include", "text", "--include", "paths")])
def test_markdown_reads_as_text(
    trace: Path, include: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The report fits an issue; outside code there is no HTML, link, mention or heading of the trace."""
    out = tmp_path / "r.md"
    run(capsys, "report", trace, "-o", out, *include)
    text = out.read_bytes().decode()
    assert len(text) < 65_536
    assert is_plain(text)
    assert [line for line in text.splitlines() if line.startswith("#")] == [
        line for line in text.splitlines() if re.fullmatch(r"#{1,2} [A-Z][a-z ]+", line)
    ]
    bare = without_code(text)
    assert not re.search(r"[<>\[\]@$\\]|://|www\.|:\w+:|(?<!#)#\d|javascript|&", bare.replace("\\|", "")), (
        bare
    )


def without_code(text: str) -> str:
    """Markdown without its fences and code spans, as CommonMark finds them."""
    lines, is_code = [], False
    for line in text.splitlines():
        if line.startswith("```"):
            is_code = not is_code
        elif not is_code:
            lines.append(re.sub(r"(?<!`)(`+)(?!`)(.*?)(?<!`)\1(?!`)", "", line))
    assert not is_code
    return "\n".join(lines)


def test_tables_keep_their_columns(trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No text ends a cell or a row: every row of a table has the cells of its heads."""
    out = tmp_path / "r.md"
    run(capsys, "report", trace, "-o", out, "--include", "text", "--include", "paths")
    width = None
    for line in out.read_text().splitlines():
        if not line.startswith("|"):
            width = None
            continue
        cells = len(re.findall(r"(?<!\\)(?:\\\\)*\|", line))
        assert width in (None, cells), line
        width = cells


class Page(HTMLParser):
    """What a browser would find in a page."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: set[str] = set()
        self.attributes: set[str] = set()
        self.values: list[str] = []
        self.comments = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Notes an element."""
        self.elements.add(tag)
        for name, value in attrs:
            self.attributes.add(name)
            self.values.append(value or "")

    def handle_comment(self, data: str) -> None:
        """Notes a comment."""
        self.comments += 1


@pytest.mark.parametrize("include", [(), ("--include", "text", "--include", "paths")])
def test_pages_hold_known_elements_only(
    trace: Path, include: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The HTML report has no element and no attribute but its own, no script, and loads nothing."""
    out = tmp_path / "r.html"
    run(capsys, "report", trace, "-o", out, *include)
    text = out.read_text()
    page = Page()
    page.feed(text)
    page.close()
    assert page.elements <= ELEMENTS
    assert page.attributes <= ATTRIBUTES
    assert not page.comments
    assert not [
        v for v in page.values if "javascript" in v.lower() or re.match(r"(https?:)?//(?!www\.w3\.org)", v)
    ]
    assert text.count("</html>") == text.count("</body>") == 1
    assert is_plain(text)


def test_the_manifest_is_plain_json(trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What a pack says of itself is ASCII, whatever the trace says, and what pack prints is plain."""
    out, err = run(capsys, "pack", trace, "-o", tmp_path / "a.zip", "--include", "text", "--include", "paths")
    assert is_plain(out)
    assert is_plain(err)
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        assert json.loads(archive.read("manifest.json").decode("ascii"))["steps"] == 8
        assert is_plain(archive.read("environment.txt").decode())
    out, err = run(capsys, "pack", trace, "--dry-run")
    assert is_plain(out)
    assert is_plain(err)

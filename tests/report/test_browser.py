"""The page as a browser sees it: it opens from the disk, fits a phone and a screen, light and dark."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from spectrace.cli import main
from tests.report.nasty import NASTY, nasty_trace

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")

HARNESS = """<!doctype html><pre id="out"></pre><script>
const found = [];
const looks = PAGES.flatMap((page) => [360, 1280].map((width) => [page, width]));
function look(at) {
  if (at === looks.length) { document.getElementById("out").textContent = JSON.stringify(found); return; }
  const frame = document.createElement("iframe");
  frame.style.cssText = `border:0;height:800px;width:${looks[at][1]}px`;
  frame.onload = () => {
    const page = frame.contentDocument, root = page.documentElement;
    found.push({
      page: looks[at][0], letters: Math.min(
        ...[...page.querySelectorAll("svg text")].map((e) => e.getBoundingClientRect().height)),
      width: root.clientWidth, wide: root.scrollWidth, back: getComputedStyle(page.body).backgroundColor,
      scripts: page.scripts.length, plots: page.querySelectorAll("svg").length, title: page.title,
      loaded: frame.contentWindow.performance.getEntriesByType("resource").length,
      handlers: [...page.querySelectorAll("*")].filter(
        (e) => [...e.attributes].some((a) => a.name.startsWith("on"))).length,
    });
    frame.remove();
    look(at + 1);
  };
  frame.src = looks[at][0];
  document.body.append(frame);
}
look(0);
</script>"""


def seen(pages: list[Path], folder: Path, *options: str) -> list[dict[str, Any]]:
    """What each page of a folder is like at 360 and at 1280 pixels."""
    assert CHROMIUM is not None
    (folder / "harness.html").write_text(HARNESS.replace("PAGES", json.dumps([page.name for page in pages])))
    done = subprocess.run(
        [
            CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
            "--allow-file-access-from-files",
            f"--user-data-dir={folder / 'profile'}", "--virtual-time-budget=20000", *options, "--dump-dom",
            f"file://{folder / 'harness.html'}",
        ],
        capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip
    text = re.search(r'<pre id="out">(.*?)</pre>', done.stdout, re.DOTALL)
    assert text, done.stdout[-500:]
    found: list[dict[str, Any]] = json.loads(text.group(1))
    return found


@pytest.mark.parametrize(
    ("options", "back"),
    [((), "rgb(255, 255, 255)"), (("--blink-settings=preferredColorScheme=0",), "rgb(13, 17, 23)")],
)
def test_the_page_fits_phone_and_screen(
    sample_traces: Path, tmp_path: Path, options: tuple[str, ...], back: str
) -> None:
    """At 360 and 1280 pixels nothing sticks out, no script runs, nothing is loaded, and dark is dark."""
    pytest.importorskip("matplotlib")
    page = tmp_path / "page.html"
    assert main(["report", str(sample_traces / "eagle3-taps-shifted.spectrace"), "-o", str(page)]) == 0
    for look, width in zip(seen([page], tmp_path, *options), (360, 1280), strict=True):
        assert look["width"] == width
        assert look["wide"] <= width
        assert look["back"] == back
        assert (look["scripts"], look["loaded"], look["handlers"]) == (0, 0, 0)
        assert look["plots"] == 3


@pytest.mark.parametrize("name", ["script", "close", "style", "long", "image"])
def test_a_hostile_page_is_still_a_page(name: str, tmp_path: Path) -> None:
    """Texts that want to be elements stay text in a real browser, and do not stretch the page."""
    trace = nasty_trace(tmp_path / "run.spectrace", NASTY[name])
    page = tmp_path / "page.html"
    assert main(["report", str(trace), "-o", str(page), "--include", "text", "--include", "paths"]) == 0
    for look in seen([page], tmp_path):
        assert look["wide"] <= look["width"]
        assert (look["scripts"], look["loaded"], look["handlers"]) == (0, 0, 0)
        assert look["title"] == "Speculative decoding report"
        assert look["back"] == "rgb(255, 255, 255)"


def test_every_sample_fits_a_phone(sample_traces: Path, tmp_path: Path) -> None:
    """Reports of every sample and of imported counts are as wide as the device, their plots legible."""
    pytest.importorskip("matplotlib")
    imported = tmp_path / "imported.spectrace"
    counts = Path(__file__).parents[1] / "data/imports/vllm-summary.jsonl"
    assert main(["import", str(counts), "-o", str(imported)]) == 0
    traces = [imported, *sorted(sample_traces.glob("*.spectrace"))]
    pages = [tmp_path / f"{trace.stem}.html" for trace in traces]
    for trace, page in zip(traces, pages, strict=True):
        assert main(["report", str(trace), "-o", str(page)]) == 0
    looks = seen(pages, tmp_path)
    assert [look["page"] for look in looks[::2]] == [page.name for page in pages]
    assert [look["page"] for look in looks if look["wide"] > look["width"]] == []
    assert [look["page"] for look in looks if look["plots"] and look["letters"] < 8] == []

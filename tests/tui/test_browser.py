"""The viewer in a real browser: served on the loopback interface, drawn there, and obeying its keys."""

from __future__ import annotations

import asyncio
import base64
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import spectrace
from tests.tui.ptys import PATIENCE
from tests.tui.served import free_port, reached, received

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
TRACE = Path(spectrace.__file__).parent.parent / "sample_traces" / "eagle3-taps-normed.spectrace"

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")


class Browser:
    """Chromium, by its debugging protocol.

    Args:
        socket: the connection to one page.
    """

    def __init__(self, socket: Any) -> None:
        self._socket = socket
        self._number = 0
        self.shown = ""
        """Everything that the page was sent to draw."""

    async def send(self, method: str, **parameters: Any) -> None:
        """Sends a command."""
        self._number += 1
        await self._socket.send_json({"id": self._number, "method": method, "params": parameters})

    async def until(self, words: str) -> None:
        """Waits until the page was sent some words."""
        while words not in self.shown:
            message = await asyncio.wait_for(self._socket.receive_json(), PATIENCE)
            if message.get("method") == "Network.webSocketFrameReceived":
                frame = message["params"]["response"]
                data = frame["payloadData"]
                text = base64.b64decode(data).decode(errors="replace") if frame["opcode"] == 2 else data
                self.shown += text


async def _connected(session: Any, port: int) -> Any:
    """The debugging connection to the first page, as soon as there is one."""
    for _ in range(int(PATIENCE * 10)):
        try:
            async with session.get(f"http://127.0.0.1:{port}/json") as answer:
                pages = [page for page in await answer.json() if page["type"] == "page"]
                if pages:
                    return await session.ws_connect(pages[0]["webSocketDebuggerUrl"], max_msg_size=0)
        except OSError:
            pass
        await asyncio.sleep(0.1)
    raise AssertionError("chromium did not come up")


async def test_a_browser_shows_the_viewer_and_its_keys_act(tmp_path: Path) -> None:
    """The page draws the first rejection; `o` typed by another reader opens the overview with the cause."""
    aiohttp = pytest.importorskip("aiohttp")
    pytest.importorskip("textual_serve")
    port, debugging = free_port(), free_port()
    serve = [sys.executable, "-m", "spectrace", "view", str(TRACE), "--first", "--serve", "--port", str(port)]
    browse = [
        str(CHROMIUM),
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        f"--remote-debugging-port={debugging}",
        f"--user-data-dir={tmp_path}",
        "about:blank",
    ]
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    server, chromium = subprocess.Popen(serve, **quiet), subprocess.Popen(browse, **quiet)  # type: ignore[call-overload]
    try:
        async with aiohttp.ClientSession() as session:
            await reached(session, port)
            browser = Browser(await _connected(session, debugging))
            await browser.send("Network.enable")
            await browser.send("Page.navigate", url=f"http://127.0.0.1:{port}/")
            await browser.until("step 1/")
            # A second reader beside the first, who types.
            typist = await session.ws_connect(f"http://127.0.0.1:{port}/ws?width=100&height=30")
            await received(typist, "step 1/")
            await typist.send_json(["stdin", "o"])
            await received(typist, "tap-form/norm")
    finally:
        for process in (chromium, server):
            process.terminate()
            process.wait()

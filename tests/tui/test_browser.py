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
from tests.tui.served import free_port, reached

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
        """Sends a command and waits for its answer."""
        self._number += 1
        await self._socket.send_json({"id": self._number, "method": method, "params": parameters})
        while (await self._received()).get("id") != self._number:
            pass

    async def type(self, key: str) -> None:
        """Presses a letter where the page has the focus; a headless page is given it first."""
        await self.send("Emulation.setFocusEmulationEnabled", enabled=True)
        await self.send(
            "Runtime.evaluate", expression="document.querySelector('.xterm-helper-textarea').focus()"
        )
        await self.send(
            "Input.dispatchKeyEvent",
            type="keyDown",
            key=key,
            text=key,
            windowsVirtualKeyCode=ord(key.upper()),
        )
        await self.send(
            "Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=ord(key.upper())
        )

    async def until(self, words: str) -> None:
        """Waits until the page was sent some words."""
        while words not in self.shown:
            await self._received()

    async def _received(self) -> dict[str, Any]:
        """The next message; what it says the page was sent is kept."""
        message: dict[str, Any] = await asyncio.wait_for(self._socket.receive_json(), PATIENCE)
        if message.get("method") == "Network.webSocketFrameReceived":
            frame = message["params"]["response"]
            data = frame["payloadData"]
            self.shown += base64.b64decode(data).decode(errors="replace") if frame["opcode"] == 2 else data
        return message


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
    """The page draws the first rejection; `o`, pressed there, opens the overview with the cause."""
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
            await browser.type("o")
            await browser.until("tap-form/norm")
    finally:
        for process in (chromium, server):
            process.terminate()
            process.wait()

"""A served viewer as its readers' connections see it."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

from tests.tui.ptys import PATIENCE


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def reached(session: Any, port: int) -> None:
    """Waits until a server answers."""
    for _ in range(int(PATIENCE * 10)):
        try:
            async with session.get(f"http://127.0.0.1:{port}/"):
                return
        except OSError:
            await asyncio.sleep(0.1)
    raise AssertionError("the server did not come up")


async def received(connection: Any, words: str) -> None:
    """Waits until a connection was sent some words."""
    shown = b""
    while words.encode() not in shown:
        message = await asyncio.wait_for(connection.receive(), PATIENCE)
        shown += message.data if isinstance(message.data, bytes) else b""

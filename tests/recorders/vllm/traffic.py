"""What clients ask a server for, and what they got: at once, in pieces, hanging up. Judges nothing.

    python -m tests.recorders.vllm.traffic MODELS FOLDER

leaves the trace of a short life of a server, which is stopped while a client still reads.
"""

from __future__ import annotations

import http.client
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.recorders.vllm.server import Server

_BROKEN = (OSError, http.client.HTTPException)
"""How a connection ends whose server is gone."""


@dataclass(kw_only=True)
class Answer:
    """What one client got."""

    token_ids: list[int] = field(default_factory=list)
    finish_reason: str | None = None
    accepted: list[int] = field(default_factory=list)
    """By vLLM's own account, per step with a proposal."""
    drafted: list[int] = field(default_factory=list)

    def add(self, reply: Mapping[str, Any]) -> None:
        """Takes in a reply, or a piece of one."""
        for choice in reply["choices"]:
            self.token_ids += choice.get("token_ids") or []
            self.finish_reason = choice.get("finish_reason") or self.finish_reason
        speculative = (reply.get("metrics") or {}).get("speculative_decoding")
        if speculative:
            self.accepted = speculative["per_step_accepted"] or []
            self.drafted = speculative["per_step_drafted"] or []


@dataclass(frozen=True, kw_only=True)
class _Ask:
    prompt: int
    repeats: int = 1
    """How often the prompt is written in a row, to make it long."""
    is_streamed: bool = False
    sampling: Mapping[str, Any]


ASKS: Mapping[str, _Ask] = {
    "short": _Ask(prompt=0, sampling={"max_tokens": 5}),
    "middle": _Ask(prompt=1, sampling={"max_tokens": 17}),
    "usual": _Ask(prompt=2, sampling={"max_tokens": 32}),
    "one": _Ask(prompt=3, sampling={"max_tokens": 1}),
    "long": _Ask(prompt=4, repeats=8, sampling={"max_tokens": 30}),
    "to-the-end": _Ask(prompt=5, sampling={"max_tokens": 160}),
    "pieces": _Ask(prompt=0, is_streamed=True, sampling={"max_tokens": 33}),
    "long-pieces": _Ask(prompt=1, repeats=8, is_streamed=True, sampling={"max_tokens": 22}),
    "same-prompt": _Ask(prompt=2, sampling={"max_tokens": 32}),
    "beyond": _Ask(prompt=3, is_streamed=True, sampling={"max_tokens": 160, "ignore_eos": True}),
}
"""Asked all at once, more than the engine takes in at a time."""


def ask_all(server: Server, names: Sequence[str] = tuple(ASKS)) -> dict[str, Answer]:
    """Requests of `ASKS`, each from a client of its own."""
    with ThreadPoolExecutor(len(names)) as clients:
        return dict(zip(names, clients.map(lambda name: _ask(server, name), names), strict=True))


def ask_until_idle(server: Server) -> dict[str, Answer]:
    """Requests of one token until nothing else runs: an idle engine does not say that it is."""
    answers: dict[str, Answer] = {}
    while server.num_running() or not answers:
        answer = Answer()
        answer.add(server.complete(f"idle{len(answers)}", _prompts()[0], max_tokens=1))
        answers[f"idle{len(answers)}"] = answer
    return answers


def _ask(server: Server, name: str) -> Answer:
    ask, answer = ASKS[name], Answer()
    prompt = " ".join([_prompts()[ask.prompt]] * ask.repeats)
    if not ask.is_streamed:
        answer.add(server.complete(name, prompt, **ask.sampling))
        return answer
    for piece in server.stream(name, prompt, stream_options={"include_usage": True}, **ask.sampling):
        answer.add(piece)
    return answer


class Listener:
    """A client that reads the first pieces of a long text.

    Args:
        server: whom it asks.
        name: of the request.
    """

    def __init__(self, server: Server, name: str) -> None:
        self.answer = Answer()
        self._pieces: Iterator[dict[str, Any]] = server.stream(
            name, _prompts()[1], max_tokens=200, ignore_eos=True
        )
        while len(self.answer.token_ids) < 8:
            self.answer.add(next(self._pieces))

    def hang_up(self) -> None:
        """Closes the connection."""
        self._pieces.close()  # type: ignore[attr-defined]

    def read_on(self) -> None:
        """Reads until the end, or until the server is gone."""
        with suppress(*_BROKEN):
            for piece in self._pieces:
                self.answer.add(piece)


def _prompts() -> list[str]:
    from spectrace_demo import prompts

    return list(prompts())


def main(models: Path, folder: Path) -> None:
    """A short life of a server."""
    with Server(models, folder) as server:
        ask_all(server, ("short", "middle", "usual", "long", "pieces"))
        Listener(server, "hung-up").hang_up()
        ask_until_idle(server)
        last = Listener(server, "cut-off")
        server.terminate()
        last.hang_up()
        server.wait()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))

"""vLLM's API server as its users start it, and a client that asks it over HTTP.

Imports no engine, judges nothing.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.recorders.vllm.scenarios import K

ROOT = Path(__file__).parents[3]
NAME = "tiny"
"""Of the model, as the server knows it."""
_PATIENCE = 900
"""Seconds until a server that has not answered is given up."""
_ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "VLLM_CPU_CI_ENV": "1",
    "VLLM_NO_USAGE_STATS": "1",
}


class Server:
    """A server with the bundled EAGLE-3 pair, recorded; front end, engine core and worker are processes.

    Args:
        models: folder of the exported models.
        folder: for the trace and the log.
        environment: more variables.
        arguments: more arguments of the command.
    """

    def __init__(
        self,
        models: Path,
        folder: Path,
        *,
        environment: Mapping[str, str] | None = None,
        arguments: Sequence[str] = (),
    ) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        self.port = _free_port()
        self._log = (folder / "server.log").open("wb")
        self._process = subprocess.Popen(
            [*_command(models, self.port), *arguments],
            stdout=self._log,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # so that all of its processes can be killed at once
            env={**os.environ, **_ENVIRONMENT, "SPECTRACE_OUT": str(folder), **(environment or {})},
        )

    def __enter__(self) -> Server:
        """Waits until it answers."""
        deadline = time.monotonic() + _PATIENCE
        try:
            while not self._answers():
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError((self.folder / "server.log").read_text(errors="replace")[-4000:])
                time.sleep(0.5)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leaves no process behind."""
        self.kill()
        self._log.close()

    def _answers(self) -> bool:
        try:
            with self._ask("GET", "/health") as response:
                return response.status == 200
        except OSError:
            return False

    # --- ends ---

    def terminate(self) -> None:
        """SIGTERM to the front end, as `kill` or a container's stop sends it."""
        self._process.send_signal(signal.SIGTERM)

    def wait(self) -> None:
        """Waits for the end of the front end, which waits for its clients to hang up."""
        self._process.wait(_PATIENCE)

    def kill(self) -> None:
        """SIGKILL to all of its processes; a second call does nothing."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(_PATIENCE)

    # --- requests ---

    def complete(self, name: str, prompt: str, **sampling: Any) -> dict[str, Any]:
        """A completion in one piece, as the server answers it.

        Args:
            name: of the request; vLLM makes ``cmpl-NAME-0`` of it.
            prompt: text.
            sampling: differs from greedy.
        """
        with self._completion(name, prompt, sampling) as response:
            found: dict[str, Any] = json.load(response)
        return found

    def stream(self, name: str, prompt: str, **sampling: Any) -> Iterator[dict[str, Any]]:
        """A completion in pieces; a caller that stops reading hangs up."""
        with self._completion(name, prompt, {**sampling, "stream": True}) as response:
            for line in response:
                if line.startswith(b"data: {"):
                    yield json.loads(line[6:])

    def counters(self) -> dict[str, float]:
        """Of speculative decoding, by their Prometheus names; per position as ``accepted@0``.

        Waits until nothing runs: a client may have its answer before vLLM has counted it.
        """
        while self.num_running():
            time.sleep(0.05)
        pattern = r'^vllm:spec_decode_num_(\w+?)_total\{(?:.*?position="(\d+)")?.*\} (\S+)$'
        found = re.findall(pattern, self._metrics(), re.MULTILINE)
        return {f"{name}@{at}" if at else name: float(value) for name, at, value in found}

    def num_running(self) -> float:
        """Requests in the engine."""
        text = self._metrics()
        return sum(
            float(n) for n in re.findall(r"^vllm:num_requests_running\{.*\} (\S+)$", text, re.MULTILINE)
        )

    def _metrics(self) -> str:
        with self._ask("GET", "/metrics") as response:
            text: str = response.read().decode()
        return text

    def _completion(self, name: str, prompt: str, sampling: Mapping[str, Any]) -> http.client.HTTPResponse:
        body = {"model": NAME, "prompt": prompt, "temperature": 0.0, "return_token_ids": True, **sampling}
        response = self._ask("POST", "/v1/completions", json.dumps(body), {"X-Request-Id": name})
        if response.status != 200:
            with response:
                raise RuntimeError(response.read().decode(errors="replace"))
        return response

    def _ask(
        self, method: str, path: str, body: str | None = None, headers: Mapping[str, str] | None = None
    ) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_PATIENCE)
        usual = {"Content-Type": "application/json", "Connection": "close"}
        connection.request(method, path, body, {**usual, **(headers or {})})
        return connection.getresponse()


def _command(models: Path, port: int) -> list[str]:
    speculative = {"method": "eagle3", "model": str(models / "eagle3"), "num_speculative_tokens": K}
    settings: dict[str, Any] = {
        "model": models / "target",
        "served-model-name": NAME,
        "host": "127.0.0.1",
        "port": port,
        "dtype": "float32",
        "max-model-len": 256,
        "max-num-seqs": 8,
        # Fewer than the longest prompt has: it is read in chunks.
        "max-num-batched-tokens": 64,
        "kv-cache-memory-bytes": 64 << 20,
        "seed": 0,
        "per-request-spec-decode-metrics": "detailed",
        "speculative-config": json.dumps(speculative),
    }
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server"]
    for name, value in settings.items():
        command += [f"--{name}", str(value)]
    return [*command, "--enforce-eager", "--no-enable-prefix-caching"]


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port

"""Writing a trace: `TraceWriter`, which a recorder calls from the engine's thread.

The calls only copy and append to a queue: no lock, no system call, no checksum, no exception. One daemon
thread takes the queue every few milliseconds, packs and appends. What cannot be written is counted and
declared in the file.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from spectrace.errors import RecorderError, UsageError
from spectrace.format.headers import run_mapping
from spectrace.format.items import MAX_STEPS, Batch, Deferred, Item, num_steps
from spectrace.format.packer import Packer
from spectrace.format.records import Run

logger = logging.getLogger("spectrace")

MAX_INTERVAL = 86_400
"""Longest time between two writes, seconds."""
QUEUE_LIMIT = 65_536
"""Most steps, and most other records, that may wait for the writing thread; further ones are lost."""
PATIENCE_SECONDS = 10.0
"""How long `close` waits for one call of the file system; then the disk is taken to be gone."""
ITEMS_AT_ONCE = 4096
"""Most calls packed in one go."""


class TraceWriter:
    """Writes one trace file.

    Args:
        path: file to create; an existing one is refused.
        run: the header, as `Run` or as the JSON object of the same names.
        flush_interval: seconds between two writes; what a killed process loses at most.
        max_bytes: flight recorder: keep the newest steps within this many bytes, in ``path`` and the
            older half in ``path`` + ``.1``.
        token_text: called as ``token_text("target" | "draft", id)`` on the writing thread for every id
            that occurs for the first time; what it returns is stored as the token's text.
        strict: raise the first fault at `close` instead of logging it.

    Raises:
        RecorderError: the file cannot be created.
        UsageError: an argument is out of range.

    After construction only ``close`` of a strict writer raises.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        run: Run | Mapping[str, Any],
        *,
        flush_interval: float = 0.01,
        max_bytes: int | None = None,
        token_text: Callable[[str, int], str | None] | None = None,
        strict: bool = False,
    ) -> None:
        if not 0 < flush_interval <= MAX_INTERVAL:
            raise UsageError(f"flush_interval must be seconds from 0 to {MAX_INTERVAL}")
        self.path = Path(path)
        self.strict = strict
        self.failed: str | None = None
        """The first fault met, as a sentence; None while all is well."""
        self.started_ns = time.monotonic_ns()
        """Monotonic clock at the start of recording; `started_ns` of steps counts from here."""
        self._interval = flush_interval
        self._queue: deque[Item | Batch] = deque()
        # Each is written by one side only, so that neither needs a lock.
        self._lost = self._malformed = self._dropped = 0
        self._declared = {"queue full": 0, "malformed": 0}
        self._given_rows = 0
        self._taken_rows = 0
        self._busy = False
        self._closing = False
        self._last: Callable[[], None] = lambda: None
        """What the writing thread does at its end."""
        self._is_detached = False
        # Held; letting go of it wakes the writing thread before its interval is over.
        self._nap = threading.Lock()
        self._nap.acquire()
        header = run_mapping(run)
        self.created = str(header.setdefault("created", _utc_now()))
        """ISO 8601, as the header says: tells this recording from another of the same name."""
        self._packer = Packer(self.path, header, self._fault, max_bytes=max_bytes, token_text=token_text)
        self._thread = threading.Thread(target=self._work, name="spectrace-writer", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:  # too many threads, or the interpreter is on its way out
            self._packer.abandon()
            raise RecorderError(f"{self.path}: recording needs a thread: {error}") from None
        _writers.add(self)

    # --- called on the engine's thread ---

    def step(self, given: Mapping[str, Any] | Callable[[], Any] | None = None, /, **fields: Any) -> None:
        """Adds one step.

        Args:
            given: the step's fields, or a function that returns them (or None) and is called on the
                writing thread, where it may wait for a device. The mapping is copied, lists in it are not.
            fields: fields, when ``given`` is not used.
        """
        if isinstance(given, dict):
            given = given.copy()
        self._put(Item("step", fields if given is None else given))

    def steps(
        self,
        num_rows: int,
        arrays: Mapping[str, Any] | Callable[[], Deferred],
    ) -> bool:
        """Adds B steps from arrays, which are copied.

        Args:
            num_rows: B.
            arrays: by field or ``field.key``, see `spectrace.format.shredding.from_arrays`; or a function
                that returns (B, arrays), a list of such groups, or None, and is called on the writing
                thread, where it may wait for a device. ``num_rows`` then only says how many steps are lost
                if it fails.

        Returns:
            False when the steps were counted as lost, so that ``arrays`` will not be called.
        """
        copies: list[Any] = []
        ndarray = np.ndarray
        try:
            if type(num_rows) is not int or not 0 <= num_rows <= MAX_STEPS:
                num_rows = num_steps(num_rows)
            if callable(arrays):
                return self._put(Batch(num_rows, arrays))
            # One loop without a call into Python: at small B this is what `steps` costs.
            for value in arrays.values():
                if type(value) is ndarray:
                    copies.append(value.tobytes())
                elif type(value) is tuple:
                    copies.append([p.tobytes() if type(p) is ndarray else list(p) for p in value])
                else:
                    copies.append(list(value))
            batch = Batch(num_rows, dict(arrays), copies)
        except Exception as error:  # noqa: BLE001  the engine's run is worth more than these steps
            self._fault(f"steps were not recorded: {type(error).__name__}: {error}")
            self._malformed += num_rows if type(num_rows) is int and 0 < num_rows <= MAX_STEPS else 1
            return False
        return self._put(batch)

    def request(self, request: str, /, **fields: Any) -> None:
        """Describes a request; its steps may come before or after."""
        self._put(Item("request", {"request": request, **fields}))

    def amend(self, **fields: Any) -> None:
        """Overrides header facts that are known only now, key by key."""
        self._put(Item("amend", fields))

    def tokens(
        self, *, target: Mapping[int, str] | None = None, draft: Mapping[int, str] | None = None
    ) -> None:
        """Gives token texts."""
        self._put(Item("tokens", {"target": target, "draft": draft}))

    def reference(
        self, *, boundary: int, rows: Sequence[Mapping[str, Any]], request: str | None = None
    ) -> None:
        """Gives the fingerprints of one boundary of one reference forward, over the prompt of a request."""
        whose = {} if request is None else {"request": request}
        self._put(Item("reference", {**whose, "boundary": boundary, "rows": rows}))

    def gap(self, *, lost: int, reason: str) -> None:
        """Declares steps that were offered and not recorded."""
        self._put(Item("gap", {"lost": lost, "reason": reason}))

    def lose(self, num_rows: int) -> None:
        """Counts steps as lost for which a recorder has no room while the writing thread is behind."""
        self._lost += num_rows

    def _put(self, item: Item | Batch) -> bool:
        if self._closing:
            return False
        rows = item.num_rows
        if self._given_rows - self._taken_rows > QUEUE_LIMIT:
            self._lost += rows
            return False
        if not rows and len(self._queue) > QUEUE_LIMIT:
            self._dropped += 1
            return False
        if rows:  # the writing thread puts amendments, and no rows: this number has one side
            self._given_rows += rows
        self._queue.append(item)
        return True

    # --- called by whoever owns the writer ---

    def flush(self, timeout: float = 5.0) -> bool:
        """Waits until everything given so far is in the file; False when it is not in time."""
        deadline = time.monotonic() + timeout
        self._wake()
        while (self._queue or self._busy) and time.monotonic() < deadline:
            if not self._thread.is_alive():
                break
            time.sleep(min(self._interval, 0.002))
        return not self._queue and not self._busy

    def close(self, end: Mapping[str, Any] | None = None) -> None:
        """Writes what is left, the index and the end record; a second call does nothing.

        Args:
            end: the end record's fields; totals are filled in when it is not given.

        Raises:
            RecorderError: a strict writer met a fault.
        """
        if self._closing:
            return
        self._stop(lambda: self._packer.close(end))
        if self.strict and self.failed is not None:
            raise RecorderError(self.failed)

    def abandon(self) -> None:
        """Closes the file and removes it: nothing worth keeping was written."""
        if not self._closing:
            self._stop(self._packer.abandon)

    def _stop(self, last: Callable[[], None]) -> None:
        """Ends the writing thread, which does one thing more; leaves it where the disk never answers."""
        self._last = last
        self._closing = True
        self._wake()
        while self._thread.is_alive():
            self._thread.join(PATIENCE_SECONDS / 10)
            if self._packer.seconds_in_call > PATIENCE_SECONDS:
                self._fault(
                    f"the disk has not answered for {PATIENCE_SECONDS:g} s; "
                    "the trace was not closed and its last steps are lost"
                )
                return

    def _detach(self) -> None:
        self._closing = self._is_detached = True
        self._packer.detach()

    def _wake(self) -> None:
        with suppress(RuntimeError):  # it is awake
            self._nap.release()

    def __enter__(self) -> TraceWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # --- the writing thread ---

    def _fault(self, sentence: str) -> None:
        if self.failed is None:
            self.failed = f"{self.path}: {sentence}"
            logger.warning("%s", self.failed)

    def _work(self) -> None:
        while True:
            closing = self._closing
            self._busy = True
            is_more_waiting, taken = False, self._taken_rows
            try:
                is_more_waiting = self._drain()
            except BaseException as error:  # noqa: BLE001  even an exit: the next steps are recorded
                self._fault(f"{type(error).__name__} on the writing thread; some steps are not in the trace")
                self._malformed += self._taken_rows - taken
            self._busy = False
            if closing and not self._queue:
                break
            if not closing and not is_more_waiting:
                self._nap.acquire(timeout=self._interval)
        try:
            self._last()
        except Exception as error:  # noqa: BLE001  the engine's run is worth more than our end record
            self._fault(f"the trace was not closed: {type(error).__name__}: {error}")

    def _drain(self) -> bool:
        """Writes what waits; True when it was too much for one go."""
        items: list[Item | Batch] = []
        while self._queue and len(items) < ITEMS_AT_ONCE:
            items.append(self._queue.popleft())
        is_full = len(items) == ITEMS_AT_ONCE
        self._taken_rows += sum(item.num_rows for item in items)
        items += self._undeclared()
        if items:
            self._packer.write(items)
        else:
            self._packer.idle()
        return is_full

    def _undeclared(self) -> list[Item | Batch]:
        """What the engine's side lost since the last look, to be declared in the file."""
        given = {"queue full": self._lost, "malformed": self._malformed}
        new = {reason: number - self._declared[reason] for reason, number in given.items()}
        self._declared = given
        if self._dropped:
            self._fault("requests or header facts were not recorded: queue full")
        return [Item("gap", {"lost": n, "reason": reason}) for reason, n in new.items() if n]


_writers: weakref.WeakSet[TraceWriter] = weakref.WeakSet()
"""Every writer of this process."""


def _silence_in_child() -> None:
    """In a forked child the writers are silent: their threads and files belong to the parent."""
    for writer in list(_writers):
        writer._detach()


def _close_at_exit() -> None:
    """Whoever forgot to close has their last steps written all the same."""
    for writer in list(_writers):
        with suppress(RecorderError):  # a strict one has logged it
            writer.close()


atexit.register(_close_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_silence_in_child)


def _utc_now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")

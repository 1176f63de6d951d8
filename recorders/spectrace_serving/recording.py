"""What the recordings of serving engines share: the file, the queue to it, requests, and hooks that come off.

Everything on the engine's thread is guarded: a hook that fails is silent from then on, and serving goes on.
Knows no engine's class; what is hooked, and which events come of it, is the engine's own.
"""

from __future__ import annotations

import atexit
import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import torch

from spectrace.errors import RecorderError
from spectrace.format.packer import MAX_TEXT
from spectrace.format.writer import TraceWriter
from spectrace_serving.facts import Facts
from spectrace_serving.guard import Guard, free_name
from spectrace_serving.join import Joiner
from spectrace_serving.outbox import Outbox
from spectrace_serving.reduction import Fingerprints
from spectrace_serving.requests import Finished, Started
from spectrace_serving.settings import MAX_BYTES, Settings
from spectrace_transformers.facts import ids_digest
from spectrace_transformers.reduction import Array, Workspace
from spectrace_transformers.token_text import Vocabulary

logger = logging.getLogger("spectrace")

FLUSH_INTERVAL = 0.1
"""Seconds between two writes. Packing costs per write rather than per step and holds the interpreter's lock,
for which the engine waits: with steps of 12 ms it costs half of what it does at 0.01."""
BACKLOG_BYTES = 256 << 20
"""What may wait for the writing thread, bytes: while a disk stalls, of further events ids alone are kept, and
once these take as much, the recording ends. On a CPU whole rows of logits wait."""

_UNSTORABLE = "requests are not recorded whose names are too long, or no Unicode text"


def read_vocabulary(tokenizer: Callable[[], Any]) -> Vocabulary | None:
    """The target's tokens; None where its tokenizer is not on this machine.

    Args:
        tokenizer: gives it, or None.
    """
    try:
        found = tokenizer()
        return None if found is None else Vocabulary(found)
    except Exception as error:  # noqa: BLE001  a trace without texts is a trace
        logger.warning("spectrace: token texts are not recorded: %s: %s", type(error).__name__, error)
        return None


def open_trace(
    engine: str, settings: Settings, header: Facts, vocabulary: Vocabulary | None, target_ids: Array | None
) -> TraceWriter:
    """Creates the file of a recording.

    Args:
        engine: after which it is named.
        settings: where it goes.
        header: what is known before the first request.
        vocabulary: the target's tokens; None for no texts.
        target_ids: [draft_vocab_size] target id of each raw id; None where both vocabularies are one.

    Raises:
        SpectraceError: it cannot be created.
    """
    path, told = free_name(settings.out, engine), header.get("engine", {})
    asked = {**told, "flags": {**told.get("flags", {}), **settings.asked()}}
    try:
        return TraceWriter(
            path,
            {**header, "engine": asked},
            flush_interval=FLUSH_INTERVAL,
            max_bytes=settings.max_bytes,
            token_text=None if vocabulary is None else partial(_token_text, vocabulary, target_ids),
        )
    except RecorderError as error:  # which knows the writer's argument, and no variable
        raise RecorderError(str(error).replace(": max_bytes must", f": {MAX_BYTES} must")) from None


def _token_text(vocabulary: Vocabulary, target_ids: Array | None, space: str, token_id: int) -> str | None:
    """Text of a token; a raw id has that of the target id it stands for."""
    if space == "draft" and target_ids is not None:
        if not 0 <= token_id < len(target_ids):
            return None
        token_id = int(target_ids[token_id])
    return vocabulary.text(token_id)


def is_storable(name: str) -> bool:
    r"""Whether a trace can hold the name of a request, which a client may choose.

    >>> is_storable("cmpl-1"), is_storable("\ud800"), is_storable("x" * 70_000)
    (True, False, False)
    """
    return len(name) <= MAX_TEXT and not any("\ud800" <= character <= "\udfff" for character in name)


class ServingRecording:
    """One engine's recording, from the moment its models are loaded.

    Args:
        settings: what to record.
        header: what the trace says so far.
        writer: of the trace.
        joiner: makes steps of events, on the writer's thread.
        device: where the engine runs.
    """

    def __init__(
        self,
        settings: Settings,
        header: Facts,
        writer: TraceWriter,
        joiner: Joiner[Any],
        device: torch.device,
    ) -> None:
        self.writer = writer
        self.joiner = joiner
        self.guard = Guard(writer)
        self.is_full = settings.is_full
        self.engine_step = -1
        self.workspace = Workspace()
        """Memory for rows of logits, kept from step to step."""
        self.fingerprints = Fingerprints(device)
        if joiner.rules.boundaries is not None:
            self.fingerprints.prepare(header["target"]["hidden_size"])
        self.undo: list[Callable[[], None]] = []
        """What takes the hooks off; the last comes first."""
        self._device = device
        self._settings = settings
        self._num_requests = 0
        self._is_rule_known = "rule" in header["verification"]
        self._rules: list[Facts] = []
        self._told: set[str] = set()
        self._is_thin = False
        """Of an event since the last verification, ids alone were kept."""
        self._thin_bytes = 0
        """What such events take, since there was last room for a whole one."""
        self._ended: str | None = None
        """Why the recording ended before the engine did."""
        atexit.register(self.close)
        logger.info("spectrace: recording to %s (%s)", writer.path, settings.sentence)

    def wrap(self, holder: Any, name: str, make: Callable[[Any], Callable[..., Any]]) -> None:
        """Replaces a function on one object until the recording ends."""
        own = name in vars(holder)
        original = getattr(holder, name)
        setattr(holder, name, make(original))
        self.undo.append(lambda: setattr(holder, name, original) if own else delattr(holder, name))

    def close(self) -> None:
        """Takes the hooks off and ends the trace; a second call does nothing."""
        self._take_off()
        atexit.unregister(self.close)
        self.joiner.put(Finished(()))  # lets go of steps that are held back
        self.writer.steps(0, self.joiner.take)
        if self._ended is not None:
            self._say_ended()
        if not self.writer.flush():
            logger.warning("spectrace: %s: not everything was written in time", self.writer.path)
        self.writer.close()

    def _take_off(self) -> None:
        """Takes the hooks off; one that does not come off keeps no other, and no file."""
        while self.undo:
            undo = self.undo.pop()
            try:
                undo()
            except Exception as error:  # noqa: BLE001  the engine's run is worth more than our trace
                logger.warning("spectrace: a hook stays: %s: %s", type(error).__name__, error)

    # --- requests ---

    def chooses(self, name: str) -> bool:
        """Whether the next request is recorded: one whose name no trace can hold is not."""
        self._num_requests += 1
        if not is_storable(name):
            if _UNSTORABLE not in self._told:  # a client may send a thousand of them
                self._told.add(_UNSTORABLE)
                logger.warning("spectrace: %s", _UNSTORABLE)
            return False
        return self._settings.takes(self._num_requests - 1, name)

    def admit(
        self,
        started: Started,
        prompt: Sequence[int] | None,
        external_id: str | None,
        sampling: Facts,
        rule: Facts,
    ) -> None:
        """A request that is recorded has come.

        Args:
            started: what its steps need of it.
            prompt: its tokens, where it has some.
            external_id: its name as its caller knows it, where that is another.
            sampling: how its tokens are picked.
            rule: how its draft tokens are judged: rule, lossless and parameters.
        """
        self.joiner.put(started)
        fields: dict[str, Any] = {} if external_id is None else {"external_id": external_id}
        if prompt is not None:
            fields |= {"prompt_ids": list(prompt), "prompt_digest": ids_digest(prompt)}
        self.writer.request(started.request, **fields)
        self._tell_rule(sampling, rule)

    def _tell_rule(self, sampling: Facts, rule: Facts) -> None:
        """Adds how tokens are picked, from the first request; says so where requests differ."""
        if rule in self._rules:
            return
        is_first = not self._rules
        self._rules.append(rule)
        facts = {"sampling": sampling if is_first else {"processors": ["differ by request"]}}
        if not self._is_rule_known:
            lossless = all(one["lossless"] for one in self._rules)
            facts["verification"] = rule if is_first else {"rule": "other", "lossless": lossless}
        self.writer.amend(**facts)

    # --- events ---

    def outbox(self) -> Outbox:
        """A new one, for one event."""
        return Outbox(self._device, self.guard)

    def loses(self, num_rows: int, pack: Outbox) -> bool:
        """Whether there is no room for a batch's steps: they are counted as lost, and ids alone are kept.

        Asked before the event is put, since the writer's thread looks into it from then on.

        Args:
            num_rows: B.
            pack: of the verification, not yet sent.
        """
        if self._is_thin or self._is_behind:
            self.writer.lose(num_rows)
        elif self.writer.steps(num_rows, self.joiner.take):
            self._thin_bytes = 0
            return False
        self._thin(pack)
        self._is_thin = False
        return True

    def thin(self, pack: Outbox) -> None:
        """Where too much waits, keeps the ids alone of what a hook hands over, and loses the steps after it.

        Args:
            pack: of a proposal, or a part of one, not yet sent.
        """
        if self._is_behind:
            self._thin(pack)

    @property
    def _is_behind(self) -> bool:
        return self.joiner.num_bytes > BACKLOG_BYTES

    def _thin(self, pack: Outbox) -> None:
        pack.drop()
        self._is_thin = True
        self._thin_bytes += pack.num_bytes

    def put(self, event: Any) -> None:
        """Hands over an event, and has the writer's thread look for finished steps."""
        self.joiner.put(event)
        if not self._thin_bytes:  # what is lost is found by whoever looks for later steps
            self.writer.steps(0, self.joiner.take)
        elif self._thin_bytes > BACKLOG_BYTES and self._ended is None:
            self._ended = (
                "recording ended: the disk does not answer, and what waits for it took too much memory"
            )
            logger.warning("spectrace: %s: %s; serving goes on", self.writer.path, self._ended)
            self._take_off()
            self._say_ended()

    def _say_ended(self) -> None:
        self.writer.amend(capture={"unavailable": {"steps": self._ended}})

    def lacks(self, fields: Iterable[str], reason: str, **capture: str) -> None:
        """Adds why fields are missing; a reason that was given already is not given again.

        Args:
            fields: names of a trace.
            reason: as the header has it.
            capture: what else this says about the capture.
        """
        if reason not in self._told:
            self._told.add(reason)
            self.writer.amend(capture={**capture, "unavailable": dict.fromkeys(fields, reason)})

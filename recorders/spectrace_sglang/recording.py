"""One scheduler's recording: settings, writer, the requests that are sampled, and what a broken hook costs.

The rounds are followed by follow.py, which reports here in common words. Everything on the engine's thread is
guarded: a hook that fails is silent from then on, and serving goes on.
"""

from __future__ import annotations

import atexit
import logging
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from spectrace.format.writer import TraceWriter
from spectrace_serving.facts import raw_table
from spectrace_serving.guard import Guard, free_name
from spectrace_serving.outbox import Outbox
from spectrace_serving.reduction import Fingerprints
from spectrace_serving.requests import Finished
from spectrace_serving.settings import Settings
from spectrace_sglang.admission import is_greedy, sampling_facts, started_request
from spectrace_sglang.captures import Seeded, Verified
from spectrace_sglang.engine import Engine
from spectrace_sglang.facts import DRAFT_VALUES, request_rule, run_facts
from spectrace_sglang.follow import Follower
from spectrace_sglang.hooks import FIX
from spectrace_sglang.join import Joiner
from spectrace_sglang.steps import Rules
from spectrace_transformers.facts import ids_digest
from spectrace_transformers.reduction import Workspace
from spectrace_transformers.token_text import Vocabulary

logger = logging.getLogger("spectrace")

_TAKES = 4
"""Groups of steps that one round makes at most: see join.py."""


def attach(scheduler: Any, settings: Settings, problems: Sequence[str]) -> Recording | None:
    """Begins a recording of a scheduler whose models are loaded.

    Args:
        scheduler: SGLang's.
        settings: what to record, and where.
        problems: what does not fit in this version, as sentences.

    Returns:
        The recording; None on a rank that has nothing to say, and without speculation.

    Raises:
        SpectraceError: the file cannot be created.
    """
    if getattr(scheduler, "draft_worker", None) is None:
        logger.info("sglang: nothing is recorded: this scheduler does not speculate")
        return None
    if not _speaks():
        return None
    return Recording(Engine(scheduler), settings, problems)


def _speaks() -> bool:
    """Whether this rank decides for its requests: the first of its tensor-parallel group."""
    try:
        from sglang.srt.runtime_context import get_parallel

        return int(get_parallel().attn_tp_rank) == 0
    except (ImportError, AttributeError, TypeError, AssertionError):
        return True


class Recording:
    """What the follower reports to.

    Args:
        engine: what is recorded.
        settings: what to record, and where.
        problems: what does not fit, as sentences.
    """

    def __init__(self, engine: Engine, settings: Settings, problems: Sequence[str]) -> None:
        self.engine = engine
        self.is_full = settings.is_full
        self.engine_step = -1
        self._settings = settings
        self._undo: list[Callable[[], None]] = []
        self._num_requests = 0
        self._requests: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
        """Requests that the scheduler holds, and the name of each in the trace; empty where it has none."""
        self._rules: list[dict[str, Any]] = []
        self._vocabulary = _vocabulary(engine)
        lost = {f"hook {number}": f"{what}; {FIX}" for number, what in enumerate(problems)}
        header = run_facts(engine, self._vocabulary, lost)
        self._target_ids = engine.target_ids
        vocab_size = header["target"]["vocab_size"]
        self.raw_of = raw_table(self._target_ids, vocab_size, engine.device)
        """[V] raw id of each target id, on the device."""
        self.writer = TraceWriter(
            free_name(settings.out, "sglang"),
            header,
            max_bytes=settings.max_bytes,
            token_text=self._token_text if self._vocabulary is not None else None,
        )
        self.guard = Guard("sglang", self.writer)
        self._joiner = Joiner(
            Rules(
                started_ns=self.writer.started_ns,
                boundaries=engine.boundaries,
                raw_ids=self.raw_of.cpu().numpy() if self._tells_raw_ids() else None,
                is_simulated=engine.is_simulated,
            )
        )
        self.workspace = Workspace()
        """Memory for rows of logits, kept from step to step."""
        self.fingerprints = Fingerprints(engine.device)
        if engine.boundaries is not None:
            self.fingerprints.prepare(header["target"]["hidden_size"])
        self._has_told_graph = False
        self.follower = Follower(self)
        atexit.register(self.close)
        logger.info("sglang: recording to %s", self.writer.path)

    def _tells_raw_ids(self) -> bool:
        """Whether a target id has one raw id by the engine's map."""
        if self.engine.draft is None:
            return False
        targets = self._target_ids
        return targets is None or len(np.unique(targets)) == len(targets)

    # --- attaching ---

    def wrap(self, holder: Any, name: str, make: Callable[[Any], Callable[..., Any]]) -> None:
        """Replaces a function on one object until the recording ends."""
        own = name in vars(holder)
        original = getattr(holder, name)
        setattr(holder, name, make(original))
        self._undo.append(lambda: setattr(holder, name, original) if own else delattr(holder, name))

    def outbox(self) -> Outbox:
        """A new one, for one event."""
        return Outbox(self.engine.device, self.guard)

    def close(self) -> None:
        """Takes the hooks off and ends the trace; a second call does nothing."""
        self.follower.stop()
        while self._undo:
            self._undo.pop()()
        atexit.unregister(self.close)
        if not self.writer.flush():
            logger.warning("sglang: %s: not everything was written in time", self.writer.path)
        self.writer.close()

    # --- what the follower reports ---

    def begins(self, requests: Sequence[Any], prefix_lengths: Sequence[int] | None = None) -> bool:
        """A forward of the target is about to run.

        Args:
            requests: [B] SGLang's.
            prefix_lengths: [B] tokens found in a cache, of a forward over prompts.

        Returns:
            Whether one of them is recorded.
        """
        self.engine_step += 1
        for at, request in enumerate(requests):
            if request not in self._requests:
                self._admit(request, 0 if prefix_lengths is None else int(prefix_lengths[at]))
        return self.follows(requests)

    def follows(self, requests: Sequence[Any]) -> bool:
        """Whether one of some requests is recorded."""
        return any(self._requests.get(request) for request in requests)

    def names(self, requests: Sequence[Any]) -> list[str]:
        """[B] names in the trace, empty for those that are not recorded."""
        return [self._requests.get(request, "") for request in requests]

    def _admit(self, request: Any, prefix_length: int) -> None:
        """A request is seen for the first time."""
        name = self._free_name(str(request.rid))
        is_taken = self._settings.takes(self._num_requests, name)
        self._num_requests += 1
        self._requests[request] = name if is_taken else ""
        if not is_taken:
            return
        always = self.engine.is_always_greedy
        self._joiner.put(started_request(request, name, prefix_length, is_always_greedy=always))
        # SGLang says nowhere that it has let go of a request: it is over when the object is gone.
        weakref.finalize(request, self._joiner.put, Finished([name])).atexit = False
        prompt = list(request.origin_input_ids)
        known = {} if name == str(request.rid) else {"external_id": str(request.rid)}
        self.writer.request(name, prompt_ids=prompt, prompt_digest=ids_digest(prompt), **known)
        self._tell_rule(request.sampling_params)

    def _free_name(self, name: str) -> str:
        """A name that no request has which the scheduler still holds: callers may use one again."""
        held = set(self._requests.values())
        names = (name, *(f"{name}#{number}" for number in range(2, 1000)))
        return next((free for free in names if free not in held), f"{name}#{self._num_requests}")

    def _tell_rule(self, sampling: Any) -> None:
        """Adds how tokens are picked, from the first request; says so where requests differ."""
        rule = request_rule(self.engine, is_greedy(sampling))
        if rule in self._rules:
            return
        self._rules.append(rule)
        is_first = len(self._rules) == 1
        facts: dict[str, Any] = {"sampling": sampling_facts(sampling)}
        if not is_first:
            facts = {"sampling": {"processors": ["differ by request"]}}
        if not self.engine.is_simulated:
            lossless = all(one["lossless"] for one in self._rules)
            facts["verification"] = rule if is_first else {"rule": "other", "lossless": lossless}
        self.writer.amend(**facts)

    def verified(self, event: Verified) -> None:
        """A batch was verified, or prompts were read."""
        self._joiner.put(event)
        event.is_lost = not self.writer.steps(len(event.requests), self._joiner.take)
        for _ in range(_TAKES - 1):
            self.writer.steps(0, self._joiner.take)

    def seeded(self, event: Seeded) -> None:
        """The first choices for the next proposal are known."""
        self._joiner.put(event)

    def tell_graph(self) -> None:
        """The draft ran, and nothing of it passed the hooks: a graph was replayed."""
        if self._has_told_graph or self.engine.setting("disable_cuda_graph"):
            return
        self._has_told_graph = True
        reason = "graph capture hides the draft's forwards; --disable-cuda-graph shows them"
        unavailable = dict.fromkeys(DRAFT_VALUES, reason)
        if not self._tells_raw_ids():
            unavailable["draft_ids"] = reason
        self.writer.amend(capture={"mode": "graph", "unavailable": unavailable})

    def _token_text(self, space: str, token_id: int) -> str | None:
        """Text of a token; a raw id has that of the target id it stands for."""
        assert self._vocabulary is not None
        if space == "draft" and self._target_ids is not None:
            if not 0 <= token_id < len(self._target_ids):
                return None
            token_id = int(self._target_ids[token_id])
        return self._vocabulary.text(token_id)


def _vocabulary(engine: Engine) -> Vocabulary | None:
    """The target's tokens, if the scheduler has its tokenizer."""
    if engine.tokenizer is None:
        return None
    try:
        return Vocabulary(engine.tokenizer)
    except Exception as error:  # noqa: BLE001  a trace without texts is a trace
        logger.warning("sglang: token texts are not recorded: %s: %s", type(error).__name__, error)
        return None

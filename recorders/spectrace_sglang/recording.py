"""One scheduler's recording: what its rounds report, in common words, becomes events.

The rounds are followed by follow.py and propose.py, which report here.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Sequence
from typing import Any

from spectrace.errors import UnsupportedEngine
from spectrace_serving.facts import raw_table
from spectrace_serving.header import DRAFT_VALUES, misfits
from spectrace_serving.recording import ServingRecording, open_trace, read_vocabulary
from spectrace_serving.requests import Finished
from spectrace_serving.settings import Settings
from spectrace_sglang.admission import is_greedy, sampling_facts, started_request
from spectrace_sglang.engine import Engine
from spectrace_sglang.facts import request_rule, run_facts
from spectrace_sglang.follow import Follower
from spectrace_sglang.hooks import FIX
from spectrace_sglang.join import TreeJoiner
from spectrace_sglang.steps import TreeRules

logger = logging.getLogger("spectrace")

_UNFOLLOWED = ("DFLASH", "DSPARK")
"""Algorithms that decide in functions of their own: of them a trace would hold the prompts alone."""
_GRAPH = "graph capture hides the draft's forwards; --disable-cuda-graph shows them"


def attach(scheduler: Any, settings: Settings, problems: Sequence[str]) -> Recording | None:
    """Begins a recording of a scheduler whose models are loaded.

    Args:
        scheduler: SGLang's.
        settings: what to record, and where.
        problems: what does not fit in this version, as sentences.

    Returns:
        The recording; None on a rank that has nothing to say, and without speculation.

    Raises:
        SpectraceError: the file cannot be created, or this way of speculating is not followed.
    """
    if getattr(scheduler, "draft_worker", None) is None:
        logger.info("spectrace: nothing is recorded: this scheduler does not speculate")
        return None
    if not speaks():
        return None
    engine = Engine(scheduler)
    if engine.algorithm in _UNFOLLOWED:
        raise UnsupportedEngine("sglang", f"{engine.algorithm} verifies in functions that are not hooked")
    return Recording(engine, settings, problems)


def speaks() -> bool:
    """Whether this rank decides for its requests: the first of its tensor-parallel group."""
    try:
        from sglang.srt.runtime_context import get_parallel

        return int(get_parallel().attn_tp_rank) == 0
    except (ImportError, AttributeError, TypeError, AssertionError):
        return True


class Recording(ServingRecording):
    """What the follower reports to.

    Args:
        engine: what is recorded.
        settings: what to record, and where.
        problems: what does not fit, as sentences.
    """

    def __init__(self, engine: Engine, settings: Settings, problems: Sequence[str]) -> None:
        vocabulary = read_vocabulary(lambda: engine.tokenizer)
        header = run_facts(engine, vocabulary, misfits(problems, FIX), settings.is_full)
        self.raw_of = raw_table(engine.target_ids, header["target"]["vocab_size"], engine.device)
        """[V] raw id of each target id, on the device."""
        writer = open_trace("sglang", settings, header, vocabulary, engine.target_ids)
        rules = TreeRules(
            started_ns=writer.started_ns,
            boundaries=engine.boundaries,
            raw_ids=self.raw_of.cpu().numpy() if engine.tells_raw_ids else None,
            is_simulated=engine.is_simulated,
        )
        super().__init__(settings, header, writer, TreeJoiner(rules), engine.device)
        self.engine = engine
        self._requests: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
        """Requests that the scheduler holds, and the name of each in the trace; empty where it has none."""
        ids, *values = DRAFT_VALUES
        self._hidden = values if engine.tells_raw_ids else [*values, ids]
        """What a graph hides: raw ids only where the map does not give them back."""
        try:
            self.follower = Follower(self)
        except BaseException:
            self.close()
            raise
        self.undo.append(self.follower.stop)

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
        is_taken = self.chooses(name)
        self._requests[request] = name if is_taken else ""
        if not is_taken:
            return
        # SGLang says nowhere that it has let go of a request: it is over when the object is gone.
        weakref.finalize(request, self.joiner.put, Finished([name])).atexit = False
        sampling = request.sampling_params
        self.admit(
            started_request(request, name, prefix_length, is_always_greedy=self.engine.is_always_greedy),
            request.origin_input_ids,
            None if name == str(request.rid) else str(request.rid),
            sampling_facts(sampling),
            request_rule(self.engine, is_greedy(sampling)),
        )

    def _free_name(self, name: str) -> str:
        """A name that no request has which the scheduler still holds: callers may use one again."""
        held = set(self._requests.values())
        names = (name, *(f"{name}#{number}" for number in range(2, 1000)))
        return next((free for free in names if free not in held), f"{name}#{self._num_requests}")

    def tell_graph(self) -> None:
        """The draft ran, and nothing of it passed the hooks: a graph was replayed."""
        if not self.engine.setting("disable_cuda_graph"):
            self.lacks(self._hidden, _GRAPH, mode="graph")

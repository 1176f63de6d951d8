"""One worker's recording: settings, writer, the requests that are sampled, and what a broken hook costs.

The two model runners are followed by v1.py and v2.py, which report here in common words. Everything on the
engine's thread is guarded: a hook that fails is silent from then on, and serving goes on.
"""

from __future__ import annotations

import atexit
import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from spectrace.errors import UnsupportedEngine
from spectrace.format.writer import TraceWriter
from spectrace_serving.clock import Moment, now
from spectrace_serving.facts import raw_table
from spectrace_serving.guard import Guard, free_name
from spectrace_serving.outbox import Outbox
from spectrace_serving.reduction import Fingerprints, kept_rows, on_device
from spectrace_serving.requests import Finished
from spectrace_serving.rows import Taps
from spectrace_serving.settings import Settings
from spectrace_transformers.facts import ids_digest
from spectrace_transformers.reduction import Array, Workspace
from spectrace_transformers.token_text import Vocabulary
from spectrace_vllm.admission import external_name, sampling_facts, started_request
from spectrace_vllm.captures import Proposed, Verified
from spectrace_vllm.engine import Engine
from spectrace_vllm.facts import request_rule, run_facts
from spectrace_vllm.hooks import FIX, KINDS, V2, find_kind, object_misfits
from spectrace_vllm.join import Joiner
from spectrace_vllm.steps import Rules
from spectrace_vllm.watch import DraftWatch

logger = logging.getLogger("spectrace")

_TAKES = 3
"""Groups of steps that one engine step makes at most, nearly always: see join.py."""


def attach(worker: Any, settings: Settings) -> Recording | None:
    """Begins a recording of a worker whose models are loaded.

    Args:
        worker: vLLM's, with a model runner.
        settings: what to record, and where.

    Returns:
        The recording; None on a rank that has nothing to say.

    Raises:
        SpectraceError: the engine does not fit, or the file cannot be created.
    """
    if not _speaks(worker):
        return None
    runner = worker.model_runner
    kind, problems = find_kind(runner)
    if kind is None:
        raise UnsupportedEngine("vllm", f"{'; '.join(problems)}; {FIX}")
    from spectrace_vllm import v1, v2

    engine = Engine(runner, getattr(runner, kind.drafter, None), kind.name)
    problems += object_misfits(kind, "model", engine.target).values()
    if engine.draft is not None:
        problems += object_misfits(kind, "drafter", engine.drafter).values()
    for problem in problems:
        logger.warning("vllm: %s; some fields are not recorded; %s", problem, FIX)
    assert kind in KINDS
    recording = Recording(engine, settings, problems)
    try:
        (v2 if kind is V2 else v1).follow(recording)
    except BaseException:
        recording.close()
        raise
    return recording


def _speaks(worker: Any) -> bool:
    """Whether this rank holds the logits and records them: the first of the last pipeline stage."""
    try:
        from vllm.distributed.parallel_state import get_pp_group, get_tp_group

        return bool(get_pp_group().is_last_rank and get_tp_group().rank_in_group == 0)
    except (ImportError, AssertionError):
        return getattr(worker, "rank", 0) == 0


class Recording:
    """What the two runners report to.

    Args:
        engine: what is recorded.
        settings: what to record, and where.
        problems: what does not fit, as sentences.
    """

    def __init__(self, engine: Engine, settings: Settings, problems: list[str]) -> None:
        self.engine = engine
        self.is_full = settings.is_full
        self.engine_step = -1
        self.is_active = False
        """A recorded request is in this engine step."""
        self._settings = settings
        self._undo: list[Callable[[], None]] = []
        self._num_requests = 0
        self._requests: dict[str, bool] = {}
        """Requests in the engine, and whether each is recorded."""
        self._rules: set[str] = set()
        self._device = engine.device
        self._vocabulary = _vocabulary(engine)
        lost = {f"hook {number}": what for number, what in enumerate(problems)}
        header = run_facts(engine, self._vocabulary, lost)
        size = header["target"]["vocab_size"]
        self._target_ids = _target_ids(engine)
        self._raw_of = raw_table(self._target_ids, size, engine.device)
        self.writer = TraceWriter(
            free_name(settings.out, "vllm"),
            header,
            max_bytes=settings.max_bytes,
            token_text=self._token_text if self._vocabulary is not None else None,
        )
        self.guard = Guard("vllm", self.writer)
        self._joiner = Joiner(
            Rules(
                started_ns=self.writer.started_ns,
                boundaries=engine.boundaries,
                max_length=header["target"].get("max_length"),
                is_simulated=header["verification"].get("rule") == "synthetic",
            )
        )
        self.workspace = Workspace()
        """Memory for rows of logits, kept from step to step."""
        self._fingerprints = Fingerprints(self._device)
        if engine.boundaries is not None:
            self._fingerprints.prepare(header["target"]["hidden_size"])
        self._watch: DraftWatch | None = None
        if engine.draft is not None:
            self._watch = DraftWatch(engine.draft, self.guard, self.workspace, is_full=self.is_full)
            self._undo.append(self._watch.remove)
        self._has_told_graph = False
        atexit.register(self.close)
        logger.info("vllm: recording to %s", self.writer.path)

    # --- attaching ---

    def wrap(self, holder: Any, name: str, make: Callable[[Any], Callable[..., Any]]) -> None:
        """Replaces a function on one object until the recording ends."""
        own = name in vars(holder)
        original = getattr(holder, name)
        setattr(holder, name, make(original))
        self._undo.append(lambda: setattr(holder, name, original) if own else delattr(holder, name))

    def outbox(self) -> Outbox:
        """A new one, for one event."""
        return Outbox(self._device, self.guard)

    def close(self) -> None:
        """Takes the hooks off and ends the trace; a second call does nothing."""
        while self._undo:
            self._undo.pop()()
        atexit.unregister(self.close)
        if not self.writer.flush():
            logger.warning("vllm: %s: not everything was written in time", self.writer.path)
        self.guard("close", self._write_rest)
        self.writer.close()

    def _write_rest(self) -> None:
        """Writes the steps that were held back; the writer's thread has nothing left to take."""
        self._joiner.finish()
        for fields in iter(self._joiner.take, None):
            self.writer.steps(*fields)

    # --- what the runners report ---

    def began(self, scheduled: Any) -> None:
        """The scheduler hands over an engine step.

        Args:
            scheduled: vLLM's SchedulerOutput.
        """
        self.engine_step += 1
        finished = [name for name in scheduled.finished_req_ids if self._requests.pop(name, False)]
        if finished:
            self._joiner.put(Finished(finished))
        for new in scheduled.scheduled_new_reqs:
            if new.req_id not in self._requests:  # V2 is told anew of a request that was preempted
                self._admit(new)
        self.is_active = any(self._requests.get(name) for name in scheduled.num_scheduled_tokens)

    def _admit(self, new: Any) -> None:
        """A request is scheduled for the first time."""
        sampling, prompt, name = new.sampling_params, new.prompt_token_ids, new.req_id
        is_taken = sampling is not None and self._settings.takes(self._num_requests, name)
        self._num_requests += 1
        self._requests[name] = is_taken
        if not is_taken:
            return
        started = started_request(new)
        self._joiner.put(started)
        fields: dict[str, Any] = {}
        if prompt is not None:
            fields = {"prompt_ids": list(prompt), "prompt_digest": ids_digest(prompt)}
        self.writer.request(name, external_id=external_name(name), **fields)
        self._tell_rule(sampling, started.is_greedy)

    def _tell_rule(self, sampling: Any, is_greedy: bool) -> None:
        """Adds how tokens are picked, from the first request; says so where requests differ."""
        rule = request_rule(self.engine, is_greedy)
        if rule in self._rules:
            return
        is_first = not self._rules
        self._rules.add(rule)
        facts: dict[str, Any] = {"sampling": sampling_facts(sampling)}
        if not is_first:
            facts = {"sampling": {"processors": ["differ by request"]}}
        method = getattr(self.engine.speculative, "rejection_sample_method", "standard")
        if method == "standard":
            known = {"rule": rule, "lossless": True}
            facts["verification"] = known if is_first else {"rule": "other", "lossless": True}
        self.writer.amend(**facts)

    def verified(
        self,
        requests: list[str],
        counts: Array,
        num_scheduled: Array,
        discarded: Array | None,
        started: Moment,
        pack: Outbox,
    ) -> None:
        """A batch was verified.

        Args:
            requests: [B] names.
            counts: [B] rows with logits.
            num_scheduled: [B] tokens read.
            discarded: [B] the sample is thrown away, or None.
            started: when the engine step began.
            pack: numbers on their way.
        """
        event = Verified(
            engine_step=self.engine_step,
            requests=requests,
            counts=counts,
            num_scheduled=num_scheduled,
            discarded=discarded,
            started=started,
            ended=now(self._device),
            arrays=pack.send(),
        )
        self._joiner.put(event)
        event.is_lost = not self.writer.steps(len(requests), self._joiner.take)
        self.writer.steps(0, self._joiner.take)

    def proposing(self, batch: int, first: Callable[[], Tensor | None]) -> Moment:
        """The drafter begins.

        Args:
            batch: B requests.
            first: gives the row of each request in the drafter's first forward, once it is known.
        """
        if self._watch is not None:
            self._watch.begin(batch, first)
        return now(self._device)

    def proposed(
        self, requests: list[str], proposal: Any, started: Moment, pack: Outbox, taps: Taps | None
    ) -> None:
        """The drafter is done.

        Args:
            requests: [B] names.
            proposal: [B, K] ids in the target's vocabulary, or [B] lists of them.
            started: when it began.
            pack: holds the states' fingerprints already.
            taps: what they are.
        """
        ended, lists = now(self._device), None
        if isinstance(proposal, Tensor):
            proposal = proposal[: len(requests)].to(torch.int64, copy=True)  # a view of a buffer in use
            pack.add("proposal", proposal)
            is_greedy = self.engine.is_draft_greedy
            if self._watch is not None and not self._watch.end(
                pack, proposal, self._raw_of, is_greedy=is_greedy
            ):
                self._tell_graph()
        else:
            lists = [list(ids) for ids in proposal]
        self._joiner.put(
            Proposed(
                engine_step=self.engine_step,
                requests=requests,
                started=started,
                ended=ended,
                arrays=pack.send(),
                lists=lists,
                taps=taps,
            )
        )
        for _ in range(_TAKES):
            self.writer.steps(0, self._joiner.take)

    def _tell_graph(self) -> None:
        """The draft ran, and nothing of it passed the hooks: a graph was replayed."""
        if self._has_told_graph:
            return
        self._has_told_graph = True
        reason = "graph capture hides the draft's forwards; --enforce-eager shows them"
        names = (
            "draft_ids",
            "draft_logprobs",
            "draft_entropy",
            "draft_top",
            "draft_positions",
            "draft_inputs",
        )
        self.writer.amend(capture={"mode": "graph", "unavailable": dict.fromkeys(names, reason)})

    def taps(
        self,
        pack: Outbox,
        states: list[Tensor] | None,
        positions: Tensor,
        starts: Array,
        num_scheduled: Array,
        counts: Array,
    ) -> Taps | None:
        """Adds fingerprints of the states that the draft is about to be fed.

        Args:
            pack: gathers the results.
            states: per boundary [tokens, hidden_size].
            positions: [tokens]
            starts: [B] first token of each request.
            num_scheduled: [B] tokens of each request.
            counts: [B] of these, the last that have logits.

        Returns:
            What was taken; None without states.
        """
        if not states or not self.is_full:
            return None
        roots = num_scheduled - counts  # [B] the last committed token within the request's tokens
        at, lengths = starts, np.ones_like(roots)
        if roots.any():
            kept = [kept_rows(root) for root in roots.tolist()]
            at = np.array([start + row for start, rows in zip(starts.tolist(), kept) for row in rows])
            lengths = np.array([len(rows) for rows in kept])
        rows = on_device(at, self._device)
        pack.add("tap_positions", positions.index_select(0, rows))
        pack.reduce("states", self._add_states, [state.index_select(0, rows) for state in states])
        return Taps(
            counts=lengths,
            shape=(int(states[0].shape[0]), int(states[0].shape[1])),
            dtype=str(states[0].dtype).removeprefix("torch."),
        )

    def _add_states(self, pack: Outbox, taken: list[Tensor]) -> None:
        """Fingerprints of the rows of each boundary, [r, hidden_size]."""
        self._fingerprints.add(pack, torch.stack(taken))  # [A, r, H]

    def _token_text(self, space: str, token_id: int) -> str | None:
        """Text of a token; a raw id has that of the target id it stands for."""
        assert self._vocabulary is not None
        if space == "draft" and self._target_ids is not None:
            if not 0 <= token_id < len(self._target_ids):
                return None
            token_id = int(self._target_ids[token_id])
        return self._vocabulary.text(token_id)


def _target_ids(engine: Engine) -> Array | None:
    """[draft_vocab_size] target id of each raw id, as vLLM maps it."""
    if engine.map is None:
        return None
    offsets: Array = engine.map.detach().cpu().numpy()
    return np.arange(len(offsets)) + offsets


def _vocabulary(engine: Engine) -> Vocabulary | None:
    """The target's tokens, if its tokenizer is on this machine."""
    try:
        from vllm.tokenizers import cached_tokenizer_from_config

        return Vocabulary(cached_tokenizer_from_config(engine.config.model_config))
    except Exception as error:  # noqa: BLE001  a trace without texts is a trace
        logger.warning("vllm: token texts are not recorded: %s: %s", type(error).__name__, error)
        return None

"""One worker's recording: what its model runner reports, in common words, becomes events.

The two model runners are followed by v1.py and v2.py, which report here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from spectrace.errors import UnsupportedEngine
from spectrace_serving.clock import Moment, now
from spectrace_serving.facts import raw_table
from spectrace_serving.header import DRAFT_VALUES, misfits
from spectrace_serving.outbox import Outbox
from spectrace_serving.recording import ServingRecording, open_trace, read_vocabulary
from spectrace_serving.reduction import kept_rows, on_device
from spectrace_serving.requests import Finished
from spectrace_serving.rows import Taps
from spectrace_serving.settings import Settings
from spectrace_transformers.reduction import Array
from spectrace_vllm.admission import external_name, sampling_facts, started_request
from spectrace_vllm.engine import Engine
from spectrace_vllm.events import Proposed, Verified
from spectrace_vllm.facts import request_rule, run_facts
from spectrace_vllm.hooks import FIX, V2, find_kind, object_misfits
from spectrace_vllm.join import ChainJoiner
from spectrace_vllm.steps import ChainRules
from spectrace_vllm.watch import DraftWatch

logger = logging.getLogger("spectrace")

_OF_LOGITS = ("draft_ids", "draft_logprobs", "draft_entropy", "draft_top")
_NO_LOGITS = "this draft makes its logits where no hook looks"
_GRAPH = "graph capture hides the draft's forwards; --enforce-eager shows them"


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
    if not speaks(worker):
        return None
    runner = worker.model_runner
    kind, problems = find_kind(runner)
    if kind is None:
        raise UnsupportedEngine("vllm", f"{'; '.join(problems)}; {FIX}")
    from spectrace_vllm import v1, v2

    engine = Engine(runner, getattr(runner, kind.drafter, None), kind.name)
    problems += object_misfits(kind, "model", engine.target).values()
    if engine.draft is not None and engine.method != "medusa":  # whose heads are run at no position
        problems += object_misfits(kind, "drafter", engine.drafter).values()
    for problem in problems:
        logger.warning("spectrace: %s; some fields are not recorded; %s", problem, FIX)
    recording = Recording(engine, settings, problems)
    try:
        (v2 if kind is V2 else v1).follow(recording)
    except BaseException:
        recording.close()
        raise
    return recording


def speaks(worker: Any) -> bool:
    """Whether this rank holds the logits and records them: the first of the last pipeline stage."""
    try:
        from vllm.distributed.parallel_state import get_pp_group, get_tp_group

        return bool(get_pp_group().is_last_rank and get_tp_group().rank_in_group == 0)
    except (ImportError, AssertionError):
        return getattr(worker, "rank", 0) == 0


class Recording(ServingRecording):
    """What the two runners report to.

    Args:
        engine: what is recorded.
        settings: what to record, and where.
        problems: what does not fit, as sentences.
    """

    def __init__(self, engine: Engine, settings: Settings, problems: list[str]) -> None:
        vocabulary = read_vocabulary(engine.tokenizer)
        header = run_facts(engine, vocabulary, misfits(problems, FIX), settings.is_full)
        self._raw_of = raw_table(engine.target_ids, header["target"]["vocab_size"], engine.device)
        writer = open_trace("vllm", settings, header, vocabulary, engine.target_ids)
        rules = ChainRules(
            started_ns=writer.started_ns,
            boundaries=engine.boundaries,
            max_length=header["target"].get("max_length"),
            is_simulated=header["verification"].get("rule") == "synthetic",
        )
        super().__init__(settings, header, writer, ChainJoiner(rules), engine.device)
        self.engine = engine
        self.is_active = False
        """A recorded request is in this engine step."""
        self._requests: dict[str, bool] = {}
        """Requests in the engine, and whether each is recorded."""
        self._watch: DraftWatch | None = None
        if engine.draft is not None:
            self._watch = DraftWatch(
                engine.draft,
                self.guard,
                self.workspace,
                block=engine.block,
                is_greedy=engine.is_draft_greedy,
                is_full=self.is_full,
            )
            self.undo.append(self._watch.remove)

    # --- what the runners report ---

    def began(self, scheduled: Any) -> None:
        """The scheduler hands over an engine step.

        Args:
            scheduled: vLLM's SchedulerOutput.
        """
        self.engine_step += 1
        finished = [name for name in scheduled.finished_req_ids if self._requests.pop(name, False)]
        if finished:
            self.joiner.put(Finished(finished))
        for new in scheduled.scheduled_new_reqs:
            if new.req_id not in self._requests:  # V2 is told anew of a request that was preempted
                self._admit(new)
        self.is_active = any(self._requests.get(name) for name in scheduled.num_scheduled_tokens)

    def _admit(self, new: Any) -> None:
        """A request is scheduled for the first time."""
        name, sampling = new.req_id, new.sampling_params
        is_taken = self.chooses(name) and sampling is not None
        self._requests[name] = is_taken
        if is_taken:
            started = started_request(new)
            self.admit(
                started,
                new.prompt_token_ids,
                external_name(name),
                sampling_facts(sampling),
                request_rule(self.engine, started.is_greedy),
            )

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
        is_lost = self.loses(sum(self._requests.get(name, False) for name in requests), pack)
        self.put(
            Verified(
                engine_step=self.engine_step,
                requests=requests,
                counts=counts,
                num_scheduled=num_scheduled,
                discarded=discarded,
                started=started,
                ended=now(self._device),
                arrays=pack.send(),
                num_bytes=pack.num_bytes,
                is_lost=is_lost,
            )
        )

    def proposing(self, batch: int, first: Callable[[], Tensor | None]) -> Moment:
        """The drafter begins.

        Args:
            batch: B requests.
            first: gives the row of each request in the drafter's first forward, once it is known.
        """
        started = now(self._device)
        if self._watch is not None:
            self._watch.begin(batch, first)
        return started

    def stops_proposing(self) -> None:
        """The drafter has returned, or raised."""
        if self._watch is not None:
            self._watch.stop()

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
            # Of another tokenizer's tokens the draft takes the first that the target has too.
            is_greedy = self.engine.is_draft_greedy and not self.engine.has_own_tokenizer
            if self._watch is not None and not self._watch.end(
                pack, proposal, self._raw_of, is_greedy=is_greedy
            ):
                self._tell_hidden()
        else:
            lists = [list(ids) for ids in proposal]
        self.thin(pack)
        self.put(
            Proposed(
                engine_step=self.engine_step,
                requests=requests,
                started=started,
                ended=ended,
                arrays=pack.send(),
                lists=lists,
                taps=taps,
                num_bytes=pack.num_bytes,
            )
        )

    def _tell_hidden(self) -> None:
        """The draft ran, and its logits passed no hook: a graph was replayed, or they are made elsewhere."""
        if self.engine.is_eager:
            self.lacks(_OF_LOGITS, _NO_LOGITS)
        else:
            self.lacks(DRAFT_VALUES, _GRAPH, mode="graph")

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
        at, lengths = kept_rows(starts, roots)
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
        self.fingerprints.add(pack, torch.stack(taken))  # [A, r, H]

"""`LoopRecorder` and its requests: what the loop calls.

Owns the file and the rule that the loop is worth more than the trace: whatever goes wrong behind a call is
logged once, ends the recording, and the loop goes on.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Mapping
from os import PathLike
from typing import Any

import torch

import spectrace
from spectrace.errors import RecorderError, UsageError
from spectrace.format.headers import deep_merge, run_mapping
from spectrace.format.records import Run
from spectrace.format.writer import TraceWriter
from spectrace_loop.layout import ids_of, tree_of
from spectrace_loop.reduction import VocabMap, add_draft, add_target
from spectrace_loop.steps import step_fields
from spectrace_transformers.facts import ids_digest
from spectrace_transformers.reduction import Pack, Workspace
from spectrace_transformers.token_text import Vocabulary

logger = logging.getLogger("spectrace")

_OPTIONAL = (
    "draft_ids", "draft_logprobs", "draft_entropy", "draft_top", "draft_positions", "draft_inputs",
    "overlaps", "taps", "draft_ns", "verify_ns", "step_ns", "draft_kv_length", "target_kv_length", "stop",
)  # fmt: skip
"""What a loop may leave out, and the trace then says so."""


_SAID = "said."
"""Before the name of a field that the loop says itself, among arrays on their way."""


class LoopRecorder:
    """Records what a loop tells it.

        with LoopRecorder("run.spectrace") as recorder:
            request = recorder.request(prompt_ids)
            request.step(proposal_ids, target_logits, emitted_ids)

    Args:
        path: file to create; an existing one is refused.
        run: header facts, in the shape of the trace's run record: ``{"method": "eagle3", "verification":
            {"rule": "greedy"}, "target": {"id": ..}}``. All of them may be missing.
        d2t: [draft_vocab_size] offsets of the draft's vocabulary, where it has one of its own.
        tokenizer: source of token texts.
        top: alternatives kept per position, at least 2.
        text: keep prompts and token texts. The ids of what is generated are kept in any case.
        strict: raise the first fault at exit instead of only logging it.

    Raises:
        RecorderError: the file cannot be created.
        UsageError: an argument is out of range.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        run: Run | Mapping[str, Any] | None = None,
        *,
        d2t: Any = None,
        tokenizer: Any = None,
        top: int = 5,
        text: bool = True,
        strict: bool = False,
    ) -> None:
        if top < 2:
            raise UsageError(f"top: at least 2 alternatives are needed for a gap, not {top}")
        self.failed: str | None = None
        """What ended the recording early, as a sentence."""
        self.top = top
        self.vocab = None if d2t is None else VocabMap(torch.as_tensor(d2t))
        self._path = path
        self._text = text
        self._strict = strict
        self._vocabulary = Vocabulary(tokenizer) if text and tokenizer is not None else None
        self._numbers = itertools.count()
        self._thread = threading.local()
        self._given: set[str] = set()
        header = deep_merge(self._facts(tokenizer), run_mapping(run or {}))
        rule = (header.get("verification") or {}).get("rule")
        self.rule: str | None = rule if isinstance(rule, str) else None
        self._writer = TraceWriter(
            path, header, token_text=self._token_text if self._vocabulary is not None else None, strict=strict
        )

    def _facts(self, tokenizer: Any) -> dict[str, Any]:
        facts: dict[str, Any] = {
            "recorder": {"name": "spectrace_loop", "version": spectrace.__version__},
            "engine": {"runner": "loop"},
            "capture": {"mode": "eager", "text": self._text},
        }
        if self.vocab is not None:
            facts["vocab_map"] = {"d2t": self.vocab.d2t.tolist()}
        if self._vocabulary is not None:
            facts["tokenizer"] = {
                "digest": self._vocabulary.digest,
                "vocab_size": len(self._vocabulary),
                "bos_id": getattr(tokenizer, "bos_token_id", None),
            }
        return facts

    def request(self, prompt_ids: Any, name: str | None = None) -> LoopRequest:
        """Begins a text.

        Args:
            prompt_ids: what is committed already, [n] of any shape and kind.
            name: unique in the trace; r0, r1, .. by default.
        """
        request = LoopRequest(self, f"r{next(self._numbers)}" if name is None else name)
        self.guard(self._begin, request, prompt_ids)
        return request

    def _begin(self, request: LoopRequest, prompt_ids: Any) -> None:
        ids = ids_of(prompt_ids).tolist()
        request.position = len(ids)
        described: dict[str, Any] = {"prompt_digest": ids_digest(ids)}
        if self._text:
            described["prompt_ids"] = ids
        self._writer.request(request.name, **described)

    def amend(self, **facts: Any) -> None:
        """Adds header facts known only now."""
        self._writer.amend(**facts)

    def close(self) -> None:
        """Ends the trace; a second call does nothing.

        Raises:
            RecorderError: the recorder is strict, and met a fault.
        """
        is_all_seen = self._writer.flush()
        missing = [name for name in _OPTIONAL if name not in self._given]
        if is_all_seen and self._given and missing:
            reason = "the loop did not say it"
            self._writer.amend(capture={"unavailable": dict.fromkeys(missing, reason)})
        self._writer.close()
        if self._strict and self.failed is not None:
            raise RecorderError(self.failed)

    def __enter__(self) -> LoopRecorder:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self.close()
        except RecorderError as fault:
            if kind is None:
                raise
            logger.warning("%s", fault)  # the caller's own exception is worth more

    # --- what requests ask for ---

    def guard(self, action: Callable[..., None], *args: Any, **kwargs: Any) -> None:
        """Runs an action of the recorder's own; whatever it raises ends the recording only."""
        if self.failed is not None:
            return
        try:
            action(*args, **kwargs)
        except Exception as error:  # the loop is worth more than the trace
            self.failed = f"{self._path}: recording ended, {type(error).__name__}: {error}"
            logger.warning("%s; the loop goes on", self.failed, exc_info=error)
            self._writer.gap(lost=1, reason="malformed")
            self._writer.amend(capture={"unavailable": {"steps": self.failed}})

    def workspace(self) -> Workspace:
        """Memory for this thread's reductions."""
        found: Workspace | None = getattr(self._thread, "workspace", None)
        if found is None:
            found = self._thread.workspace = Workspace()
        return found

    def put(self, fields: Callable[[], dict[str, Any]]) -> None:
        """Hands a step to the writer's thread, which calls `fields`."""

        def called() -> dict[str, Any]:
            found = fields()
            if found["proposal_ids"]:
                self._given.update(found)
            return found

        self._writer.step(called)

    def _token_text(self, space: str, token_id: int) -> str | None:
        """Text of a token; a raw id has that of the target id that the map gives it."""
        assert self._vocabulary is not None
        if space == "draft" and self.vocab is not None:
            if not 0 <= token_id < len(self.vocab.d2t):
                return None
            token_id += int(self.vocab.d2t[token_id])
        return self._vocabulary.text(token_id)


class LoopRequest:
    """One text that the loop generates; made by `LoopRecorder.request`."""

    def __init__(self, owner: LoopRecorder, name: str) -> None:
        self.name = name
        self.position = 0
        """Committed length so far, tokens."""
        self._owner = owner
        self._num_steps = 0

    def step(
        self,
        proposal_ids: Any,
        target_logits: Any,
        emitted_ids: Any,
        *,
        draft_ids: Any = None,
        parents: Any = None,
        paths: Any = None,
        draft_logits: Any = None,
        **fields: Any,
    ) -> None:
        """Records one round: what was proposed, what the target said, what was committed.

        Tensors on any device, arrays or lists, with or without a batch axis of 1; nothing is changed, kept or
        waited for. Raises nothing.

        Args:
            proposal_ids: [K] the draft tokens as the target read them, in its vocabulary; [] for a round
                without a draft, such as the prompt's. None: `draft_ids`, mapped by ``d2t``.
            target_logits: [K+1, V], the row after the last committed token first, then one after each draft
                token; by which the loop decides, so after its processors. With `paths` also
                [leaves, depth + 1, V].
            emitted_ids: what was committed: accepted draft tokens, then the target's own token.
            draft_ids: [K] the same draft tokens in the draft's vocabulary.
            parents: [K] of a tree: index of each token's parent, -1 for the last committed token.
            paths: [leaves, depth + 1] of a tree instead of `parents`: see `layout.tree_of`.
            draft_logits: [K, draft_vocab_size] the row that each draft token was taken from.
            fields: any other field of a step, such as draft_ns, draft_logprobs, stop, segment; it wins.
        """
        self._owner.guard(
            self._step,
            proposal_ids,
            target_logits,
            emitted_ids,
            draft_ids,
            parents,
            paths,
            draft_logits,
            fields,
        )

    @torch.no_grad()
    def _step(
        self,
        proposal_ids: Any,
        target_logits: Any,
        emitted_ids: Any,
        draft_ids: Any,
        parents: Any,
        paths: Any,
        draft_logits: Any,
        fields: Mapping[str, Any],
    ) -> None:
        owner, vocab = self._owner, self._owner.vocab
        device = torch.as_tensor(target_logits).device
        raw = None if draft_ids is None else ids_of(draft_ids, device)
        proposal = _proposal(proposal_ids, raw, vocab, device)
        tree = tree_of(proposal, target_logits, parents, paths)
        pack = Pack(device)
        pack.add("proposal", proposal)
        pack.add("emitted", emitted := ids_of(emitted_ids, device))
        if tree.judges is not None:
            pack.add("judges", tree.judges)
        if raw is not None:
            pack.add("draft_ids", raw)
        p = add_target(pack, owner.workspace(), tree, owner.top)
        if draft_logits is not None and len(proposal):
            at = proposal if raw is None and vocab is None else raw
            add_draft(pack, tree, p, torch.as_tensor(draft_logits), at, vocab, owner.top)
        given = _said(pack, fields)
        own = self._own_fields(len(proposal))
        arrays = pack.send()
        owner.put(lambda: self._fields(own, arrays(), given))
        self._num_steps += 1
        self.position += len(emitted)

    def _fields(
        self, own: Mapping[str, Any], arrays: Mapping[str, Any], said: Mapping[str, Any]
    ) -> dict[str, Any]:
        """One step out of its parts, on the writer's thread; the loop's own word wins."""
        vocab = self._owner.vocab
        found = step_fields(arrays, None if vocab is None else vocab.d2t.numpy(), self._owner.rule)
        sent = {n.removeprefix(_SAID): a.tolist() for n, a in arrays.items() if n.startswith(_SAID)}
        return {**own, **found, **said, **sent}

    def _own_fields(self, num_drafted: int) -> dict[str, Any]:
        own: dict[str, Any] = {"request": self.name, "step": self._num_steps, "position": self.position}
        if not self._num_steps and not num_drafted:
            own["flags"] = ["prefill"]
        return own


def _proposal(proposal_ids: Any, raw: Any, vocab: VocabMap | None, device: torch.device) -> torch.Tensor:
    """[K] ids in the target's vocabulary."""
    if proposal_ids is None:
        if raw is None:
            raise ValueError("neither proposal_ids nor draft_ids is given")
        return raw.clone() if vocab is None else vocab.target_ids(raw)
    proposal = ids_of(proposal_ids, device)
    if raw is not None and len(raw) != len(proposal):
        raise ValueError(f"draft_ids has {len(raw)} entries, proposal_ids {len(proposal)}")
    return proposal


def _said(pack: Pack, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Fields that the loop says itself; tensors among them travel with the others, under `_SAID`."""
    said = {}
    for name, value in fields.items():
        if isinstance(value, torch.Tensor):
            kind = torch.float32 if value.is_floating_point() else torch.int64
            pack.add(_SAID + name, value.detach().to(pack.device, kind, copy=True))
        else:
            said[name] = value.tolist() if hasattr(value, "tolist") else value
    return said

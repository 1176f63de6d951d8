"""`TransformersRecorder`: a `with` block around any number of `generate` calls of one target.

Owns the file, the hooks and the rule that the host's run is worth more than the trace: whatever goes
wrong in here is logged once, ends the recording and leaves the generation alone. Changes one attribute of
the model and some forward hooks, and takes them back on the way out.
"""

from __future__ import annotations

import itertools
import logging
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from types import MethodType, TracebackType
from typing import Any

import torch
from transformers import GenerationMixin

import spectrace
from spectrace.errors import RecorderError, UnsupportedEngine, UsageError
from spectrace.format.headers import deep_merge
from spectrace.format.writer import TraceWriter
from spectrace_transformers import facts
from spectrace_transformers.reduction import Workspace
from spectrace_transformers.rows import Backlog, Capture, Rules
from spectrace_transformers.session import Session, cache_length
from spectrace_transformers.taps import (
    Hook,
    check_boundaries,
    default_boundaries,
    find_layers,
    hook_boundaries,
)
from spectrace_transformers.token_text import Vocabulary

logger = logging.getLogger("spectrace")

FLUSH_INTERVAL = 0.1
"""Seconds between two writes. Packing costs per write rather than per step, and the interpreter's lock makes
generation wait for it: 0.01 costs a model of 5 ms a step several per cent."""
BACKLOG_BYTES = 64 << 20
"""What may wait for the writing thread, bytes of arrays; while a disk stalls, further steps are lost."""
_SHADOWED = "_get_candidate_generator"
_recorded: weakref.WeakSet[Any] = weakref.WeakSet()
"""Models that are being recorded."""
_recorded_lock = threading.Lock()


class TransformersRecorder:
    """Records every assisted `generate` call of a model between entry and exit.

        with TransformersRecorder("run.spectrace", model, tokenizer=tokenizer):
            model.generate(**inputs, assistant_model=draft)

    Calls without speculation run as always and leave no step. The model may be used from several
    threads. Output, random numbers and exceptions are those of a run without the recorder.

    Args:
        path: file to create; an existing one is refused.
        model: the target, an object with transformers' own ``generate``.
        tokenizer: source of token texts; taken from the `generate` call where it is given one.
        assistant_tokenizer: the same for a draft with a vocabulary of its own.
        taps: boundaries k whose hidden states are fingerprinted, () for none; by default those EAGLE-3
            uses (2, n // 2, n - 3).
        top: alternatives kept per position, at least 2.
        text: keep prompts and token texts. The ids of what is generated are kept in any case.
        strict: raise the first fault of the recorder at exit instead of only logging it.
        max_bytes: keep the newest steps within this size instead of all.
        run: header facts known to the caller, in the shape of the trace's run record.

    Raises:
        UnsupportedEngine: the model has no `generate` of transformers.
        UsageError: an argument is out of range.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        model: Any,
        *,
        tokenizer: Any = None,
        assistant_tokenizer: Any = None,
        taps: Sequence[int] | None = None,
        top: int = 5,
        text: bool = True,
        strict: bool = False,
        max_bytes: int | None = None,
        run: Mapping[str, Any] | None = None,
    ) -> None:
        _need_generate(model)
        if top < 2:
            raise UsageError(f"top: at least 2 alternatives are needed for a gap, not {top}")
        self.path = path
        self.top = top
        self.failed: str | None = None
        """What ended the recording early, as a sentence."""
        self.started_ns = 0
        """Monotonic clock at entry."""
        self._model = model
        self._layers, self._boundaries = _boundaries(model, taps)
        self._text = text
        self._strict = strict
        self._max_bytes = max_bytes
        self._extra_facts = dict(run or {})
        self._vocabularies: dict[str, Vocabulary] = {}
        self._tokenizers = {"target": tokenizer, "draft": assistant_tokenizer}
        self._first_facts: facts.Facts | None = None
        self._unreliable_fields: set[str] = set()
        self._numbers = itertools.count()
        self._thread = threading.local()
        self._backlog = Backlog()
        self._writer: TraceWriter | None = None
        self._undo: list[Callable[[], None]] = []
        self._is_recording = False

    # --- in and out ---

    def __enter__(self) -> TransformersRecorder:
        if self._writer is not None:
            raise RecorderError(f"{self.path}: a recorder writes one trace; make another one")
        with _recorded_lock:
            if self._model in _recorded:
                raise RecorderError(
                    f"{self.path}: this model is being recorded already; "
                    "leave that recorder first, or give it both calls"
                )
            _recorded.add(self._model)
        try:
            self._start()
        except BaseException:
            self._stop()
            raise
        return self

    def _start(self) -> None:
        for space, tokenizer in self._tokenizers.items():
            self._read_vocabulary(space, tokenizer)
        header = facts.start_facts(self._model, self._boundaries, is_text_captured=self._text)
        header["recorder"] = {"name": "spectrace_transformers", "version": spectrace.__version__}
        self._writer = TraceWriter(
            self.path,
            deep_merge(header, self._extra_facts),
            flush_interval=FLUSH_INTERVAL,
            max_bytes=self._max_bytes,
            token_text=self._token_text if self._text else None,
            strict=self._strict,
        )
        self.started_ns = self._writer.started_ns
        self._is_recording = True
        self._shadow_generator_factory()
        for handle in self._hooks():
            self._undo.append(handle.remove)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop()
        try:
            if self._writer is not None:
                for _ in range(len(self._backlog) + 1):  # steps may have been put behind their own call
                    self._writer.steps(1, self._take)
                self._writer.close()
                if self._first_facts is None and self.failed is None and error is None:
                    logger.warning(
                        "%s: no step was recorded, as no generate call speculated; give it assistant_model, "
                        "prompt_lookup_num_tokens or assistant_early_exit",
                        self.path,
                    )
            if self._strict and self.failed is not None:
                raise RecorderError(self.failed)
        except RecorderError as fault:
            if error is None:
                raise
            logger.warning("%s", fault)  # the caller's own exception is worth more

    def _stop(self) -> None:
        """Takes back everything done to the model."""
        self._is_recording = False
        while self._undo:
            undo = self._undo.pop()
            try:
                undo()
            except Exception as error:  # noqa: BLE001  the others come off, and the file is closed
                logger.warning("%s: a hook stays: %s: %s", self.path, type(error).__name__, error)
        with _recorded_lock:
            _recorded.discard(self._model)

    def _shadow_generator_factory(self) -> None:
        """Puts a method of the same name before the class's on this one model.

        It is a bound method, so that a copy of the model made meanwhile gets one bound to itself.
        """
        model = self._model
        attributes = vars(model)
        own = attributes.get(_SHADOWED)

        def make(this: Any, *args: Any, **kwargs: Any) -> Any:
            if this is not model:
                return getattr(type(this), _SHADOWED)(this, *args, **kwargs)
            original = own if own is not None else MethodType(getattr(type(this), _SHADOWED), this)
            generator = original(*args, **kwargs)
            self.guard(self._call_begins, generator, kwargs)
            return generator

        def restore() -> None:
            if own is not None:
                attributes[_SHADOWED] = own
            else:
                attributes.pop(_SHADOWED, None)

        # A pickled bound method is looked up by its name in the copy, and found in its class.
        make.__name__ = _SHADOWED
        self._undo.append(restore)
        attributes[_SHADOWED] = MethodType(make, model)

    def _hooks(self) -> list[Any]:
        def ran(_model: Any, _args: Any, output: Any) -> None:
            if not torch.compiler.is_compiling():
                session = self._verifying_session()
                if session is not None:
                    self.guard(session.saw_output, output)

        def seen(boundary: int, hidden: torch.Tensor) -> None:
            session = self._verifying_session()
            if session is not None:
                self.guard(session.saw_states, boundary, hidden)

        handles: list[Any] = [self._model.register_forward_hook(Hook(ran))]
        if self._layers is not None:
            handles += hook_boundaries(self._layers, self._boundaries, seen)
        return handles

    def amend(self, **facts: Any) -> None:
        """Adds header facts known only now, such as a baseline measured beside the recorded calls."""
        if self._writer is not None:
            self._writer.amend(**facts)

    # --- what sessions ask for ---

    def guard(self, action: Callable[..., None], *args: Any) -> None:
        """Runs an action of the recorder's own; whatever it raises ends the recording only."""
        if not self._is_recording:
            return
        try:
            action(*args)
        except Exception as error:  # noqa: BLE001  the host's run is worth more than the trace
            self._fail(error)

    def verifying(self, session: Session | None) -> None:
        """Makes the target's hooks of this thread report to a session, or to none."""
        self._thread.session = None if session is None else weakref.ref(session)

    def _verifying_session(self) -> Session | None:
        reference = getattr(self._thread, "session", None)
        session: Session | None = None if reference is None else reference()
        return session

    def workspace(self) -> Workspace:
        """Memory for this thread's reductions."""
        found: Workspace | None = getattr(self._thread, "workspace", None)
        if found is None:
            found = self._thread.workspace = Workspace()
        return found

    def captured(self, capture: Capture) -> None:
        """Hands a step to the writer's thread."""
        if self._boundaries and not capture.taps:
            self._unreliable(["taps"], "the target's layers ran unseen: compiled, or of another form")
        assert self._writer is not None
        if self._backlog.num_bytes > BACKLOG_BYTES:
            self._writer.lose(1)
            return
        # Only what the writer will fetch is kept; what it refuses it counts as lost.
        if self._writer.steps(1, self._take):
            self._backlog.put(capture)

    def _take(self) -> tuple[int, dict[str, Any]] | None:
        try:
            return self._backlog.take()
        except Exception as error:
            self._end(error)
            raise  # the writer logs it, and counts the step as lost

    def _fail(self, error: Exception) -> None:
        self._end(error)
        logger.warning("%s; generation goes on", self.failed, exc_info=error)

    def _end(self, error: Exception) -> None:
        """Records no more, and says so in the header."""
        self._is_recording = False
        reason = f"recording ended, {type(error).__name__}: {error}"
        self.failed = f"{self.path}: {reason}"
        if self._writer is not None:
            self._writer.amend(capture={"unavailable": {"steps": reason}})

    # --- a generate call ---

    def _call_begins(self, generator: Any, given: Mapping[str, Any]) -> None:
        input_ids, config = given["input_ids"], given["generation_config"]
        if input_ids.shape[0] != 1:
            return  # transformers is about to refuse this
        processors = given.get("logits_processor") or ()
        self._read_vocabulary("target", given.get("target_tokenizer"))
        self._read_vocabulary("draft", given.get("assistant_tokenizer"))
        request = f"r{next(self._numbers)}"
        self._describe_call(request, generator, config, processors)
        self._describe_request(request, input_ids)
        _, has_distribution = facts.generator_kind(generator)
        ensemble = getattr(config, "assistant_ensemble_weight", None)
        rules = Rules(
            is_greedy=not config.do_sample and ensemble is None,
            is_rejection_sampling=bool(config.do_sample) and has_distribution,
            eos_ids=facts.eos_ids(config),
            max_length=config.max_length,
            raw_ids=facts.raw_id_table(generator, self._model.config.get_text_config().vocab_size),
            has_draft_ids=not facts.reencodes_text(generator),
        )
        Session(
            self,
            request,
            generator,
            rules,
            processed=len(processors) > 0,
            prefix_length=cache_length(given.get("model_kwargs") or {}) or None,
        )

    def _describe_call(self, request: str, generator: Any, config: Any, processors: Sequence[Any]) -> None:
        """Header facts known from the first call on; a later call that differs is noted."""
        found = facts.call_facts(generator, config, processors, self._vocabularies.get("target"))
        assert self._writer is not None
        if self._first_facts is None:
            self._first_facts = found
            self._writer.amend(**deep_merge(found, self._extra_facts))
            return
        changed = facts.changed_sections(self._first_facts, found)
        if changed:
            self._unreliable(changed, f"differs between calls, from {request} on; the header describes r0")

    def _describe_request(self, request: str, input_ids: torch.Tensor) -> None:
        ids = input_ids[0].tolist()
        described: dict[str, Any] = {"prompt_digest": facts.ids_digest(ids)}
        if self._text:
            described["prompt_ids"] = ids
        assert self._writer is not None
        self._writer.request(request, **described)

    def _unreliable(self, fields: Sequence[str], reason: str) -> None:
        """Says in the log, and in the header, that fields are missing or not to be relied on."""
        new = [name for name in fields if name not in self._unreliable_fields]
        if not new:
            return
        self._unreliable_fields.update(new)
        logger.warning("%s: %s: %s", self.path, ", ".join(new), reason)
        assert self._writer is not None
        self._writer.amend(capture={"unavailable": dict.fromkeys(new, reason)})

    # --- token texts ---

    def _read_vocabulary(self, space: str, tokenizer: Any) -> None:
        if self._text and tokenizer is not None and space not in self._vocabularies:
            self._vocabularies[space] = Vocabulary(tokenizer)

    def _token_text(self, space: str, token_id: int) -> str | None:
        """Text of a token, on the writer's thread; a draft without its own tokenizer shares one."""
        vocabulary = self._vocabularies.get(space) or self._vocabularies.get("target")
        return None if vocabulary is None else vocabulary.text(token_id)


def _need_generate(model: Any) -> None:
    if isinstance(model, GenerationMixin) and isinstance(model, torch.nn.Module):
        return
    what = "has no generate()"
    if callable(getattr(model, "generate", None)):
        what = "has a generate() that is not transformers' own; pass the model inside the wrapper"
    raise UnsupportedEngine("transformers", f"{type(model).__name__} {what}")


def _boundaries(model: Any, taps: Sequence[int] | None) -> tuple[torch.nn.ModuleList | None, tuple[int, ...]]:
    """The target's layers and the boundaries to tap."""
    layers = find_layers(model)
    if layers is None:
        if taps:
            raise UsageError(f"taps: no list of decoder layers was found in {type(model).__name__}")
        return None, ()
    config = model.config.get_text_config()
    num_layers = min(len(layers), getattr(config, "num_hidden_layers", len(layers)))
    if taps is None:
        return layers, default_boundaries(num_layers)
    return layers, check_boundaries(taps, num_layers)

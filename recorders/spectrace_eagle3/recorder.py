"""`Eagle3Recorder`: runs a decoder and writes what it does into a trace."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import Any

from spectrace.errors import RecorderError, UsageError
from spectrace.format.headers import deep_merge
from spectrace.format.writer import TraceWriter
from spectrace_eagle3.decoder import Eagle3Decoder, Round
from spectrace_eagle3.facts import run_facts
from spectrace_eagle3.reference import reference_rows
from spectrace_eagle3.states import StateCapture
from spectrace_eagle3.steps import step_fields
from spectrace_transformers.facts import ids_digest
from spectrace_transformers.token_text import Vocabulary

logger = logging.getLogger("spectrace")


class Eagle3Recorder:
    """Records every text that a decoder generates through it.

        with Eagle3Decoder(model, draft) as decoder, Eagle3Recorder("run.spectrace", decoder) as recorder:
            recorder.generate(prompt_ids, 128)

    Args:
        path: file to create; an existing one is refused.
        decoder: what generates.
        tokenizer: source of token texts.
        top: alternatives kept per position, at least 2.
        text: keep prompts and token texts. The ids of what is generated are kept in any case.
        states: steps, from the first, whose raw states are kept too, beside the trace: see `states.py`.
        strict: raise the first fault of the recorder at exit instead of only logging it.
        run: header facts known to the caller, in the shape of the trace's run record.

    Raises:
        UsageError: an argument is out of range.
        RecorderError: the file cannot be created.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        decoder: Eagle3Decoder,
        *,
        tokenizer: Any = None,
        top: int = 5,
        text: bool = True,
        states: int = 0,
        strict: bool = False,
        run: Mapping[str, Any] | None = None,
    ) -> None:
        if top < 2:
            raise UsageError(f"top: at least 2 alternatives are needed for a gap, not {top}")
        self.failed: str | None = None
        """What ended the recording early, as a sentence."""
        self._decoder = decoder
        self._strict = strict
        self._top = top
        self._text = text
        self._vocabulary = Vocabulary(tokenizer) if text and tokenizer is not None else None
        self._target_ids = decoder.draft.vocab.meant_ids()
        self._names = (f"r{number}" for number in itertools.count())
        self._writer = TraceWriter(
            path,
            deep_merge(run_facts(decoder, tokenizer, self._vocabulary), run or {}),
            token_text=self._token_text if self._vocabulary is not None else None,
            strict=strict,
        )
        boundaries = decoder.draft.taps.boundaries
        self._states = StateCapture(self._writer.path, states, boundaries, self._writer.created)

    def __enter__(self) -> Eagle3Recorder:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self.close()
        except RecorderError as fault:
            if kind is None:
                raise
            logger.warning("%s", fault)  # the caller's own exception is worth more

    def close(self) -> None:
        """Ends the trace and writes the states that were asked for.

        Raises:
            RecorderError: a strict recorder met a fault.
        """
        try:
            self._states.close()
        except Exception as error:  # noqa: BLE001  the host's run is worth more than the states
            logger.warning("the raw states were not written: %s", error)
        self._writer.close()
        if self._strict and self.failed is not None:
            raise RecorderError(self.failed)

    def generate(
        self,
        prompt_ids: Sequence[int],
        max_new_tokens: int,
        *,
        reference: bool = False,
        on_emitted: Callable[[Sequence[int]], None] = lambda ids: None,
    ) -> list[int]:
        """Generates one text.

        Args:
            prompt_ids: at least one token.
            max_new_tokens: where to stop, unless the text ends before.
            reference: also record one plain forward of the target over prompt and output, at all boundaries.
            on_emitted: told the tokens of each round.

        Returns:
            The new tokens.
        """
        decoder, request = self._decoder, next(self._names)
        described: dict[str, Any] = {"prompt_digest": ids_digest(prompt_ids)}
        if self._text:
            described["prompt_ids"] = list(prompt_ids)
        self._writer.request(request, **described)
        new_ids: list[int] = []
        for done in decoder.rounds(prompt_ids, max_new_tokens):
            self._guard(self._record_round, request, done)
            new_ids += done.emitted
            on_emitted(done.emitted)
        if reference:
            self._guard(self._record_reference, request, prompt_ids, new_ids)
        return new_ids

    def _guard(self, action: Callable[..., None], *args: Any) -> None:
        """Runs an action of the recorder's own; whatever it raises ends the recording, and no more."""
        if self.failed is not None:
            return
        try:
            action(*args)
        except Exception as error:
            reason = f"recording ended, {type(error).__name__}: {error}"
            self.failed = f"{self._writer.path}: {reason}"
            logger.warning("%s; generation goes on", self.failed, exc_info=error)
            self._writer.amend(capture={"unavailable": {"steps": reason}})

    def _record_round(self, request: str, done: Round) -> None:
        decoder = self._decoder
        boundaries = decoder.draft.taps.boundaries
        fields = step_fields(done, decoder.sampler, decoder.draft.vocab.table, boundaries, self._top)
        started = done.started_ns - self._writer.started_ns
        self._writer.step({"request": request, "started_ns": started, **fields})
        self._states.add(request, done.taps)

    def _record_reference(self, request: str, prompt_ids: Sequence[int], new_ids: Sequence[int]) -> None:
        for boundary, rows in reference_rows(self._decoder.model, prompt_ids, new_ids).items():
            self._writer.reference(request=request, boundary=boundary, rows=rows)

    def amend(self, **facts: Any) -> None:
        """Adds header facts known only now."""
        self._writer.amend(**facts)

    def _token_text(self, space: str, token_id: int) -> str | None:
        """Text of a token; a raw id has that of the target id it stands for."""
        assert self._vocabulary is not None
        if space == "draft":
            if not 0 <= token_id < len(self._target_ids):
                return None
            token_id = self._target_ids[token_id]
        return self._vocabulary.text(token_id)

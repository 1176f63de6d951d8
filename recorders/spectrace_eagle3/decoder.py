"""The loop: draft, verify, commit, round after round, for one prompt at a time.

Plain on purpose: it is what an engine is compared with. Yields everything it knows about a round and
records nothing itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from spectrace_eagle3.draft import Draft
from spectrace_eagle3.faults import HEALTHY, Faults, break_draft
from spectrace_eagle3.proposal import Proposal, propose
from spectrace_eagle3.rows import DraftRows
from spectrace_eagle3.sampling import Sampler
from spectrace_eagle3.target import Forward, Target
from spectrace_eagle3.tree import Chain, Plan, check_plan
from spectrace_eagle3.verify import Decision, verify


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One propose-verify-emit round."""

    number: int
    """From 0, the prompt's own."""
    position: int
    """Committed length before: index of the first token that is verified."""
    proposal: Proposal | None
    """None for the prompt, and where no token beyond the target's own is wanted."""
    read_positions: Sequence[int | None] = ()
    """Per depth, index of the token that the draft read; None where it is none of those near by."""
    logits: Tensor
    """[K+1, vocab_size] of the target as it gave them, single precision."""
    taps: Tensor
    """[taps, n, hidden_size] states that go to the draft in the next round."""
    tap_positions: Sequence[int]
    """[n] index of the token of each."""
    tap_shape: Sequence[int]
    """Shape of the states that the rows were taken from, [1, tokens, hidden_size]."""
    decision: Decision
    emitted: Sequence[int]
    """What was committed."""
    stop: str | None
    target_kv_length: int
    """Tokens in the target's cache, the last committed one counted and the proposal's not."""
    started_ns: int
    drafted_ns: int
    ended_ns: int


class Eagle3Decoder:
    """Generates from one target and one EAGLE-3 draft.

    Args:
        model: the target, a causal language model of transformers.
        draft: from `load_draft`.
        plan: what to propose.
        sampler: how tokens are picked; greedy by default.
        eos_ids: what ends a text.
        faults: what to do wrong on purpose; some of it is done to the draft itself.
    """

    def __init__(
        self,
        model: Any,
        draft: Draft,
        plan: Plan = Chain(),  # noqa: B008  frozen
        *,
        sampler: Sampler | None = None,
        eos_ids: Sequence[int] = (),
        faults: Faults = HEALTHY,
    ) -> None:
        check_plan(plan, len(draft.vocab.table))
        break_draft(draft, faults)
        self.model = model
        self.draft = draft
        self.plan = plan
        self.sampler = sampler or Sampler()
        self.eos_ids = frozenset(eos_ids)
        self.faults = faults
        self._target = Target(model, draft.taps.boundaries, faults)

    def close(self) -> None:
        """Takes the hooks off the target."""
        self._target.close()

    def __enter__(self) -> Eagle3Decoder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def generate(self, prompt_ids: Sequence[int], max_new_tokens: int) -> list[int]:
        """The new tokens after a prompt."""
        return [token for done in self.rounds(prompt_ids, max_new_tokens) for token in done.emitted]

    def rounds(self, prompt_ids: Sequence[int], max_new_tokens: int) -> Iterator[Round]:
        """Generates, round by round.

        Args:
            prompt_ids: at least one token.
            max_new_tokens: where to stop, unless the text ends before.

        Raises:
            UsageError: the prompt is empty, or holds an id that the target lacks.
        """
        self._target.check(prompt_ids, max_new_tokens)
        draft = DraftRows(self.draft.head, self.draft.vocab.table, self.faults)
        self._target.reset()
        done = self._prefill(list(prompt_ids), max_new_tokens)
        committed = [*prompt_ids, *done.emitted]
        yield done
        while done.stop is None:
            left = max_new_tokens - (len(committed) - len(prompt_ids))
            # The states at positions P go with the tokens at P + 1.
            first = done.tap_positions[0]
            started = time.monotonic_ns()
            draft.begin(committed[first + 1 :], done.taps, first)
            done = self._round(draft, committed, done.number + 1, left, started)
            committed += done.emitted
            yield done

    def _prefill(self, prompt_ids: list[int], left: int) -> Round:
        """The target reads the prompt and gives the first token."""
        started = time.monotonic_ns()
        positions = range(len(prompt_ids))
        forward = self._target.run(prompt_ids, positions, last_only=True)
        decision = Decision([], self.sampler.pick(forward.logits))
        emitted, stop = self._commit([decision.token_id], left)
        return Round(
            number=0,
            position=len(prompt_ids),
            proposal=None,
            logits=forward.logits,
            taps=forward.taps,
            tap_positions=positions,
            tap_shape=(1, *forward.taps.shape[1:]),
            decision=decision,
            emitted=emitted,
            stop=stop,
            target_kv_length=self._target.length,
            started_ns=started,
            drafted_ns=started,
            ended_ns=time.monotonic_ns(),
        )

    def _round(
        self, draft: DraftRows, committed: Sequence[int], number: int, left: int, started: int
    ) -> Round:
        """One round after the draft has read what was committed; `left` tokens are still wanted."""
        length = len(committed)
        # The last token is the target's own, so one less is worth drafting.
        proposal = propose(draft, self.plan, min(self.plan.depth, left - 1), self.sampler)
        drafted = time.monotonic_ns()
        cached = self._target.length + 1  # the last committed token is read with the proposal
        forward = self._verify(committed[-1], length, proposal)
        decision = verify(
            proposal, self.sampler.processed(forward.logits), self.sampler, self.draft.vocab.table
        )
        accepted = [proposal.target_ids[i] for i in decision.path]
        emitted, stop = self._commit([*accepted, decision.token_id], left)
        rows = [0, *(i + 1 for i in decision.path)]  # root and accepted nodes
        self._target.keep([*range(length - 1), *(length - 1 + row for row in rows)])
        return Round(
            number=number,
            position=length,
            proposal=proposal if proposal.nodes else None,
            read_positions=_read_positions(committed, proposal),
            logits=forward.logits,
            taps=forward.taps[:, rows],
            tap_positions=range(length - 1, length - 1 + len(rows)),
            tap_shape=(1, *forward.taps.shape[1:]),
            decision=decision,
            emitted=emitted,
            stop=stop,
            target_kv_length=cached,
            started_ns=started,
            drafted_ns=drafted,
            ended_ns=time.monotonic_ns(),
        )

    def _verify(self, root: int, length: int, proposal: Proposal) -> Forward:
        """The target reads the last committed token and all nodes, K+1 rows."""
        positions = [length - 1, *(length + node.depth for node in proposal.nodes)]
        ancestors = None if proposal.is_chain else proposal.ancestors()
        return self._target.run([root, *proposal.target_ids], positions, ancestors)

    def _commit(self, ids: Sequence[int], left: int) -> tuple[list[int], str | None]:
        """What of these tokens is committed: no more than wanted, and none after the end of the text."""
        for number, token in enumerate(ids[:left], 1):
            if token in self.eos_ids:
                return list(ids[:number]), "eos"
        return list(ids[:left]), "length" if len(ids) >= left else None


def _read_positions(committed: Sequence[int], proposal: Proposal) -> list[int | None]:
    """Where the tokens that the draft read stand in the text, sought next to where they should."""
    text = [*committed, *proposal.target_ids]
    found = []
    for depth, token in enumerate(proposal.token_ids):
        meant = len(committed) - 1 + depth
        near = (at for at in (meant, meant - 1, meant + 1) if 0 <= at < len(text) and text[at] == token)
        found.append(next(near, None))
    return found


def generate_alone(
    model: Any,
    prompt_ids: Sequence[int],
    max_new_tokens: int,
    eos_ids: Sequence[int] = (),
    *,
    sampler: Sampler | None = None,
    on_emitted: Callable[[Sequence[int]], None] = lambda ids: None,
) -> list[int]:
    """The target's own text, token by token, with the same cache and no draft.

    Args:
        model: the target.
        prompt_ids: at least one token.
        max_new_tokens: where to stop.
        eos_ids: what ends a text.
        sampler: how tokens are picked; greedy by default.
        on_emitted: told each token.

    Returns:
        The new tokens.
    """
    sampler = sampler or Sampler()
    target = Target(model, ())
    target.reset()
    new_ids: list[int] = []
    waiting = list(prompt_ids)
    while len(new_ids) < max_new_tokens and not {*new_ids[-1:]} & {*eos_ids}:
        at = target.length
        forward = target.run(waiting, range(at, at + len(waiting)), last_only=True)
        waiting = [sampler.pick(forward.logits)]
        new_ids += waiting
        on_emitted(waiting)
    return new_ids

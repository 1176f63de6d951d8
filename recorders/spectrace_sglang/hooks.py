"""Which functions of SGLang are hooked, and what each must look like: one table, read from its source.

`spectrace doctor` and the plugin ask the same table before anything is hooked. Hooks nothing; imports neither
SGLang nor torch.
"""

from __future__ import annotations

from dataclasses import dataclass

from spectrace_serving.hooks import Hook, fix, installed_version

FIX = fix("SGLang", "sglang")


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryHook(Hook):
    """One function that SGLang's HookRegistry wraps; the follower's method of its name takes its place."""

    methods: str
    """Which methods of speculation pass it."""

    @property
    def target(self) -> str:
        """As HookRegistry takes it."""
        return f"sglang.{self.module}.{self.title}"


_ANY, _MODEL = "any method", "draft model"
_EAGLE = "srt.speculative.eagle_worker_v2"

# SGLang 0.5.23.
HOOKS = (
    RegistryHook(
        name="init_model_worker", module="srt.managers.scheduler", cls="Scheduler", parameters=(),
        methods=_ANY, loses="everything", is_needed=True,
    ),
    RegistryHook(
        name="eagle_sample", module="srt.speculative.eagle_utils", cls=None,
        parameters=("verify_input", "batch", "logits_output"),
        methods=_ANY, loses="everything", is_needed=True,
    ),
    RegistryHook(
        name="forward_batch_generation", module="srt.managers.tp_worker", cls="TpModelWorker",
        parameters=("batch", "forward_batch", "pp_proxy_tensors", "is_verify"),
        methods=_ANY, loses="the steps that read a prompt",
    ),
    RegistryHook(
        name="draft", module=_EAGLE, cls="EagleDraftWorker", parameters=("batch",),
        methods=_MODEL, loses="how long the draft took",
    ),
    RegistryHook(
        name="draft_forward", module=_EAGLE, cls="EagleDraftWorker", parameters=("forward_batch",),
        methods=_MODEL, loses="the draft's own values after its first token",
    ),
    RegistryHook(
        name="_draft_extend_for_prefill", module=_EAGLE, cls="EagleDraftWorker",
        parameters=("batch", "target_hidden_states", "next_token_ids"),
        methods=_MODEL, loses="the draft's own values of the first token after a prompt",
    ),
    RegistryHook(
        name="_draft_extend_for_decode", module=_EAGLE, cls="EagleDraftWorker",
        parameters=("batch", "batch_result"),
        methods=_MODEL, loses="the draft's own values of each first token",
    ),
)  # fmt: skip


def engine_version() -> str | None:
    """Version of SGLang; None where it is not installed."""
    return installed_version("sglang")

"""Which functions of SGLang are hooked, and what each must look like: one table, read from its source.

`spectrace doctor` and the plugin ask the same table before anything is hooked. Hooks nothing; imports neither
SGLang nor torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from spectrace_serving.source import misfit, parameters_in

FIX = "install a version of SGLang that fits, or a newer spectrace-tui"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hook:
    """One function that SGLang's HookRegistry wraps."""

    name: str
    """Of the function, and of the follower's method that takes its place."""
    module: str
    """Where SGLang defines it, below the package."""
    cls: str | None
    parameters: tuple[str, ...]
    """Names of its first parameters, in order, without self."""
    methods: str
    """Which methods of speculation pass it."""
    loses: str
    """What a trace lacks without it."""
    is_needed: bool = False
    """Without it nothing is recorded."""

    @property
    def title(self) -> str:
        """Name with its class."""
        return self.name if self.cls is None else f"{self.cls}.{self.name}"

    @property
    def target(self) -> str:
        """As HookRegistry takes it."""
        return f"sglang.{self.module}.{self.title}"

    def problem(self, folder: Path) -> str | None:
        """What does not fit in an installed SGLang, as a sentence; None where it fits.

        Args:
            folder: of the package.
        """
        file = folder.joinpath(*self.module.split(".")).with_suffix(".py")
        return misfit(self.title, self.parameters, parameters_in(file, self.cls, self.name))


_ANY, _MODEL = "any method", "draft model"
_EAGLE = "srt.speculative.eagle_worker_v2"

# SGLang 0.5.23.
HOOKS = (
    Hook(
        name="init_model_worker", module="srt.managers.scheduler", cls="Scheduler", parameters=(),
        methods=_ANY, loses="everything", is_needed=True,
    ),
    Hook(
        name="eagle_sample", module="srt.speculative.eagle_utils", cls=None,
        parameters=("verify_input", "batch", "logits_output"),
        methods=_ANY, loses="everything", is_needed=True,
    ),
    Hook(
        name="forward_batch_generation", module="srt.managers.tp_worker", cls="TpModelWorker",
        parameters=("batch", "forward_batch", "pp_proxy_tensors", "is_verify"),
        methods=_ANY, loses="the steps that read a prompt",
    ),
    Hook(
        name="draft", module=_EAGLE, cls="EagleDraftWorker", parameters=("batch",),
        methods=_MODEL, loses="how long the draft took",
    ),
    Hook(
        name="draft_forward", module=_EAGLE, cls="EagleDraftWorker", parameters=("forward_batch",),
        methods=_MODEL, loses="the draft's own values after its first token",
    ),
    Hook(
        name="_draft_extend_for_prefill", module=_EAGLE, cls="EagleDraftWorker",
        parameters=("batch", "target_hidden_states", "next_token_ids"),
        methods=_MODEL, loses="the draft's own values of the first token after a prompt",
    ),
    Hook(
        name="_draft_extend_for_decode", module=_EAGLE, cls="EagleDraftWorker",
        parameters=("batch", "batch_result"),
        methods=_MODEL, loses="the draft's own values of each first token",
    ),
)  # fmt: skip


def engine_version() -> str | None:
    """Version of SGLang; None where it is not installed."""
    try:
        return version("sglang")
    except PackageNotFoundError:
        return None


def engine_folder() -> Path | None:
    """Folder of the package, found without importing it."""
    spec = find_spec("sglang")
    return None if spec is None or spec.origin is None else Path(spec.origin).parent

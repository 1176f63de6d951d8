"""The entry point `vllm.general_plugins`: vLLM calls `register` in every process it starts.

Most of them run no model, so this file imports nothing but what it needs to say no. In a worker it waits for
the models to be loaded and then hands over to `spectrace_vllm.recording`.
"""

from __future__ import annotations

from typing import Any

from spectrace_serving.plugin import begun, guarded, is_asked_for

_MARK = "_spectrace_is_registered"


def register() -> None:
    """Makes workers record, if SPECTRACE_OUT says where; a second call does nothing. Never raises."""
    if is_asked_for():
        guarded("vllm", _wrap_worker)


def _wrap_worker() -> None:
    """Attaches after a worker has its models and caches, and ends the trace with the worker."""
    from vllm.v1.worker.worker_base import WorkerWrapperBase

    if hasattr(WorkerWrapperBase, _MARK):
        return
    initialize, shutdown = WorkerWrapperBase.initialize_from_config, WorkerWrapperBase.shutdown

    def initialize_from_config(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = initialize(self, *args, **kwargs)
        guarded("vllm", _attach, self.worker)
        return result

    def shutdown_with_trace(self: Any, *args: Any, **kwargs: Any) -> Any:
        recording = getattr(getattr(self, "worker", None), "_spectrace", None)
        if recording is not None:
            guarded("vllm", recording.close)
        return shutdown(self, *args, **kwargs)

    setattr(WorkerWrapperBase, _MARK, True)
    WorkerWrapperBase.initialize_from_config = initialize_from_config
    WorkerWrapperBase.shutdown = shutdown_with_trace


def _attach(worker: Any) -> None:
    from spectrace_vllm.recording import attach, speaks

    if speaks(worker):  # or nothing is said either: an engine says it once
        worker._spectrace = begun("vllm", lambda settings: attach(worker, settings))

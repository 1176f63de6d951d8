"""The entry point `vllm.general_plugins`: vLLM calls `register` in every process it starts.

Most of them run no model, so this file imports nothing but what it needs to say no. In a worker it waits for
the models to be loaded and then hands over to `spectrace_vllm.recording`.
"""

from __future__ import annotations

import logging
import os
from typing import Any

logger = logging.getLogger("spectrace")

_MARK = "_spectrace_is_registered"


def register() -> None:
    """Makes workers record, if SPECTRACE_OUT says where; a second call does nothing. Never raises."""
    if not os.environ.get("SPECTRACE_OUT"):
        return
    try:
        _wrap_worker()
    except Exception as error:  # noqa: BLE001  the engine's run is worth more than our trace
        logger.warning("vllm: nothing is recorded: %s; try: spectrace doctor", error)


def _wrap_worker() -> None:
    """Attaches after a worker has its models and caches, and ends the trace with the worker."""
    from vllm.v1.worker.worker_base import WorkerWrapperBase

    if hasattr(WorkerWrapperBase, _MARK):
        return
    initialize, shutdown = WorkerWrapperBase.initialize_from_config, WorkerWrapperBase.shutdown

    def initialize_from_config(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = initialize(self, *args, **kwargs)
        _attach(self.worker)
        return result

    def shutdown_with_trace(self: Any, *args: Any, **kwargs: Any) -> Any:
        recording = getattr(getattr(self, "worker", None), "_spectrace", None)
        if recording is not None:
            recording.close()
        return shutdown(self, *args, **kwargs)

    setattr(WorkerWrapperBase, _MARK, True)
    WorkerWrapperBase.initialize_from_config = initialize_from_config
    WorkerWrapperBase.shutdown = shutdown_with_trace


def _attach(worker: Any) -> None:
    try:
        from spectrace_serving.settings import from_environment
        from spectrace_vllm.recording import attach

        settings = from_environment(os.environ)
        if settings is not None:
            worker._spectrace = attach(worker, settings)
    except Exception as error:  # noqa: BLE001  the engine's run is worth more than our trace
        logger.warning("vllm: nothing is recorded: %s; try: spectrace doctor", error)

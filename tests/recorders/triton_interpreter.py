"""Lets Triton kernels of an engine run on a CPU: its own interpreter, behind a backend that is a name only.

For tests: every kernel runs, element by element, in Python. Call `install` before an engine is imported.
"""

from __future__ import annotations

import os
from typing import Any

ENVIRONMENT = {"TRITON_INTERPRET": "1", "TRITON_DEFAULT_BACKEND": "cpu", "VLLM_USE_V2_MODEL_RUNNER": "1"}
"""To be set before Triton is imported."""


def install() -> None:
    """Registers the backend `cpu`."""
    missing = {name for name, value in ENVIRONMENT.items() if os.environ.get(name) != value}
    if missing:
        raise RuntimeError(f"set {', '.join(sorted(missing))} before the process starts")
    import torch
    from triton.backends import Backend, backends
    from triton.backends.compiler import BaseBackend, GPUTarget
    from triton.backends.driver import DriverBase

    class NoCompiler(BaseBackend):  # type: ignore[misc]
        """Compiles nothing: the interpreter never asks."""

        binary_ext = "none"

        @staticmethod
        def supports_target(target: Any) -> bool:
            return bool(target.backend == "cpu")

        def hash(self) -> str:
            return "interpreter"

        def parse_options(self, options: Any) -> Any:
            return options

        def add_stages(self, stages: Any, options: Any, language: Any) -> None:
            raise RuntimeError("kernels are interpreted, not compiled")

        def load_dialects(self, context: Any) -> None:
            pass

        def get_module_map(self) -> dict[str, Any]:
            return {}

    class HostDriver(DriverBase):  # type: ignore[misc]
        """The host as a device."""

        @classmethod
        def is_active(cls) -> bool:
            return True

        def map_python_to_cpp_type(self, ty: str) -> str:
            return ty

        def get_current_target(self) -> Any:
            return GPUTarget("cpu", 0, 1)

        def get_active_torch_device(self) -> Any:
            return torch.device("cpu")

        def get_benchmarker(self) -> Any:
            return lambda call, **_: [0.0]

        def get_current_device(self) -> int:
            return 0

        def get_current_stream(self, device: Any = None) -> int:
            return 0

        def get_device_interface(self) -> Any:
            return torch.cpu

        def get_empty_cache_for_benchmark(self) -> Any:
            return torch.zeros(1)

        def clear_cache(self, cache: Any) -> None:
            pass

    backends["cpu"] = Backend(compiler=NoCompiler, driver=HostDriver)
    _take_any_mask()


def _take_any_mask() -> None:
    """Triton 3.9's interpreter takes masks of bool only; vLLM's kernels also make them of integers."""
    import numpy as np
    from triton.runtime.interpreter import InterpreterBuilder

    def with_bool(original: Any, place: int) -> Any:
        def call(self: Any, *args: Any) -> Any:
            data = getattr(args[place], "data", None)
            if data is not None and data.dtype != np.bool_:
                args[place].data = data.astype(np.bool_)
            return original(self, *args)

        return call

    for name, place in (("create_masked_load", 1), ("create_masked_store", 2)):
        setattr(InterpreterBuilder, name, with_bool(getattr(InterpreterBuilder, name), place))

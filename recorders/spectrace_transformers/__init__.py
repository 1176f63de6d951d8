"""Records speculative decoding with transformers into a spectrace trace.

    with spectrace_transformers.record("run.spectrace", model, tokenizer=tokenizer):
        model.generate(**inputs, assistant_model=draft)

Owns the hooks into one model's assisted generation and the translation of transformers' words into the
names of a trace. Reads nothing back and judges nothing. Transformers is imported with the first name asked
for: other recorders reduce logits with what is here, and may run without it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spectrace_transformers.recorder import TransformersRecorder

    record = TransformersRecorder
    """Short form: ``with record(path, model):``."""
else:

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module 'spectrace_transformers' has no attribute {name!r}")
        return import_module("spectrace_transformers.recorder").TransformersRecorder


__all__ = ["TransformersRecorder", "record"]

"""Records speculative decoding with transformers into a spectrace trace.

    with spectrace_transformers.record("run.spectrace", model, tokenizer=tokenizer):
        model.generate(**inputs, assistant_model=draft)

Owns the hooks into one model's assisted generation and the translation of transformers' words into the
names of a trace. Reads nothing back and judges nothing.
"""

from __future__ import annotations

from spectrace_transformers.recorder import TransformersRecorder

record = TransformersRecorder
"""Short form: ``with record(path, model):``."""

__all__ = ["TransformersRecorder", "record"]

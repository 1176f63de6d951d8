"""Records speculative decoding inside SGLang: a plugin that SGLang loads by itself in every process.

    SPECTRACE_OUT=traces python -m sglang.launch_server --model-path TARGET --speculative-algorithm EAGLE3 ...

Owns the hooks into SGLang's speculative workers and the translation of its words into the names of a trace.
Imports neither SGLang nor torch by itself. Reads nothing back and judges nothing.
"""

from __future__ import annotations

from spectrace_sglang.plugin import register

__all__ = ["register"]

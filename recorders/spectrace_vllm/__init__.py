"""Records speculative decoding inside vLLM: a plugin that vLLM loads by itself in every worker.

    SPECTRACE_OUT=traces python -m vllm.entrypoints.openai.api_server --model TARGET --speculative-config ...

Owns the hooks into vLLM's two model runners and the translation of vLLM's words into the names of a trace.
Imports neither vLLM nor torch by itself. Reads nothing back and judges nothing.
"""

from __future__ import annotations

from spectrace_vllm.plugin import register

__all__ = ["register"]

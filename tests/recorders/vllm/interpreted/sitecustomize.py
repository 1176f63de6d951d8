"""Lets vLLM's V2 runner run on a CPU in every process that starts with this folder on PYTHONPATH."""

import os

if os.environ.get("TRITON_INTERPRET"):
    from tests.recorders.triton_interpreter import install

    install()

"""Makes the sample traces from the bundled models: fixed prompts and seeds, real times.

    python sample_traces/make_samples.py [NAME ...]

Each trace is recorded to a temporary file and put in place whole. The files named ``*-v1`` are not made here:
they are what an old version wrote and stay as they are.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SEED = 7
NEW_TOKENS = 40
"""Per prompt; keeps every sample below 100 kB."""


def run(
    out: Path, num_prompts: int, *, lookup: bool = False, kill_after: int | None = None, **options: Any
) -> None:
    """Records one run of the bundled models.

    Args:
        out: trace to write.
        num_prompts: how many of the bundled prompts.
        lookup: propose by prompt lookup instead of the draft model.
        kill_after: end this process with SIGKILL after so many generated tokens.
        options: for ``generate``.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.generation.streamers import BaseStreamer

    import spectrace_demo
    import spectrace_transformers

    torch.manual_seed(SEED)
    tokenizer = AutoTokenizer.from_pretrained(spectrace_demo.target_path())
    target = AutoModelForCausalLM.from_pretrained(spectrace_demo.target_path())
    draft = AutoModelForCausalLM.from_pretrained(spectrace_demo.draft_path())
    proposer = {"prompt_lookup_num_tokens": 5} if lookup else {"assistant_model": draft}

    seen = [0]

    class Killer(BaseStreamer):  # type: ignore[misc]  # transformers types it as Any
        """Counts the tokens that generation hands out and ends the process when it is time."""

        def put(self, value: Any) -> None:
            seen[0] += value.numel()
            if kill_after is not None and seen[0] > kill_after:
                os.kill(os.getpid(), signal.SIGKILL)

        def end(self) -> None:
            """Nothing to do."""

    names = {"target": {"id": "spectrace_demo/target"}}
    if not lookup:
        names["draft"] = {"id": "spectrace_demo/draft"}
    with spectrace_transformers.record(out, target, tokenizer=tokenizer, strict=True, run=names):
        for prompt in spectrace_demo.prompts()[:num_prompts]:
            inputs = tokenizer(prompt, return_tensors="pt")
            target.generate(**inputs, **proposer, max_new_tokens=NEW_TOKENS, streamer=Killer(), **options)


def killed(out: Path) -> None:
    """Records in a child process that is killed in the middle of its second prompt."""
    code = f"import make_samples as m; m.run(m.Path({str(out)!r}), 3, kill_after={2 * NEW_TOKENS})"
    child = subprocess.run([sys.executable, "-c", code], cwd=HERE, check=False)
    if child.returncode != -signal.SIGKILL:
        raise SystemExit(f"the child should have been killed, it ended with {child.returncode}")


SAMPLES: dict[str, Callable[[Path], None]] = {
    "draft-greedy": lambda out: run(out, 3, do_sample=False),
    "draft-sampled": lambda out: run(out, 3, do_sample=True, temperature=0.8, top_p=0.95),
    "prompt-lookup": lambda out: run(out, 2, lookup=True, do_sample=False),
    "killed": killed,
}


def main(names: list[str]) -> None:
    """Makes the samples of these names, or all."""
    for name in names or SAMPLES:
        out = HERE / f"{name}.spectrace"
        with tempfile.TemporaryDirectory(dir=HERE) as folder:
            made = Path(folder) / out.name
            SAMPLES[name](made)
            made.replace(out)
            out.chmod(0o644)
        print(f"{out.name}: {out.stat().st_size:,} bytes")


if __name__ == "__main__":
    main(sys.argv[1:])

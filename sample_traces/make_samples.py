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
EAGLE3_TOKENS = 35
"""The same with taps and references, below 150 kB."""


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


def eagle3(out: Path, *, tree: bool = False, **faults: Any) -> None:
    """Records the bundled EAGLE-3 head in the reference decoder, and a plain forward over each prompt.

    Args:
        out: trace to write.
        tree: draft trees instead of chains.
        faults: of `spectrace_eagle3.Faults`, what the decoder does wrong on purpose.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    import spectrace_demo
    from spectrace_eagle3 import Chain, DynamicTree, Eagle3Decoder, Eagle3Recorder, Faults, load_draft

    torch.set_num_threads(1)
    tokenizer = AutoTokenizer.from_pretrained(spectrace_demo.target_path())
    target = AutoModelForCausalLM.from_pretrained(spectrace_demo.target_path())
    draft = load_draft(spectrace_demo.eagle3_path(), target)
    plan = DynamicTree(topk=4, depth=4, num_nodes=12) if tree else Chain(4)
    names = {"target": {"id": "spectrace_demo/target"}, "draft": {"id": "spectrace_demo/eagle3"}}
    eos_ids = [tokenizer.eos_token_id]
    with (
        Eagle3Decoder(target, draft, plan, eos_ids=eos_ids, faults=Faults(**faults)) as decoder,
        Eagle3Recorder(out, decoder, tokenizer=tokenizer, strict=True, run=names) as recorder,
    ):
        for prompt in spectrace_demo.prompts()[:2]:
            recorder.generate(tokenizer(prompt).input_ids, EAGLE3_TOKENS, reference=True)


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
    "eagle3": eagle3,
    "eagle3-tree": lambda out: eagle3(out, tree=True),
    "eagle3-map-as-direct": lambda out: eagle3(out, map_as_direct=True),
    "eagle3-taps-shifted": lambda out: eagle3(out, tap_shift=1),
    "eagle3-taps-normed": lambda out: eagle3(out, normed_taps=True),
    "eagle3-no-midlayer": lambda out: eagle3(out, no_midlayer=True),
    "eagle3-feedback-normed": lambda out: eagle3(out, swapped_feedback_norm=True),
    "eagle3-draft-kv-kept": lambda out: eagle3(out, keep_draft_kv=True),
    "eagle3-positions-shifted": lambda out: eagle3(out, position_shift=1),
    "eagle3-random-head": lambda out: eagle3(out, random_head=True),
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

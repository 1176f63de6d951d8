"""The runs that are compared: every bundled prompt to its end, greedy, three draft tokens a step.

The bundled models have heads of 64 here, which is the same arithmetic: see `spectrace_demo.export`. Refuses
to compare.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import spectrace
from tests.recorders.serving_traces import trace_of
from tests.recorders.triton_interpreter import ENVIRONMENT
from tests.recorders.vllm.scenarios import K

_ROOT = Path(__file__).parents[2]
LIMIT = 160
"""Most tokens per prompt; every one of these texts ends before."""
_SCENARIOS = {"eagle3": "whole-eagle3", "draft_model": "whole-draft", "ngram": "whole-ngram"}
_RUNNERS: Mapping[str, Mapping[str, str]] = {"V1": {}, "V2": ENVIRONMENT}


class Run(NamedTuple):
    """One trace of one engine; the first of a method is what the others are compared with."""

    method: str
    engine: str
    trace: Path


def make(folder: Path) -> list[Run]:
    """Makes the runs that are not in a folder yet.

    Args:
        folder: for models and traces.
    """
    models = _models(folder / "models")
    return [*_plain(models, folder), *_vllm(models, folder)]


def _models(folder: Path) -> Path:
    from spectrace_demo import draft_path, eagle3_path, target_path
    from spectrace_demo.export import export

    for source in (target_path(), draft_path(), eagle3_path()):
        if not (folder / source.name).exists():
            folder.mkdir(parents=True, exist_ok=True)
            export(source, folder / source.name)
    return folder


def _plain(models: Path, folder: Path) -> Iterable[Run]:
    """Reference decoder and transformers, in this process."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    def loaded(name: str) -> Any:
        return AutoModelForCausalLM.from_pretrained(models / name, dtype=torch.float32).eval()

    target, tokenizer = loaded("target"), AutoTokenizer.from_pretrained(models / "target")
    reference, draft, lookup = (
        folder / f"{name}.spectrace" for name in ("reference", "transformers-draft", "transformers-lookup")
    )
    if not reference.exists():
        _record_reference(reference, target, tokenizer, models / "eagle3")
    if not draft.exists():
        assistant = loaded("draft")
        config = assistant.generation_config
        config.num_assistant_tokens = K
        config.num_assistant_tokens_schedule = "constant"
        config.assistant_confidence_threshold = 0.0
        _record_transformers(draft, target, tokenizer, assistant_model=assistant)
    if not lookup.exists():
        _record_transformers(lookup, target, tokenizer, prompt_lookup_num_tokens=K, max_matching_ngram_size=3)
    yield Run("eagle3", "reference decoder", reference)
    yield Run("draft_model", f"transformers {_version(draft)}", draft)
    yield Run("ngram", f"transformers {_version(lookup)}", lookup)


def _record_reference(path: Path, target: Any, tokenizer: Any, head: Path) -> None:
    from spectrace_eagle3 import Chain, Eagle3Decoder, Eagle3Recorder, load_draft

    draft = load_draft(head, target)
    with (
        Eagle3Decoder(target, draft, Chain(K), eos_ids=[tokenizer.eos_token_id]) as decoder,
        Eagle3Recorder(path, decoder, tokenizer=tokenizer) as recorder,
    ):
        for prompt in _prompts():
            recorder.generate(tokenizer(prompt)["input_ids"], LIMIT, reference=True)


def _record_transformers(path: Path, target: Any, tokenizer: Any, **options: Any) -> None:
    import spectrace_transformers

    with spectrace_transformers.record(path, target, tokenizer=tokenizer):
        for prompt in _prompts():
            ids = tokenizer(prompt, return_tensors="pt", return_token_type_ids=False)
            target.generate(**ids, **options, do_sample=False, max_new_tokens=LIMIT)


def _vllm(models: Path, folder: Path) -> Iterable[Run]:
    """Both runners of vLLM, each in a process of its own; none where it is not installed."""
    if find_spec("vllm") is None and not any(folder.glob("vllm-*")):
        print(
            "vllm is not installed here and is left out; make test-engines builds build/engines",
            file=sys.stderr,
        )
        return
    for runner, environment in _RUNNERS.items():
        own = folder / f"vllm-{runner}"
        if not own.exists():
            child = _ROOT / "tests/recorders/vllm/child.py"
            path = os.pathsep.join([str(_ROOT), str(_ROOT / "recorders")])
            subprocess.run(
                [sys.executable, str(child), str(models), str(own), *_SCENARIOS.values()],
                env={**os.environ, "PYTHONPATH": path, **environment},
                check=True,
                stdout=sys.stderr,
            )
        for method, scenario in _SCENARIOS.items():
            trace = trace_of(own / scenario)
            yield Run(method, f"vLLM {_version(trace)}, {runner} runner", trace)


def _version(trace: Path) -> str | None:
    with spectrace.open(trace) as opened:
        return None if opened.run.engine is None else opened.run.engine.version


def _prompts() -> Iterable[str]:
    from spectrace_demo import prompts

    return prompts()

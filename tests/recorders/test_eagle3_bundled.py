"""The bundled EAGLE-3 head is small, its vocabulary map is a real one, and it drafts well."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

import spectrace
import spectrace_demo

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from spectrace_eagle3 import Chain, Eagle3Decoder, load_draft  # noqa: E402
from tests.recorders.eagle3_zoo import EOS, bundled_target, bundled_weights, prompt_ids  # noqa: E402

pytestmark = pytest.mark.engine


def test_the_map_is_a_real_one() -> None:
    """Ten zeros and more at first, offsets from an early id on, and the law of d2t and t2d."""
    weights = bundled_weights()
    d2t, t2d = weights["d2t"], weights["t2d"]
    assert d2t.dtype == torch.int64
    assert t2d.dtype == torch.bool
    assert 400 <= len(d2t) == len(weights["lm_head.weight"]) <= 600
    first = int((d2t > 0).nonzero()[0])
    assert 10 <= first < 64
    assert torch.equal(t2d.nonzero().flatten(), torch.arange(len(d2t)) + d2t)
    assert bool((d2t.diff() >= 0).all())


def test_the_naming_is_that_of_eagle() -> None:
    """`midlayer.*`, and nothing that is missing or has no place."""
    assert "midlayer.self_attn.q_proj.weight" in bundled_weights()
    draft = load_draft(spectrace_demo.eagle3_path(), bundled_target())
    assert draft.missing == draft.unexpected == ()
    assert draft.shared == ("embed_tokens.weight",)


def test_it_drafts_well_on_prompts_it_has_not_seen() -> None:
    """At least 60 % of first tokens are accepted, pooled over all held-out prompts."""
    draft = load_draft(spectrace_demo.eagle3_path(), bundled_target())
    accepted = []
    with Eagle3Decoder(bundled_target(), draft, Chain(4), eos_ids=[EOS]) as decoder:
        for number in range(len(spectrace_demo.prompts())):
            rounds = decoder.rounds(prompt_ids(number), 48)
            accepted += [len(done.decision.path) for done in rounds if done.proposal is not None]
    assert sum(count > 0 for count in accepted) / len(accepted) >= 0.6


def test_all_models_together_stay_small() -> None:
    """The wheel carries at most 10 MB of models."""
    files = [path for path in spectrace_demo.eagle3_path().parent.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= 10_000_000


def test_its_readme_has_the_figures_of_its_training() -> None:
    """What config.json reports of the training is what the README beside it says."""
    folder: Path = spectrace_demo.eagle3_path()
    training = json.loads((folder / "config.json").read_text(encoding="utf-8"))["training"]
    readme = (folder / "README.md").read_text(encoding="utf-8")
    for figure in (*training["accuracy_per_depth"], *training["loss_per_depth"]):
        assert f"{figure:.3f}" in readme


@pytest.mark.parametrize("name", ["eagle3", "eagle3-tree", "eagle3-taps-normed"])
def test_a_sample_is_made_again_by_its_script(name: str, tmp_path: Path) -> None:
    """The same proposals, decisions and states; only times differ."""
    folder = Path(__file__).parents[2] / "sample_traces"
    spec = importlib.util.spec_from_file_location("make_samples", folder / "make_samples.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    script.SAMPLES[name](tmp_path / "new.spectrace")

    def said(path: Path) -> list[Any]:
        with spectrace.open(path) as trace:
            return [
                (step.request, step.draft_ids, step.proposal_ids, step.parents, step.num_accepted)
                for step in trace
            ] + [(reference.request, reference.boundary) for reference in trace.references]

    assert said(tmp_path / "new.spectrace") == said(folder / f"{name}.spectrace")


def test_samples_are_small_enough_to_attach() -> None:
    """150 kB at most, each."""
    for path in (Path(__file__).parents[2] / "sample_traces").glob("*.spectrace"):
        assert path.stat().st_size <= 150_000, path.name

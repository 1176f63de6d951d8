"""`spectrace probe` counts what a draft gets right, and names what an engine did by replaying it."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

import spectrace
import spectrace_demo
from spectrace.cli import main
from spectrace.format.jsonl import export_lines, import_lines

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from spectrace_eagle3 import (  # noqa: E402
    Chain,
    DynamicTree,
    Eagle3Decoder,
    Eagle3Recorder,
    Faults,
    Sampler,
    StaticTree,
    load_draft,
)
from spectrace_eagle3.probe import probe  # noqa: E402
from spectrace_eagle3.states import states_path  # noqa: E402
from spectrace_eagle3.variants import variants, varied  # noqa: E402
from tests.recorders.eagle3_zoo import EOS, bundled_target, bundled_tokenizer, prompt_ids  # noqa: E402

pytestmark = pytest.mark.engine

FOLDERS: Any = {"target": spectrace_demo.target_path(), "draft": spectrace_demo.eagle3_path()}
TEXT = (
    "One windy morning Mira walked from Elmford to the old mill. There she met a baker who had lost a lamp."
)
Probe = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Probe:
    """Return `spectrace probe` of the bundled head: arguments -> exit code, stdout, stderr."""
    entry = EntryPoint("eagle3", "spectrace_eagle3.probe:probe", "spectrace.probes")
    monkeypatch.setattr("spectrace.cli.probe.entry_points", lambda group: [entry])

    def call(*arguments: str | Path) -> tuple[int, str, str]:
        code = main(
            ["probe", "--target", str(FOLDERS["target"]), "--draft", str(FOLDERS["draft"]), "--device", "cpu"]
            + [str(argument) for argument in arguments]
        )
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def _record(
    path: Path,
    prompts: tuple[int, ...],
    plan: Any = None,
    *,
    sampler: Any = None,
    states: int = 0,
    **faults: Any,
) -> Path:
    draft = load_draft(spectrace_demo.eagle3_path(), bundled_target())
    with (
        Eagle3Decoder(
            bundled_target(), draft, plan or Chain(3), sampler=sampler, eos_ids=[EOS], faults=Faults(**faults)
        ) as decoder,
        Eagle3Recorder(path, decoder, tokenizer=bundled_tokenizer(), states=states, strict=True) as recorder,
    ):
        for number in prompts:
            recorder.generate(prompt_ids(number), 20)
    return path


def test_teacher_forced_accuracy_is_that_of_a_walk_through_the_text() -> None:
    """Depth by depth the same hits as drafting after every position, one at a time, from the true tokens."""
    ids = bundled_tokenizer()(TEXT).input_ids
    found = probe(prompts=[TEXT], device="cpu", **FOLDERS)
    target, draft = bundled_target(), load_draft(spectrace_demo.eagle3_path(), bundled_target())
    with torch.no_grad():
        output = target(torch.tensor([ids]), output_hidden_states=True)
    picks, states = output.logits[0].argmax(-1), output.hidden_states
    taps = torch.stack([states[k][0] for k in draft.taps.boundaries])
    from spectrace_eagle3.faults import HEALTHY
    from spectrace_eagle3.rows import DraftRows, Node

    hits, starts = [0, 0, 0], range(len(ids) - 4)
    raw_of = {int(target_id): raw for raw, target_id in enumerate(draft.vocab.table)}
    judged = 0
    for start in starts:
        told = ids[start + 2 : start + 4]
        if any(token not in raw_of for token in told):
            continue  # the walk feeds raw ids
        judged += 1
        rows = DraftRows(draft.head, draft.vocab.table, HEALTHY)
        rows.begin(ids[1 : start + 2], taps[:, : start + 1], 0)
        nodes: list[Node] = []
        for depth in range(3):
            pick = int(draft.vocab.table[int(rows.logits[depth].argmax())])
            hits[depth] += pick == int(picks[start + 1 + depth])
            if depth < 2:
                nodes.append(Node(raw_of[told[depth]], depth - 1, depth, depth))
                rows.read([depth], nodes)
    assert judged > 0.7 * len(starts)
    right = found["rows"][0]["right"]
    assert [trials for _, trials in right] == [len(starts)] * 3
    for depth in range(3):
        assert 0 <= right[depth][0] - hits[depth] <= len(starts) - judged


FAULTS: dict[str, dict[str, Any]] = {
    "as this decoder runs it": {},
    "d2t read as target ids": {"map_as_direct": True},
    "taps one layer up": {"tap_shift": 1},
    "taps one layer down": {"tap_shift": -1},
    "taps after the final norm": {"normed_taps": True},
    "without the draft's layer": {"no_midlayer": True},
    "state fed back normed": {"swapped_feedback_norm": True},
    "own tokens one position late": {"position_shift": 1},
    "rejected tokens in the cache": {"keep_draft_kv": True},
}


@pytest.mark.parametrize("prompts", [(0, 1), (2, 3), (4, 5)])
@pytest.mark.parametrize("name", FAULTS)
def test_the_best_line_is_the_fault_of_the_recorded_run(
    run: Probe, tmp_path: Path, name: str, prompts: tuple[int, ...]
) -> None:
    """On three sets of prompts, every fault that leaves the weights alone is named by its replay."""
    trace = _record(tmp_path / "run.spectrace", prompts, **FAULTS[name])
    code, out, err = run(trace, "--json")
    assert code == 0, err
    found = json.loads(out)
    best = found["rows"][found["best"]]
    same, proposed = best["same"]
    assert same >= 0.98 * proposed > 0
    assert best["apart"] < 1e-3
    assert best["name"] == name


@pytest.mark.parametrize("prompts", [(0, 1), (2, 3), (4, 5)])
def test_a_head_that_was_never_loaded_is_named_by_its_fingerprint(
    run: Probe, tmp_path: Path, prompts: tuple[int, ...]
) -> None:
    """No way of running the true weights gives what was proposed; the weight that differs is named."""
    trace = _record(tmp_path / "run.spectrace", prompts, random_head=True)
    code, out, _ = run(trace)
    assert code == 0
    assert "the recorded run had other weights than this checkpoint: lm_head.weight" in out.splitlines()
    assert out.splitlines()[-1].startswith("none of these is what the recorded run did")
    assert json.loads(run(trace, "--json")[1])["best"] is None


def test_without_its_layer_the_draft_is_right_by_chance_only(run: Probe) -> None:
    """The line of the story's stand-alone script, beside the one that does it right."""
    code, out, _ = run("--prompt", TEXT, "--json")
    rows = {row["name"]: row["right"][1] for row in json.loads(out)["rows"]}
    assert code == 0
    assert rows["without the draft's layer"][0] <= 1
    assert rows["as this decoder runs it"][0] > 5


def test_no_line_leaves_the_draft_changed() -> None:
    """Each is undone, whatever it did to norms, layers, flags and embeddings."""
    model = bundled_target()
    draft = load_draft(spectrace_demo.eagle3_path(), model)
    before = repr(draft.head), draft.head.config, draft.head.norm_output, draft.head.embed_tokens.weight
    tried = variants(draft, 8, has_chains=True)
    assert len({variant.name for variant in tried}) == len(tried) >= 18
    for variant in tried:
        with varied(draft, variant, model):
            pass
        after = repr(draft.head), draft.head.config, draft.head.norm_output, draft.head.embed_tokens.weight
        assert all(a is b or a == b for a, b in zip(before[:3], after[:3]))
        assert before[3] is after[3]


def test_the_table_says_what_it_was_compared_with(run: Probe) -> None:
    """Shares per depth, an interval, and what the training reported; no column without a recording."""
    code, out, _ = run("--prompt", TEXT, "--depth", "2")
    assert code == 0
    lines = out.splitlines()
    assert lines[0].split() == ["1", "(95", "%)", "2"]
    assert lines[1].startswith("* as this decoder runs it")
    assert any(line.startswith("training reported 0.844 (its config.json)") for line in lines)
    assert max(map(len, lines)) <= 80
    assert lines[-1] == "* nothing else does better"


SAMPLES: dict[str, str] = {
    "eagle3": "the recorded run did what this decoder does",
    "eagle3-tree": "the recorded run did what this decoder does",
    "eagle3-map-as-direct": "d2t read as target ids",
    "eagle3-taps-shifted": "taps one layer up",
    "eagle3-taps-normed": "taps after the final norm",
    "eagle3-no-midlayer": "without the draft's layer",
    "eagle3-feedback-normed": "state fed back normed",
    "eagle3-draft-kv-kept": "rejected tokens in the cache",
    "eagle3-positions-shifted": "own tokens one position late",
    "eagle3-random-head": "none of these is what the recorded run did",
}


@pytest.mark.parametrize("name", SAMPLES)
def test_the_fault_of_every_sample_is_named(run: Probe, name: str) -> None:
    """In the last sentence that the command prints."""
    sample = Path(__file__).parents[2] / "sample_traces" / f"{name}.spectrace"
    code, out, err = run(sample)
    assert code == 0, err
    assert SAMPLES[name] in " ".join(out.split("\n*")[-1].split())


PLANS: dict[str, dict[str, Any]] = {
    "dynamic tree": {"plan": DynamicTree(3, 3, 8)},
    "static tree": {"plan": StaticTree(((0,), (1,), (0, 0), (0, 1), (1, 0), (0, 0, 0)))},
    "drawn chain": {"sampler": Sampler(0.8, seed=3)},
    "sampled tree": {"plan": DynamicTree(3, 3, 8), "sampler": Sampler(0.8, top_p=0.9, seed=3)},
}


@pytest.mark.parametrize(
    "fault", ["as this decoder runs it", "taps one layer up", "own tokens one position late"]
)
@pytest.mark.parametrize("name", PLANS)
def test_trees_and_drawn_chains_are_replayed(run: Probe, tmp_path: Path, name: str, fault: str) -> None:
    """Every node is proposed again by the line that did it, and by that line best."""
    trace = _record(tmp_path / "run.spectrace", (0, 1), **PLANS[name], **FAULTS[fault])
    code, out, err = run(trace, "--json")
    assert code == 0, err
    found = json.loads(out)
    best = found["rows"][found["best"]]
    with spectrace.open(trace) as recorded:
        assert best["same"][1] == sum(len(step.proposal_ids) for step in recorded)
    assert best["same"][0] >= 0.98 * best["same"][1]
    assert best["apart"] < 1e-3
    assert best["name"] == fault


def test_raw_states_of_the_run_are_judged_beside_the_targets(run: Probe, tmp_path: Path) -> None:
    """States of another layer are named as such, and the draft does worse on them than on the right ones."""
    trace = _record(tmp_path / "run.spectrace", (0, 1, 2), states=40, tap_shift=-1)
    code, out, err = run(trace, "--json")
    assert code == 0, err
    found = json.loads(out)["states"]
    assert [tap["boundary"] - tap["declared"] for tap in found["taps"]] == [-1, -1, -1]
    assert all(tap["distance"] < 1e-5 and not tap["normed"] for tap in found["taps"])
    assert found["right"][0][0] < found["own"][0][0]
    assert found["right"][0][1] == found["own"][0][1] > 20
    assert "tap 1, declared B(2): is B(1)" in run(trace)[1]


def test_normed_states_are_told_from_un_normed_ones(run: Probe, tmp_path: Path) -> None:
    """The boundary is right, and the final norm was applied."""
    trace = _record(tmp_path / "run.spectrace", (0,), states=3, normed_taps=True)
    taps = json.loads(run(trace, "--json")[1])["states"]["taps"]
    assert all(tap["normed"] and tap["boundary"] == tap["declared"] for tap in taps)


@pytest.mark.parametrize("plan", [Chain(4), DynamicTree(3, 4, 10)])
def test_nothing_drifts_up_to_the_models_limit(run: Probe, tmp_path: Path, plan: Any) -> None:
    """After hundreds of rollbacks both caches hold what a fresh reading of the text would."""
    path = tmp_path / "run.spectrace"
    draft = load_draft(spectrace_demo.eagle3_path(), bundled_target())
    with (
        Eagle3Decoder(bundled_target(), draft, plan) as decoder,
        Eagle3Recorder(path, decoder, strict=True) as recorder,
    ):
        recorder.generate(prompt_ids(3), 512 - len(prompt_ids(3)))
    first = json.loads(run(path, "--json")[1])["rows"][0]
    assert first["same"][0] == first["same"][1] > 400
    assert first["apart"] < 1e-4
    with spectrace.open(path) as trace:
        assert {step.position - step.draft_kv_length for step in trace if step.draft_kv_length} == {1}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"parents": [0, 0, 0]}, "more cannot be replayed"),
        ({"position": 10**9}, "more cannot be replayed"),
        ({"draft_logprobs": [None] * 3}, "proposed tokens\n"),
        ({"proposal_ids": [10**9] * 3}, "so it is of another target"),
        ({"emitted_ids": [-4]}, "so it is of another target"),
    ],
)
def test_traces_of_strangers_end_in_a_sentence(
    run: Probe, tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    """Whatever a step says: a table, or one line that says why there is none."""
    recorded = _record(tmp_path / "run.spectrace", (0,))
    with spectrace.open(recorded) as trace:
        lines = [json.loads(line) for line in export_lines(trace)]
    for line in lines:
        if line["record"] == "step" and len(line["proposal_ids"]) == 3:
            line.update(change)
    path = tmp_path / "changed.spectrace"
    import_lines((json.dumps(line) for line in lines), path)
    code, out, err = run(path)
    assert words in (out + err if code else " ".join(out.split()) + "\n")
    assert code == (1 if "target" in words else 0)


def test_states_of_another_recording_are_refused(run: Probe, tmp_path: Path) -> None:
    """A file left over from an earlier run of the same name would mislead."""
    trace = _record(tmp_path / "run.spectrace", (0,), states=3)
    trace.unlink()
    _record(trace, (0,))
    code, _, err = run(trace)
    assert code == 1
    assert "belongs to another recording" in err
    assert len(err.splitlines()) == 1


def test_damaged_states_are_a_sentence(run: Probe, tmp_path: Path) -> None:
    """A truncated file names itself."""
    trace = _record(tmp_path / "run.spectrace", (0,), states=3)
    states = states_path(trace)
    states.write_bytes(states.read_bytes()[:-100])
    code, _, err = run(trace)
    assert code == 1
    assert states.name in err
    assert len(err.splitlines()) == 1


def test_states_stop_at_their_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What would not fit is not kept, nor anything after it, so that the tokens have no hole."""
    monkeypatch.setattr("spectrace_eagle3.states.LIMIT", 40_000)
    path = _record(tmp_path / "run.spectrace", (0, 1, 2), states=100)
    assert 0 < states_path(path).stat().st_size < 41_000


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        ([], 2, "give a TRACE, --prompt TEXT or --prompts FILE"),
        (["--prompt", "x"], 2, "no text has the 5 tokens"),
        (["--prompt", TEXT, "--draft", str(spectrace_demo.draft_path())], 1, "is no EAGLE-3 draft"),
    ],
)
def test_what_cannot_be_probed_is_a_sentence(
    run: Probe, arguments: list[str], code: int, sentence: str
) -> None:
    """One line that says what is missing."""
    found, _, err = run(*arguments)
    assert found == code
    assert sentence in err
    assert len(err.splitlines()) == 1

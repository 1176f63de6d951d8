"""What the recorder does to a model is undone, whatever happens, and never harms the run."""

from __future__ import annotations

import copy
import gc
import logging
import threading
import weakref
from pathlib import Path
from typing import Any

import pytest

import spectrace
from spectrace.errors import RecorderError, UnsupportedEngine, UsageError

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytestmark = pytest.mark.engine

from transformers import LogitsProcessor, StoppingCriteria  # noqa: E402

import spectrace_transformers  # noqa: E402
from spectrace_transformers import facts, recorder, rows, session  # noqa: E402


def _state(model: Any) -> dict[str, Any]:
    """Everything on a model that a hook could leave behind."""
    found: dict[str, Any] = {"attributes": sorted(vars(model))}
    for name, module in model.named_modules():
        for attribute, value in vars(module).items():
            if "hook" in attribute:
                found[f"{name}.{attribute}"] = copy.copy(value)
    return found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a path for a trace."""
    return tmp_path / "run.spectrace"


@pytest.fixture
def draft_way(zoo: Any) -> Any:
    """Return greedy generation with a draft model."""
    return zoo.way("draft")


class _Trouble(Exception):
    """Raised by what a user passes to `generate`."""


class _RaisingProcessor(LogitsProcessor):
    """Fails once a few tokens are there, on the target as on the draft."""

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        if input_ids.shape[1] > 40:
            raise _Trouble("processor")
        return scores


class _RaisingCriteria(StoppingCriteria):
    """Fails once a few tokens are there."""

    def __call__(self, input_ids: Any, scores: Any, **_: Any) -> Any:
        if input_ids.shape[1] > 40:
            raise _Trouble("criteria")
        return torch.zeros(input_ids.shape[0], dtype=torch.bool)


def test_leaving_the_block_restores_the_model(path: Path, way: Any) -> None:
    """Attributes and hooks of the target are afterwards exactly what they were."""
    before = _state(way.target)
    with spectrace_transformers.record(path, way.target):
        assert _state(way.target) != before
        way.generate()
    assert _state(way.target) == before


def test_a_hook_that_does_not_come_off_keeps_no_other(path: Path, draft_way: Any) -> None:
    """The others come off, the model can be recorded again, and the trace is closed."""
    before = _state(draft_way.target)

    def broken() -> None:
        raise RuntimeError("broken on purpose")

    made = spectrace_transformers.record(path, draft_way.target)
    with made:
        draft_way.generate()
        made._undo.append(broken)
    assert _state(draft_way.target) == before
    with spectrace.open(path) as trace:
        assert trace.state == "closed"
    with spectrace_transformers.record(path.with_name("again.spectrace"), draft_way.target):
        draft_way.generate()


def test_an_override_of_somebody_else_is_called_and_restored(path: Path, draft_way: Any) -> None:
    """Another tool's instance attribute of the same name works inside and is back afterwards."""
    target, calls = draft_way.target, []
    original = target._get_candidate_generator

    def other(*args: Any, **kwargs: Any) -> Any:
        calls.append("called")
        return original(*args, **kwargs)

    target._get_candidate_generator = other
    try:
        with spectrace_transformers.record(path, target):
            draft_way.generate()
        assert vars(target)["_get_candidate_generator"] is other
    finally:
        del target._get_candidate_generator
    assert calls == ["called"]
    assert len(spectrace.open(path).steps) > 0


@pytest.mark.parametrize(
    "trouble",
    [
        {"logits_processor": [_RaisingProcessor()]},
        {"stopping_criteria": [_RaisingCriteria()]},
    ],
    ids=["processor", "criteria"],
)
def test_an_exception_inside_generate_comes_out_and_the_trace_is_whole(
    trouble: dict[str, Any], path: Path, draft_way: Any
) -> None:
    """The user's exception passes, hooks are gone, and the steps up to then can be read."""
    before = _state(draft_way.target)
    with pytest.raises(_Trouble), spectrace_transformers.record(path, draft_way.target, strict=True):
        draft_way.generate(**trouble)
    assert _state(draft_way.target) == before
    trace = spectrace.open(path)
    assert trace.state == "closed"
    assert len(trace.steps) > 0
    assert not trace.problems


@pytest.mark.parametrize("trouble", [_Trouble, KeyboardInterrupt])
def test_an_exception_in_the_block_comes_out(
    trouble: type[BaseException], path: Path, draft_way: Any
) -> None:
    """What user code raises between two calls is not swallowed, and costs no step."""
    before = _state(draft_way.target)

    def run() -> None:
        with spectrace_transformers.record(path, draft_way.target):
            draft_way.generate()
            raise trouble

    with pytest.raises(trouble):
        run()
    assert _state(draft_way.target) == before
    emitted = spectrace.open(path).counts.emitted
    assert emitted == 32


def test_generation_goes_on_after_an_exception_in_the_same_block(path: Path, draft_way: Any) -> None:
    """A failed call leaves nothing behind that the next call would stumble over."""
    with spectrace_transformers.record(path, draft_way.target, strict=True):
        with pytest.raises(_Trouble):
            draft_way.generate(logits_processor=[_RaisingProcessor()])
        draft_way.target(draft_way.input_ids)
        draft_way.generate()
    trace = spectrace.open(path)
    assert sum(len(s.emitted_ids) for s in trace if s.request == "r1") == 32


def test_a_model_is_recorded_by_one_recorder_at_a_time(tmp_path: Path, draft_way: Any) -> None:
    """A second `with` on the model is refused before it creates a file or touches the model."""
    with spectrace_transformers.record(tmp_path / "a.spectrace", draft_way.target):
        inside = _state(draft_way.target)
        with (
            pytest.raises(RecorderError, match="being recorded already"),
            spectrace_transformers.record(tmp_path / "b.spectrace", draft_way.target),
        ):
            pytest.fail("entered")
        assert _state(draft_way.target) == inside
        draft_way.generate()
    assert not (tmp_path / "b.spectrace").exists()
    assert spectrace.open(tmp_path / "a.spectrace").counts.emitted == 32
    with spectrace_transformers.record(tmp_path / "b.spectrace", draft_way.target):
        draft_way.generate()
    assert spectrace.open(tmp_path / "b.spectrace").counts.emitted == 32


def test_a_recorder_is_entered_once(path: Path, draft_way: Any) -> None:
    """Entered inside itself or a second time it is refused, and its trace stays whole."""
    one = spectrace_transformers.TransformersRecorder(path, draft_way.target)
    before = _state(draft_way.target)
    with one:
        with pytest.raises(RecorderError, match="one trace"):
            one.__enter__()
        draft_way.generate()
    with pytest.raises(RecorderError, match="one trace"):
        one.__enter__()
    assert _state(draft_way.target) == before
    assert spectrace.open(path).counts.emitted == 32


def test_a_file_that_cannot_be_made_is_an_error_before_the_model_is_touched(
    path: Path, draft_way: Any
) -> None:
    """An existing file is not overwritten; the model can be recorded elsewhere at once."""
    path.write_bytes(b"precious")
    before = _state(draft_way.target)
    with pytest.raises(RecorderError), spectrace_transformers.record(path, draft_way.target):
        pytest.fail("entered")
    assert path.read_bytes() == b"precious"
    assert _state(draft_way.target) == before
    with spectrace_transformers.record(path.with_suffix(".2"), draft_way.target):
        pass


@pytest.mark.parametrize("place", ["reduce_logits", "take_rows", "cache_length"])
def test_a_fault_of_the_recorder_ends_the_recording_only(
    place: str,
    path: Path,
    draft_way: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Generation gives the same tokens, one warning is logged, and the header says what happened."""
    expected = draft_way.generate()
    original, calls = getattr(session, place), []

    def failing(*args: Any, **kwargs: Any) -> Any:
        calls.append(place)
        if len(calls) > 8:
            raise ZeroDivisionError("injected")
        return original(*args, **kwargs)

    monkeypatch.setattr(session, place, failing)
    with spectrace_transformers.record(path, draft_way.target) as one:
        found = draft_way.generate()
        assert torch.equal(draft_way.generate(), expected)
    assert torch.equal(found, expected)
    assert "ZeroDivisionError" in str(one.failed)
    assert [r.levelno for r in caplog.records if r.name == "spectrace"] == [logging.WARNING]
    trace = spectrace.open(path)
    assert "injected" in trace.run_mapping["capture"]["unavailable"]["steps"]
    assert 0 < len(trace.steps) < 16


def test_a_fault_on_the_writing_thread_ends_the_recording_only(
    path: Path, draft_way: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A step that cannot be converted is declared lost, and the run does not notice."""
    expected = draft_way.generate()

    def failing(*_: Any) -> Any:
        raise ZeroDivisionError("injected")

    monkeypatch.setattr(rows, "_decision", failing)
    with spectrace_transformers.record(path, draft_way.target):
        assert torch.equal(draft_way.generate(), expected)
    assert [r.levelno for r in caplog.records if r.name == "spectrace"] == [logging.WARNING]
    trace = spectrace.open(path)
    assert len(trace.steps) == 0
    assert sum(gap.lost for gap in trace.gaps) > 0


def test_a_strict_recorder_raises_its_fault_at_exit(
    path: Path, draft_way: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run ends first, then the fault is raised; the user's own exception would go before it."""

    def failing(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError("injected")

    monkeypatch.setattr(session, "reduce_logits", failing)
    outputs = []
    with (
        pytest.raises(RecorderError, match="injected"),
        spectrace_transformers.record(path, draft_way.target, strict=True),
    ):
        outputs.append(draft_way.generate())
    assert torch.equal(outputs[0], draft_way.generate())

    def run() -> None:
        with spectrace_transformers.record(path.with_suffix(".2"), draft_way.target, strict=True):
            draft_way.generate()
            raise _Trouble

    with pytest.raises(_Trouble):
        run()


def test_a_batch_is_refused_by_transformers_itself(path: Path, draft_way: Any) -> None:
    """The engine's own error comes out, and no request is left in the trace."""
    batch = draft_way.input_ids.repeat(2, 1)
    with (
        spectrace_transformers.record(path, draft_way.target, strict=True),
        pytest.raises(ValueError, match="batch_size"),
    ):
        draft_way.target.generate(batch, assistant_model=draft_way.draft, max_new_tokens=4)
    trace = spectrace.open(path)
    assert (len(trace.steps), len(trace.requests)) == (0, 0)


def test_a_model_without_generate_is_refused(path: Path, zoo: Any) -> None:
    """A headless model, a wrapper and something that is no model are named in the error."""
    with pytest.raises(UnsupportedEngine, match=r"LlamaModel has no generate\(\)"):
        spectrace_transformers.record(path, zoo.target.model)
    with pytest.raises(UnsupportedEngine, match="object has no generate"):
        spectrace_transformers.record(path, object())

    class Wrapper:
        generate = zoo.target.generate

    with pytest.raises(UnsupportedEngine, match="pass the model inside the wrapper"):
        spectrace_transformers.record(path, Wrapper())
    assert not path.exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"taps": (5,)}, r"boundary 5 does not exist.* to 4"),
        ({"taps": (-1,)}, "boundary -1"),
        ({"taps": (2, 2)}, "twice"),
        ({"top": 1}, "at least 2"),
    ],
)
def test_impossible_options_are_refused(options: dict[str, Any], message: str, path: Path, zoo: Any) -> None:
    """A wrong argument is an error at once, with the possible values."""
    with pytest.raises(UsageError, match=message):
        spectrace_transformers.record(path, zoo.target, **options)


def test_two_models_are_recorded_in_two_threads(tmp_path: Path, zoo: Any) -> None:
    """Each trace holds the steps of its own model."""
    ways = [zoo.way("draft"), zoo.way("draft")]
    object.__setattr__(ways[1], "target", copy.deepcopy(zoo.target))
    expected = ways[0].generate()
    found: dict[int, Any] = {}

    def run(number: int) -> None:
        path = tmp_path / f"{number}.spectrace"
        with spectrace_transformers.record(path, ways[number].target, strict=True):
            found[number] = ways[number].generate()

    threads = [threading.Thread(target=run, args=(number,)) for number in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    traces = [spectrace.open(tmp_path / f"{number}.spectrace") for number in (0, 1)]
    for number, trace in enumerate(traces):
        assert torch.equal(found[number], expected)
        assert [t for step in trace for t in step.emitted_ids] == expected[0, -32:].tolist()


def test_a_model_is_recorded_from_other_threads(path: Path, draft_way: Any) -> None:
    """The recorder is entered in one thread, and generation runs in two others at once."""
    expected = draft_way.generate()[0, -32:].tolist()
    with spectrace_transformers.record(path, draft_way.target, strict=True, taps=(2,)):
        threads = [threading.Thread(target=draft_way.generate) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    trace = spectrace.open(path)
    for name in ("r0", "r1"):
        steps = [step for step in trace if step.request == name]
        assert [t for step in steps for t in step.emitted_ids] == expected
        assert all(s.taps and s.taps[-1].position == s.position - 1 for s in steps)


def test_a_copy_of_the_model_made_in_the_block_is_a_model_of_its_own(path: Path, draft_way: Any) -> None:
    """The copy generates with its own weights and is not recorded."""
    with spectrace_transformers.record(path, draft_way.target, strict=True):
        clone = copy.deepcopy(draft_way.target)
        with torch.no_grad():
            clone.lm_head.weight.zero_()
        output = clone.generate(
            draft_way.input_ids, assistant_model=draft_way.draft, max_new_tokens=4, do_sample=False
        )
    assert output[0, -4:].tolist() == [0] * 4
    assert len(spectrace.open(path).steps) == 0


def test_nothing_of_a_call_outlives_it(path: Path, draft_way: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The candidate generator, and with it the draft's cache, dies with its call as without recorder."""
    generators: list[Any] = []
    original = facts.call_facts

    def noting(generator: Any, *args: Any) -> Any:
        generators.append(weakref.ref(generator))
        return original(generator, *args)

    monkeypatch.setattr(facts, "call_facts", noting)
    gc.collect()
    gc.disable()
    try:
        with spectrace_transformers.record(path, draft_way.target, strict=True):
            draft_way.generate()
            assert [reference() for reference in generators] == [None]
    finally:
        gc.enable()


def test_the_registry_of_recorded_models_is_empty_afterwards(path: Path, draft_way: Any) -> None:
    """No model is kept alive or barred from another recorder."""
    with spectrace_transformers.record(path, draft_way.target):
        assert draft_way.target in recorder._recorded
    assert draft_way.target not in recorder._recorded

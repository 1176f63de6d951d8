"""The header of a trace in words: what ran, with what, and how tokens were accepted. Escaped text only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from spectrace.format.figures import count_of
from spectrace.format.records import Draft, Run, Speculation, Target
from spectrace.format.text import visible

_LONGEST = 120


def run_facts(run: Run) -> Iterator[tuple[str, str]]:
    """Name and words of everything the header says; "" where it says nothing."""
    engine = run.engine
    yield "engine", "" if engine is None else _joined(engine.name, engine.version, engine.runner)
    yield "flags", "" if engine is None else _pairs(engine.flags)
    recorder = run.recorder
    yield "recorder", "" if recorder is None else _joined(recorder.name, recorder.version)
    yield "recorded", _shown(run.created)
    yield "method", _shown(run.method)
    yield "target", _model(run.target)
    yield "draft", _model(run.draft)
    yield "proposes", _speculation(run.speculation)
    yield "verification", _verification(run)
    yield "sampling", _sampling(run)
    yield "id map", _vocab_map(run)
    yield "taps", _taps(run)
    yield "training said", _pairs(run.training)
    yield "engine said", _pairs(run.reported)
    yield "baseline", _pairs(run.baseline)
    yield "capture", "" if run.capture is None else _capture(run)


def _model(model: Target | Draft | None) -> str:
    if model is None:
        return ""
    rows = model.head_rows if isinstance(model, Draft) else None
    words = [
        _shown(model.id),
        f"revision {_shown(model.revision)}" if model.revision else "",
        "" if model.vocab_size is None else f"vocabulary {model.vocab_size:,}",
        "" if rows is None or rows == model.vocab_size else f"head of {rows:,} rows",
        count_of(model.num_layers, "layer"),
        "" if model.hidden_size is None else f"{model.hidden_size:,} wide",
        _shown(model.dtype),
        _shown(model.quantization),
        "" if model.max_length is None else f"at most {model.max_length:,} tokens",
    ]
    return ", ".join(word for word in words if word)


def _speculation(given: Speculation | None) -> str:
    if given is None:
        return ""
    words = [count_of(given.num_draft_tokens, "token")]
    if given.tree is not None:
        tree = given.tree
        parts = (("top-k", tree.topk), ("depth", tree.depth), ("nodes", tree.num_nodes))
        words.append("trees: " + ", ".join(f"{name} {value:,}" for name, value in parts if value is not None))
    return ", ".join(word for word in words if word)


def _verification(run: Run) -> str:
    given = run.verification
    if given is None:
        return ""
    kept = "" if given.lossless is None else "keeps" if given.lossless else "does not keep"
    words = (_shown(given.rule), kept and f"{kept} the target's distribution")
    return ", ".join(word for word in words if word)


def _sampling(run: Run) -> str:
    given = run.sampling
    if given is None:
        return ""
    parts = (
        ("temperature", given.temperature),
        ("top-k", given.top_k),
        ("top-p", given.top_p),
        ("seed", given.seed),
    )
    words = [f"{name} {value:g}" for name, value in parts if value is not None]
    words += [visible(str(name), limit=40) for name in (given.processors or ())[:8]]
    return ", ".join(words)


def _vocab_map(run: Run) -> str:
    given = run.vocab_map
    if given is None:
        return ""
    words = [
        "" if given.d2t is None else f"d2t of {len(given.d2t):,} entries",
        "" if given.source is None else f"from {_shown(given.source)}",
        "" if given.applied is None else f"applied as {_shown(given.applied)}",
    ]
    return ", ".join(word for word in words if word)


def _taps(run: Run) -> str:
    given = run.taps
    if given is None:
        return ""
    words = [
        "" if given.declared is None else f"declared {_numbers(given.declared)}",
        "" if given.numbering is None else f"counted as {_shown(given.numbering)}s",
        "" if given.origin is None else f"from {_shown(given.origin)}",
        "" if given.boundaries is None else f"boundaries {_numbers(given.boundaries)}",
        "final norm applied" if given.normed else "",
    ]
    return ", ".join(word for word in words if word)


def _capture(run: Run) -> str:
    given = run.capture
    if given is None:
        return ""
    text = {True: "with token texts", False: "without token texts", None: ""}[given.text]
    return ", ".join(word for word in (_shown(given.mode), text) if word)


def _numbers(values: Any) -> str:
    shown = " ".join(str(value) for value in values[:16])
    return f"{shown} …" if len(values) > 16 else shown


def _pairs(given: Mapping[str, Any] | None) -> str:
    pairs = list((given or {}).items())[:12]
    return ", ".join(f"{visible(str(key), limit=40)} {_value(value)}" for key, value in pairs)


def _value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_value(item) for item in value[:8]) + "]"
    return visible(str(value), limit=40)


def _joined(*words: str | None) -> str:
    return " ".join(_shown(word) for word in words if word)


def _shown(text: str | None) -> str:
    return "" if text is None else visible(text, limit=_LONGEST)

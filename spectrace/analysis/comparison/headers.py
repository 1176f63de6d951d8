"""What differs between two headers, in plain words. Only what bears on the run: no date, no measured time.

Tables and weights are compared by content and told in one line each; whatever else differs, known or not, is
listed by its path.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spectrace.format.text import visible

_NOT_COMPARED = ("schema", "created", "baseline", "reported", "training")
"""What the run measured or was told, not what it was; `capture.unavailable` likewise."""

_WORDS = {
    "engine.name": "engine",
    "engine.version": "engine version",
    "engine.runner": "loop of the engine",
    "method": "method",
    "verification.rule": "verification rule",
    "verification.lossless": "keeps the target's distribution",
    "sampling.temperature": "temperature",
    "sampling.top_k": "top-k",
    "sampling.top_p": "top-p",
    "sampling.seed": "seed",
    "sampling.processors": "logits processors",
    "speculation.num_draft_tokens": "draft tokens per step",
    "speculation.tree": "tree",
    "target.id": "target",
    "target.revision": "target's revision",
    "target.dtype": "target's compute type",
    "target.quantization": "target's quantization",
    "target.vocab_size": "target's vocabulary",
    "draft.id": "draft",
    "draft.revision": "draft's revision",
    "draft.dtype": "draft's compute type",
    "draft.quantization": "draft's quantization",
    "draft.vocab_size": "draft's vocabulary",
    "draft.parameters.missing": "draft's weights never loaded",
    "draft.parameters.unexpected": "weights the draft has no place for",
    "draft.rope": "draft's rotary settings",
    "draft.rope_declared": "draft's declared rotary settings",
    "vocab_map": "vocabulary map",
    "vocab_map.applied": "map read as",
    "vocab_map.source": "map taken from",
    "vocab_map.digest": "map's digest",
    "vocab_map.digest_expected": "digest of the trained map",
    "taps.boundaries": "layers fed to the draft, B(k)",
    "taps.declared": "layers declared",
    "taps.numbering": "layer ids count",
    "taps.origin": "layer ids taken from",
    "taps.order": "order of the layers",
    "taps.normed": "final norm before the draft",
    "tokenizer.digest": "tokenizer",
    "template_digest": "chat template",
    "recorder.name": "recorder",
    "recorder.version": "recorder's version",
    "capture.mode": "captured in",
    "capture.text": "texts recorded",
}
"""Words for the paths that everybody meets, the most telling first."""

_SHOWN = 60
"""Characters of a value as it is shown."""
_MAX_DEPTH = 8
"""Levels of a header that are walked; what lies deeper is compared as one value."""


@dataclass(frozen=True, slots=True)
class HeaderDifference:
    """One fact of the headers that differs."""

    field: str
    """Path, for example ``engine.version``."""
    words: str
    """The same in plain words."""
    a: Any
    """Value in A as the header writes it; None where it has none. Of a table, in words."""
    b: Any

    def to_mapping(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {"field": self.field, "words": self.words, "a": self.a, "b": self.b}


def compare_headers(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[HeaderDifference]:
    """What differs: first what both give, the most telling first, then what one lacks.

    Args:
        one: `Trace.run_mapping` of A.
        other: that of B.

    >>> found = compare_headers({"method": "eagle3"}, {"method": "mtp", "created": "2026"})
    >>> [(item.words, item.a, item.b) for item in found]
    [('method', 'eagle3', 'mtp')]
    """
    found = [
        *_walk({k: v for k, v in one.items() if k not in _NOT_COMPARED},
               {k: v for k, v in other.items() if k not in _NOT_COMPARED}, ""),
    ]  # fmt: skip
    order = {path: at for at, path in enumerate(_WORDS)}

    def place(item: HeaderDifference) -> tuple[bool, int]:
        return item.a is None or item.b is None, order.get(item.field, len(order))

    return sorted(found, key=place)


def same_weights(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool | None:
    """Whether two headers name the same draft weights, by fingerprint; None where one has none."""
    mine, theirs = (_section(_section(run.get("draft")).get("fingerprints")) for run in (one, other))
    if not mine or not theirs:
        return None
    return not any(_weights(mine, theirs))


def _walk(one: Mapping[str, Any], other: Mapping[str, Any], prefix: str) -> Iterator[HeaderDifference]:
    for key in dict.fromkeys([*one, *other]):
        mine, theirs = one.get(key), other.get(key)
        path = f"{prefix}{key}"
        if path == "capture.unavailable" or _same(mine, theirs):
            continue
        if path == "draft.fingerprints":
            yield from _weights(mine, theirs)
        elif path == "vocab_map.d2t" or path == "vocab_map.t2d":
            yield _table(path, mine, theirs)
        elif path != "speculation.tree" and _is_section(mine, theirs) and path.count(".") < _MAX_DEPTH:
            yield from _walk(_section(mine), _section(theirs), f"{path}.")
        else:
            yield HeaderDifference(path, _words(path), mine, theirs)


def _is_section(mine: Any, theirs: Any) -> bool:
    """Whether both are objects, or one is and the other is missing; an object of nothing is a value."""
    if isinstance(mine, Mapping) and isinstance(theirs, Mapping):
        return True
    given = mine if theirs is None else theirs if mine is None else None
    return isinstance(given, Mapping) and bool(given)


def _section(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _same(mine: Any, theirs: Any) -> bool:
    """Equal; an empty value and a missing one say the same, and so does NaN beside NaN."""
    if mine == theirs or (mine != mine and theirs != theirs):
        return True
    return all(value is None or value == [] or value == {} for value in (mine, theirs))


def _words(path: str) -> str:
    if path in _WORDS:
        return _WORDS[path]
    # Engines have settings that are called as fields of a trace are, such as vLLM's method.
    return path.replace("engine.flags.", "engine's ").replace("_", " ").replace(".", ": ")


def _table(path: str, mine: Any, theirs: Any) -> HeaderDifference:
    """A long table in words."""
    name = path.rpartition(".")[2]
    words = f"map's table {name}"
    if not isinstance(mine, Sequence) or not isinstance(theirs, Sequence):
        return HeaderDifference(path, words, _size(mine), _size(theirs))
    differing = [at for at, (a, b) in enumerate(zip(mine, theirs)) if a != b]
    if not differing:
        return HeaderDifference(path, words, _size(mine), _size(theirs))
    at = differing[0]
    note = f"{len(differing):,} of {min(len(mine), len(theirs)):,} entries differ"
    return HeaderDifference(path, f"{words}, {note}", f"[{at}] = {mine[at]}", f"[{at}] = {theirs[at]}")


def _size(table: Any) -> str:
    return f"{len(table):,} entries" if isinstance(table, Sequence) else "none"


def _weights(mine: Any, theirs: Any) -> Iterator[HeaderDifference]:
    """Fingerprints of the draft's weights by name: which are missing on a side, which differ."""
    one, other = _section(mine), _section(theirs)
    if not one or not other:
        yield HeaderDifference(
            "draft.fingerprints", "draft's weights, by fingerprint", _recorded(one), _recorded(other)
        )
        return
    for side, own, others in (("A", one, other), ("B", other, one)):
        alone = [name for name in own if name not in others]
        if alone:
            told = _names(alone)
            yield HeaderDifference(
                f"draft.fingerprints.{alone[0]}",
                f"draft's weights in {side} only, {len(alone):,}",
                *((told, "none") if side == "A" else ("none", told)),
            )
    differing = [name for name in one if name in other and not _same_weight(one[name], other[name])]
    if differing:
        common = sum(name in other for name in one)
        at = differing[0]
        yield HeaderDifference(
            f"draft.fingerprints.{at}",
            f"draft's weights, {len(differing)} of {common} differ: {_names(differing)}",
            *_weight_values(one[at], other[at]),
        )


def _same_weight(mine: Any, theirs: Any) -> bool:
    """By digest where both have one: it tells more than an RMS."""
    if isinstance(mine, Mapping) and isinstance(theirs, Mapping):
        digests = mine.get("digest"), theirs.get("digest")
        if None not in digests:
            return bool(digests[0] == digests[1])
    return bool(mine == theirs)


def _weight_values(mine: Any, theirs: Any) -> tuple[str, str]:
    """Shapes where they differ, else sizes."""
    shapes, sizes = (
        [value.get(key) if isinstance(value, Mapping) else None for value in (mine, theirs)]
        for key in ("shape", "rms")
    )
    if shapes[0] != shapes[1]:
        return f"shape {shown_value(shapes[0])}", f"shape {shown_value(shapes[1])}"
    told = [f"RMS {rms:.4g}" if isinstance(rms, float) else "no RMS" for rms in sizes]
    return told[0], told[1]


def _recorded(weights: Mapping[str, Any]) -> str:
    return f"{len(weights):,} recorded" if weights else "not recorded"


def _names(names: Sequence[str]) -> str:
    return names[0] + (f" and {len(names) - 1:,} more" if len(names) > 1 else "")


def shown_value(value: Any) -> str:
    """A value of a header as it is shown: short, every control character visible.

    >>> shown_value("sha256:0123456789abcdef"), shown_value([2, 4]), shown_value(None), shown_value(True)
    ('01234567', '2, 4', 'not given', 'yes')
    """
    if value is None:
        return "not given"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        scheme, _, digits = value.partition(":")
        if scheme == "sha256" and digits:
            value = digits[:8]
        return visible(value, limit=_SHOWN) if value else "empty"
    if isinstance(value, Sequence):
        told = ", ".join(shown_value(item) for item in value[:12])
        if len(told) <= _SHOWN and len(value) <= 12:
            return told or "none"
        return visible_cut(f"{shown_value(value[0])} and {len(value) - 1:,} more")
    if isinstance(value, Mapping):
        told = ", ".join(f"{visible(str(k), limit=20)} {shown_value(v)}" for k, v in list(value.items())[:6])
        return visible_cut(told) or "none"
    return visible(str(value), limit=_SHOWN)


def visible_cut(text: str) -> str:
    """A text of visible characters, shortened."""
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"

"""Which request of one trace is which of the other: by prompt digest, prompt ids, names, then order.

A name or an order pairs requests only where nothing says that their prompts differ; a prompt that two engines
tokenize differently is paired by its name and said to differ. Reads no step.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from spectrace.analysis.comparison.rows import narrow
from spectrace.analysis.numbering import numbered_files
from spectrace.format.columns import Array

if TYPE_CHECKING:
    from spectrace.format.reader import Trace

WAYS = ("prompt_digest", "prompt_ids", "request", "external_id", "order")
"""How requests are paired, the surest first."""
_BY_NAME = ("request", "external_id")
"""Ways that prompts with little in common do not go."""
_MAX_PAIRS = 1 << 22
"""Requests that are compared; those behind them are left over."""
_LISTED = 16
"""Names of left-over requests that a result keeps."""
_SHARED = 0.5
"""Share of the longer prompt that two tokenizations of one text have in common at their ends."""


@dataclass(slots=True)
class Prompt:
    """One request of a trace, before any step is read."""

    name: str
    numbers: list[int]
    """Its numbers within the whole trace, as `Block.requests` gives them: one of each file that has it."""
    digest: str | None
    ids: Array | None
    """Ids of the prompt, where the trace holds them."""
    external_id: str | None = None


@dataclass(frozen=True, slots=True)
class Pair:
    """Two requests that are compared."""

    names: tuple[str, str]
    way: str
    """One of `WAYS`."""
    prompt_difference: tuple[int, int | None, int | None] | None = None
    """Index of the first prompt token that differs, and the token of each; None of a prompt that ends."""

    @property
    def is_checked(self) -> bool:
        """Whether the prompts themselves were compared."""
        return self.way.startswith("prompt_") or self.prompt_difference is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Alignment:
    """How the requests of two traces belong together."""

    ways: Mapping[str, int]
    """Way -> pairs found by it."""
    pairs: Sequence[Pair]
    num_requests: tuple[int, int]
    left_over: tuple[Sequence[str], Sequence[str]]
    """Requests of each trace without a partner, the first of them."""
    problem: str | None = None
    """Why nothing could be compared."""
    unplaced: tuple[int, int] = (0, 0)
    """Steps of paired requests whose position is no length of a text; they are not compared."""

    @property
    def num_unchecked(self) -> int:
        """Pairs of which nothing says that their prompts are the same."""
        return sum(not pair.is_checked for pair in self.pairs)

    def to_mapping(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "ways": dict(self.ways),
            "pairs": len(self.pairs),
            "unchecked_prompts": self.num_unchecked,
            "requests": list(self.num_requests),
            "left_over": [n - len(self.pairs) for n in self.num_requests],
            "left_over_names": [list(names) for names in self.left_over],
            "unplaced_steps": list(self.unplaced),
            "problem": self.problem,
        }


@dataclass(slots=True)
class Pairing:
    """Requests without a partner, and the pairs found so far."""

    left: tuple[list[Prompt], list[Prompt]]
    pairs: list[tuple[Pair, Prompt, Prompt]] = field(default_factory=list)

    def by(self, way: str, key_of: Callable[[Prompt], Hashable]) -> None:
        """Pairs requests of the same key, the first of a key with the first; None is no key."""
        waiting: dict[Hashable, deque[Prompt]] = defaultdict(deque)
        for prompt in self.left[1]:
            if (key := key_of(prompt)) is not None:
                waiting[key].append(prompt)
        taken = set()
        alone = []
        for prompt in self.left[0]:
            queue = waiting.get(key_of(prompt))
            found = None if not queue else _pair(way, prompt, queue[0])
            if queue and found is not None:
                self.pairs.append((found, prompt, queue[0]))
                taken.add(id(queue.popleft()))
            else:
                alone.append(prompt)
        self.left = alone, [prompt for prompt in self.left[1] if id(prompt) not in taken]

    def by_order(self) -> None:
        """Pairs what is left, the first with the first."""
        alone: tuple[list[Prompt], list[Prompt]] = ([], [])
        for one, other in zip(*self.left):
            found = _pair("order", one, other) if not _differ(one, other) else None
            if found is not None:
                self.pairs.append((found, one, other))
            else:
                alone[0].append(one)
                alone[1].append(other)
        shorter = min(map(len, self.left))
        self.left = [*alone[0], *self.left[0][shorter:]], [*alone[1], *self.left[1][shorter:]]


def align(one: Trace, other: Trace) -> tuple[Alignment, Sequence[tuple[Prompt, Prompt]]]:
    """Pairs the requests of two traces.

    Returns:
        What is said of it, and the requests of each pair, in the order of ``pairs``.
    """
    pairing = Pairing((prompts(one), prompts(other)))
    sizes = len(pairing.left[0]), len(pairing.left[1])
    pairing.by("prompt_digest", lambda p: None if p.digest is None else (p.digest, p.name))
    pairing.by("prompt_digest", lambda p: p.digest)
    pairing.by("prompt_ids", _ids_digest)
    pairing.by("request", lambda p: p.name)
    pairing.by("external_id", _known_as)
    pairing.by_order()
    del pairing.pairs[_MAX_PAIRS:]
    found = Counter(pair.way for pair, _, _ in pairing.pairs)
    alignment = Alignment(
        ways={way: found[way] for way in WAYS if found[way]},
        pairs=[pair for pair, _, _ in pairing.pairs],
        num_requests=sizes,
        left_over=_names(pairing.left),
        problem=None if pairing.pairs else _problem(sizes),
    )
    return alignment, [(a, b) for _, a, b in pairing.pairs]


def prompts(trace: Trace) -> list[Prompt]:
    """Every request, in the order in which it was first named; one of several files once."""
    found: dict[str, Prompt] = {}
    for own in numbered_files(trace):
        for number, said in own.records(own.numbers):
            name = said.get("request")
            name = name if isinstance(name, str) else f"?{number - own.numbers.start}"
            digest = said.get("prompt_digest")
            if name in found:
                found[name].numbers.append(number)
                continue
            digest = digest if isinstance(digest, str) and digest else None
            known_as = said.get("external_id")
            known_as = known_as if isinstance(known_as, str) and known_as else None
            found[name] = Prompt(name, [number], digest, _ids(said.get("prompt_ids")), known_as)
    return list(found.values())


def _known_as(prompt: Prompt) -> str:
    """What whoever asked calls a request: its external_id, else the name that an import gave it.

    Source: vLLM ``entrypoints/openai/completion/serving.py``: ``f"{request_id}-{i}"`` of each prompt of a
    request, whose response says ``request_id``.
    """
    return (prompt.external_id or prompt.name).removesuffix("-0")


def _ids(given: Any) -> Array | None:
    """Prompt ids as an array; None of what is no list of ids."""
    if not isinstance(given, list) or not all(type(i) is int and abs(i) < 2**63 for i in given):
        return None
    return narrow(np.array(given, np.int64))


def _pair(way: str, one: Prompt, other: Prompt) -> Pair | None:
    """The pair, unless a name joins prompts that have little in common."""
    names = one.name, other.name
    if way not in _BY_NAME or not _differ(one, other):
        return Pair(names, way)
    a, b = one.ids, other.ids
    if a is None or b is None:
        return None
    start, end = _common_ends(a, b)
    if start + end < _SHARED * max(len(a), len(b)):
        return None
    mine, theirs = (int(ids[start]) if start < len(ids) else None for ids in (a, b))
    return Pair(names, way, (start, mine, theirs))


def _differ(one: Prompt, other: Prompt) -> bool:
    """Whether the traces themselves say that two prompts differ."""
    if one.digest is not None and other.digest is not None and _scheme(one.digest) == _scheme(other.digest):
        return one.digest != other.digest
    a, b = _ids_digest(one), _ids_digest(other)
    return a is not None and b is not None and _scheme(a) == _scheme(b) and a != b


def _scheme(digest: str) -> str:
    """What it compares with: sha256, or the others of one packed trace (`prompt 0 of 1a2b3c4d`)."""
    name, colon, _ = digest.partition(":")
    return name if colon else digest.rpartition(" ")[2] if digest.startswith("prompt ") else ""


def _ids_digest(prompt: Prompt) -> str | None:
    """Digest of the prompt's ids, in the form of `prompt_digest`; the digest itself where there are none.

    Source: `Request.prompt_digest`, SHA-256 of the ids as little-endian int32.
    """
    if prompt.ids is None:
        return prompt.digest
    return "sha256:" + hashlib.sha256(prompt.ids.astype("<i4").tobytes()).hexdigest()


def _common_ends(a: Array, b: Array) -> tuple[int, int]:
    """Length of the common start, and of the common end behind it."""
    shorter = min(len(a), len(b))
    start = _first_true(a[:shorter] != b[:shorter])
    rest = shorter - start
    return start, _first_true(a[::-1][:rest] != b[::-1][:rest])


def _first_true(flags: Array) -> int:
    """Index of the first, or how many there are."""
    return int(np.argmax(flags)) if flags.any() else len(flags)


def _names(left: tuple[list[Prompt], list[Prompt]]) -> tuple[list[str], list[str]]:
    return [p.name for p in left[0][:_LISTED]], [p.name for p in left[1][:_LISTED]]


def _problem(sizes: tuple[int, int]) -> str:
    for label, size in zip("AB", sizes):
        if not size:
            return f"{label} holds no request"
    return "the two traces have no prompt in common"

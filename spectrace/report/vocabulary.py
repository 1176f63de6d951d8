"""Which sentences may leave the machine: those made only of words that the rules themselves use.

Verdicts and a recorder's reasons are sentences in which a rule may have quoted a trace. A sentence with one
word that stands in no rule and on no list is dropped as a whole.
"""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from types import CodeType

import spectrace.analysis.diagnosis as rules
from spectrace.report.allowed import PARAMETER_WORDS, STEP_WORDS, VERIFICATION

_WORD = re.compile(r"[^\W\d_]+")
_PLAIN = re.compile(r"[ -~–’…]*")
_MARKED = re.compile(r"\bids? (\d[\d,]*(?:(?:, | and )\d[\d,]*)*)")
"""A sentence that names a token by its id."""
_LONG_NUMBER = re.compile(r"\d{9,}")

_REASONS = """
    the draft target engine recorder logits probabilities states hidden graph graphs capture captures
    hides does not give gives no is are was were has have and or of in a an to for with this that it its
    by from at be as on off when only where prompt lookup copies tokens token distribution transformers
    vllm sglang llama report reports run runs fed model text encoded anew tokenizer cuda compiled kernel
    fused sampler cache prefix step steps position positions batch tree chain record recorded cannot
    seen known unknown version older newer asynchronous scheduling parallel tensor rank ranks time times
    timer costs too much memory another process method heads head weights never always yet none any each
    every same other server client proposer switched keeps pages trims alone row rows loop loops
"""
"""What recorders say of fields they cannot see."""


def is_plain(sentence: str) -> bool:
    """Whether a sentence says nothing but words of rules and recorders, and numbers of usual length."""
    return (
        _PLAIN.fullmatch(sentence) is not None
        and len(sentence) <= 400
        and _LONG_NUMBER.search(sentence.replace(",", "")) is None
        and known_words().issuperset(word.lower() for word in _WORD.findall(sentence))
    )


def without_ids(sentence: str) -> str:
    """The sentence with no token named by its id.

    >>> without_ids("every draft token is id 1,234: the drafter is gated")
    'every draft token is id (removed): the drafter is gated'
    """
    return _MARKED.sub(lambda found: found.group().replace(found.group(1), "(removed)"), sentence)


@cache
def known_words() -> frozenset[str]:
    """Every word in the texts of the rules, lower case."""
    given = [_REASONS, *PARAMETER_WORDS, *VERIFICATION, *(w for words in STEP_WORDS.values() for w in words)]
    texts = [*given, *(text for name in _modules() for text in _texts(name))]
    return frozenset(word.lower() for text in texts for word in _WORD.findall(text))


def _modules() -> Iterator[str]:
    yield "spectrace.analysis.intervals"
    for module in pkgutil.iter_modules(rules.__path__, rules.__name__ + "."):
        yield module.name


def _texts(module: str) -> Iterator[str]:
    spec = find_spec(module)
    code = None if spec is None or spec.loader is None else spec.loader.get_code(module)  # type: ignore[attr-defined]
    waiting = [] if code is None else [code]
    while waiting:
        for constant in waiting.pop().co_consts:
            if isinstance(constant, str):
                yield constant
            elif isinstance(constant, tuple):
                yield from (item for item in constant if isinstance(item, str))
            elif isinstance(constant, CodeType):
                waiting.append(constant)

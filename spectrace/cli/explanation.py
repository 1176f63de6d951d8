"""`spectrace stats --explain`: which formula over these steps gives a number that was printed elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from spectrace.analysis.formulas import Explanation, Match, explain, read_number
from spectrace.cli.output import progress
from spectrace.cli.verdicts import wrapped
from spectrace.errors import UsageError
from spectrace.format.figures import number

if TYPE_CHECKING:
    from spectrace import Trace

_SHOWN = 8
"""Most formulas named; a number of one digit fits many."""


def explanation(trace: Trace, text: str) -> Explanation:
    """Matches a number to every formula; reads every step.

    Args:
        trace: an open trace.
        text: the number as it was printed.

    Raises:
        UsageError: it is no number.
    """
    given = read_number(text)
    if given is None:
        raise UsageError(f"--explain {text!r}: give the number as it was printed, such as 2.31 or 46.7%")
    from spectrace.analysis.diagnosis.facts import collect
    from spectrace.analysis.diagnosis.metrics import CountTally, sums

    with progress("reading", len(trace.steps)) as show:
        return explain(given, sums(collect(trace, [CountTally], show)))


def to_mapping(found: Explanation) -> dict[str, Any]:
    """Plain values, for JSON."""
    return {
        "given": found.given.value,
        "digits": found.given.digits,
        "matches": [_plain(match) for match in found.matches],
        "nearest": [_plain(match) for match in found.nearest],
    }


def _plain(match: Match) -> dict[str, Any]:
    return {
        "name": match.formula.name,
        "formula": match.formula.formula,
        "used_by": match.formula.used_by,
        "value": match.value,
        "is_per_cent": match.is_per_cent,
    }


def explanation_lines(found: Explanation, text: str) -> Iterator[str]:
    """The same in words."""
    if found.matches:
        several = len(found.matches) > 1
        yield f"{text} is given by {'several formulas' if several else 'one formula'} over these steps:"
        for match in found.matches[:_SHOWN]:
            yield from _lines(match, found.usual)
        if len(found.matches) > _SHOWN:
            yield f"  and {len(found.matches) - _SHOWN} more: --json lists them"
        if several:
            yield from wrapped("", "This run cannot tell them apart: more digits, or another run, would.")
        return
    if not found.usual:
        yield f"No formula over these steps gives {text}: there is no proposal to count."
        return
    near = ". The nearest are:" if found.nearest else " or comes near."
    yield f"No formula over these steps gives {text}{near}"
    for match in found.nearest:
        yield from _lines(match)
    hint = "a server's average since its start, a few seconds of a log, one request (see --by request)."
    yield from wrapped("", f"It may cover other steps: {hint}")


def _lines(match: Match, usual: Sequence[Match] = ()) -> Iterator[str]:
    """Name, value and formula; who prints it; and what the usual number is."""
    formula = match.formula
    name = formula.name.replace("_", " ")
    yield from wrapped(f"  {name} {_value(match)}: ", formula.formula, indent="      ")
    yield from wrapped("      used by ", formula.used_by, indent="      ")
    own = [u for u in usual if u.formula.is_rate == formula.is_rate]
    here = f"vLLM's is {_value(own[0])} here" if own and _value(own[0]) != _value(match) else ""
    if note := "; ".join(filter(None, (formula.remark if usual else "", here))):
        yield from wrapped("      note: ", note, indent="      ")


def _value(match: Match) -> str:
    return f"{number(100 * match.value, 2)}%" if match.is_per_cent else number(match.value)

"""What to do where a badly accepting draft has no finding: the tests that tell most, the sharpest first.

Owns their order; which of them a run can have is read from its header.
"""

from __future__ import annotations

from collections.abc import Iterator

from spectrace.analysis.acceptance import is_simulated
from spectrace.analysis.diagnosis.verdict import Diagnosis
from spectrace.analysis.intervals import Share
from spectrace.format.records import Run

_WELL = 0.7
"""alpha1 that healthy drafts reach or come near (.65 to .9 in public reports)."""
_LOOKUPS = ("ngram", "suffix")
"""Methods that propose what the text already holds: few hits are a matter of the text, and no fault."""


def what_now(found: Diagnosis, run: Run, name: str) -> str | None:
    """One sentence, None where acceptance is good or simulated, or a finding says more.

    Args:
        found: of a trace; a small workload is no cause.
        run: its header.
        name: the trace as it is typed in a command.
    """
    alpha1 = found.measured["alpha1"]
    is_explained = any(not finding.id.startswith("workload/") for finding in found.findings)
    if is_explained or not alpha1.trials or alpha1.value >= _WELL or is_simulated(run):
        return None
    if run.method in _LOOKUPS:
        return _of_a_lookup(alpha1)
    return "; ".join(_tests(found, run, name)) or None


def _tests(found: Diagnosis, run: Run, name: str) -> Iterator[str]:
    alpha1 = found.measured["alpha1"]
    if run.method == "eagle3":
        yield f"spectrace probe {name} --target T --draft EAGLE3 runs the draft alone, rightly and wrongly"
    if all(item.id != "verification/self-draft" for item in found.cleared):
        yield "spectrace record --target T --control self-draft tells the engine's fault from the draft's"
    promised = (run.training or {}).get("first_position_accuracy")
    if isinstance(promised, int | float) and not isinstance(promised, bool) and alpha1.high < promised <= 1:
        yield (
            f"training declared {promised:.2f} at the first position and alpha1 is {alpha1.value:.2f}: "
            "record a training text"
        )


def _of_a_lookup(alpha1: Share) -> str:
    return (
        f"a lookup proposes what the text said before, and {alpha1.successes:,} of {alpha1.trials:,} times "
        "the target went on so: record texts that repeat themselves (edited code, summaries), ask for longer "
        "matches, or take a draft model"
    )

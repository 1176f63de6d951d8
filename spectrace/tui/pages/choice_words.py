"""Where the target's choice stood with the draft, as sentences."""

from __future__ import annotations

from spectrace.analysis.choice import Choice
from spectrace.format.records import Run
from spectrace.tui.cells import cell_number
from spectrace.tui.pages.missing import missing_words
from spectrace.tui.step_detail import quoted
from spectrace.tui.step_row import Names

_PLACES = {1: "first", 2: "second", 3: "third", 4: "fourth", 5: "fifth"}


def choice_words(choice: Choice, names: Names, run: Run) -> str:
    """One sentence."""
    if choice.token_id is None:
        return f"The target's choice is not known: {missing_words(run, 'target_ids')}."
    token = f"The target's choice, {quoted(choice.token_id, names)},"
    if choice.misread_as is not None:
        read = quoted(choice.misread_as, names)
        return (
            f"{token} is what the draft proposed, but its id went to the target as {read}: look at the map."
        )
    if choice.kind == "in_top" and choice.place is not None:
        place = _PLACES.get(choice.place, f"number {choice.place}")
        best = f"the draft's best {choice.num_top}"
        return f"{token} was {place} among {best}, log q {cell_number(choice.logprob)}."
    if choice.kind == "unknown":
        field = "draft_top" if not choice.num_top else "vocab_map"
        return f"{token} cannot be placed in the draft's distribution: {missing_words(run, field)}."
    return {
        "proposed": f"{token} was proposed.",
        "below_top": f"{token} was not among the draft's best {choice.num_top}.",
        "outside_vocabulary": f"{token} is outside the draft's vocabulary: no draft token could be accepted "
        "here.",
        "beyond": f"{token} comes after the last drafted token.",
    }[choice.kind]

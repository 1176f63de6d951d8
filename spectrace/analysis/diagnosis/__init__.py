"""Why acceptance is what it is: a trace in, named causes with their evidence out.

`rules.RULES` lists every rule; one file per rule or close family. No file is opened here.
"""

from spectrace.analysis.diagnosis.examine import diagnose
from spectrace.analysis.diagnosis.verdict import (
    Cleared,
    Counterfactual,
    Diagnosis,
    Finding,
    NotChecked,
    Strength,
)

__all__ = ["Cleared", "Counterfactual", "Diagnosis", "Finding", "NotChecked", "Strength", "diagnose"]

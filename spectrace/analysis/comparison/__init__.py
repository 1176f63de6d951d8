"""Two traces of the same prompts side by side: what differs, where first, and what that means.

`compare` is the door; one file per idea. No file is opened here.
"""

from spectrace.analysis.comparison.examine import compare
from spectrace.analysis.comparison.result import Comparison

__all__ = ["Comparison", "compare"]

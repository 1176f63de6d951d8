"""The fault matrix: real runs with one thing broken in code, and what `diagnose` says of each.

`python -m benchmarks.faults` runs it; `faults.py` and `healthy.py` are the lists.
"""

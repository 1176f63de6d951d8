"""What a recording survives: real runs of the bundled models with something going wrong beside them.

`python -m benchmarks.reliability` breaks them one by one and prints the table of `recorders/RELIABILITY.md`;
`faults.py` is the list.
"""

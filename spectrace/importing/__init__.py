"""What engines and other tools already write, read as the records of a trace.

A file per source: it knows that source's words and translates them once. Counts stay counts: what nobody
told is null, and `capture.unavailable` says why.
"""

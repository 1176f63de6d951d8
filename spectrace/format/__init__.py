"""The trace file: records, bytes, writer and reader. SPEC.md beside this file is the authority.

Knows no engine, prints nothing and computes no rate.
"""

"""What leaves the machine: a redacted trace, a report for an issue, and the zip that holds both.

Imports format and analysis. `redaction.py` is the one table of what is kept; nothing here draws a terminal.
"""

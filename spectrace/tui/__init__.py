"""The viewer: reads a trace in a terminal, over SSH, with or without colour.

Data (`loader`, `search`), text (`step_row`, `step_detail`, `summary`) and drawing (`screens`,
`widgets`) are apart: only the last two and `viewer` know Textual. Nothing here computes a metric.
"""

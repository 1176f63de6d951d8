"""What recorders share that run inside a serving engine: how one is asked for, begins, is fed and ends.

Which function of an engine is hooked, and how its events become steps, is its own recorder's. Imports torch
but no engine, and by itself neither.
"""

"""Directories that hold a model: configuration, tensors, vocabulary maps, tokenizer.

Reads what a stranger made: nothing is unpickled but by torch with `weights_only=True`, nothing is allocated
before its size is checked, and a damaged file costs its own contents only. Judges nothing.
"""

"""What recorders share that run inside a serving engine: settings, guarded hooks, reductions, header facts.

Owns nothing that only one engine has; imports torch but no engine. An engine's own words end in its recorder.
"""

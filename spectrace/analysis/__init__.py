"""Numbers about recorded steps: counts in, small frozen results out.

No file is opened here, no clock is read, nothing is drawn. Import the module by its topic, for example
`spectrace.analysis.acceptance`.
"""

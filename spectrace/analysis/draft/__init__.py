"""What a draft checkpoint says about itself, judged before any step is decoded.

Takes what `spectrace.checkpoint` read, opens nothing. `report.check_draft` runs every check.
"""

"""One screen per task."""

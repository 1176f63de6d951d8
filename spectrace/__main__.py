"""`python -m spectrace`: the same as the command `spectrace`."""

from __future__ import annotations

import sys

from spectrace.cli import main

if __name__ == "__main__":
    sys.exit(main())

"""`python -m promptpath.cli`: the same as `promptpath`."""

from __future__ import annotations

import sys

from promptpath.cli import main

if __name__ == "__main__":
    sys.exit(main())

"""`compare`, in the module that had it; `python -m` with its name compares two files."""

import sys

from msprobe.compat.hooks_compare import compare, main

__all__ = ["compare"]

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

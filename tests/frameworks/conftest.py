"""recording.py of tests/python, and this folder as `frameworks`, are importable."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "python"))

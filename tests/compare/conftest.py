"""Modules that several tests share are in this folder: golden_tables.py,
small_runs.py, joined_runs.py."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

"""Modules that several tests share are in this folder: runs.py, programs.py."""

import importlib.util
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

# `make test-mindspore` runs these tests in an environment that has MindSpore.
collect_ignore_glob = [] if importlib.util.find_spec("mindspore") else ["test_*.py"]

"""Modules that several tests share are in this folder: runs.py, programs.py."""

import importlib.util
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

# `make test-mindspore` runs these tests in an environment that has MindSpore. This folder has the
# same name: where tests/ is in sys.path, it is found in its place, as a package without a file.
_spec = importlib.util.find_spec("mindspore")
collect_ignore_glob = [] if _spec is not None and _spec.origin else ["test_*.py"]

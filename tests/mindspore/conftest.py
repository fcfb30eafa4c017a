"""Modules that several tests share are in this folder: runs.py, programs.py."""

import importlib.util
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

# `make test-mindspore` runs these tests in an environment that has MindSpore.
collect_ignore_glob = [] if importlib.util.find_spec("mindspore") else ["test_*.py"]


@pytest.fixture(autouse=True)
def no_operator_in_the_parent():
    """An operator starts threads of MindSpore. A child that is forked afterwards has none of them,
    and waits for them without end."""
    threads = len(list(Path("/proc/self/task").iterdir()))
    yield
    now = len(list(Path("/proc/self/task").iterdir()))
    assert now <= threads, "the test ran an operator of MindSpore here; decorate it with @forked"

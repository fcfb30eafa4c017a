"""Modules that several tests share are in this folder or in tests/python."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "python"))


@pytest.fixture
def out(tmp_path):
    """An empty folder for results."""
    folder = tmp_path / "out"
    folder.mkdir()
    return folder


def pytest_collection_modifyitems(items):
    from torch_features import skip_missing

    skip_missing(items, Path(__file__).resolve().parent)

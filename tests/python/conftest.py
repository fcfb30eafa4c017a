"""Modules that several tests share are in this folder: recording.py, odd_programs.py."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import torch_features  # noqa: E402


def pytest_pycollect_makemodule(module_path, parent):
    if module_path.parent == HERE and torch_features.missing(module_path.name):
        return torch_features.SkippedFile.from_parent(parent, path=module_path)


def pytest_collection_modifyitems(items):
    torch_features.skip_missing(items, HERE)

"""Modules that several tests share are in this folder: recording.py, odd_programs.py."""

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import torch_features  # noqa: E402


def pytest_pycollect_makemodule(module_path, parent):
    if module_path.parent == HERE and torch_features.missing(module_path.name):
        return torch_features.SkippedFile.from_parent(parent, path=module_path)


def pytest_collection_modifyitems(items):
    torch_features.skip_missing(items, HERE)


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 64 KiB, if this user may mount one."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)]
    try:
        mounted = subprocess.run(mount, capture_output=True).returncode == 0
    except FileNotFoundError:
        mounted = False
    if not mounted:
        pytest.skip("no right to mount a small disk")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)

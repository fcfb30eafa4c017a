"""Fixtures with paths. Tests use the installed package, never the source folder."""

import gc
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "examples"))
# Modules that tests of several folders share: killed_training.py, forked_python.py.
sys.path.insert(0, str(ROOT / "tests"))

import forked_python as forking  # noqa: E402

# Numbers of tensors of any size are used again (test_reuse.py), not only of large ones.
os.environ.setdefault("MSPROBE_REUSE_BYTES", "1")

# OpenMP's threads sleep while they wait (also in tests/run.py): with more threads than cores,
# test_models.py took 60 s of processor time in place of 11 s.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

# Hypothesis: the same examples on every machine, and no deadline, because tests assert no times.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")


BEFORE = dict(os.environ)  # before any module of tests is imported


def restore_environment(before):
    for name in (before.keys() | os.environ.keys()) - {"PYTEST_CURRENT_TEST"}:
        if name not in before:
            del os.environ[name]
        elif os.environ.get(name) != before[name]:
            os.environ[name] = before[name]


def pytest_collection_finish():
    """What modules set when they are imported (a seed, as the scripts of older tools do) ends here.
    A collection of garbage in a fork of this process copies none of its pages.
    """
    restore_environment(BEFORE)
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def environment_stays():
    """What a test sets ends with it: after seed_all (PYTHONHASHSEED) no Python would be a fork."""
    before = dict(os.environ)
    yield
    restore_environment(before)


@pytest.fixture(scope="session")
def root() -> Path:
    """The root of the repository."""
    return ROOT


@pytest.fixture(scope="session")
def build_dir(root) -> Path:
    """The build folder; fails, never skips, when nothing was built."""
    path = Path(os.environ.get("MSPROBE_BUILD_DIR", root / "build")).resolve()
    if not (path / "build.ninja").exists():
        pytest.fail(f"nothing is built in {path}; type: make build", pytrace=False)
    return path


@pytest.fixture(scope="session")
def msprobe_bin() -> str:
    """The `msprobe` program: $MSPROBE_BIN, else the one installed beside this Python."""
    path = Path(os.environ.get("MSPROBE_BIN", Path(sys.executable).parent / "msprobe"))
    if not path.exists():
        pytest.fail(f"no msprobe program at {path}; type: make build", pytrace=False)
    return str(path)


@pytest.fixture(scope="session")
def forked_python():
    """A program in place of sys.executable that starts in 0.1 s, PyTorch imported."""
    if shared := os.environ.get(forking.SHARED):  # by tests/run.py
        yield shared
        return
    with tempfile.TemporaryDirectory() as folder, forking.running(Path(folder) / "bin") as python:
        yield str(python)


@pytest.fixture(scope="session")
def forking_msprobe(forked_python) -> str:
    """The `msprobe` program whose workers are those of `forked_python`."""
    path = Path(forked_python).parent / "msprobe"
    if not path.exists():
        pytest.fail("no msprobe program; type: make build", pytrace=False)
    return str(path)


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

"""Fixtures with the simulated NPU, compiled once. Without a compiler, tests are skipped."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
# Not simnpu/ itself: its torch_npu would hide that of the older tools from other tests.
sys.path[:0] = [str(HERE), str(HERE.parent / "python")]

import simnpu_build  # noqa: E402


@pytest.fixture(scope="session")
def simulated():
    """The folder that has the package torch_npu."""
    if reason := simnpu_build.why_not():
        pytest.skip(f"no simulated NPU: {reason}")
    return simnpu_build.build()


def _in_child(folder, settings, function, args):
    os.environ.update(settings)
    sys.path.insert(0, str(folder))
    import torch_npu  # noqa: F401

    return function(*args)


@pytest.fixture
def on_npu(simulated):
    """on_npu(function, *args, SIMNPU_ASYNC="1") runs it in a forked child that has torch.npu."""
    from recording import run_forked

    def run(function, *args, **settings):
        return run_forked(_in_child, simulated, settings, function, args)

    return run


@pytest.fixture
def npu_program(simulated, tmp_path):
    """npu_program(text, *arguments) runs a program of its own; the CompletedProcess."""

    def run(text, *arguments, **settings):
        (tmp_path / "program.py").write_text(text)
        return subprocess.run(
            [sys.executable, "program.py", *arguments],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": str(simulated), **settings},
        )

    return run

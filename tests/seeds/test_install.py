"""Seeds 000, 002, 003 and 004: getting the tools, and the names under which scripts import them.

Tests carry the id of the requirement that they check.
"""

import os
import shutil
import subprocess
import sys

import pytest


def python(program, *path, status=0):
    """What a Python of its own prints, with `path` before everything else."""
    env = dict(os.environ, PYTHONPATH=os.pathsep.join(str(folder) for folder in path))
    done = subprocess.run(
        [sys.executable, "-c", program], env=env, capture_output=True, text=True, cwd="/"
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


def clone_of(root, folder):
    """What git would have, as it is in this tree: nothing is built there."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=root, check=True, capture_output=True, text=True).stdout
    for name in names.split("\0"):
        if name and (root / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(root / name, folder / name)
    return folder


@pytest.fixture(scope="module")
def clone(root, tmp_path_factory):
    """A clone called as the package, which is what used to hide it."""
    return clone_of(root, tmp_path_factory.mktemp("clones") / "ptdbg_ascend")


def test_R_B03_torch_npu_hooks_need_no_npu():
    python("import torch_npu.hooks")


def test_R_C_U1_a_fresh_clone_on_the_path_knows_its_version(clone):
    said = python("import ptdbg_ascend as p; print(p.__version__)", clone / "python")
    assert said == "0.1\n"
    said = python("from ptdbg_ascend import PrecisionDebugger", clone / "python", status=1)
    assert "type `pip install .` in the clone" in said.splitlines()[-1]
    assert "type `pip install .`" in python(
        "from ptdbg_ascend import *", clone / "python", status=1
    )


def test_R_C_E1_no_folder_of_the_clone_hides_the_package(clone):
    names = python("import ptdbg_ascend as p; print(p.__all__, p.__file__)", clone, clone.parent)
    assert "CompareException" in names and "site-packages" in names


def test_R_X09_an_import_has_no_side_effects():
    python("""
import random, sys
import torch
states = torch.get_rng_state(), random.getstate(), sys.meta_path[:], torch.jit.script
functions = torch.nn.functional.dropout, torch.add
deterministic = torch.are_deterministic_algorithms_enabled()
import msprobe
import msprobe.pytorch
assert torch.equal(states[0], torch.get_rng_state()) and states[1] == random.getstate()
assert states[2] == sys.meta_path and states[3] is torch.jit.script
assert functions == (torch.nn.functional.dropout, torch.add)
assert deterministic == torch.are_deterministic_algorithms_enabled()
""")

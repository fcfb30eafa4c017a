"""Installation as with the older tools, and their import names.

Tests carry the id of the requirement that they check.
"""

import contextlib
import os
import re
import subprocess
import sys
from importlib.metadata import files

import pytest
from clones import clone_of


def python(program, *path, status=0):
    """The output of a new Python, with `path` first in sys.path."""
    env = dict(os.environ, PYTHONPATH=os.pathsep.join(str(folder) for folder in path))
    done = subprocess.run(
        [sys.executable, "-c", program], env=env, capture_output=True, text=True, cwd="/"
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def clone(root, tmp_path_factory):
    """A clone in a folder named as the package: once such a folder hid the package."""
    return clone_of(root, tmp_path_factory.mktemp("clones") / "ptdbg_ascend")


def configure(clone, given="", status=0, **environment):
    """Lines that `bash ./configure` prints; lines of stderr come last."""
    env = {k: v for k, v in os.environ.items() if k != "ADAPTER_TARGET_PYTHON_PATH"}
    done = subprocess.run(
        ["bash", "./configure"],
        cwd=clone,
        env={**env, "PYTHON_BIN_PATH": sys.executable, **environment},
        input=given,
        capture_output=True,
        text=True,
    )
    assert done.returncode == status, done.stdout + done.stderr
    return (done.stdout + done.stderr).splitlines()


def program(folder, name, *lines):
    """Writes a program that stands for an unusable Python."""
    file = folder / name
    file.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    file.chmod(0o755)
    return file


@pytest.fixture
def without_torch(tmp_path):
    return program(tmp_path, "without-torch", f'exec {sys.executable} -S -I "$@"')


@pytest.fixture
def with_old_torch(tmp_path):
    (tmp_path / "old/torch").mkdir(parents=True)
    (tmp_path / "old/torch/__init__.py").write_text("__version__ = '1.11.0'")
    return program(
        tmp_path,
        "with-old-torch",
        f"export PYTHONPATH={tmp_path}/old",
        f'exec {sys.executable} "$@"',
    )


def test_R_A01_an_unsupported_torch_gives_one_clear_line(clone, with_old_torch):
    said = configure(clone, ADAPTER_TARGET_PYTHON_PATH=str(with_old_torch))
    assert f"PyTorch in {with_old_torch} is 1.11.0; expected 1.13 or newer" in said


def test_R_A02_one_wheel_serves_every_device():
    engine = next(file for file in files("mindstudio-probe") if "_engine" in file.name)
    linked = subprocess.run(["ldd", engine.locate()], check=True, capture_output=True, text=True)
    names = {line.split()[0].split("/")[-1].split(".so")[0] for line in linked.stdout.splitlines()}
    assert "libc" in names
    assert not any(re.search("cuda|ascend|npu|torch|python", name) for name in names), names


def test_R_A03_torch_is_looked_for_before_the_build(clone, without_torch):
    said = configure(clone, ADAPTER_TARGET_PYTHON_PATH=str(without_torch), given="\n")
    assert f"PyTorch in {without_torch} does not import" in "\n".join(said)


def test_R_A04_one_clone_one_folder(root):
    readme = (root / "README.md").read_text()
    assert "from a fresh clone" in readme and "bash ./configure" in readme
    assert all((root / name).is_file() for name in ("configure", "CMakeLists.txt", "setup.py"))


def test_R_A05_configure_asks_on_a_terminal(clone):
    ours, theirs = os.openpty()
    os.write(ours, sys.executable.encode() + b"\n")
    env = {k: v for k, v in os.environ.items() if k != "ADAPTER_TARGET_PYTHON_PATH"}
    command = ["bash", "./configure"]
    subprocess.run(command, cwd=clone, env=env, stdin=theirs, stdout=theirs, check=True)
    os.close(theirs)
    text = b""
    with contextlib.suppress(OSError):  # the end: nobody has the terminal open any more
        while part := os.read(ours, 10000):  # a part of what was said
            text += part
    said = text.decode().splitlines()
    assert any(line.startswith("Please specify the location") for line in said)
    assert said[-1].endswith("Configuration finished")


def test_R_A06_the_question_names_the_default(clone):
    said = configure(clone, "\n")
    assert said[0].startswith("Please specify the location of python with available pytorch")
    assert said[0].endswith(f"[Default is {sys.executable}]")
    assert said[1].startswith("(You can make this quiet by set env [ADAPTER_TARGET_PYTHON_PATH]): ")


@pytest.mark.parametrize("answer", ["", sys.executable])
def test_R_A07_enter_takes_the_default(clone, answer):
    configure(clone, answer + "\n")
    assert (clone / "tools/PYTHON_BIN_PATH").read_text() == sys.executable + "\n"
    torch = (clone / "tools/PYTORCH_INSTALLED_PATH").read_text()
    assert torch.endswith("-packages/torch\n")


def test_R_A07_an_answer_that_will_not_do_is_asked_again(clone, tmp_path):
    said = configure(clone, f"{tmp_path}\n{tmp_path}/none\n{__file__}\n{sys.executable}\n")
    assert sum("Please specify" in line for line in said) == 4
    reasons = [line.split(": ", 1)[1] for line in said if line.startswith("Invalid python path")]
    assert reasons[0] == f"{tmp_path} is no file" and reasons[2] == f"{__file__} is not executable"


def test_R_A08_the_environment_silences_it_or_is_asked_again(clone, tmp_path):
    chosen = {"ADAPTER_TARGET_PYTHON_PATH": sys.executable}
    assert configure(clone, **chosen) == ["Configuration finished"]
    said = configure(clone, "\n", ADAPTER_TARGET_PYTHON_PATH="/nope")
    assert "Please specify" in said[0] and said[-1] == "Invalid python path: /nope is no file"


def test_R_A08_the_end_of_input_with_nothing_valid_is_an_error(clone, without_torch):
    found = {"PYTHON_BIN_PATH": str(without_torch), "ADAPTER_TARGET_PYTHON_PATH": "/nope"}
    (clone / "tools/PYTHON_BIN_PATH").unlink(missing_ok=True)
    said = configure(clone, status=1, **found)
    assert said[-1].startswith("error: the input ended")
    assert not (clone / "tools/PYTHON_BIN_PATH").exists()


def test_R_A09_the_last_line(clone):
    env = dict(os.environ, ADAPTER_TARGET_PYTHON_PATH=sys.executable)
    last = subprocess.run(
        "bash ./configure | tail -1", shell=True, cwd=clone, env=env, capture_output=True, text=True
    )
    assert (last.returncode, last.stdout) == (0, "Configuration finished\n")


def test_R_A10_cmake_names_configure_in_a_clone_that_is_not_configured(clone, tmp_path):
    (clone / "tools/PYTHON_BIN_PATH").unlink(missing_ok=True)
    command = ["cmake", str(clone)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0 and "type: bash ./configure" in done.stdout, (
        done.stdout + done.stderr
    )
    command = ["cmake", "-DMSPROBE_WHEELS=ON", str(clone)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1 and "bash ./configure" in " ".join(done.stderr.split())


def test_R_A42_a_command_runs_the_base_and_the_network_tests(root):
    said = (root / "CONTRIBUTING.md").read_text()
    line = next(line for line in said.split("\n\n") if "network tests" in line)
    assert "`make test`" in line
    for name in re.findall(r"`(tests/[\w/.]+)`", line):
        assert (root / name).is_file(), name


def test_R_A43_release_notes_are_there_and_linked(root):
    assert "27.0.0" in (root / "RELEASE.md").read_text()
    assert "(RELEASE.md)" in (root / "README.md").read_text()


def test_R_B03_torch_npu_hooks_need_no_npu():
    python("from torch_npu.hooks import register_hook")


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

"""The names of the older tools import where nobody else has them, and hide nobody."""

import os
import subprocess
import sys
from importlib.metadata import files

import pytest

FORMS = [
    "import torch_npu.hooks; assert torch_npu.hooks.__all__ is not None",
    "import torch_npu.hooks; import torch_npu.hooks.hooks; torch_npu.hooks.hooks",
    "import torch_npu.hooks as hooks",
    "import torch_npu.hooks.hooks as hooks",
    "from torch_npu import hooks",
    "from torch_npu.hooks import *",
    "from torch_npu.hooks.hooks import *",
    "import importlib; importlib.import_module('torch_npu.hooks')",
    "import torch_npu.hooks.tools; torch_npu.hooks.tools.compare",
    "from torch_npu.hooks.tools import compare",
    "from torch_npu.hooks.tools.acc_compare import compare",
]
NOBODY_FINDS_AN_NPU = """
import importlib.util, sys
def nobody_finds_an_npu():
    assert "torch_npu" not in sys.modules
    assert importlib.util.find_spec("torch_npu") is None
    for statement in ("import torch_npu", "from torch_npu import npu", "import torch_npu.npu"):
        try:
            exec(statement)
        except ModuleNotFoundError as error:
            assert error.name.startswith("torch_npu"), error
        else:
            raise AssertionError(statement)
"""


def run(program, *path, cwd=None, status=0):
    """What the program prints, in a Python of its own with `path` before everything else."""
    env = dict(os.environ, PYTHONPATH=os.pathsep.join(str(folder) for folder in path))
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=env, cwd=cwd, capture_output=True, text=True)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


def package(folder, name, **sources):
    """A package of somebody else."""
    made = folder / name
    made.mkdir(parents=True)
    for module, source in {"__init__": "", **sources}.items():
        (made / f"{module}.py").write_text(source)
    return folder


def test_hooks_come_and_no_torch_npu_is_left():
    run(f"""
{NOBODY_FINDS_AN_NPU}
nobody_finds_an_npu()
for form in {FORMS!r} * 2:
    exec(form)
    nobody_finds_an_npu()
for form in {FORMS!r}:
    for name in [name for name in sys.modules if name.startswith("torch_npu")]:
        del sys.modules[name]
    exec(form)
    nobody_finds_an_npu()
""")


@pytest.mark.parametrize("module", ["tools", "tools.acc_compare"])
def test_the_comparison_runs_as_a_module(module):
    command = [sys.executable, "-m", f"torch_npu.hooks.{module}", "--help"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "--npu_pkl" in done.stdout and "--bench_pkl" in done.stdout


def test_the_parent_says_what_is_missing():
    said = run(
        "import torch_npu.hooks; torch_npu.hooks; torch_npu.npu.set_device(0)",
        status=1,
    )
    assert "torch_npu.npu: torch_npu is not installed; only torch_npu.hooks is" in said


def test_hooks_that_fail_leave_no_parent(tmp_path):
    package(tmp_path, "msprobe")
    run(
        NOBODY_FINDS_AN_NPU
        + "try:\n    import torch_npu.hooks\nexcept ImportError as error:\n"
        + "    assert error.name.startswith('msprobe')\nnobody_finds_an_npu()",
        tmp_path,
    )


def test_a_real_torch_npu_keeps_its_own_hooks(tmp_path):
    theirs = package(tmp_path, "torch_npu", hooks="theirs = 1")
    assert run("import torch_npu.hooks as h; print(h.theirs)", theirs) == "1\n"


def test_a_real_torch_npu_without_hooks_gets_ours(tmp_path):
    theirs = package(tmp_path, "torch_npu", __init__="real = 1")
    run(
        f"""
import sys
for form in {[*FORMS, "import torch_npu; import torch_npu.hooks"]!r}:
    for name in [name for name in sys.modules if name.startswith("torch_npu")]:
        del sys.modules[name]
    exec(form)
    import torch_npu
    assert torch_npu.real and "compat/packages" in torch_npu.hooks.__file__, form
""",
        theirs,
    )


def test_a_finder_that_comes_later_is_asked(tmp_path):
    """An editable installation of torch_npu puts its own finder behind."""
    package(tmp_path, "torch_npu", __init__="real = 1")
    run(f"""
import sys
from importlib.machinery import PathFinder
class Editable:
    find_spec = staticmethod(lambda name, path=None, target=None: PathFinder.find_spec(
        name, [{str(tmp_path)!r}]) if name == "torch_npu" else None)
sys.meta_path.append(Editable)
import torch_npu.hooks
assert torch_npu.real and "compat/packages" in torch_npu.hooks.__file__
""")


def test_another_ptdbg_ascend_wins(tmp_path):
    theirs = package(tmp_path, "ptdbg_ascend", __init__="__version__ = '4.0'")
    assert run("import ptdbg_ascend as p; print(p.__version__)", theirs) == "4.0\n"


def test_a_start_of_python_imports_nothing_of_it():
    run("""
import sys
loaded = {name.partition(".")[0] for name in sys.modules}
assert "_msprobe_names" in loaded
assert not loaded & {"msprobe", "torch", "numpy", "ptdbg_ascend", "torch_npu", "dis"}, loaded
""")


def test_the_wheel_brings_what_answers():
    installed = {str(path) for path in files("mindstudio-probe")}
    assert {"_msprobe_names.py", "msprobe-names.pth"} <= installed
    assert "msprobe/compat/packages/ptdbg_ascend/__init__.py" in installed

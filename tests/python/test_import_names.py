"""The import names of the older tools: an opt-in that never hides an installed package."""

import os
import subprocess
import sys
from importlib.metadata import files, metadata

import pytest

FORMS = [
    "from torch_npu.hooks import *",
    "from torch_npu.hooks import register_hook, set_dump_path",
    "from torch_npu.hooks.hooks import *",
    "import importlib; importlib.import_module('torch_npu.hooks')",
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
    """The output of the program in a new Python, with `path` first in sys.path."""
    env = dict(os.environ, PYTHONPATH=os.pathsep.join(str(folder) for folder in path))
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=env, cwd=cwd, capture_output=True, text=True)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


def package(folder, name, **sources):
    """Writes a third-party package."""
    made = folder / name
    made.mkdir(parents=True)
    for module, source in {"__init__": "", **sources}.items():
        (made / f"{module}.py").write_text(source)
    return folder


def test_hooks_are_importable_without_a_module_torch_npu():
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


@pytest.mark.parametrize("form", ["import torch_npu.hooks", "from torch_npu import hooks"])
def test_forms_that_bind_torch_npu_itself_find_none(form):
    """A module torch_npu is never created: the rule of docs/older/older-tools.md."""
    assert "No module named 'torch_npu'" in run(form, status=1)
    run(f"""
{NOBODY_FINDS_AN_NPU}
try:
    {form}
except ModuleNotFoundError:
    nobody_finds_an_npu()
""")


def test_hooks_that_fail_leave_no_parent(tmp_path):
    package(tmp_path, "msprobe")
    run(
        NOBODY_FINDS_AN_NPU
        + "try:\n    from torch_npu.hooks import register_hook\nexcept ImportError as error:\n"
        + "    assert error.name.startswith('msprobe')\nnobody_finds_an_npu()",
        tmp_path,
    )


def test_a_real_torch_npu_keeps_its_own_hooks(tmp_path):
    theirs = package(tmp_path, "torch_npu", hooks="theirs = 1")
    assert run("import torch_npu.hooks as h; print(h.theirs)", theirs) == "1\n"
    assert run("from torch_npu.hooks import theirs; print(theirs)", theirs) == "1\n"


def test_a_real_torch_npu_without_hooks_gets_ours(tmp_path):
    theirs = package(tmp_path, "torch_npu", __init__="real = 1")
    run(
        f"""
import sys
for form in {[*FORMS, "import torch_npu.hooks", "from torch_npu import hooks"]!r}:
    for name in [name for name in sys.modules if name.startswith("torch_npu")]:
        del sys.modules[name]
    exec(form)
    import torch_npu
    assert torch_npu.real and "msprobe_old_names" in torch_npu.hooks.__file__, form
""",
        theirs,
    )


def test_a_finder_that_comes_later_is_asked(tmp_path):
    """An editable installation of torch_npu appends its own finder after ours."""
    package(tmp_path, "torch_npu", __init__="real = 1")
    run(f"""
import sys
from importlib.machinery import PathFinder
class Editable:
    find_spec = staticmethod(lambda name, path=None, target=None: PathFinder.find_spec(
        name, [{str(tmp_path)!r}]) if name == "torch_npu" else None)
sys.meta_path.append(Editable)
import torch_npu.hooks
assert torch_npu.real and "msprobe_old_names" in torch_npu.hooks.__file__
""")


def test_another_ptdbg_ascend_wins(tmp_path):
    theirs = package(tmp_path, "ptdbg_ascend", __init__="__version__ = '4.0'")
    assert run("import ptdbg_ascend as p; print(p.__version__)", theirs) == "4.0\n"
    assert in_one_run("import ptdbg_ascend as p; print(p.__version__)", tmp_path, theirs) == "4.0\n"


def test_a_start_of_python_with_the_names_imports_nothing_heavy():
    run("""
import sys
loaded = {name.partition(".")[0] for name in sys.modules}
assert "_msprobe_torch_npu" in loaded
assert not loaded & {"msprobe", "torch", "numpy", "ptdbg_ascend", "torch_npu", "dis"}, loaded
""")


def test_msprobe_alone_touches_no_start_of_python():
    installed = [str(path) for path in files("mindstudio-probe")]
    assert not [path for path in installed if path.endswith(".pth")]
    outside = {path.split("/")[0] for path in installed if not path.startswith("../")}
    assert outside == {"msprobe", "mindstudio_probe-27.0.0.dist-info"}
    assert "msprobe/compat/packages/ptdbg_ascend/__init__.py" in installed
    # -S: the .pth files of this environment, also that of msprobe-old-names, are not read.
    site = next(path for path in files("mindstudio-probe") if path.name == "METADATA").locate()
    program = f"""
import sys
sys.path.append({str(site.parent.parent)!r})
import msprobe, msprobe.compat
from importlib.util import find_spec
assert find_spec("torch_npu") is None and find_spec("ptdbg_ascend") is None
assert not [finder for finder in sys.meta_path if finder.__module__.startswith("_msprobe")]
"""
    subprocess.run([sys.executable, "-S", "-c", program], check=True)


def test_the_extra_names_the_wheel_of_this_version():
    about = metadata("mindstudio-probe")
    wanted = [line for line in about.get_all("Requires-Dist") if "old-names" in line]
    assert wanted and f"msprobe-old-names=={about['Version']}" in wanted[0]
    names = metadata("msprobe-old-names")
    assert names["Version"] == about["Version"]
    assert names.get_all("Requires-Dist") == [f"mindstudio-probe=={about['Version']}"]


SCRIPT = """
import sys, json, os
from torch_npu.hooks import register_hook
from torch_npu.hooks.tools import compare
import ptdbg_ascend
main = sys.modules["__main__"]
assert main.__dict__ is globals() and __name__ == "__main__" and __package__ is None
assert __spec__ is None
print(json.dumps([sys.argv, sys.path[0], os.path.samefile(__file__, sys.argv[0]), __file__]))
"""


def without_names(*command, cwd, path=(), status=0):
    """Runs Python as if msprobe-old-names were not installed: without `site`, which reads .pth."""
    site = next(path for path in files("mindstudio-probe") if path.name == "METADATA").locate()
    search = [*path, site.parent.parent, *[part for part in sys.path if "-packages" in part]]
    env = dict(os.environ, PYTHONPATH=os.pathsep.join(map(str, search)))
    done = subprocess.run(
        [sys.executable, "-S", *command], cwd=cwd, env=env, capture_output=True, text=True
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


def in_one_run(program, folder, *path):
    (folder / "program.py").write_text(program)
    return without_names("-m", "msprobe.compat", "program.py", cwd=folder, path=path)


def test_one_run_is_as_python_runs_the_script(tmp_path):
    (tmp_path / "work").mkdir()
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts/script.py").write_text(SCRIPT)
    (tmp_path / "scripts/beside.py").write_text("")
    given = ["../scripts/script.py", "--flag", "-m", "a b"]
    with_module = without_names("-m", "msprobe.compat", *given, cwd=tmp_path / "work")
    done = subprocess.run(
        [sys.executable, *given], cwd=tmp_path / "work", check=True, capture_output=True, text=True
    )
    assert with_module == done.stdout  # with the wheel; without it for one run
    assert f'"{tmp_path}/scripts"' in with_module and '"a b"' in with_module


def test_one_run_leaves_no_torch_npu(tmp_path):
    program = f"""{NOBODY_FINDS_AN_NPU}
nobody_finds_an_npu()
for form in {FORMS!r} * 2:
    exec(form)
    nobody_finds_an_npu()
"""
    in_one_run(program, tmp_path)


def test_one_run_of_a_module(tmp_path):
    said = without_names(
        "-m", "msprobe.compat", "-m", "torch_npu.hooks.tools", "--help", cwd=tmp_path
    )
    assert "--npu_pkl" in said


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ([], "no script"),
        (["-m"], "found -m"),
        (["--help"], "found --help"),
        (["none.py"], "found none.py: No such file or directory"),
        (["."], "found .: Is a directory"),
    ],
)
def test_one_run_says_what_it_needs(given, found, tmp_path):
    said = without_names("-m", "msprobe.compat", *given, cwd=tmp_path, status=2)
    assert found in said and "python -m msprobe.compat SCRIPT [ARGUMENTS]" in said
    assert "Traceback" not in said


def test_a_script_that_fails_ends_as_under_python(tmp_path):
    (tmp_path / "script.py").write_text("import sys\nsys.exit(7)\n")
    without_names("-m", "msprobe.compat", "script.py", cwd=tmp_path, status=7)

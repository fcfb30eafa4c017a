"""`make wheel`: a wheel that needs no compiler, no Debian packages and no libstdc++."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

# Prefixes of the file names of all libraries that the build links, except glibc.
LIBRARIES = ("libfmt", "libyaml-cpp", "libhwy", "libdeflate", "libz", "libstdc++", "libgcc_s")
PACK = "tools/pack_wheel.py"


def run(*command, status=0, **options):
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, **options)
    assert (done.returncode == 0) == (status == 0), done.stdout + done.stderr
    return done.stdout + done.stderr


def test_a_wheel_that_needs_a_library_is_refused(root, build_dir, tmp_path):
    with zipfile.ZipFile(tmp_path / "some-1.0-cp310-cp310-linux_x86_64.whl", "w") as wheel:
        wheel.write(build_dir / "cli/msprobe", "some/program")
        wheel.writestr("some-1.0.dist-info/METADATA", "Name: some\nVersion: 1.0\n")
    (source,) = tmp_path.glob("*.whl")
    pack = [sys.executable, root / PACK, "--portable", source, "--dist", tmp_path / "dist"]
    said = run(*pack, status=1)
    assert "some/program of some-1.0" in said and "expected libraries of glibc only" in said
    assert "libfmt" in said and "libstdc++" in said and not (tmp_path / "dist").exists()


@pytest.fixture(scope="module")
def dist(root, tmp_path_factory):
    """The folder of wheels, built in this tree, so that a second build compiles little."""
    folder = tmp_path_factory.mktemp("dist")
    run(root / "tools/wheel.sh", sys.executable, folder, cwd=root)
    return folder


@pytest.fixture(scope="module")
def installed(dist, tmp_path_factory):
    """Python of an empty environment in which both wheels are installed offline."""
    folder = tmp_path_factory.mktemp("empty") / "venv"
    run(sys.executable, "-m", "venv", folder)
    pip = [folder / "bin/pip", "install", "--no-index", "--find-links", dist]
    said = run(*pip, "mindstudio-probe[old-names]")
    assert "Successfully installed mindstudio-probe-27" in said and "msprobe-old-names" in said
    return folder / "bin/python"


def hide():
    """Shell lines that replace each library in LIBRARIES by an empty file."""
    known = [line.split()[-1] for line in run("/sbin/ldconfig", "-p").splitlines() if "=>" in line]
    files = {os.path.realpath(file) for file in known if Path(file).name.startswith(LIBRARIES)}
    return "\n".join(f"mount --bind /dev/null '{file}'" for file in sorted(files))


@pytest.mark.campaign
def test_the_names_of_the_wheels(dist):
    engine, names = sorted(file.name for file in dist.iterdir())
    version = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    assert engine.startswith(f"mindstudio_probe-27.0.0-{version}-{version}-manylinux_2_")
    assert names == "msprobe_old_names-27.0.0-py3-none-any.whl"


@pytest.mark.campaign
def test_it_runs_where_no_library_of_ours_is(installed, build_dir):
    program = """
import msprobe
from msprobe import _engine
from importlib.util import find_spec
assert find_spec("ptdbg_ascend") is not None and find_spec("torch_npu") is None
print(msprobe.__version__)
"""
    (site,) = installed.parent.parent.glob("lib/python*/site-packages")
    engine = next(site.glob("msprobe/_engine*.so"))
    command = f"""
{hide()}
ldd {engine} {installed.parent}/msprobe
{installed} -c '{program}'
{installed.parent}/msprobe version
{installed.parent}/msprobe compare --help > /dev/null
"""
    said = run("unshare", "--mount", "bash", "-euc", command, env={"PATH": os.environ["PATH"]})
    assert said.count("27.0.0") == 2, said
    assert not any(f"{name}." in said for name in LIBRARIES), said
    # Tests hide() itself: a normally linked program does not start.
    refused = f"{hide()}\n{build_dir}/cli/msprobe version"
    said = run("unshare", "--mount", "bash", "-euc", refused, status=1)
    assert "error while loading shared libraries" in said


@pytest.mark.campaign
def test_two_cpp_runtimes_live_in_one_process(installed, tmp_path):
    """PyTorch uses the system's libstdc++, our wheel its own: errors, threads and values work."""
    program = """
import sys, torch
from msprobe import MsprobeError
from msprobe.pytorch import PrecisionDebugger
try:
    PrecisionDebugger(sys.argv[1] + "/none.json")
except MsprobeError as error:
    assert "none.json" in str(error)
else:
    raise AssertionError
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(300, 200), torch.nn.GELU(), torch.nn.Linear(200, 9))
debugger = PrecisionDebugger(dump_path=sys.argv[1], task="tensor", level="mix")
for _ in range(2):
    debugger.start(model)
    model(torch.randn(64, 300)).sum().backward()
    debugger.stop()
    debugger.step()
"""
    (tmp_path / "program.py").write_text(program)
    run(sys.executable, tmp_path / "program.py", tmp_path / "ours")
    (site,) = installed.parent.parent.glob("lib/python*/site-packages")
    torch = [path for path in sys.path if "-packages" in path]  # last: has another msprobe
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(site), *torch])}
    run(installed, tmp_path / "program.py", tmp_path / "wheel", env=env)
    compare = [installed.parent / "msprobe", "compare", "--exit-code", "-o", tmp_path / "out"]
    for step in ("step0", "step1"):
        run(*compare, "-tp", tmp_path / "wheel" / step, "-gp", tmp_path / "ours" / step)

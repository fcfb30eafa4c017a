"""Builds fresh clones and installs them, with the commands in the guides of the older tools."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from clones import clone_of

pytestmark = pytest.mark.campaign
WHEEL = "./ptdbg_ascend/dist/ptdbg_ascend-0.1-py3-none-any.whl"
NAME = "import ptdbg_ascend; print(ptdbg_ascend.__version__)"
NAMES = f"from torch_npu.hooks import register_hook; {NAME}"


def run(command, cwd, status=0, **environment):
    """Runs a shell command; returns its output."""
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )
    assert (done.returncode == 0) == (status == 0), done.stdout + done.stderr
    return done.stdout + done.stderr


def environment(folder):
    """Creates an empty environment; returns its bin folder."""
    run(f"{sys.executable} -m venv {folder}", ".")
    return folder / "bin"


def lend_torch(bin):
    """Gives an environment all packages of this Python except msprobe."""
    lent = bin.parent / "lent"
    lent.mkdir()
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if "msprobe" not in entry.name and "mindstudio" not in entry.name:
            (lent / entry.name).symlink_to(entry)
    (site,) = bin.parent.glob("lib/python*/site-packages")
    (site / "lent.pth").write_text(f"{lent}\n")


@pytest.fixture(scope="module")
def built(root, tmp_path_factory):
    """Builds as in R-A04 to R-A12 of the guide of ptdbg_ascend 0.1: (build folder, Python)."""
    place = tmp_path_factory.mktemp("seed")
    clone = clone_of(root, place / "clone")
    bin = environment(place / "configured")
    lend_torch(bin)
    python = bin / "python"
    said = run("bash ./configure", clone, ADAPTER_TARGET_PYTHON_PATH=str(python))
    assert said.endswith("Configuration finished\n")
    run("mkdir build; cd build; cmake ..; make -j8", clone)
    return clone / "build", python


def test_R_A10_R_A11_R_A12_the_wheels_are_made(built):
    build, _ = built
    run(f"ls {WHEEL}; ls ./ptdbg_ascend/dist/mindstudio_probe-27*.whl", build)


def test_R_A13_make_install_serves_the_configured_python(built):
    build, python = built
    failed = run("make install", build, status=2, PIP_TARGET="/proc/none")
    assert "could not install the wheels" in " ".join(failed.split())
    run("make install", build)
    shown = run("$(cat ../tools/PYTHON_BIN_PATH) -m pip show ptdbg_ascend", build)
    assert "Version: 0.1" in shown and "Requires: mindstudio-probe" in shown
    assert run(f"{python} -c '{NAME}'", "/") == "0.1\n"


def test_R_A14_pip_installs_twice_into_an_empty_environment(built, tmp_path):
    build, _ = built
    bin = environment(tmp_path / "empty")
    install = f"{bin}/pip3 install --no-index {WHEEL} --upgrade --force-reinstall"
    for _ in range(2):
        assert "Successfully installed mindstudio-probe-27" in run(install, build)
    run(f"{bin}/pip3 check", "/")
    assert "27.0.0" in run(f"{bin}/msprobe version", "/")
    lend_torch(bin)
    assert run(f"{bin}/python -c '{NAME}'", "/") == "0.1\n"


def test_the_dependency_can_be_named_otherwise(built):
    """Also: `make build` refuses this build folder."""
    build, python = built
    run(
        "cmake -DMSPROBE_PTDBG_REQUIRES='mindstudio-probe>=27' .. && touch ../pyproject.toml", build
    )
    run("make", build)
    metadata = "import zipfile, sys; print(zipfile.ZipFile(sys.argv[1]).read(sys.argv[2]).decode())"
    said = run(f"{python} -c '{metadata}' {WHEEL} ptdbg_ascend-0.1.dist-info/METADATA", build)
    assert "Requires-Dist: mindstudio-probe>=27\n" in said
    said = run("tools/build.sh build .venv 2", build.parent, status=1)
    assert "type: make clean" in said


def test_seed_004_setup_py_makes_the_wheel(root, tmp_path):
    clone = clone_of(root, tmp_path / "clone")
    bin = environment(tmp_path / "empty")
    run(f"{bin}/pip install setuptools wheel; {bin}/python setup.py bdist_wheel", clone)
    said = run(f"cd dist; {bin}/pip install mindstudio_probe*.whl", clone)
    assert "Successfully installed mindstudio-probe-27.0.0" in said
    assert "Name: mindstudio-probe\nVersion: 27.0.0\n" in run(
        f"{bin}/pip show mindstudio-probe", clone
    )
    lend_torch(bin)
    run(f"{bin}/python -c 'import msprobe.pytorch'", "/")
    run(f"{bin}/python -c '{NAME}'", "/", status=1)
    run(f"{bin}/python tools/pack_wheel.py --old-names --dist dist", clone)
    install = f"{bin}/pip install --no-index --find-links dist 'mindstudio-probe[old-names]'"
    assert "Successfully installed msprobe-old-names-27.0.0" in run(install, clone)
    assert run(f"{bin}/python -c '{NAMES}'", "/") == "0.1\n"


def test_plain_cmake_builds_the_engine_and_the_command(root, tmp_path):
    clone = clone_of(root, tmp_path / "clone")
    said = run("cmake -B build && cmake --build build -j8", clone)
    assert "type: bash ./configure" in said
    assert "27.0.0" in run("build/cli/msprobe version", clone)
    run("cmake --install build --prefix installed", clone)
    assert sorted(file.name for file in (clone / "installed").rglob("*") if file.is_file()) == [
        "msprobe"
    ]
    # Once a Python is configured, the same build folder makes the wheels.
    bin = environment(tmp_path / "configured")
    lend_torch(bin)
    run("bash ./configure", clone, ADAPTER_TARGET_PYTHON_PATH=str(bin / "python"))
    assert "MSPROBE_WHEELS=ON" in run("cmake build", clone)
    assert "MSPROBE_WHEELS" not in run("cmake -DMSPROBE_WHEELS=OFF build", clone)

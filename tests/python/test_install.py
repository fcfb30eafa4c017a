"""A clean clone installs with plain pip in an empty environment, without PyTorch."""

import subprocess
import sys

import pytest


@pytest.mark.campaign
def test_pip_installs_a_clean_clone(root, tmp_path):
    def run(*command):
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run("git", "clone", "--quiet", str(root), "clone")
    run(sys.executable, "-m", "venv", "env")
    run("env/bin/pip", "install", "./clone")
    assert "27.0.0" in run("env/bin/msprobe", "version")
    assert "site-packages" in run("env/bin/python", "-c", "import msprobe; print(msprobe.__file__)")
    listed = run("env/bin/pip", "list", "--format=freeze")
    assert "mindstudio-probe==27.0.0" in listed
    assert "torch" not in listed
    assert run("git", "-C", "clone", "status", "--porcelain") == ""

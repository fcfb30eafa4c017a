"""The demo finds the operation and the line of the fault that it plants."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from recording import run_program

TRAIN = "examples/demo/train.py"


@pytest.fixture(scope="module")
def recorded(root, tmp_path_factory):
    """Three recorded trainings: two correct ones, and one with the planted fault."""
    out = tmp_path_factory.mktemp("demo")
    losses = {}
    for name, flags in {"right": [], "again": [], "wrong": ["--fault"]}.items():
        done = run_program(TRAIN, "--record", out / name, "--steps", "2", *flags, cwd=root)
        assert done.returncode == 0, done.stderr
        losses[name] = done.stdout
    assert losses["right"] == losses["again"]
    return out


def compare(msprobe_bin, target, golden, output):
    command = [msprobe_bin, "compare", "-tp", target, "-gp", golden, "-o", output]
    done = subprocess.run([*command, "--format", "json"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def planted_line(root):
    lines = (root / TRAIN).read_text().splitlines()
    (number,) = [number for number, line in enumerate(lines, 1) if "The planted fault" in line]
    return number + 1


def test_the_first_divergence_is_the_planted_operation(root, recorded, msprobe_bin, tmp_path):
    report = compare(msprobe_bin, recorded / "wrong/step0", recorded / "right/step0", tmp_path)
    first = report["first_divergence"]
    assert report["verdict"] == "differs"
    assert first["class"] == "introduced"
    assert first["target_name"] == "Tensor.__mul__.2.forward"  # block 1; block 0 made call 0 and 1
    assert f"train.py:{planted_line(root)} in gelu" in first["source_line"]


def test_the_same_training_twice_is_equal(recorded, msprobe_bin, tmp_path):
    report = compare(msprobe_bin, recorded / "right/step1", recorded / "again/step1", tmp_path)
    assert report["verdict"] == "equal"
    assert report["first_divergence"] is None


def test_the_script_of_the_demo_shows_the_line(root, tmp_path, forked_python):
    """Runs the script of `make demo` and reads its output."""
    command = ["examples/demo/demo.sh", str(Path(forked_python).parent), str(tmp_path / "out")]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert f"train.py:{planted_line(root)} in gelu" in done.stdout
    assert list((tmp_path / "out/compare").glob("compare_result_*.csv"))


def test_recording_does_not_change_the_training(root, forked_python, tmp_path):
    """The script prints the same losses with the tool and without it."""
    package = tmp_path / "msprobe"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "pytorch.py").write_text(
        "class PrecisionDebugger:\n"
        "    def __init__(self, **_): pass\n"
        "    def start(self, model): pass\n"
        "    def stop(self): pass\n"
        "    def step(self): pass\n"
    )
    command = [forked_python, TRAIN, "--record", str(tmp_path / "none"), "--steps", "2"]
    outputs = [
        subprocess.run(
            [*command], cwd=root, check=True, capture_output=True, text=True, env=env
        ).stdout
        for env in (dict(os.environ), dict(os.environ, PYTHONPATH=str(tmp_path)))
    ]
    assert outputs[0] == outputs[1]


def test_the_picture_in_the_readme_names_the_planted_line(root):
    """Out of date? Type: make demo && .venv/bin/python tools/refresh_readme.py"""
    assert f"{TRAIN}:{planted_line(root)} in gelu" in (root / "README.md").read_text()

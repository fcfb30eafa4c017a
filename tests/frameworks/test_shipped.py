"""The frameworks' own files write the dumps that msprobe 26.2 writes for the same program.

Needs the wheels (wheels.py), and for the comparison the venv that `make bench-peer` makes; runs
only in make test-all.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from frameworks import wheels

pytestmark = pytest.mark.campaign

PROGRAM = Path(__file__).resolve().parent / "shipped.py"
LEVELS = ["L0", "L1", "mix"]
STEPS = {"verl": 6}  # dumps; of the others two


def run(python, name, sources, out, level):
    """Folder of each dump -> its entries; a rank's folder is called ``rank`` for both tools."""
    out.mkdir()
    command = [python, PROGRAM, name, str(sources), str(out), level]
    done = subprocess.run(command, capture_output=True, text=True, env=environment())
    assert done.returncode == 0, done.stdout + done.stderr
    found = {}
    for path in sorted(out.rglob("dump.json")):
        folder = re.sub(r"(proc\d+|rank)$", "rank", str(path.parent.relative_to(out)))
        found[folder] = json.loads(path.read_text())["data"]
    return found


def environment():
    return {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}


@pytest.fixture(scope="module")
def peer(root):
    python = root / ".cache/peer/bin/python"
    if not python.exists():
        pytest.skip("no .cache/peer: make bench-peer installs the older tool there")
    return str(python)


def sources_of(name):
    try:
        return wheels.wheel(name)
    except OSError as error:
        pytest.skip(f"the wheel cannot be had: {error}")


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", wheels.WHEELS)
def test_shipped_files_record(name, level, tmp_path):
    found = run(sys.executable, name, sources_of(name), tmp_path / "ours", level)
    assert len(found) == STEPS.get(name, 2)
    for folder, entries in found.items():
        kinds = {entry.split(".")[0] for entry in entries}
        assert ("Module" in kinds) == (level != "L1"), folder
        assert ("Functional" in kinds) == (level != "L0"), folder
        assert any(entry.endswith(".0.forward") for entry in entries) or level == "L0"
        assert not any(entry.endswith(".forward.1") and ".head." in entry for entry in entries)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", wheels.WHEELS)
def test_the_same_dumps_as_msprobe_26(name, level, peer, tmp_path):
    sources = sources_of(name)
    compare(
        run(sys.executable, name, sources, tmp_path / "ours", level),
        run(peer, name, sources, tmp_path / "theirs", level),
        leaves_out=name == "verl",
    )


@pytest.mark.parametrize("level", ["L0", "mix"])
@pytest.mark.parametrize("name", ["verl", "verl_worker", "verl_async", "mindspeed_rl", "mindspeed"])
def test_sequences_as_msprobe_26(name, level, peer, tmp_path):
    compare(
        run(sys.executable, name, "sequence", tmp_path / "ours", level),
        run(peer, name, "sequence", tmp_path / "theirs", level),
    )


def compare(ours, theirs, leaves_out=False):
    assert sorted(ours) == sorted(theirs)
    for folder, entries in theirs.items():
        only_ours = set(ours[folder]) - set(entries)
        if leaves_out:  # docs/older/differences.md: under verl, two modules of each model
            only_ours = {e for e in only_ours if ".embed." not in e and ".head." not in e}
        # The same page: optimizers, and calls whose risk_level is low.
        low = ("Optimizer.", "Torch.arange.", "Tensor.reshape.")
        only_ours = {e for e in only_ours if not e.startswith(low)}
        assert not only_ours and not set(entries) - set(ours[folder]), folder


def test_key_data_as_msprobe_26(peer, tmp_path):
    """MindSpeed-RL's values: the same files, the same elements, the same tables."""
    for tool, python in (("ours", sys.executable), ("theirs", peer)):
        run(python, "mindspeed_rl", "sequence", tmp_path / tool, "L0")
    import numpy

    files = {}
    for tool in ("ours", "theirs"):
        data = tmp_path / tool / "dump/data"
        files[tool] = {str(p.relative_to(data)): p for p in data.rglob("*") if p.is_file()}
    assert sorted(files["ours"]) == sorted(files["theirs"])
    for name, path in files["ours"].items():
        other = files["theirs"][name]
        if name.endswith(".npy"):
            assert (numpy.load(path) == numpy.load(other)).all()
        else:
            ours, theirs = (json.loads(p.read_text())["data"] for p in (path, other))
            if not isinstance(ours, list):
                ours, theirs = [ours], [theirs]
            for mine, its in zip(ours, theirs, strict=True):
                assert mine["shape"] == its["shape"]
                for key in ("max", "min", "mean", "norm"):
                    assert mine[key] == pytest.approx(its[key], rel=1e-5, abs=1e-6)

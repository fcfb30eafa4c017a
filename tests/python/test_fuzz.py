"""Runs each fuzz target on its seeds and some thousand mutations (`make fuzz` runs for hours)."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "fuzz"))
from seeds import SEEDS, write_corpus

RUNS = {
    "yaml": 1000,
    "names": 1500,
    "show": 1500,
    "tables": 200,
    "recover": 1000,
    "compare": 500,
    "git": 1000,
}


@pytest.mark.parametrize("name", SEEDS)
def test_a_target_holds(name, tmp_path, build_dir):
    write_corpus(name, tmp_path / "corpus")
    command = [build_dir / "fuzz" / "replay", name, "corpus", str(RUNS.get(name, 4000))]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, f"{done.stderr}\nthe input is {tmp_path}/{name}-input"
    assert re.fullmatch(r"\d+ runs\n", done.stdout)


def test_every_target_has_seeds(build_dir):
    listed = subprocess.run([build_dir / "fuzz" / "replay"], capture_output=True, text=True)
    assert sorted(listed.stdout.split()) == sorted(SEEDS)

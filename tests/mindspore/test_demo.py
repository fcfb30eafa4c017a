"""The demo across frameworks finds the operation and the line of the fault that it plants.

Needs both frameworks: MindSpore in this Python, PyTorch in .venv/.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
VENV = ROOT / ".venv/bin"
TRAIN = "examples/demo/train_mindspore.py"


@pytest.mark.campaign
@pytest.mark.skipif(not (VENV / "msprobe").exists(), reason="no PyTorch: .venv/ was not built")
def test_R_D_M3_the_comparison_names_the_planted_line(tmp_path):
    (planted,) = [
        number
        for number, line in enumerate((ROOT / TRAIN).read_text().splitlines(), 1)
        if "The planted fault" in line
    ]
    script = [
        "examples/demo/demo_mindspore.sh",
        VENV,
        Path(sys.executable).parent,
        tmp_path / "out",
    ]
    environment = {name: os.environ[name] for name in os.environ if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(part) for part in script], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    first = done.stdout.partition("FIRST DIVERGENCE")[2].partition("also differs")[0]
    assert first.split()[0] == "Tensor.__mul__.2.forward"  # block 1; block 0 made call 0 and 1
    assert f"train_mindspore.py:{planted + 1} in gelu" in first
    assert list((tmp_path / "out/compare").glob("compare_result_*.csv"))

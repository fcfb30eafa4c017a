"""`msprobe op_generate`: a script for one call, by the guide of msprobe 8."""

import json
import subprocess
import sys

import pytest
import torch
from recording import run_forked

from msprobe.pytorch import PrecisionDebugger


def train(folder):
    torch.manual_seed(3)
    debugger = PrecisionDebugger(dump_path=str(folder), level="L1", task="tensor")
    x = torch.randn(4, 6, requires_grad=True)
    debugger.start()
    (torch.nn.functional.softmax(x, dim=-1) * torch.randn(4, 6)).sum().backward()
    debugger.stop()


@pytest.fixture
def dump(tmp_path):
    run_forked(train, tmp_path / "dump")
    return tmp_path / "dump" / "step0" / "rank" / "dump.json"


def test_R_D_E1_a_script_executes_one_call(dump, msprobe_bin, tmp_path):
    subprocess.run(
        [msprobe_bin, "op_generate", "-i", dump, "-api", "Functional.softmax.0", "-o", tmp_path],
        check=True, capture_output=True,
    )  # fmt: skip
    script = tmp_path / "Functional.softmax.0.backward.py"
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    assert "forward.output.0: pass" in done.stdout and "backward.output.0: pass" in done.stdout


def test_R_D_E2_the_configuration_of_the_older_tool(dump, msprobe_bin, tmp_path):
    config = {
        "dump_json_path": str(dump), "api_name": "Functional.softmax.0",
        "extract_api_path": str(tmp_path / "one.json"), "propagation": "forward",
        "data_mode": "real_data", "random_seed": 1234, "iter_times": 5,
    }  # fmt: skip
    path = tmp_path / "config_op.json"
    path.write_text(json.dumps(config))
    subprocess.run(
        [msprobe_bin, "-f", "pytorch", "op_generate", "-i", path, "-o", tmp_path / "s"],
        check=True, capture_output=True,
    )  # fmt: skip
    assert "Functional.softmax.0.forward" in json.loads((tmp_path / "one.json").read_text())["data"]
    script = tmp_path / "s" / "Functional.softmax.0.forward.py"
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    assert "5 iterations" in done.stdout and "verdict: pass" in done.stdout

"""msprobe 26 itself beside ours: equal names, and each tool reads the dumps of the other.

Needs the venv that `make bench-peer` makes; runs only in make test-all.
"""

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.campaign

PROGRAM = """
import json, sys, torch
from torch.nn import functional as F
from msprobe.pytorch import PrecisionDebugger

class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(8)
        self.up, self.down = torch.nn.Linear(8, 16), torch.nn.Linear(16, 8)
    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Conv1d(4, 4, 3, padding=1), Block(), Block())
batch = torch.randn(2, 4, 8)
debugger = PrecisionDebugger(config_path=sys.argv[1])
debugger.start(model=model)
torch.softmax(model(batch), dim=-1).pow(2).mean().backward()
debugger.stop()
debugger.step()
"""
LEVELS = ["L0", "L1", "mix"]
TASKS = ["statistics", "md5", "tensor"]


@pytest.fixture(scope="module")
def pythons(root):
    peer = root / ".cache/peer/bin/python"
    if not peer.exists():
        pytest.skip("no .cache/peer: make bench-peer installs the older tool there")
    return {"ours": sys.executable, "peer": str(peer)}


def record(python, folder, level, task, tool):
    section = {"scope": [], "list": [], "data_mode": ["all"]}
    section["summary_mode"] = "md5" if task == "md5" else "statistics"
    task = "tensor" if task == "tensor" else "statistics"
    config = {"task": task, "level": level, "dump_path": str(folder), "rank": [], "step": []}
    config |= {task: section} | ({"risk_level": "ALL"} if tool == "peer" else {})
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    done = subprocess.run(
        [python, "-c", PROGRAM, folder / "config.json"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    (dump,) = folder.glob("step0/*/dump.json")
    return dump


@pytest.fixture(scope="module")
def dumps(pythons, tmp_path_factory):
    made = {}

    def make(level, task):
        if (level, task) not in made:
            folder = tmp_path_factory.mktemp(f"{level}_{task}")
            made[level, task] = {
                tool: record(python, folder / tool, level, task, tool)
                for tool, python in pythons.items()
            }
        return made[level, task]

    return make


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("level", LEVELS)
def test_the_same_names(dumps, level, task):
    ours, theirs = (json.loads(path.read_text())["data"] for path in dumps(level, task).values())
    assert sorted(ours) == sorted(theirs)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("level", LEVELS)
def test_the_earlier_compare_reads_ours(dumps, pythons, level, task, tmp_path):
    ours = dumps(level, task)["ours"]
    command = [pythons["peer"].replace("python", "msprobe"), "compare"]
    command += ["-tp", ours, "-gp", ours, "-o", tmp_path / "out"]
    (tmp_path / "out").mkdir()
    done = subprocess.run(command, capture_output=True, text=True, input="")
    assert done.returncode == 0, done.stdout + done.stderr
    tables = list((tmp_path / "out").glob("*compare_result*"))
    assert tables, done.stdout + done.stderr


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("level", LEVELS)
def test_ours_reads_theirs(dumps, msprobe_bin, level, task, tmp_path):
    """The same run on the same machine: nothing differs, but one tool may record more values."""
    paths = dumps(level, task)
    command = [msprobe_bin, "compare", "-tp", paths["ours"], "-gp", paths["peer"]]
    command += ["-o", tmp_path / "out", "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    answer = json.loads(done.stdout)
    assert answer["verdict"] != "differs", answer["first_divergence"]
    assert answer["rows"]["differs"] == 0
    assert (answer["calls"]["target_only"], answer["calls"]["golden_only"]) == (0, 0)

"""The samples of the older tools, as their manuals print them, on the device."""

import pytest

OF_PTDBG = """
import sys, torch, torch.nn as nn, torch.nn.functional as F
import torch_npu
from ptdbg_ascend import *
seed_all()
device = sys.argv[1]
set_dump_path("./%s_dump.pkl" % device)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.bn = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.fc = nn.Linear(8, 10)
    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn(self.conv(x))), 2)
        return self.fc(x.mean((2, 3)))
model, x, y = Net(), torch.randn(4, 3, 16, 16), torch.randint(0, 10, (4,))
if device == "npu":
    model, x, y = model.npu(), x.npu(), y.npu()
register_hook(model, acc_cmp_dump, dump_step=2)
set_dump_switch("ON")
F.cross_entropy(model(x), y).backward()
set_dump_switch("OFF")
"""

COMPARE = """
import glob, os
from ptdbg_ascend import *
os.makedirs("./output", exist_ok=True)
compare({
    "npu_pkl_path": "./npu_dump.pkl",
    "bench_pkl_path": "./cpu_dump.pkl",
    "npu_dump_data_dir": sorted(glob.glob("./npu_dump_*"))[-1],
    "bench_dump_data_dir": sorted(glob.glob("./cpu_dump_*"))[-1],
}, "./output", True)
"""

OF_MSPROBE = """
import torch, torch.nn as nn
import torch_npu
import torch.nn.functional as F
from msprobe.pytorch import PrecisionDebugger
open("config.json", "w").write('{"task": "statistics", "dump_path": "./dump", "level": "L1"}')
torch.npu.set_device("npu:0")
class ModuleOP(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear_1 = nn.Linear(in_features=8, out_features=4)
        self.linear_2 = nn.Linear(in_features=4, out_features=2)
    def forward(self, x):
        return F.relu(self.linear_2(self.linear_1(x)))
module = ModuleOP().npu()
debugger = PrecisionDebugger("./config.json", model=module)
debugger.start()
module(torch.randn(10, 8).npu()).sum().backward()
debugger.stop()
"""

OF_HOOKS = """
import torch, torch.nn as nn
import torch_npu
from torch_npu.hooks import set_dump_path, seed_all, register_hook, wrap_acc_cmp_hook
from torch_npu.hooks.tools import compare
class ModuleOP(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear_1 = nn.Linear(in_features=2, out_features=2)
        self.linear_2 = nn.Linear(in_features=2, out_features=1)
        self.relu = nn.ReLU()
    def forward(self, x):
        return self.relu(self.linear_2(self.linear_1(x)))
module = ModuleOP()
register_hook(module, wrap_acc_cmp_hook)
seed_all()
x = torch.randn(2, 2)
set_dump_path("./cpu_module_op.pkl")
module(x).sum().backward()
module.npu()
x = x.npu()
set_dump_path("./npu_module_op.pkl")
module(x).sum().backward()
compare("./npu_module_op.pkl", "./cpu_module_op.pkl", "./module_result.csv")
"""


def ran(done):
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.campaign
def test_ptdbg_ascend(npu_program):
    for device in ("npu", "cpu"):
        ran(npu_program(OF_PTDBG, device))
    assert "STRUCTURE DIFFERS" not in ran(npu_program(COMPARE))


@pytest.mark.campaign
def test_msprobe(npu_program, tmp_path):
    ran(npu_program(OF_MSPROBE))
    assert '"Functional.relu.0.backward"' in (tmp_path / "dump/step0/rank/dump.json").read_text()


def test_torch_npu_hooks(npu_program, tmp_path):
    assert "STRUCTURE DIFFERS" not in ran(npu_program(OF_HOOKS))
    assert (tmp_path / "module_result.csv").exists()

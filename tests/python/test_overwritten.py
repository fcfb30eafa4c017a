"""Memory content before a call overwrites it does not make two runs different."""

import json
import subprocess

import pytest
from recording import run_program

# Each call overwrites a whole buffer. The second argument of the program is its old content.
PROGRAM = """
import sys, torch
from msprobe.pytorch import PrecisionDebugger

folder, old, task = sys.argv[1], float(sys.argv[2]), sys.argv[3]
rows = torch.tensor([2, 0, 3, 1])
calls = [
    lambda b, x: b.scatter_(0, rows[:, None].expand(4, 3), x),
    lambda b, x: b.__setitem__(rows, x),
    lambda b, x: b.__setitem__(slice(None), x),
    lambda b, x: b.bernoulli_(0.5),
    lambda b, x: b.copy_(x),
    lambda b, x: b.index_copy_(0, rows, x),
    lambda b, x: b.masked_fill_(torch.ones(4, 3, dtype=torch.bool), 2.0),
    lambda b, x: torch.mm(x, torch.eye(3), out=b),
    lambda b, x: torch.add(x, x, out=b),
    lambda b, x: torch.cat([x[:1], x[1:]], out=b),
    lambda b, x: torch.split_copy(x, 4, out=[b]),
]
torch.manual_seed(0)
x = torch.randn(4, 3)
buffers = [torch.full((4, 3), old * (i + 1)) for i in range(len(calls))]
debugger = PrecisionDebugger(dump_path=folder, level="L1", task=task)
debugger.start()
for call, buffer in zip(calls, buffers):
    call(buffer, x)
    torch.relu(buffer)
debugger.stop()
debugger.step()
"""


@pytest.mark.parametrize("task", ["statistics", "tensor"])
def test_the_runs_are_equal(tmp_path, msprobe_bin, task):
    for side, old in (("target", "1e30"), ("golden", "-3")):
        run = run_program(PROGRAM, tmp_path / side, old, task)
        assert run.returncode == 0, run.stderr
    command = [msprobe_bin, "compare", "-tp", tmp_path / "target", "-gp", tmp_path / "golden"]
    command += ["-o", tmp_path / "out", "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True)
    answer = json.loads(done.stdout)
    assert (answer["verdict"], answer["rows"]["differs"]) == ("equal", 0), done.stdout

"""`msprobe determinism`: programs that repeat, and what it says of those that do not."""

import json
import os
import subprocess

import pytest

TRAIN = """
import os, sys, time
import torch
{before}
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), {layer}, torch.nn.Linear(8, 2))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(3):
    x = torch.randn(4, 6)
    {middle}
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
NONE = {"before": "", "layer": "torch.nn.Identity()", "middle": ""}


def determinism(forking_msprobe, tmp_path, text, *flags):
    """(exit code, the report, standard error)."""
    (tmp_path / "train.py").write_text(text)
    command = [forking_msprobe, "determinism", *flags, "--runs", "2"]
    done = subprocess.run(
        [*command, "--format", "json", "train.py"], cwd=tmp_path, capture_output=True, text=True
    )
    return done.returncode, json.loads(done.stdout) if done.stdout else None, done.stderr


def test_a_program_that_repeats(forking_msprobe, tmp_path):
    code, report, error = determinism(forking_msprobe, tmp_path, TRAIN.format(**NONE))
    assert (code, report["verdict"], report["first"]) == (0, "identical", None), error


CASES = {
    "random numbers": (
        {"layer": "torch.nn.Dropout(0.5)", "middle": "if step == 1: torch.seed()"},
        ("random numbers", 1, "Functional.dropout.0.forward"),
    ),
    "data": (
        {"before": "import random", "middle": "x = x * torch.tensor([random.random()])"},
        ("outside", 0, "Tensor.__mul__.0.forward"),
    ),
    "argument": (
        {"before": "import random", "middle": "x = x * (1 + random.random())"},
        ("argument", 0, "Tensor.__mul__.0.forward"),
    ),
    "calls": (
        {"middle": "x = x.relu() if int(os.environ['MSPROBE_DUMP_PATH'][-1]) == 2 else x"},
        ("calls", 0, "Tensor.relu.0.forward"),
    ),
    "operation": (
        {
            "before": "class Odd(torch.autograd.Function):\n"
            "    @staticmethod\n"
            "    def forward(ctx, x):\n"
            "        return torch.from_numpy(x.numpy() * float(1 + time.time() % 1e-2))\n"
            "    @staticmethod\n"
            "    def backward(ctx, g):\n"
            "        return g\n",
            "middle": "x = Odd.apply(x)",
        },
        ("operation", 0, "Functional.Odd.0.forward"),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_cause_is_named(forking_msprobe, tmp_path, case):
    changes, (cause, step, name) = CASES[case]
    # The calls in `middle` come before the model's: recording begins with the process.
    own = (
        "from msprobe.pytorch import PrecisionDebugger\n"
        "debugger = PrecisionDebugger(dump_path='mine', level='L1')\n"
    )
    changes = {**NONE, **changes}
    if case != "random numbers":
        changes["before"] = own + changes["before"]
        changes["middle"] = "debugger.start(model)\n    " + changes["middle"]
    text = TRAIN.format(**changes)
    if case != "random numbers":
        text += "    debugger.stop()\n    debugger.step()\n"
    code, report, error = determinism(forking_msprobe, tmp_path, text)
    assert code == 1, (report, error)
    first = report["first"]
    if case == "operation":
        assert "Odd" in first["name"]
        name = first["name"]
    assert (first["cause"], first["step"], first["name"]) == (cause, step, name), report
    assert "train.py:" in first["source_line"]
    assert not os.path.exists(tmp_path / "mine"), "the script's own folder is left alone"


def test_the_table_and_the_kept_dumps(forking_msprobe, tmp_path):
    (tmp_path / "train.py").write_text(
        TRAIN.format(**{**NONE, "layer": "torch.nn.Dropout(0.5)", "before": "torch.seed"}).replace(
            "torch.manual_seed(0)", "torch.seed()"
        )
    )
    command = [forking_msprobe, "determinism", "--runs", "2", "--keep", "kept", "--steps", "1"]
    command += ["train.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1, done
    assert "DIFFERS" in done.stdout and "first     Functional.linear.0.forward" in done.stdout
    assert "comes from outside of the recorded calls" in done.stdout
    assert (tmp_path / "kept" / "run2" / "step0").is_dir()
    again = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert again.returncode == 2 and "name a new folder" in again.stderr


RANKS = """
import os, sys
import torch
from msprobe.pytorch import PrecisionDebugger
rank, store = int(os.environ["RANK"]), "file://" + os.environ["MSPROBE_DUMP_PATH"] + ".store"
torch.distributed.init_process_group("gloo", init_method=store, rank=rank, world_size=2)
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.5))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
debugger = PrecisionDebugger(dump_path="mine", level="mix")
if rank == 1:
    torch.seed()
debugger.start(net)
net(torch.ones(32, 4)).sum().backward()
for parameter in net.parameters():
    work = torch.distributed.all_reduce(parameter.grad, async_op=True).wait()
optimizer.step()
debugger.stop()
"""
LAUNCH = """
import os, subprocess, sys
ranks = [
    subprocess.Popen(
        [{python!r}, "ranks.py"], env={{**os.environ, "RANK": str(rank), "WORLD_SIZE": "2"}}
    )
    for rank in range(2)
]
sys.exit(max(each.wait() for each in ranks))
"""


def test_ranks_of_a_launcher(forking_msprobe, forked_python, tmp_path):
    """Rank 0 gets the difference of rank 1 with its gradients, later in the step."""
    (tmp_path / "ranks.py").write_text(RANKS)
    code, report, error = determinism(
        forking_msprobe, tmp_path, LAUNCH.format(python=forked_python)
    )
    assert code == 1, (report, error)
    first = report["first"]
    assert (first["rank"], first["name"]) == (1, "Functional.dropout.0.forward"), report
    assert first["cause"] == "random numbers"


def test_bad_input(forking_msprobe, tmp_path):
    def run(*words):
        command = [forking_msprobe, "determinism", *words]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)

    assert run().returncode == 2
    assert "a training script" in run("nosuch.py").stderr
    (tmp_path / "bad.py").write_text("raise SystemExit(3)\n")
    assert "2 to 100" in run("--runs", "1", "bad.py").stderr
    done = run("bad.py")
    assert done.returncode == 2 and "run 1 ended with exit code 3" in done.stdout
    for name in ("nosuch", "nosuch.inside", "json.nosuch"):
        done = run("-m", name)
        assert done.returncode == 2 and f"no module named {name}" in done.stdout
        assert "Traceback" not in done.stdout
    (tmp_path / "imports_nosuch.py").write_text("import nosuch\n")
    assert "imports_nosuch.py" in run("-m", "imports_nosuch").stdout
    (tmp_path / "nothing.py").write_text("import torch\n")
    done = run("nothing.py")
    assert done.returncode == 2 and "recorded nothing" in done.stderr

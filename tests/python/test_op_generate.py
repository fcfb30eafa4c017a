"""msprobe op_generate: a script that executes one recorded call, without msprobe."""

import ast
import csv
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from recording import run_forked
from torch import nn

from msprobe.pytorch import PrecisionDebugger
from msprobe.pytorch.replay import Recorded

# What refuses msprobe; it runs before each script.
ALONE = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("msprobe", "ptdbg_ascend"):
            raise ImportError(f"{name} is not here")
sys.meta_path.insert(0, Refuse())
"""
# Runs scripts in one process: PyTorch is imported once. Prints a line of JSON for each.
ALL = """
import contextlib, io, json, runpy, sys, torch
for path in sys.stdin.read().split("\\n"):
    text, code = io.StringIO(), 2
    sys.argv = [path]
    with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
        try:
            runpy.run_path(path, run_name="__main__")
        except SystemExit as end:
            code = end.code
    print(json.dumps([path, code, text.getvalue()]))
assert not [name for name in sys.modules if name.startswith("msprobe")]
"""


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(30, 16)
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)
        self.norm1, self.norm2 = nn.LayerNorm(16), nn.LayerNorm(16)
        self.mlp = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))

    def forward(self, ids):
        x = self.embed(ids)
        q, k, v = self.qkv(self.norm1(x)).view(2, 6, 3, 4, 4).permute(2, 0, 3, 1, 4).unbind(0)
        scores = (q @ k.transpose(-2, -1)) / 2.0
        mask = torch.ones(6, 6, dtype=torch.bool).triu(1)
        attention = scores.masked_fill(mask, float("-inf")).softmax(-1)
        x = x + self.out((attention @ v).transpose(1, 2).reshape(2, 6, 16))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + y.transpose(1, 2).flatten(2)
        return (x + self.mlp(self.norm2(x))).float().pow(2).mean()


class Cnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.head = nn.Linear(8, 5)

    def forward(self, ids):
        x = torch.nn.functional.one_hot(ids, 30).float()[:, :, :27].view(2, 6, 3, 9)
        x = nn.functional.relu(self.norm(self.conv(x.transpose(1, 2))), inplace=True)
        x = nn.functional.max_pool2d(x, 2)
        x = nn.functional.adaptive_avg_pool2d(x, (1, 1)).flatten(1)
        values, places = self.head(x).topk(2, dim=-1)
        x = torch.cat([values, places.to(values.dtype)], dim=1)
        x.add_(0.5)
        return nn.functional.cross_entropy(x, torch.tensor([1, -100]), ignore_index=-100)


class Rnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(30, 8)
        self.lstm, self.gru = nn.LSTM(8, 6, batch_first=True), nn.GRU(6, 5, batch_first=True)

    def forward(self, ids):
        x, (h, _) = self.lstm(self.embed(ids))
        x, _ = self.gru(x)
        first, rest = x.split([1, 5], dim=1)
        return (torch.cat([first * 2, rest.clamp(min=-0.2)], 1).tanh().sum() + h.mean()).exp().log()


PROGRAMS = {"transformer": Transformer, "cnn": Cnn, "rnn": Rnn}


def train(folder, program, task, autocast):
    torch.manual_seed(3)
    model = PROGRAMS[program]()
    debugger = PrecisionDebugger(dump_path=str(folder), level="L1", task=task)
    ids = torch.randint(30, (2, 6))
    debugger.start(model)
    with torch.autocast("cpu", enabled=autocast):
        loss = model(ids)
    loss.backward()
    debugger.stop()


@pytest.fixture
def generate(forking_msprobe, tmp_path):
    def run(dump, *flags, code=0, before=()):
        done = subprocess.run(
            [forking_msprobe, *before, "op_generate", "-i", dump, *map(str, flags)],
            capture_output=True, text=True, cwd=tmp_path,
        )  # fmt: skip
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    return run


@pytest.fixture
def execute(forked_python):
    def run(paths, folder, patch=""):
        """{path: (exit code, what was printed)}"""
        program = ALONE + "import torch\n" + patch + ALL
        done = subprocess.run(
            [forked_python, "-c", program], input="\n".join(map(str, paths)), text=True,
            capture_output=True, cwd=folder, timeout=300,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        return {path: (code, text) for path, code, text in lines}

    return run


@pytest.mark.parametrize("task", ["tensor", "statistics"])
@pytest.mark.parametrize(
    ("program", "autocast"), [*((name, False) for name in PROGRAMS), ("transformer", True)]
)
def test_every_call_passes_without_msprobe(execute, program, autocast, task, generate, tmp_path):
    run_forked(train, tmp_path / "dump", program, task, autocast)
    dump = tmp_path / "dump" / "step0" / "rank"
    names = [
        name for name, skip in Recorded(dump, torch.device("cpu")).calls(distinct=True) if not skip
    ]
    assert len(names) > 12
    for name in names:
        generate(dump, "-api", name, "-o", tmp_path / "scripts")
    scripts = sorted((tmp_path / "scripts").glob("*.py"))
    assert len(scripts) == len(names)
    shutil.rmtree(tmp_path / "dump")  # the scripts need nothing of it
    shutil.move(tmp_path / "scripts", tmp_path / "moved")
    moved = [tmp_path / "moved" / path.name for path in scripts]
    found = execute(moved, tmp_path)
    bad = {path: text for path, (code, text) in found.items() if code != 0}
    assert not bad, next(iter(bad.items()))
    for path, (_, text) in found.items():
        assert "verdict: pass" in text or (autocast and "verdict: warning" in text), (path, text)
        assert ("made from recorded statistics" in text) == (
            task == "statistics" and Path(path).with_suffix("").exists()
        )
        if path.endswith(".backward.py") and "float" in text:
            assert "backward.output." in text
    assert sum(path.endswith(".backward.py") for path in found) > len(found) / 3


WRONG = """
def wrong(right):
    def run(x, *args, **kwargs):
        result = right(x, *args, **kwargs)
        return result * 1.01 if x.dtype != torch.float64 else result
    return run
torch.Tensor.softmax = wrong(torch.Tensor.softmax)
torch.nn.functional.layer_norm = wrong(torch.nn.functional.layer_norm)
"""


@pytest.fixture(scope="module")
def dump(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dump")
    run_forked(train, folder, "transformer", "tensor", False)
    return folder / "step0" / "rank"


def test_a_wrong_operator_is_an_error(execute, dump, generate, tmp_path):
    for name in ("Tensor.softmax.0", "Functional.layer_norm.0", "Functional.linear.0"):
        generate(dump, "-api", name, "-o", "s")
    scripts = sorted((tmp_path / "s").glob("*.py"))
    found = {Path(path).name: each for path, each in execute(scripts, tmp_path, WRONG).items()}
    assert found["Tensor.softmax.0.backward.py"][0] == 1
    assert "forward.output.0: error" in found["Tensor.softmax.0.backward.py"][1]
    assert "verdict: error" in found["Functional.layer_norm.0.backward.py"][1]
    assert found["Functional.linear.0.backward.py"][0] == 0


def test_a_script_runs_alone_from_anywhere(dump, generate, tmp_path):
    generate(dump, "-api", "Functional.linear.1.forward", "-o", "s", "--iter_times", 3)
    script = tmp_path / "s" / "Functional.linear.1.forward.py"
    done = subprocess.run(
        [sys.executable, script, "--device", "cpu"], capture_output=True, text=True, cwd="/"
    )
    assert done.returncode == 0, done.stderr
    for text in ("Functional.linear.1, forward", "test_op_generate.py", "device:  cpu",
                 "3 stored tensors", "cosine", "max relative error", "3 iterations"):  # fmt: skip
        assert text in done.stdout
    assert "backward" not in done.stdout
    (script.with_suffix("") / "0.pt").unlink()
    done = subprocess.run([sys.executable, script], capture_output=True, text=True)
    assert done.returncode == 2 and "not executed: " in done.stderr


def test_the_configuration_of_msprobe_8(execute, dump, generate, tmp_path):
    config = {
        "dump_json_path": str(dump / "dump.json"), "api_name": "Tensor.softmax.0",
        "extract_api_path": "one.json", "propagation": "backward", "data_mode": "random_data",
        "random_seed": 7, "iter_times": 2,
    }  # fmt: skip
    (tmp_path / "config_op.json").write_text(json.dumps(config))
    text = generate("config_op.json", "-o", "s", before=("-f", "pytorch"))
    assert "0 stored tensors, 2 made from statistics" in text
    extracted = json.loads((tmp_path / "one.json").read_text())
    whole = json.loads((dump / "dump.json").read_text())
    assert extracted["task"] == "tensor" and [*extracted["data"]] == [
        "Tensor.softmax.0.forward", "Tensor.softmax.0.backward",
    ]  # fmt: skip
    assert extracted["data"] == {name: whole["data"][name] for name in extracted["data"]}
    ((code, text),) = execute([tmp_path / "s" / "Tensor.softmax.0.backward.py"], tmp_path).values()
    assert code == 0 and "with seed 7" in text and "2 iterations" in text
    config["propagation"] = "sideways"
    (tmp_path / "config_op.json").write_text(json.dumps(config))
    assert '"forward" or "backward"' in generate("config_op.json", code=2)
    config |= {"propagation": "forward", "random_seed": "x"}
    (tmp_path / "config_op.json").write_text(json.dumps(config))
    assert "a whole number" in generate("config_op.json", code=2)


def test_errors_say_what_to_type(dump, generate):
    assert "one of Functional.linear.0" in generate(dump, "-api", "Functional.linear", code=2)
    near = generate(dump, "-api", "Functional.linaer.0", code=2)
    assert "did you mean Functional.linear.0?" in near and "does not exist" not in near
    assert "-api (--api_name) is required" in generate(dump, code=2)
    assert "1 to 1000" in generate(dump, "-api", "x", "--iter_times", 0, code=2)
    assert "does not exist" in generate("nowhere", "-api", "x", code=2)


EVIL = "'''\"\"\"\\'); import os; os.system('touch made') #{}\n\r\x00\u2028\U0001f600"


@pytest.mark.parametrize("api", [
    "Torch.serialization.os.system", "Torch.load", "Functional.a b", "Torch.x;y", "Torch.../../x",
    "Tensor.é", "Torch.hub.load", "Torch.ops.load_library",
])  # fmt: skip
def test_names_that_are_no_operation_are_refused(api, generate, forking_msprobe, tmp_path):
    tensor = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [1], "Max": 1.0,
              "Min": 1.0, "Mean": 1.0, "Norm": 1.0, "requires_grad": False}  # fmt: skip
    entry = {
        "input_args": [{"type": "str", "value": "touch made"}],
        "input_kwargs": {},
        "output": [tensor],
    }
    dump = {"task": "statistics", "level": "L1", "data": {f"{api}.0.forward": entry}}
    (tmp_path / "dump.json").write_text(json.dumps(dump))
    generate("dump.json", "-api", f"{api}.0", "-o", "s", code=2)
    assert not list(tmp_path.glob("**/*.py"))
    subprocess.run([forking_msprobe, "run_ut", "-api_info", "dump.json", "-o", "o"], cwd=tmp_path,
                   capture_output=True)  # fmt: skip
    assert not (tmp_path / "made").exists()


def test_texts_of_a_dump_are_never_code(execute, generate, tmp_path):
    tensor = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2], "Max": 1.0,
              "Min": 1.0, "Mean": 1.0, "Norm": 1.4142135, "requires_grad": False}  # fmt: skip
    entry = {
        "input_args": [tensor, {"type": EVIL, "value": EVIL}],
        "input_kwargs": {EVIL.replace(".", ""): {"type": "str", "value": EVIL}},
        "output": [tensor],
    }
    dump = {"task": "statistics", "level": "L1", "data": {"Torch.add.0.forward": entry}}
    (tmp_path / "dump.json").write_text(json.dumps(dump))
    generate("dump.json", "-api", "Torch.add.0", "-o", "s")
    script = tmp_path / "s" / "Torch.add.0.forward.py"
    tree = ast.parse(script.read_text(encoding="ascii"))
    (call,) = [ast.literal_eval(node.value) for node in tree.body
               if isinstance(node, ast.Assign) and node.targets[0].id == "CALL"]  # fmt: skip
    assert EVIL in call["keywords"][EVIL.replace(".", "")]
    ((code, text),) = execute([script], tmp_path).values()
    assert code == 2 and "an argument of type" in text
    assert not (tmp_path / "made").exists()


def test_the_limits_are_those_of_the_pre_check(dump, generate, tmp_path):
    generate(dump, "-api", "Functional.linear.0", "-o", "s")
    script = (tmp_path / "s" / "Functional.linear.0.backward.py").read_text()
    (limits,) = [ast.literal_eval(node.value) for node in ast.parse(script).body
                 if isinstance(node, ast.Assign) and node.targets[0].id == "LIMITS"]  # fmt: skip
    assert limits["cosine"] == 0.99 and limits["thousandth_share"] == 0.999
    assert limits["half_max_error"] == {"float16": 2**-10, "bfloat16": 2**-7}


def test_results_are_numbered_as_in_the_pre_check(
    execute, dump, generate, forking_msprobe, tmp_path
):
    subprocess.run([forking_msprobe, "run_ut", "-api_info", dump, "-o", "o"], cwd=tmp_path,
                   check=True, capture_output=True)  # fmt: skip
    (details,) = tmp_path.glob("o/accuracy_checking_details_*.csv")
    with details.open(encoding="utf-8-sig", newline="") as file:
        # A tensor without gradient has a row there, SKIP.
        rows = [row[0] for row in csv.reader(file) if "SKIP" not in row]
    names = ("Functional.linear.0", "Functional.layer_norm.1", "Tensor.__matmul__.0",
             "Functional.embedding.0", "Tensor.masked_fill.0")  # fmt: skip
    for name in names:
        generate(dump, "-api", name, "-o", "s")
    found = execute(sorted((tmp_path / "s").glob("*.py")), tmp_path)
    printed = [
        f"{name}.{place}"
        for path, (_, text) in found.items()
        for name in [Path(path).name.rsplit(".", 2)[0]]
        for place in re.findall(r"^((?:forward|backward)\.output\.\d+):", text, re.M)
    ]
    assert len(printed) > 10
    assert sorted(printed) == sorted(row for row in rows if row.startswith(names))

"""Tasks that look for NaN and infinities."""

import csv
import json
import subprocess

import numpy
import pytest
import torch
from recording import read_dump, run_forked

X = torch.tensor([4.0, 0.0, -1.0], requires_grad=True)


def record(folder, config, program):
    """`program()` between start and stop, under a config (a dict)."""
    from msprobe.pytorch import PrecisionDebugger

    (folder / "config.json").write_text(json.dumps(config))
    debugger = PrecisionDebugger(str(folder / "config.json"), dump_path=str(folder / "out"))
    debugger.start()
    program()
    debugger.stop()


def dump_of(folder, program, task, level="L1", **keys):
    run_forked(record, folder, {"task": task, "level": level, task: keys}, program)
    return read_dump(folder / "out")


def go_wrong():
    torch.log(torch.relu(X))  # -inf at two places
    w = torch.sqrt(X)  # NaN at one; its gradient is infinite at another
    torch.mul(w[:2], 3.0).sum().backward()


@pytest.mark.parametrize("data_mode", [["all"], ["output"]])
def test_nan_check(data_mode, tmp_path):
    """For every call and its gradients: 1 if an output is non-finite, and no other number."""
    dump = dump_of(tmp_path, go_wrong, "nan_check", data_mode=data_mode)
    assert {name: record["is_nan"] for name, record in dump.data.items()} == {
        "Torch.relu.0.forward": 0,
        "Torch.log.0.forward": 1,
        "Torch.sqrt.0.forward": 1,
        "Torch.mul.0.forward": 0,
        "Tensor.sum.0.forward": 0,
        "Tensor.sum.0.backward": 0,
        "Torch.mul.0.backward": 0,
        "Torch.sqrt.0.backward": 1,
    }
    made = dump.data["Torch.log.0.forward"]["output"]
    assert made == [
        {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [3], "requires_grad": True}
    ]
    assert ("input_args" in dump.data["Torch.log.0.forward"]) == (data_mode == ["all"])
    assert dump.header["dump_data_dir"] is None


def test_nan_check_locates_in_tensor_list(tmp_path):
    dump = dump_of(tmp_path, go_wrong, "nan_check", tensor_list=["sqrt", "log"])
    (given,) = dump.data["Torch.sqrt.0.forward"]["input_args"]
    (made,) = dump.data["Torch.sqrt.0.forward"]["output"]
    assert "first_nonfinite" not in given and "Max" not in given
    assert (made["nan"], made["first_nonfinite"]) == (1, 2)
    (made,) = dump.data["Torch.log.0.forward"]["output"]
    assert (made["neg_inf"], made["first_nonfinite"]) == (2, 1)
    (gradient,) = dump.data["Torch.sqrt.0.backward"]["output"]
    assert (gradient["pos_inf"], gradient["first_nonfinite"]) == (1, 1)
    assert "nan" not in dump.data["Torch.relu.0.forward"]["output"][0]


def overflow():
    """Three calls make non-finite values; the other calls pass them on, or are given them."""
    x = X.detach()
    masked = x.masked_fill(x < 0, float("-inf"))  # -inf is an argument: passed on, not made
    torch.softmax(masked, 0)
    torch.empty(3).fill_(float("nan"))
    y = torch.div(1.0, x)  # Inf
    torch.add(y, 1.0)
    torch.sub(y, y)  # NaN from Inf
    x.clone().log_()  # in place: overwrites its input


def make_nan(dump):
    return {
        name: sorted(file.removeprefix(name + ".") for file in dump.tensors() if name in file)
        for name in dump.names
    }


def test_overflow_check_records_calls_that_make_nan_or_infinity(tmp_path, capfd):
    dump = dump_of(tmp_path, overflow, "overflow_check", overflow_nums=-1)
    assert make_nan(dump) == {
        "Torch.div.0.forward": ["input.1.pt", "output.0.pt"],
        "Torch.sub.0.forward": ["input.0.pt", "input.1.pt", "output.0.pt"],
        "Tensor.log_.0.forward": ["output.0.pt"],
    }
    record = dump.data["Tensor.log_.0.forward"]
    assert record["input_args"][0]["data_name"] == "-1"
    assert record["input_args"][0]["Max"] == 4.0  # before the call
    assert record["changed_in_place"] == "input.0"
    assert torch.equal(dump.tensors()["Torch.div.0.forward.input.1.pt"], X.detach())
    assert {name for names, _ in dump.side("stack.json").values() for name in names} == set(
        dump.names
    )
    said = capfd.readouterr().err
    assert "Torch.div.0.forward makes Inf (1): " in said
    assert "in overflow: y = torch.div(1.0, x)" in said
    assert "Torch.sub.0.forward makes NaN (2): " in said
    assert "Tensor.masked_fill.0.forward passes on Inf" in said


@pytest.mark.parametrize(("nums", "names"), [(None, 1), (2, 2), (3, 3), (9, 3)])
def test_overflow_nums_ends_the_check_not_the_run(nums, names, tmp_path, capfd):
    keys = {} if nums is None else {"overflow_nums": nums}
    dump = dump_of(tmp_path, overflow, "overflow_check", **keys)
    assert len(dump.names) == names
    said = capfd.readouterr().err
    assert ("the run goes on without collection" in said) == (names == (nums or 1))


def overflow_in_gradients():
    x = torch.tensor([4.0, 0.0], requires_grad=True)
    weight = torch.tensor([1e30, 1e30], requires_grad=True)
    torch.sqrt(torch.mul(x, weight)).sum().backward()


def test_overflow_check_sees_gradients(tmp_path, capfd):
    dump = dump_of(tmp_path, overflow_in_gradients, "overflow_check", overflow_nums=-1)
    files = make_nan(dump)
    assert files["Torch.sqrt.0.backward"] == ["input.0.pt", "output.0.pt"]
    assert dump.data["Torch.sqrt.0.backward"]["output"][0]["pos_inf"] == 1
    assert "Torch.sqrt.0.backward makes Inf (1): " in capfd.readouterr().err
    assert "Tensor.sum.0.backward" not in files


class Halves(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = torch.nn.Linear(2, 2)

    def forward(self, x):
        return self.lin(x).log()


def run_modules(nan_weight):
    from msprobe.pytorch import PrecisionDebugger

    torch.manual_seed(0)
    model = torch.nn.Sequential(Halves(), torch.nn.ReLU())
    with torch.no_grad():
        model[0].lin.weight.fill_(float("nan") if nan_weight else -1.0)
        model[0].lin.bias.fill_(0.0)
    PrecisionDebugger.start(model)
    model(torch.ones(1, 2)).sum().backward()


@pytest.mark.parametrize("nan_weight", [False, True])
def test_overflow_check_of_modules(nan_weight, tmp_path):
    """A module with NaN in its parameters, or in those of its children, did not make the NaN."""

    def record_modules():
        from msprobe.pytorch import PrecisionDebugger

        (tmp_path / "config.json").write_text(
            json.dumps({"task": "overflow_check", "level": "L0",
                        "overflow_check": {"overflow_nums": -1}})
        )  # fmt: skip
        debugger = PrecisionDebugger(str(tmp_path / "config.json"), dump_path=str(tmp_path / "out"))
        run_modules(nan_weight)
        debugger.stop()

    run_forked(record_modules)
    names = read_dump(tmp_path / "out").names
    forward = [name for name in names if "forward" in name]
    assert forward == ([] if nan_weight else ["Module.0.Halves.forward.0"])


def test_nan_in_files_without_a_dump(msprobe_bin, tmp_path):
    """The older tools' tables need recorded statistics; tensor files without a dump have none."""
    fine, bad = numpy.ones(4, "f4"), numpy.array([1, numpy.nan, 1, 1], "f4")
    pairs = {"both": (bad, bad), "golden": (fine, bad), "none": (fine, fine), "target": (bad, fine)}
    for side in (0, 1):
        (tmp_path / "tg"[side]).mkdir()
        for name, values in pairs.items():
            numpy.save(tmp_path / "tg"[side] / f"{name}.npy", values[side])
    command = [msprobe_bin, "compare", "-tp", "t", "-gp", "g", "--format", "csv"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    rows = {row["NPU Name"]: row for row in csv.DictReader(done.stdout.splitlines())}
    assert {name: (row["Result"], row["Verdict"]) for name, row in rows.items()} == {
        "both": ("unknown", "unknown"),
        "golden": ("error", "differs"),
        "none": ("pass", "equal"),
        "target": ("error", "differs"),
    }
    assert "on one side only, or of another sign" in rows["target"]["Err_message"]

"""Tasks that look for NaN and infinities."""

import json

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
    """1 where an output is not finite, of every call and its gradients; no number else."""
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

"""Recorded numbers against NumPy in float64, over the tensors as they were saved."""

import json
import zlib

import numpy as np
import pytest
from programs import PROGRAMS, trainer
from runs import forked, read_dump, record, tensors

import mindspore
from mindspore import Tensor, mint, ops
from msprobe.mindspore import PrecisionDebugger


def assert_statistics(dump, value):
    array = dump.array(value).astype("float64")
    assert list(array.shape) == value["shape"]
    if array.size == 0:
        assert [value[key] for key in ("Max", "Min", "Mean", "Norm")] == [None] * 4
        return
    found = [float(value[key]) for key in ("Max", "Min", "Mean", "Norm")]
    wanted = [array.max(), array.min(), array.mean(), np.sqrt((array**2).sum())]
    assert found == pytest.approx(wanted, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("program", PROGRAMS)
@forked
def test_R_D_M1_statistics_of_a_training(tmp_path, program):
    net, loss = PROGRAMS[program](3)
    _, dump = record(tmp_path, trainer(net, loss)[0], net, level="mix", task="tensor")
    values = list(tensors(dump.data))
    assert len(values) > 20
    for value in values:
        if "unwritten" not in value:
            assert_statistics(dump, value)


@forked
def test_views_and_odd_shapes(tmp_path):
    base = np.arange(24, dtype="float32").reshape(4, 6)
    x = Tensor(base)
    views = {
        "T": (x.T, base.T),
        "row": (x[1], base[1]),
        "column": (x[:, 1], base[:, 1]),
        "zero_d": (Tensor(3.5, mindspore.float32), np.float32(3.5)),
        "empty": (Tensor(np.zeros((0, 3), "float32")), np.zeros((0, 3), "float32")),
        "int": (Tensor([[-3, 7]], mindspore.int64), np.array([[-3, 7]])),
        "bool": (Tensor([True, False]), np.array([True, False])),
        "half": (Tensor(base).astype(mindspore.float16), base.astype("float16")),
        "bf16": (Tensor(base).astype(mindspore.bfloat16), base),
        "double": (Tensor(base.astype("float64")), base.astype("float64")),
        "complex": (Tensor((base + 1j).astype("complex64")), (base + 1j).astype("complex64")),
    }

    def run():
        for tensor, _ in views.values():
            ops.stop_gradient(tensor)
            mint.reshape(tensor, (-1,))

    _, dump = record(tmp_path, run, level="L1", task="tensor")
    reshaped = [entry["input_args"][0] for name, entry in dump.data.items() if "reshape" in name]
    assert len(reshaped) == len(views)
    for value, (name, (_, wanted)) in zip(reshaped, views.items(), strict=True):
        np.testing.assert_array_equal(dump.array(value), wanted, err_msg=name)
        if name not in ("bool", "complex"):
            assert_statistics(dump, value)
    types = dict(zip(views, (value["dtype"] for value in reshaped), strict=True))
    assert types["bf16"] == "BFloat16" and types["bool"] == "Bool" and types["int"] == "Int64"
    assert dump.array(reshaped[list(views).index("bf16")]).dtype == np.float32


@forked
def test_inputs_are_read_before_they_change(tmp_path):
    x = Tensor(np.ones(3, "float32"))

    def run():
        y = ops.exp(x)
        x[0] = 100.0
        return y

    _, dump = record(tmp_path, run, level="L1")
    assert dump.data["Functional.exp.0.forward"]["input_args"][0]["Max"] == 1.0


@forked
def test_checksums(tmp_path):
    array = np.arange(6, dtype="float32")
    config = tmp_path / "config.json"
    config.write_text(
        json.dumps(
            {
                "task": "statistics",
                "level": "L1",
                "dump_path": str(tmp_path / "dump"),
                "statistics": {"summary_mode": "md5"},
            }
        )
    )
    debugger = PrecisionDebugger(str(config))
    debugger.start()
    ops.exp(Tensor(array))
    debugger.stop()
    value = read_dump(tmp_path / "dump").data["Functional.exp.0.forward"]["input_args"][0]
    assert value["md5"] == f"{zlib.crc32(array.tobytes()):08x}"


@forked
def test_only_the_call_that_makes_a_nan(tmp_path):
    x = Tensor(np.array([0.0, 1.0], "float32"))

    def run():
        ops.exp(x)
        return ops.abs(ops.log(x - 1.0))

    _, dump = record(tmp_path, run, level="L1", task="overflow_check")
    assert dump.names == ["Functional.log.0.forward"]
    value = dump.data[dump.names[0]]["output"][0]
    assert np.isnan(dump.array(value)[0])

"""Wrong kernels of the device: compare names the first call that they spoil."""

import json
import subprocess

import pytest
import torch

from models import gpt

# The forward pass and the backward pass; the name that is found, as the kernel runs several times.
FAULTS = {
    "gelu:add:1e-3": "Functional.gelu.0.forward",
    "gelu:inf": "Functional.gelu.0.forward",
    "gelu:stale": "Functional.gelu.1.forward",
    "gelu:stride": "Functional.gelu.0.forward",
    "gelu:swap": "Functional.gelu.",  # which of the calls swaps is drawn
    "addmm:bf16": "Functional.linear.0.forward",
    "_softmax:add:1e-3": "Functional.softmax.0.forward",
    "gelu_backward:add:1e-3": "Functional.gelu.1.backward",
    "gelu_backward:inf": "Functional.gelu.1.backward",
    "gelu_backward:stale": "Functional.gelu.0.backward",
    "gelu_backward:stride": "Functional.gelu.1.backward",
    "gelu_backward:swap": "Functional.gelu.",
    "_softmax_backward_data:add:1e-3": "Functional.softmax.1.backward",
}
EVERYDAY = ("gelu:stride", "addmm:bf16", "gelu_backward:add:1e-3")


def record(folder, device):
    from msprobe.pytorch import PrecisionDebugger

    model, batch = gpt.build(1, layers=2, width=32, heads=4, batch=2, length=8, vocabulary=32)
    model, batch = model.to(device), [each.to(device) for each in batch]
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    debugger = PrecisionDebugger(dump_path=str(folder), task="statistics", level="mix")
    debugger.start(model)
    gpt.loss(model, batch).backward()
    optimizer.step()
    debugger.stop()


@pytest.fixture
def compared(on_npu, msprobe_bin, tmp_path):
    """compared(fault): the report of a run with that fault beside a run of the host."""

    def compare(fault):
        on_npu(record, tmp_path / "npu", "npu", SIMNPU_FAULT=fault)
        on_npu(record, tmp_path / "cpu", "cpu")
        done = subprocess.run(
            [
                msprobe_bin,
                "compare",
                str(tmp_path / "npu"),
                str(tmp_path / "cpu"),
                "--format",
                "json",
            ],
            capture_output=True,
            text=True,
            cwd=tmp_path,
        )
        assert done.returncode in (0, 1), done.stderr
        return json.loads(done.stdout)

    return compare


@pytest.mark.parametrize(
    "fault",
    [
        each if each in EVERYDAY else pytest.param(each, marks=pytest.mark.campaign)
        for each in FAULTS
    ],
)
def test_the_first_wrong_call_is_named(compared, fault):
    first = compared(fault)["first_divergence"]
    assert first is not None
    assert first["target_name"].startswith(FAULTS[fault])


@pytest.mark.parametrize("places", [1, 2])
def test_other_roundings_in_every_kernel_are_no_alarm(compared, places):
    report = compared(f"*:ulp:{places}")
    assert report["first_divergence"] is None, report["first_divergence"]


def test_a_right_device_has_the_bits_of_the_host(compared):
    assert compared("")["verdict"] == "equal"

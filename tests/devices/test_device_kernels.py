"""Kernels that a program registers to measure large tensors."""

import importlib.util
import json
import os
from pathlib import Path

import pytest
import torch

from msprobe.pytorch import device_kernels

LARGE = (3 << 20) + 77  # elements: whole chunks and a tail


class TorchKernel(device_kernels.DeviceKernel):
    """The contract in PyTorch's operations."""

    name = "of the test"

    def __init__(self, wrong=False):
        self.calls, self.wrong = 0, wrong

    def supports(self, dtype):
        return dtype == torch.bfloat16 or dtype == torch.float32

    def measure(self, tensor, slot):
        self.calls += 1
        words = tensor.view(torch.int64).view(-1, 64, 8)
        low = words + slot.low_keys & 0xFFFFFFFF
        high = words + slot.high_keys >> 32 & 0xFFFFFFFF
        slot.sums[0].copy_((low * high).sum(1) + int(self.wrong))
        slot.sums[1].copy_(words.sum(1))
        x = tensor.view(-1, device_kernels.CHUNK).float()
        limit = torch.where(x.isnan(), -torch.inf, x).amax(1)
        least = torch.where(x.isnan(), torch.inf, x).amin(1)
        slot.numbers.copy_(torch.stack([x.sum(1), x.square().sum(1), limit, least], 1))
        kinds = x.isnan(), x.isposinf(), x.isneginf(), x == 0
        slot.counts.copy_(torch.stack([each.sum(1) for each in kinds], 1))


class Refusing(TorchKernel):
    def measure(self, tensor, slot):
        self.calls += 1
        raise RuntimeError("no memory")


def record(folder, device, make, dtype, special=True, elements=LARGE, calls=2):
    from msprobe.pytorch import PrecisionDebugger

    kernel = make() if make else None
    device_kernels.register(kernel)
    torch.manual_seed(2)
    x = torch.randn(elements).to(dtype)
    x[5::1000] = 0
    if special:
        x[7] = torch.inf
    x = x.to(device)
    debugger = PrecisionDebugger(dump_path=str(folder), task="statistics", level="L1")
    debugger.start()
    for _ in range(calls):
        torch.neg(x)
    debugger.stop()
    data = json.loads((folder / "step0" / "rank" / "dump.json").read_text())["data"]
    last = data[f"Torch.neg.{calls - 1}.forward"]
    return last["input_args"][0], last["output"][0], getattr(kernel, "calls", None)


def agree(ours, theirs):
    for key in ("fp", "Max", "Min", "nan", "pos_inf", "neg_inf", "zero"):
        assert ours.get(key) == theirs.get(key), key
    assert "fp" in ours and "zero" in theirs
    for key in ("Mean", "Norm"):
        assert ours[key] == pytest.approx(theirs[key], rel=1e-4, abs=1e-6)


@pytest.mark.parametrize(("dtype", "special"), [(torch.bfloat16, False), (torch.float32, True)])
def test_what_it_writes_is_recorded(on_npu, tmp_path, dtype, special):
    given, made, calls = on_npu(record, tmp_path / "npu", "npu", TorchKernel, dtype, special)
    host = on_npu(record, tmp_path / "cpu", "cpu", None, dtype, special)
    agree(given, host[0])
    agree(made, host[1])
    assert calls == 5  # the known tensor, and two tensors of two calls


def test_other_dtypes_are_measured_by_operations(on_npu, tmp_path):
    given, _, calls = on_npu(record, tmp_path / "npu", "npu", TorchKernel, torch.float16, False)
    assert (calls, "fp" in given, given["Norm"] > 0) == (0, False, True)


def test_a_kernel_with_wrong_sums_is_not_believed(on_npu, tmp_path):
    given, _, _ = on_npu(record, tmp_path / "npu", "npu", lambda: TorchKernel(True), torch.float32)
    assert "fp" not in given


def test_a_kernel_that_raises_is_called_once(on_npu, tmp_path):
    given, _, calls = on_npu(record, tmp_path / "npu", "npu", Refusing, torch.float32, False)
    assert (calls, "fp" in given, given["Norm"] > 0) == (1, False, True)


TRITON = """
import json, pathlib, sys, torch, torch_npu
sys.path.insert(0, {here!r})
import test_device_kernels as test
from msprobe.pytorch.triton_kernel import TritonKernel
print(json.dumps(test.record(pathlib.Path("npu"), "npu", TritonKernel, torch.{dtype}, {given})))
"""


@pytest.mark.skipif(not importlib.util.find_spec("triton"), reason="Triton is not installed")
@pytest.mark.parametrize(
    "dtype",
    [
        "bfloat16",
        *(pytest.param(each, marks=pytest.mark.campaign) for each in ("float16", "float32")),
    ],
)
def test_triton_in_its_interpreter(simulated, npu_program, on_npu, tmp_path, dtype):
    path = os.pathsep.join([str(simulated), os.environ.get("PYTHONPATH", "")])
    (tmp_path / "npu").mkdir()
    given = True, (2 << 20) + 77, 1  # the interpreter needs a second for 100 chunks
    text = TRITON.format(
        here=str(Path(__file__).parent), dtype=dtype, given=", ".join(map(str, given))
    )
    done = npu_program(text, TRITON_INTERPRET="1", PYTHONPATH=path)
    assert done.returncode == 0, done.stderr
    assert "not used any more" not in done.stderr
    ours = json.loads(done.stdout.splitlines()[-1])
    theirs = on_npu(record, tmp_path / "cpu", "cpu", None, getattr(torch, dtype), *given)
    for mine, its in zip(ours[:2], theirs[:2], strict=True):
        agree(mine, its)

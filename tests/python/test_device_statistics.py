"""Statistics of tensors on a device: computed there by PyTorch, copied to the host at stop.

The tests have no device: with MSPROBE_STATISTICS=framework the host is treated as one.
"""

import json
import math
import os

import pytest
import torch
from recording import read_dump, run_forked
from torch.profiler import ProfilerActivity, profile

from models import gpt

NUMBERS = ("Max", "Min", "Mean", "Norm")
COUNTS = ("nan", "pos_inf", "neg_inf", "zero")


def record(folder, body, framework, level="mix", model=None, profiled=False):
    from msprobe.pytorch import PrecisionDebugger

    if framework:
        os.environ["MSPROBE_STATISTICS"] = "framework"
    debugger = PrecisionDebugger(dump_path=str(folder), level=level)
    calls = {}
    with profile(activities=[ProfilerActivity.CPU]) if profiled else torch.enable_grad() as watch:
        debugger.start(model)
        body()
        before_stop = watch.key_averages if profiled else None
        debugger.stop()
    if before_stop:
        calls = {event.key: event.count for event in before_stop()}
    debugger.step()
    return calls


def train():
    model, batch = gpt.build(1, layers=1, width=16, heads=2, batch=2, length=8, vocabulary=32)
    return model, lambda: gpt.loss(model, batch).backward()


def record_training(folder, framework, profiled=False):
    model, body = train()
    return record(folder, body, framework, model=model, profiled=profiled)


def tensors_of(value):
    if isinstance(value, dict) and "Max" in value:
        yield value
    elif isinstance(value, (dict, list)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from tensors_of(item)


def is_close(a, b):
    if isinstance(a, float) and isinstance(b, float):
        return (math.isnan(a) and math.isnan(b)) or math.isclose(
            a, b, rel_tol=1e-12, abs_tol=1e-300
        )
    return a == b


def assert_same_numbers(here, there):
    assert here.names == there.names
    count = 0
    for name in here.names:
        ours, theirs = (list(tensors_of(dump.data[name])) for dump in (here, there))
        assert len(ours) == len(theirs)
        for a, b in zip(ours, theirs, strict=True):
            for key in ("dtype", "shape", "requires_grad", *COUNTS, "Max", "Min"):
                assert a.get(key) == b.get(key) or is_close(a.get(key), b.get(key)), (
                    name,
                    key,
                    a,
                    b,
                )
            for key in ("Mean", "Norm"):
                assert is_close(a[key], b[key]), (name, key, a, b)
            count += 1
    return count


def test_a_training_has_the_same_numbers(tmp_path):
    run_forked(record_training, tmp_path / "here", False)
    run_forked(record_training, tmp_path / "there", True)
    here, there = read_dump(tmp_path / "here"), read_dump(tmp_path / "there")
    assert assert_same_numbers(here, there) > 100
    assert '"fp"' in json.dumps(here.data)
    assert '"fp"' not in json.dumps(there.data)
    assert here.side("construct.json") == there.side("construct.json")


def test_no_number_is_copied_from_the_device_before_stop(tmp_path):
    """Counts _local_scalar_dense: `.item()` and all other calls that wait for the device use it."""
    plain = run_forked(record_training, tmp_path / "here", False, profiled=True)
    calls = run_forked(record_training, tmp_path / "there", True, profiled=True)
    for key in ("aten::item", "aten::_local_scalar_dense"):
        assert calls.get(key, 0) == plain.get(key, 0)
    assert calls["aten::isnan"] > 100  # the statistics were computed by PyTorch


def numbers(dtype):
    return torch.tensor([3, 0, -2, 5, 0, 7, 1, -4]).to(dtype)


SPECIAL = torch.tensor([1.0, float("nan"), float("inf"), float("-inf"), 0.0, -0.0, 2.0, 3.0])
TENSORS = {
    str(dtype): lambda dtype=dtype: numbers(dtype)
    for dtype in (
        *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.float8_e4m3fn),
        *(torch.int8, torch.int16, torch.int32, torch.int64, torch.bool),
        *(torch.complex64, torch.complex128),
    )
} | {
    "uint8": lambda: torch.tensor([3, 0, 250], dtype=torch.uint8),
    "uint64": lambda: torch.tensor([3, 0, 2**63 + 1], dtype=torch.uint64),
    "beyond 2**53": lambda: torch.tensor([2**60 + 1, -(2**60) - 1]),
    "nan and infinities": lambda: SPECIAL,
    "infinities": lambda: SPECIAL[[0, 2, 6]],
    "empty": lambda: torch.empty(0, 3),
    "no dimensions": lambda: torch.tensor(2.5),
    "strided": lambda: torch.arange(24.0).view(4, 6)[::2, 1::3].t(),
    "expanded": lambda: torch.arange(3.0)[:, None].expand(3, 4),
    "conjugated": lambda: torch.tensor([1 + 2j, 3 - 4j]).conj(),
    "requires grad": lambda: torch.ones(3, requires_grad=True),
    "sparse": lambda: torch.eye(3).to_sparse(),
    "meta": lambda: torch.ones(3, device="meta"),
}


@pytest.mark.parametrize("name", TENSORS)
def test_tensors_of_every_kind(name, tmp_path):
    def body():
        torch.clone(TENSORS[name]())

    for framework in (False, True):
        run_forked(record, tmp_path / str(framework), body, framework, level="L1")
    here, there = (read_dump(tmp_path / str(framework)) for framework in (False, True))
    assert assert_same_numbers(here, there) >= 2


def test_order_of_entries_and_later_starts(tmp_path):
    """An entry without tensors is written after the entries before it."""

    def body():
        from msprobe.pytorch import PrecisionDebugger

        for _ in range(3):
            torch.relu(torch.ones(2))
            torch.is_tensor(1)
            PrecisionDebugger.stop()
            PrecisionDebugger.start()
            torch.relu(torch.ones(3))

    for framework in (False, True):
        run_forked(record, tmp_path / str(framework), body, framework, level="L1")
    here, there = (read_dump(tmp_path / str(framework)) for framework in (False, True))
    assert assert_same_numbers(here, there) == 12

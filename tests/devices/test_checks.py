"""What executes recorded calls on the device: run_ut, and the scripts of op_generate."""

import json
import os
import subprocess
import sys

import pytest

from models import gpt

# A kernel, and the recorded calls that have it.
FAULTS = {
    "gelu:add:1e-3": ["Functional.gelu.0"],
    "gelu:inf": ["Functional.gelu.0"],
    "gelu:stride": ["Functional.gelu.0"],
    "_softmax:add:1e-3": ["Functional.softmax.0"],
    "native_layer_norm:add:1e-2": [f"Functional.layer_norm.{i}" for i in range(3)],
    "gelu_backward:add:1e-3": ["Functional.gelu.0"],
    "gelu_backward:inf": ["Functional.gelu.0"],
    "_softmax_backward_data:add:1e-3": ["Functional.softmax.0"],
}
EVERYDAY = ("gelu:add:1e-3", "gelu_backward:inf")


def record(folder):
    from msprobe.pytorch import PrecisionDebugger

    model, batch = gpt.build(1, layers=1, width=32, heads=4, batch=2, length=8, vocabulary=32)
    debugger = PrecisionDebugger(dump_path=str(folder), task="tensor", level="L1")
    debugger.start(model)
    gpt.loss(model, batch).backward()
    debugger.stop()


@pytest.fixture
def dump(on_npu, tmp_path):
    """A recording of the host, with tensors."""
    on_npu(record, tmp_path / "dump")
    return tmp_path / "dump" / "step0" / "rank"


@pytest.fixture
def msprobe(simulated, forking_msprobe, monkeypatch, tmp_path):
    def run(*arguments, **settings):
        monkeypatch.setenv("PYTHONPATH", str(simulated))
        for name, value in settings.items():
            monkeypatch.setenv(name, value)
        return subprocess.run(
            [forking_msprobe, *map(str, arguments)], capture_output=True, text=True, cwd=tmp_path
        )

    return run


def wrong_calls(msprobe, dump, **settings):
    flags = ("-api_info", dump, "-o", "out", "-d", "0", "--format", "json")
    done = msprobe("-f", "pytorch", "run_ut", *flags, **settings)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["lost"] == 0
    return [each["name"] for each in report["worst"] if "error" in each.values()]


@pytest.mark.parametrize(
    "fault",
    [
        each if each in EVERYDAY else pytest.param(each, marks=pytest.mark.campaign)
        for each in FAULTS
    ],
)
def test_run_ut_names_wrong_kernels(msprobe, dump, fault):
    assert sorted(wrong_calls(msprobe, dump, SIMNPU_FAULT=fault)) == FAULTS[fault]


def test_run_ut_passes_other_roundings(msprobe, dump):
    assert wrong_calls(msprobe, dump, SIMNPU_FAULT="*:ulp:1") == []


def test_run_ut_passes_a_right_device(msprobe, dump):
    assert wrong_calls(msprobe, dump) == []


def test_a_script_of_op_generate_imports_torch_npu(msprobe, dump, simulated, tmp_path):
    done = msprobe("op_generate", "-i", dump, "-api", "Functional.gelu.0", "-o", "scripts")
    assert done.returncode == 0, done.stdout + done.stderr
    (script,) = (tmp_path / "scripts").glob("*.py")

    def execute(**settings):
        done = subprocess.run(
            [sys.executable, script, "--device", "npu:0"],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": str(simulated), **settings},
        )
        return done.returncode, done.stdout + done.stderr

    code, said = execute()
    assert (code, "device:  npu:0" in said) == (0, True), said
    code, said = execute(SIMNPU_FAULT="gelu_backward:add:0.1")
    assert code == 1, said

"""What cannot be recorded, and what is installed wrongly: one line says what to do."""

import subprocess
import sys

import pytest
from runs import forked

import mindspore
from mindspore import nn
from msprobe import UnsupportedError, UsageError, _engine
from msprobe.mindspore import MsprobeStep, PrecisionDebugger, seed_all, versions


@forked
def test_the_model_is_a_cell(tmp_path):
    debugger = PrecisionDebugger(dump_path=str(tmp_path), level="L0")
    with pytest.raises(UsageError, match=r"expected a mindspore.nn.Cell .*, found function"):
        debugger.start(lambda x: x)
    with pytest.raises(UsageError, match="found no model"):
        debugger.start()


@forked
def test_graph_mode(tmp_path):
    mindspore.set_context(mode=mindspore.GRAPH_MODE)
    debugger = PrecisionDebugger(dump_path=str(tmp_path), level="mix")
    with pytest.raises(UsageError, match="expected PyNative mode"):
        debugger.start(nn.Dense(2, 2))


@pytest.mark.parametrize("task", ["free_benchmark", "nan_check"])
@forked
def test_tasks_of_pytorch_only(tmp_path, task):
    with pytest.raises(UnsupportedError, match='on MindSpore, task is "statistics"'):
        PrecisionDebugger(dump_path=str(tmp_path), task=task)


@forked
def test_level_of_ascend_only(tmp_path):
    with pytest.raises(UnsupportedError, match="Ascend"):
        PrecisionDebugger(dump_path=str(tmp_path), level="L2")


@pytest.mark.parametrize(
    ("installed", "message"),
    [
        ({"mindspore": None, "numpy": "1.26.4"}, "found none; type: pip install"),
        ({"mindspore": "2.7.0", "numpy": "1.26.4"}, "expected MindSpore 2.8 or later, found 2.7.0"),
        ({"mindspore": "2.10.0", "numpy": "2.4.6"}, "expected numpy<2, found 2.4.6"),
    ],
)
def test_wrong_versions(monkeypatch, installed, message):
    monkeypatch.setattr(versions, "_version", installed.get)
    with pytest.raises(UnsupportedError, match=message) as raised:
        versions.check()
    assert "\n" not in str(raised.value)


def test_pytorch_is_not_imported():
    code = "import sys, msprobe.mindspore; print([n for n in sys.modules if n.startswith('torch')])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip().splitlines()[-1] == "[]"


@forked
def test_arguments_of_seed_all_and_callbacks():
    with pytest.raises(UsageError, match="seed_all: seed"):
        seed_all(-1)
    with pytest.raises(UsageError, match="expected a PrecisionDebugger"):
        MsprobeStep(None)
    seed_all(3)
    assert mindspore.get_seed() == 3


@forked
def test_one_framework_in_a_process(tmp_path):
    PrecisionDebugger(dump_path=str(tmp_path), level="L1")
    with pytest.raises(UsageError, match=r"records one framework; .*, found msprobe\.pytorch"):
        _engine.configure(None, None, str(tmp_path / "b"), "L1", None, "")

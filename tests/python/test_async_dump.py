"""The key async_dump: a thread writes the tensors, on every machine."""

import json
import os

import pytest
import torch
from recording import read_dump, run_forked


def store(folder, config):
    """The number of additional threads after a tensor was stored."""
    from msprobe.pytorch import PrecisionDebugger

    (folder / "config.json").write_text(json.dumps(config))
    debugger = PrecisionDebugger(str(folder / "config.json"), dump_path=str(folder / "out"))
    torch.relu(torch.ones(3))
    before = len(os.listdir("/proc/self/task"))
    debugger.start()
    torch.relu(torch.ones(3))
    during = len(os.listdir("/proc/self/task"))
    debugger.stop()
    return during - before


@pytest.mark.parametrize("summary_mode", ["statistics", "md5"])
@pytest.mark.parametrize("asked", [True, False])
def test_async_dump(asked, summary_mode, tmp_path, monkeypatch):
    """On one core, where the call itself would write tensors; without a list, and with md5."""
    monkeypatch.setenv("MSPROBE_THREADS", "1")
    monkeypatch.delenv("MSPROBE_TENSOR_BUDGET_MB", raising=False)
    config = {"task": "tensor", "async_dump": asked, "tensor": {"summary_mode": summary_mode}}
    assert run_forked(store, tmp_path, config) == int(asked)
    dump = read_dump(tmp_path / "out")
    assert set(dump.tensors()) == {
        f"Torch.relu.0.forward.{kind}.0.pt" for kind in ("input", "output")
    }
    tensor = dump.data["Torch.relu.0.forward"]["output"][0]
    assert ("md5" in tensor) == (summary_mode == "md5")

"""Two ranks, each with a device of its own: every value is that of two ranks on the host."""

import json
import os
import socket
import subprocess
from concurrent.futures import ThreadPoolExecutor

import torch

from models import gpt


def train(folder, device, rank):
    import torch.distributed as dist

    from msprobe.pytorch import PrecisionDebugger

    os.environ["RANK"] = str(rank)
    if device == "npu":
        torch.npu.set_device(rank)
    dist.init_process_group("hccl" if device == "npu" else "gloo")
    model, batch = gpt.build(1, layers=1, width=16, heads=2, batch=4, length=8, vocabulary=32)
    model = model.to(device)
    batch = [each[2 * rank : 2 * rank + 2].to(device) for each in batch]
    debugger = PrecisionDebugger(dump_path=str(folder / device), task="statistics", level="mix")
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(2):
        debugger.start(model)
        gpt.loss(model, batch).backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
        optimizer.step()
        optimizer.zero_grad()
        debugger.stop()
        debugger.step()
    dist.destroy_process_group()


def entries(folder, step, rank):
    text = (folder / f"step{step}" / f"rank{rank}" / "dump.json").read_text()
    return json.loads(text.replace(f"npu:{rank}", "cpu").replace("hccl", "gloo"))["data"]


def test_two_ranks(on_npu, tmp_path, msprobe_bin):
    for device in ("npu", "cpu"):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        group = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2"}
        with ThreadPoolExecutor(2) as ranks:
            both = [ranks.submit(on_npu, train, tmp_path, device, i, **group) for i in range(2)]
        assert [each.result() for each in both] == [None, None]
    for step in range(2):
        for rank in range(2):
            ours, theirs = (entries(tmp_path / each, step, rank) for each in ("npu", "cpu"))
            assert any(name.startswith("Distributed.all_reduce") for name in ours)
            assert ours == theirs
    done = subprocess.run(
        [msprobe_bin, "compare", "npu", "cpu"], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "EQUAL" in done.stdout

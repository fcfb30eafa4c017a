"""Trainings on a device that are recorded, and what is read of their dumps."""

import json

import torch

from models import gpt


def debugger(folder, config, level="L1"):
    from msprobe.pytorch import PrecisionDebugger

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(
        json.dumps({"dump_path": str(folder), "level": level, **config})
    )
    return PrecisionDebugger(str(folder / "config.json"))


def syncs():
    import torch_npu

    return sum(torch_npu.sim.counts()["syncs"].values())


def train(folder, device, config, level="L1", steps=1):
    """Waits in each step, and the loss."""
    import torch_npu

    model, batch = gpt.build(1, layers=1, width=16, heads=2, batch=2, length=8, vocabulary=32)
    model = model.to(device)
    batch = [each.to(device) for each in batch]
    ours = debugger(folder, config, level) if config else None
    waits = []
    for _ in range(steps):
        torch_npu.sim.reset()
        if ours:
            ours.start(model)
        loss = gpt.loss(model, batch)
        loss.backward()
        waits.append(syncs())
        if ours:
            ours.stop()
            ours.step()
    return waits, loss.item()


def numbers(folder):
    """Every value of the dump, without what names the device."""
    text = (folder / "step0" / "rank" / "dump.json").read_text()
    return json.loads(text.replace("npu:0", "cpu"))["data"]


def read_tensor(folder, name):
    path = folder / "dump_tensor_data" / name
    return torch.load(path).tolist() if path.exists() else None

"""How often a write that PyTorch's version counter does not show is missed.

The curve is in docs/explain/how-recording-works.md.

    python bench/reuse.py

For each size of tensor and of write: a call reads the tensor, NumPy overwrites a random part of it,
and the next call reads it. A write is missed when both calls have the same fingerprint.
"""

import json
import random
import tempfile
from pathlib import Path

import torch
from torch.nn import functional as F

TENSORS = (1 << 16, 1 << 20, 1 << 24)  # bytes
WRITES = (4, 64, 1024, 4096, 16384, 32768, 65536)  # bytes
TRIALS = 200


def record(debugger, size, write):
    """One step: pairs of calls, of a new tensor before and after a write."""
    debugger.start()
    for _ in range(TRIALS):
        x = torch.zeros(size // 4)
        F.relu(x)
        first = random.randrange(0, (size - write) // 4 + 1)
        x.numpy()[first : first + write // 4] = 1.0
        F.relu(x)
    debugger.stop()
    debugger.step()


def missed(folder, step):
    data = json.loads((folder / f"step{step}/rank/dump.json").read_text())["data"]
    prints = [
        entry["input_args"][0]["fp"]
        for name, entry in data.items()
        if name.startswith("Functional")
    ]
    return sum(a == b for a, b in zip(prints[::2], prints[1::2], strict=True))


def main():
    from msprobe.pytorch import PrecisionDebugger

    random.seed(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config = folder / "config.json"
        section = {"list": ["relu"], "data_mode": ["forward"]}
        config.write_text(json.dumps({"task": "statistics", "level": "L1", "statistics": section}))
        debugger = PrecisionDebugger(str(config), dump_path=str(folder / "dump"))
        print("| tensor | " + " | ".join(f"{write} B" for write in WRITES) + " |")
        print("| --- |" + " ---: |" * len(WRITES))
        step = 0
        for size in TENSORS:
            cells = []
            for write in WRITES:
                record(debugger, size, write)
                cells.append(f"{100 * missed(folder / 'dump', step) / TRIALS:.0f} %")
                step += 1
            print(f"| {size >> 10} KiB | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()

"""Two runs of five ranks and two steps, in a few kilobytes."""

import json

RANKS, STEPS = 5, 2
CALLS = ("Functional.linear", "Functional.gelu", "Torch.sum", "Tensor.mul")


def tensor(value, wrong=0.0):
    norm = 4 * value * (1 + wrong)
    numbers = {"Max": value * (1 + wrong), "Min": -value, "Mean": value / 7, "Norm": norm}
    return {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [4, 4]} | numbers


def dump(rank, step, wrong_call):
    data = {}
    wrong = 0.0
    for i, name in enumerate(CALLS):
        value = 1 + rank + 10 * step + 3 * i
        given = tensor(value, wrong)
        wrong = 0.5 if i == wrong_call else wrong
        made = tensor(value + 3, wrong)
        data[f"{name}.0.forward"] = {"input_args": [given], "input_kwargs": {}, "output": [made]}
    return {"task": "statistics", "level": "L1", "framework": "pytorch", "data": data}


def write_runs(folder, ranks=RANKS):
    """In the target, ranks 1 and 3 compute something else from the second call on."""
    for side in ("target", "golden"):
        for step in range(STEPS):
            for rank in range(ranks):
                place = folder / side / f"step{step}" / f"rank{rank}"
                place.mkdir(parents=True)
                wrong = {1: 1, 3: 2}.get(rank, -1) if side == "target" else -1
                (place / "dump.json").write_text(json.dumps(dump(rank, step, wrong)))
    return folder


def without_files(report):
    return [line for line in report.splitlines() if not line.startswith("written: ")]

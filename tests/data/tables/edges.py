"""Writes two small dumps in which everything happens that a table has a word for.

    python edges.py FOLDER      ->  FOLDER/{statistics,md5,tensor}/{target,golden}/dump.json

Run by record.py with the Python of the older tool (it needs torch).
"""

import json
import sys
import zlib
from pathlib import Path

import torch

INF, NAN = float("inf"), float("nan")


def ramp(*shape, scale=1.0, dtype=torch.float32):
    """Distinct values of both signs that every machine computes alike."""
    count = int(torch.Size(shape).numel())
    values = torch.arange(count, dtype=torch.float64) * 0.37 - count * 0.11
    return (values.reshape(shape) * scale).to(dtype)


def with_values(tensor, **places):
    """A copy with single elements replaced: at_0=..., at_3=..."""
    copy = tensor.clone()
    for place, value in places.items():
        copy.view(-1)[int(place[3:])] = value
    return copy


def grad(tensor):
    """The same tensor, recorded with requires_grad."""
    return tensor.clone().requires_grad_(True)


X, W = ramp(2, 3), ramp(3, 3, scale=0.5)
TINY, BIG = ramp(2, 3, scale=1e-3), ramp(2, 3, scale=100.0)
ZERO = torch.zeros(2, 3)
# name: (target's inputs, kwargs, outputs), (golden's ...); None: not called there.
CALLS = {
    "Functional.relu.0.forward": (([X], {}, [X]), ([X], {}, [X])),
    "Functional.linear.0.forward": (
        ([X, W, None], {}, [X * 1.5]),
        ([X, W, None], {}, [X]),
    ),
    "Functional.linear.1.forward": (([X, W], {}, [X * 1.02]), ([X, W], {}, [X])),
    "Functional.sigmoid.0.forward": (([X], {}, [-X]), ([X], {}, [X])),
    "Functional.target_only.0.forward": (([X], {"a": 1}, [X]), None),
    "Functional.golden_only.0.forward": (None, ([X], {"a": 1}, [X])),
    "Tensor.shape.0.forward": (([ramp(2, 3)], {}, [X]), ([ramp(3, 2)], {}, [X])),
    "Tensor.squeeze.0.forward": (([ramp(1, 3)], {}, [ramp(1, 3)]), ([ramp(3)], {}, [ramp(3)])),
    "Tensor.half.0.forward": (
        ([X.half()], {}, [X.half()]),
        ([X], {}, [X]),
    ),
    "Tensor.bfloat.0.forward": (
        ([X.bfloat16()], {}, [(X * 1.1).bfloat16()]),
        ([X.bfloat16()], {}, [X.bfloat16()]),
    ),
    "Tensor.int.0.forward": (([X.long()], {}, [X.long() + 1]), ([X.long()], {}, [X.long()])),
    "Tensor.kind.0.forward": (([X.long()], {}, [X]), ([X], {}, [X])),
    "Tensor.bool.0.forward": (([X > 0], {}, [X > 1]), ([X > 0], {}, [X > 0])),
    "Tensor.double.0.forward": (([X.double()], {}, [X.double()]), ([X], {}, [X])),
    "Torch.nan_both.0.forward": (
        ([with_values(X, at_1=NAN)], {}, [with_values(X, at_2=NAN)]),
        ([with_values(X, at_1=NAN)], {}, [with_values(X, at_2=NAN)]),
    ),
    "Torch.nan_target.0.forward": (([X], {}, [with_values(X, at_2=NAN)]), ([X], {}, [X])),
    "Torch.nan_golden.0.forward": (([X], {}, [X]), ([X], {}, [with_values(X, at_2=NAN)])),
    "Torch.inf_target.0.forward": (([X], {}, [with_values(X, at_2=INF)]), ([X], {}, [X])),
    "Torch.inf_golden.0.forward": (([X], {}, [X]), ([X], {}, [with_values(X, at_2=-INF)])),
    "Torch.inf_both.0.forward": (
        ([with_values(X, at_0=INF)], {}, [with_values(X, at_2=INF)]),
        ([with_values(X, at_0=INF)], {}, [with_values(X, at_2=-INF)]),
    ),
    "Torch.zero_golden.0.forward": (([ZERO], {}, [X]), ([ZERO], {}, [ZERO])),
    "Torch.zero_target.0.forward": (([TINY], {}, [ZERO]), ([TINY], {}, [X])),
    "Torch.near_zero.0.forward": (
        ([X], {}, [with_values(X, at_0=1e-9, at_1=1e-3)]),
        ([X], {}, [with_values(X, at_0=0.0, at_1=0.0)]),
    ),
    "Torch.half_zero.0.forward": (
        ([X.half()], {}, [with_values(X.half(), at_0=1e-3)]),
        ([X.half()], {}, [with_values(X.half(), at_0=0.0)]),
    ),
    "Torch.empty_tensor.0.forward": (
        ([torch.zeros(0, 3)], {}, [torch.zeros(0)]),
        ([torch.zeros(0, 3)], {}, [torch.zeros(0)]),
    ),
    "Torch.scalar_tensor.0.forward": (
        ([torch.tensor(2.0)], {}, [torch.tensor(3.0)]),
        ([torch.tensor(2.0)], {}, [torch.tensor(2.0)]),
    ),
    "Torch.scalar_nan.0.forward": (
        ([torch.tensor(NAN)], {}, [torch.tensor(NAN)]),
        ([torch.tensor(NAN)], {}, [torch.tensor(1.0)]),
    ),
    "Torch.one_element.0.forward": (
        ([torch.tensor([2.0])], {}, [torch.tensor([3.0])]),
        ([torch.tensor([2.0])], {}, [torch.tensor([2.0])]),
    ),
    "Torch.huge.0.forward": (([X], {}, [X + 1e11]), ([X], {}, [X])),
    "Torch.grow.0.forward": (([X + 2], {}, [BIG + 90]), ([X], {}, [BIG])),
    "Torch.cosine.0.forward": (
        ([X], {}, [with_values(X, at_0=3.0)]),
        ([X], {}, [X]),
    ),
    "Torch.slight.0.forward": (([X], {}, [X * 1.002]), ([X], {}, [X])),
    "Tensor.grad.0.forward": (([grad(X)], {}, [grad(X)]), ([X], {}, [X])),
    "Tensor.view.0.forward": (
        ([X, 2, 1.5, "a", True, None], {"size": torch.Size([2, 3]), "k": 3}, [X]),
        ([X, 3, 1.5, "b", False, 1], {"size": torch.Size([3, 2]), "k": 3}, [X]),
    ),
    "Tensor.count.0.forward": (([X], {}, [X, X]), ([X], {}, [X])),
    "Functional.conv2d.0.forward": (([X, W], {}, [X * 3]), ([X, W], {}, [X])),
    "Functional.conv2d.0.backward": (([X * 4], {}, [X * 3]), ([X], {}, [X])),
}


def leaf(value, name, mode, folder):
    """The entry of one value, as dump.json has it."""
    if value is None:
        return None
    if isinstance(value, torch.Size):
        return {"type": "torch.Size", "value": list(value)}
    if not isinstance(value, torch.Tensor):
        return {"type": type(value).__name__, "value": value}
    data = value.detach()
    entry = {"type": "torch.Tensor", "dtype": str(value.dtype), "shape": list(value.shape)}
    if data.numel() == 0:
        statistics = [None] * 4
    elif data.dtype == torch.bool:
        statistics = [bool(data.any()), bool(data.all()), None, None]
    else:
        wide = data.float()
        statistics = [data.max().item(), data.min().item(), wide.mean().item(), wide.norm().item()]
    entry.update(zip(("Max", "Min", "Mean", "Norm"), statistics))
    entry["requires_grad"] = value.requires_grad
    if mode == "md5":
        raw = data.contiguous().view(-1).view(torch.uint8).numpy().tobytes() if data.numel() else b""
        entry["md5"] = f"{zlib.crc32(raw):08x}"
    if mode == "tensor":
        entry["data_name"] = f"{name}.pt"
        torch.save(data.clone().contiguous(), folder / f"{name}.pt")
    return entry


def write(folder, mode, side):
    """One side's dump."""
    tensors = folder / "dump_tensor_data"
    tensors.mkdir(parents=True)
    data = {}
    for call, sides in CALLS.items():
        if sides[side] is None:
            continue
        inputs, kwargs, outputs = sides[side]
        backward = call.endswith("backward")
        entry = {
            "input" if backward else "input_args": [
                leaf(v, f"{call}.input.{i}", mode, tensors) for i, v in enumerate(inputs)
            ]
        }
        if not backward:
            entry["input_kwargs"] = {
                k: leaf(v, f"{call}.input.{k}", mode, tensors) for k, v in kwargs.items()
            }
        entry["output"] = [
            leaf(v, f"{call}.output.{i}", mode, tensors) for i, v in enumerate(outputs)
        ]
        data[call] = entry
    header = {
        "task": "tensor" if mode == "tensor" else "statistics",
        "level": "L1",
        "framework": "pytorch",
        "dump_data_dir": "./dump_tensor_data" if mode == "tensor" else None,
    }
    text = json.dumps({**header, "data": data}, indent=1)
    (folder / "dump.json").write_text(text)
    (folder / "stack.json").write_text("{}")  # 1.0 wants one


def main(folder):
    """All six."""
    for mode in ("statistics", "md5", "tensor"):
        for side, name in enumerate(("target", "golden")):
            write(Path(folder) / mode / name, mode, side)


if __name__ == "__main__":
    main(sys.argv[1])

"""Writes dumps in the formats of the older tools, and reads the tables of their comparison."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from msprobe.compat.errors import CompareException
from msprobe.compat.hooks_compare import compare as compare_hooks

FRAMES = [
    ["/w/net.py", "18", "forward", "y = F.relu(x)"],
    ["/w/run.py", "40", "<module>", "main()"],
]


def statistics(array):
    """Maximum, minimum and mean, in the order of the lines."""
    return [float(array.max()), float(array.min()), float(array.mean(dtype=np.float64))]


def write_lines(path, lines):
    """Writes one JSON list on each line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def sample(array, step):
    """The sample of a tensor that ptdbg_ascend 0.1 writes."""
    flat = array.astype(np.float32).ravel().astype(np.float64)
    n = flat.size
    if n <= 512:
        return flat
    return np.concatenate([flat[:256], flat[256 : n - 256 : step], flat[n - 256 :]])


def write_hooks(path, tensors, sampled=True):
    """Writes a dump of torch_npu.hooks: lines are numbered and contain elements."""
    lines = []
    for i, (name, array) in enumerate(tensors):
        flat = array.astype(float).ravel().tolist()
        values = flat[:10] + statistics(array) if sampled else flat
        lines.append([f"{i}_{name}", values, f"torch.{array.dtype}", list(array.shape)])
    return write_lines(path, lines)


def write_first(path, calls, step=1, stacks=False, time="20230104_134530"):
    """Writes a dump of ptdbg_ascend 0.1. ``calls``: (name, values); ``time``: in a folder name."""
    folder = path.with_name(f"{path.stem}_{time}")
    folder.mkdir(parents=True, exist_ok=True)
    lines = []
    for i, (call, values) in enumerate(calls):
        if stacks:
            lines.append([f"{i}_{call}_stack_info", FRAMES])
        for part, array in values.items():
            name = f"{i}_{call}_{part}"
            lines.append(
                [name, step, [], f"torch.{array.dtype}", list(array.shape), statistics(array)]
            )
            np.save(folder / f"{name}.npy", sample(array, step))
    write_lines(path, lines)
    return path, folder


def write_later(path, calls, norm=False, stacks=False, digest=None, separator="_"):
    """Writes a dump of ptdbg_ascend 1 to 6: calls of the same name are numbered."""
    folder = path.with_suffix("")
    folder.mkdir(parents=True, exist_ok=True)
    lines, numbers = [], {}
    for call, values in calls:
        api, direction = call.rsplit("_", 1)
        number = numbers.get(call, 0)
        numbers[call] = number + 1
        stem = f"{api}_{number}_{direction}".replace("_", separator)
        for part, array in values.items():
            name = f"{stem}{separator}{part}"
            numbers_of = statistics(array) + [float(np.linalg.norm(array))] * norm
            third = digest(array) if digest else []
            lines.append(
                [name, 0, third, f"torch.{array.dtype}", list(array.shape),
                 [] if digest else numbers_of]
            )  # fmt: skip
            np.save(folder / f"{name}.npy", array)
        if stacks:
            lines.append([f"{stem}{separator}stack_info", FRAMES])
    write_lines(path, lines)
    return path, folder


def paths(npu, bench):
    """The dict for ``compare``. ``npu``, ``bench``: (pkl file, data folder)."""
    return {
        "npu_pkl_path": str(npu[0]),
        "bench_pkl_path": str(bench[0]),
        "npu_dump_data_dir": str(npu[1]),
        "bench_dump_data_dir": str(bench[1]),
    }


def read_table(path):
    """The header, and the rows as dicts."""
    with open(path, newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        return reader.fieldnames, list(reader)


def result(folder):
    """Reads the only table in a folder of results."""
    (path,) = Path(folder).glob("compare_result_*.csv")
    return read_table(path)


def ramp(*shape, scale=1.0, dtype=np.float32):
    """Distinct numbers of both signs, without zero."""
    n = int(np.prod(shape))
    return ((np.arange(n) - n / 2 + 0.25) * scale / max(n, 1)).astype(dtype).reshape(shape)


def net(scale=1.0):
    """Two forward calls and one backward call of ptdbg_ascend 0.1: [(name, {part: values})]."""
    x = ramp(4, 5)
    y = np.maximum(x, 0)
    return [
        ("Functional_relu_forward", {"input.0": x, "output": y}),
        ("Torch_mul_forward", {"input.0": y, "input.1": x, "output": y * x * np.float32(scale)}),
        ("Torch_mul_backward", {"input.0": x * np.float32(scale), "output.0": x}),
    ]


def first_dumps(tmp_path, scale=1.0, **options):
    """Writes both sides in the format of ptdbg_ascend 0.1."""
    return (
        write_first(tmp_path / "npu" / "npu_dump.pkl", net(scale), **options),
        write_first(tmp_path / "bench" / "npu_dump.pkl", net(), **options),
    )


def hooks_table(tmp_path, npu, bench, sampled=False, **options):
    """Compares two dumps of torch_npu.hooks; returns the rows of the csv."""
    a = write_hooks(tmp_path / "npu.pkl", npu, sampled)
    b = write_hooks(tmp_path / "bench.pkl", bench, sampled)
    compare_hooks(str(a), str(b), str(tmp_path / "r.csv"), **options)
    return read_table(tmp_path / "r.csv")[1]


def one_call(array):
    """The values of one call in a dump of torch_npu.hooks."""
    return [("Torch_add_forward_input.0", ramp(3)), ("Torch_add_forward_output", array)]


def code_of(call, *args, **kwargs):
    """The code of the CompareException that the call raises; it must have a message."""
    with pytest.raises(CompareException) as caught:
        call(*args, **kwargs)
    assert str(caught.value)
    return caught.value.code

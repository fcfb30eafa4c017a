"""The sketch of each tensor ("sk", docs/reference/dump-format.md), against NumPy in float64."""

import base64
import json
import struct

import numpy as np
import pytest
import torch
from recording import run_forked

from msprobe.pytorch import PrecisionDebugger

ROOTS = [2, 3, 7, 11, 13, 17, 19]
TURNS = [(5**0.5 - 1) / 2, *(root**0.5 % 1 for root in ROOTS)]  # from the last dimension on


def decode(text):
    """The numbers of "sk": rows, squares, wave, and grid or None."""
    numbers = [
        struct.unpack(">d", base64.urlsafe_b64decode(text[k : k + 11].replace("~", "-") + "="))[0]
        for k in range(0, len(text), 11)
    ]
    assert len(numbers) in (5, 7)
    grid = complex(*numbers[5:]) if len(numbers) == 7 else None
    return complex(*numbers[:2]), numbers[2], complex(*numbers[3:5]), grid


def phases(turn, count):
    return np.exp(2j * np.pi * (turn * np.arange(count) % 1))


def expected(tensor, without_extremes=False):
    if tensor.is_complex():
        parts = torch.view_as_real(tensor)
        tensor = parts.flatten(-2) if tensor.dim() > 1 else parts
    elif tensor.dim() == 1:
        tensor = tensor[:, None]
    x = tensor.detach().to(torch.float64).numpy()
    left_out = ~np.isfinite(x) | (without_extremes & (np.abs(x) >= 8192))
    x = np.where(left_out, 0.0, x)
    rows = x.reshape(-1, x.shape[-1]) @ phases(TURNS[0], x.shape[-1])
    wave = (rows * phases(TURNS[1], len(rows))).sum()
    grid = x.astype(complex)
    for turn, extent in zip(TURNS, reversed(x.shape), strict=False):
        grid = grid @ phases(turn, extent)
    return rows.sum(), (np.abs(rows) ** 2).sum(), wave, complex(grid) if x.ndim > 2 else None


def check(leaf, tensor, without_extremes=False):
    rows, squares, wave, grid = decode(leaf["sk"])
    their_rows, their_squares, their_wave, their_grid = expected(tensor, without_extremes)
    size = their_squares**0.5 + 1e-30
    near = 5e-7  # rows of floats are summed in float
    assert abs(rows - their_rows) <= near * size * len(tensor) ** 0.5
    assert abs(squares - their_squares) <= near * squares
    assert abs(wave - their_wave) <= near * size
    assert (grid is None) == (their_grid is None)
    if grid is not None:
        assert abs(grid - their_grid) <= 1e-6 * float(tensor.abs().double().nan_to_num().norm())


def debugger_of(folder, top=None, **section):
    config = {
        "task": "statistics",
        "level": "mix",
        **(top or {}),
        "statistics": section,
    }
    path = folder / "config.json"
    path.write_text(json.dumps(config))
    return PrecisionDebugger(str(path), dump_path=str(folder / "dump"))


def data_of(folder):
    return json.loads((folder / "dump/step0/rank/dump.json").read_text())["data"]


def inputs():
    torch.manual_seed(0)
    specials = torch.randn(7, 130)
    specials[3, 5], specials[0, 0], specials[6, 129] = float("nan"), float("inf"), -float("inf")
    masked = torch.randn(2, 6, 6)
    masked[:, torch.ones(6, 6).triu(1).bool()] = -1e9
    return [
        torch.randn(40, 300),
        torch.randn(40, 300).t(),
        torch.randn(5, 33, 64)[:, ::2, 3:],
        torch.randn(3, 8, 7, 7).to(memory_format=torch.channels_last),
        torch.randn(2000),
        torch.randn(3, 5000).bfloat16(),
        torch.randn(64, 65).half(),
        torch.randn(9, 4, dtype=torch.float64),
        torch.randint(0, 50257, (4, 128)),
        torch.rand(5, 6) > 0.5,
        torch.randn(4, 6, dtype=torch.complex64),
        torch.randn(6, dtype=torch.complex64),
        torch.randn(30, 40).expand(2, 30, 40),
        specials,
        masked,
    ]


def record_clones(folder):
    debugger = debugger_of(folder)
    debugger.start()
    for x in inputs():
        torch.clone(x)
    torch.clone(torch.ones(1))
    torch.clone(torch.ones(0, 3))
    debugger.stop()


def test_agrees_with_numpy(tmp_path):
    run_forked(record_clones, tmp_path)
    data = data_of(tmp_path)
    for n, x in enumerate(inputs()):
        leaf = data[
            f"Tensor.clone.{n}.forward"
            if f"Tensor.clone.{n}.forward" in data
            else f"Torch.clone.{n}.forward"
        ]["input_args"][0]
        check(leaf, x, without_extremes="rest_norm" in leaf)
    assert "rest_norm" in leaf  # of the mask
    for n in (len(inputs()), len(inputs()) + 1):  # one element, none
        assert '"sk"' not in json.dumps(data[f"Torch.clone.{n}.forward"])


def train(folder, top=None, **section):
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.ReLU(), torch.nn.Linear(5, 2))
    optimizer = torch.optim.AdamW(model.parameters())
    debugger = debugger_of(folder, top, **section)
    debugger.start(model)
    model(torch.randn(3, 6)).sum().backward()
    optimizer.step()
    debugger.stop()
    debugger.step()


def leaves(value):
    if isinstance(value, dict) and "shape" in value and "dtype" in value:
        yield value
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from leaves(each)


def test_every_measured_tensor_has_it(tmp_path):
    """Those of modules, gradients, optimizers and weights too."""
    run_forked(train, tmp_path)
    weights = json.loads((tmp_path / "dump/step0/rank/weights.json").read_text())
    seen = 0
    for leaf in leaves([data_of(tmp_path), weights]):
        if leaf.get("fp") and np.prod(leaf["shape"]) > 1:
            assert "sk" in leaf, leaf
            seen += 1
    assert seen > 60
    names = "".join(data_of(tmp_path))
    assert "Optimizer.AdamW.step" in names and "parameters_grad" in names
    for leaf in leaves(data_of(tmp_path)["Optimizer.AdamW.step.0.forward"]):
        assert "sk" in leaf or np.prod(leaf["shape"]) < 2


@pytest.mark.parametrize("top, section", [({"sketch": False}, {}), ({}, {"summary_mode": "xor"})])
def test_is_left_out_on_demand(tmp_path, top, section):
    run_forked(train, tmp_path, top, **section)
    text = (tmp_path / "dump/step0/rank/dump.json").read_text()
    assert '"sk"' not in text
    assert '"fp"' in text


def test_nothing_else_changes(tmp_path):
    for name, top in [("on", {}), ("off", {"sketch": False})]:
        (tmp_path / name).mkdir()
        run_forked(train, tmp_path / name, top)
    on, off = data_of(tmp_path / "on"), data_of(tmp_path / "off")
    for leaf in leaves(on):
        leaf.pop("sk", None)
    assert on == off

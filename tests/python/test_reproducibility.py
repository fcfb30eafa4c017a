"""seed_all and random_save: every argument has its documented effect and no other."""

import csv
import os
import random

import numpy
import pytest
import torch
import torch.nn.functional as F
from recording import forked, read_dump

from msprobe import UsageError
from msprobe.pytorch import PrecisionDebugger, random_save, seed_all


def draws():
    return random.random(), numpy.random.rand(), torch.rand(1).item()


@forked
def test_seed_all_seeds():
    seed_all()
    first = draws()
    seed_all(1234)
    assert draws() == first and os.environ["PYTHONHASHSEED"] == "1234"
    seed_all(0)
    assert draws() != first
    seed_all(2**32 - 1)


@forked
def test_seed_all_keeps_deterministic_setting():
    torch.use_deterministic_algorithms(True)
    seed_all(7)
    assert torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(False)
    seed_all(7, False)
    assert not torch.are_deterministic_algorithms_enabled()
    seed_all(7, mode=True)
    assert torch.are_deterministic_algorithms_enabled()


@forked
def test_seed_all_removes_dropout():
    functions = [F.dropout, F.dropout2d, F.dropout3d]
    x = torch.rand(2, 3, 4, 4, 4) + 1
    seed_all(1)
    assert not torch.equal(F.dropout(x), x)
    seed_all(1, rm_dropout=True)
    assert [F.dropout, F.dropout2d, F.dropout3d] == functions  # the same objects
    state = torch.get_rng_state()
    for function in functions:
        assert torch.equal(function(x, 0.9, True), x)
        assert torch.equal(function(x.clone(), 0.9, True, True), x)
    for module in (torch.nn.Dropout(), torch.nn.Dropout2d(), torch.nn.Dropout3d()):
        assert torch.equal(module(x), x)
    assert torch.equal(torch.get_rng_state(), state)
    with pytest.raises(ValueError, match="between 0 and 1"):
        F.dropout(x, 2.0)
    assert torch.equal(torch.compile(F.dropout, backend="eager")(x, 0.9), x)


@forked
def test_every_draw_is_the_same():
    seed_all(5, is_enhanced=True)
    F.dropout(torch.ones(100))  # draws random numbers inside PyTorch
    first = draws()
    random.getrandbits(3)
    torch.empty(9).normal_()
    numpy.random.shuffle(numpy.arange(9))
    assert draws() == first
    assert torch.equal(torch.randn(3), torch.randn(3))
    assert random.sample(range(99), 5) == random.sample(range(99), 5)


@forked
def test_random_save_saves_calls(tmp_path):
    random_save(str(tmp_path / "out"))
    random.random()
    torch.rand(2)
    torch.rand(3)
    torch.empty(2).uniform_()
    (file,) = (tmp_path / "out").iterdir()
    assert file.name.startswith(f"random_proc{os.getpid()}_") and file.suffix == ".csv"
    assert len(file.stem.rsplit("_", 1)[1]) == len("YYYYmmddHHMMSS")
    with open(file, newline="") as rows:
        rows = list(csv.reader(rows))
    assert rows[0] == ["api_name", "stack"]
    assert [row[0] for row in rows[1:]] == [
        "python_random.random.0",
        "torch_random.rand.0",
        "torch_random.rand.1",
        "tensor_random.uniform_.0",
    ]
    line = rows[3][1].splitlines()
    assert __file__ in line[0] and line[0].endswith("in test_random_save_saves_calls, ")
    assert line[1].strip() == "torch.rand(3)"
    torch.distributed.init_process_group(
        "gloo", store=torch.distributed.HashStore(), rank=0, world_size=1
    )
    numpy.random.rand()
    assert [f.name for f in (tmp_path / "out").iterdir()] == [
        file.name.replace(f"proc{os.getpid()}", "rank0")
    ]


@forked
def test_enhanced_functions_are_still_recorded(tmp_path):
    seed_all(3, is_enhanced=True)
    debugger = PrecisionDebugger(dump_path=str(tmp_path))
    half = torch.full((4,), 0.5)
    debugger.start()
    torch.bernoulli(half)
    debugger.stop()
    assert read_dump(tmp_path).names == ["Torch.bernoulli.0.forward"]


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"seed": -1}, "seed_all: seed; expected a whole number from 0 to 4294967295, found -1"),
        ({"seed": 2**32}, "found 4294967296"),
        ({"seed": True}, "found True"),
        ({"seed": 1.0}, "found 1.0"),
        ({"mode": 1}, "seed_all: mode; expected True or False, found 1"),
        ({"rm_dropout": None}, "rm_dropout; expected True or False, found None"),
        ({"is_enhanced": "yes"}, "is_enhanced; expected True or False, found 'yes'"),
    ],
)
def test_refused(arguments, message):
    state = torch.get_rng_state()
    with pytest.raises(UsageError) as error:
        seed_all(**arguments)
    assert message in str(error.value)
    assert torch.equal(torch.get_rng_state(), state)  # nothing was seeded


def test_refused_folder(tmp_path):
    with pytest.raises(UsageError, match="random_save: output_path; expected a folder, found 3"):
        random_save(3)

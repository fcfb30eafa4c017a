"""Task overflow_check on a device: it finds what it finds on the host, and no step waits for it."""

import itertools
import json

import pytest
import torch
from device_runs import debugger, numbers, read_tensor, syncs, train

ALL = {"task": "overflow_check", "overflow_check": {"overflow_nums": -1}}
LATE = {"SIMNPU_ASYNC": "1", "SIMNPU_POISON": "1"}


def side(folder, name):
    return json.loads((folder / "step0" / "rank" / name).read_text())


def files(folder):
    place = folder / "step0" / "rank" / "dump_tensor_data"
    return {file.name: file.read_bytes() for file in place.iterdir()}


def same_files(tmp_path):
    """What is recorded of the device and of the host; the entries."""
    ours, theirs = numbers(tmp_path / "npu"), numbers(tmp_path / "cpu")
    assert list(ours) == list(theirs)
    for name, value in theirs.items():
        assert str(ours[name]) == str(value)  # NaN is not NaN
    named = [
        [names for names, _ in side(tmp_path / each, "stack.json").values()]
        for each in ("npu", "cpu")
    ]
    assert named[0] == named[1]
    ours, theirs = files(tmp_path / "npu"), files(tmp_path / "cpu")
    assert sorted(ours) == sorted(theirs)
    assert [name for name in theirs if ours[name] != theirs[name]] == []
    for kind, count in itertools.product(("apis", "modules", "gradients"), ("recorded", "ignored")):
        ours, theirs = (side(tmp_path / each, "coverage.json")[kind] for each in ("npu", "cpu"))
        assert ours[count] == theirs[count]
    return numbers(tmp_path / "npu")


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
def test_a_training_waits_for_nothing(on_npu, tmp_path, level):
    waits, loss = on_npu(train, tmp_path / "npu", "npu", ALL, level, 2)
    _, here = on_npu(train, tmp_path / "cpu", "cpu", ALL, level, 2)
    assert loss == here
    assert waits == [0, 0]
    assert numbers(tmp_path / "npu") == {}


class Logs(torch.nn.Module):
    """Makes NaN; with a parameter that is NaN, it passes NaN on."""

    def __init__(self, bias):
        super().__init__()
        self.lin = torch.nn.Linear(2, 2)
        self.last = torch.nn.Linear(2, 2)
        with torch.no_grad():
            self.lin.weight.fill_(-1.0)
            self.last.bias.fill_(bias)

    def forward(self, x):
        return self.last(self.lin(x).log())


class Both(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.made, self.passed = Logs(1.0), Logs(float("nan"))

    def forward(self, x):
        return self.made(x) + self.passed(x)


def go_wrong(folder, device, config, level="mix"):
    """Calls and gradients that make NaN or infinities, and what is changed in place."""
    torch.manual_seed(0)
    model = Both().to(device)
    x = torch.tensor([4.0, 0.0, -1.0]).to(device)
    row = torch.ones(1, 2).to(device)
    wide = torch.ones((1 << 20) + 64).to(device)
    scale = torch.tensor(2.0)  # of the host
    leaf = torch.tensor([4.0, 0.0], requires_grad=True, device=device)
    weight = torch.tensor([1e30, 1e30], requires_grad=True, device=device)
    ours = debugger(folder, config, level)
    before = syncs() if device == "npu" else 0
    ours.start(model)
    masked = x.masked_fill(x < 0, float("-inf"))
    torch.softmax(masked, 0)
    torch.empty(3).fill_(float("nan"))
    y = torch.div(1.0, x)  # Inf
    y.relu_()  # after the call, before anybody knows
    x.clone().log_()  # overwrites its input
    torch.relu_(torch.abs(x))  # changes no element
    big = torch.mul(wide, scale)
    scale.fill_(3.0)
    big[7] = 0
    torch.log(big)
    big.zero_()
    torch.sub(y, y)  # NaN from Inf
    torch.log(scale - 4)  # on the host
    model(row).sum().backward()
    torch.sqrt(torch.mul(leaf, weight)).sum().backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    waits = syncs() - before if device == "npu" else 0
    ours.stop()
    return waits


@pytest.mark.parametrize("settings", [{}, LATE], ids=["soon", "late"])
@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
def test_what_goes_wrong_is_recorded_as_on_the_host(on_npu, tmp_path, level, settings):
    assert on_npu(go_wrong, tmp_path / "npu", "npu", ALL, level, **settings) == 0
    on_npu(go_wrong, tmp_path / "cpu", "cpu", ALL, level)
    found = same_files(tmp_path)
    if level == "L0":
        assert [name for name in found if "forward" in name] == ["Module.made.Logs.forward.0"]
        return
    assert {"Torch.div.0.forward", "Torch.log.0.forward", "Torch.sqrt.0.backward"} <= set(found)
    assert found["Tensor.log_.0.forward"]["changed_in_place"] == "input.0"
    file = "Torch.log.0.forward.input.0.pt"
    assert read_tensor(tmp_path / "npu/step0/rank", file)[5:9] == [2.0, 2.0, 0.0, 2.0]


def test_without_room_it_waits_and_says_so(on_npu, tmp_path):
    assert on_npu(go_wrong, tmp_path / "npu", "npu", ALL, "mix", MSPROBE_HELD_MB="1", **LATE) > 0
    on_npu(go_wrong, tmp_path / "cpu", "cpu", ALL, "mix")
    same_files(tmp_path)
    assert side(tmp_path / "npu", "coverage.json")["device_waits"]["memory"] > 0


@pytest.mark.parametrize("data_mode", ["forward", "output"])
def test_without_the_inputs(on_npu, tmp_path, data_mode):
    config = {"task": "overflow_check", "overflow_check": {"data_mode": [data_mode]}}
    config["overflow_check"]["overflow_nums"] = -1
    assert on_npu(go_wrong, tmp_path / "npu", "npu", config) == 0
    on_npu(go_wrong, tmp_path / "cpu", "cpu", config)
    same_files(tmp_path)


@pytest.mark.parametrize("nums", [1, 3])
def test_the_check_ends_after_as_many_calls(on_npu, tmp_path, nums):
    config = {"task": "overflow_check", "overflow_check": {"overflow_nums": nums}}
    on_npu(go_wrong, tmp_path / "npu", "npu", config, **LATE)
    on_npu(go_wrong, tmp_path / "cpu", "cpu", config)
    ours, theirs = numbers(tmp_path / "npu"), numbers(tmp_path / "cpu")
    assert list(ours) == list(theirs) and len(ours) == nums
    assert str(ours) == str(theirs)

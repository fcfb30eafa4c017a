"""Calls that leave a buffer, an argument or the weights wrong, while their results agree."""

import json
import subprocess

import pytest
import torch
from recording import read_dump, run_forked


class Net(torch.nn.Module):
    def __init__(self, momentum=0.1):
        super().__init__()
        self.a = torch.nn.Linear(8, 16)
        self.norm = torch.nn.BatchNorm1d(16, momentum=momentum)
        self.b = torch.nn.Linear(16, 4)
        self.register_buffer("cache", torch.zeros(4, 16))
        self.register_buffer("average", torch.zeros(16))

    def forward(self, x, place, share=0.1):
        h = torch.relu(self.norm(self.a(x)))
        self.cache[place] = h.detach()[0]
        self.average.lerp_(h.detach().mean(0), share)
        return self.b(h + self.cache.mean() + self.average)


def train(folder, level="L1", steps=3, momentum=0.1, shift=0, share=0.1, update=None, **config):
    from msprobe.pytorch import PrecisionDebugger

    torch.manual_seed(0)
    model = Net(momentum)
    path = None
    if config:
        folder.mkdir()
        path = folder / "config.json"
        path.write_text(json.dumps({"task": "statistics"} | config))
    debugger = PrecisionDebugger(path, dump_path=str(folder), level=level)
    for step in range(steps):
        x = torch.randn(6, 8)
        debugger.start(model)
        model(x, (step + shift) % 4, share).square().mean().backward()
        debugger.stop()
        with torch.no_grad():
            for name, p in model.named_parameters():
                rate, decay = update(name, p) if update else (0.1, 0.1)
                p.sub_(rate * (p.grad + decay * p))
                p.grad = None
        debugger.step()


def compared(msprobe_bin, folder, target, golden="good"):
    command = [msprobe_bin, "compare", folder / target, folder / golden, "-o", folder / "out"]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    reports = json.loads(
        subprocess.run(
            [*command, "--format", "json"], check=True, capture_output=True, text=True
        ).stdout
    )
    return text, {step: ranks["ranks"][""] for step, ranks in reports["steps"].items()}


def changed(folder):
    data = read_dump(folder).data
    return {name: list(entry["changed"]) for name, entry in data.items() if "changed" in entry}


def test_what_a_call_leaves_in_its_arguments_is_recorded(tmp_path):
    run_forked(train, tmp_path / "a", steps=1)
    assert changed(tmp_path / "a") == {
        "Functional.batch_norm.0.forward": ["input.1", "input.2"],
        "Tensor.__setitem__.0.forward": ["input.0"],
    }
    run_forked(train, tmp_path / "b", "L0", steps=1)
    assert changed(tmp_path / "b") == {
        "Module.norm.BatchNorm1d.forward.0": [
            "buffers.running_mean",
            "buffers.running_var",
            "buffers.num_batches_tracked",
        ]
    }


def evaluate(folder, inference):
    from msprobe.pytorch import PrecisionDebugger

    model = Net().eval()
    debugger = PrecisionDebugger(dump_path=str(folder), level="L1")
    with torch.inference_mode(inference), torch.no_grad():
        cache = torch.zeros(4, 16)
        debugger.start(model)
        cache[1] = model.a(torch.ones(1, 8))[0]
        torch.nn.functional.batch_norm(cache, torch.zeros(16), torch.ones(16))
        torch.add(cache, 1, out=cache)
        debugger.stop()


@pytest.mark.parametrize("inference", [False, True])
def test_also_in_inference_mode_and_nothing_where_nothing_changes(tmp_path, inference):
    run_forked(evaluate, tmp_path, inference)
    assert changed(tmp_path) == {"Tensor.__setitem__.0.forward": ["input.0"]}


FAULTS = {
    "running statistics": (
        {"momentum": 0.3},
        {"L1": "Functional.batch_norm.0.forward", "L0": "Module.norm.BatchNorm1d.forward.0"},
    ),
    "another place of a cache": ({"shift": 1}, {"L1": "Tensor.__setitem__.0.forward"}),
    "a moving average": ({"share": 0.3}, {"L1": "Tensor.lerp_.0.forward"}),
}


@pytest.mark.parametrize(
    ("fault", "level"), [(fault, level) for fault, (_, names) in FAULTS.items() for level in names]
)
def test_the_call_that_leaves_it_wrong_is_named(fault, level, tmp_path, msprobe_bin):
    settings, names = FAULTS[fault]
    run_forked(train, tmp_path / "good", level)
    run_forked(train, tmp_path / "bad", level, **settings)
    _, steps = compared(msprobe_bin, tmp_path, "bad")
    first = steps["0"]["first_divergence"]
    assert (first["target_name"], first["class"]) == (names[level], "introduced")


def test_a_buffer_of_the_model_itself_is_seen_at_the_next_step(tmp_path, msprobe_bin):
    run_forked(train, tmp_path / "good", "L0")
    run_forked(train, tmp_path / "bad", "L0", shift=1)
    text, steps = compared(msprobe_bin, tmp_path, "bad")
    assert "step 1, update of the weights after step 0" in text
    assert steps["1"]["wrong_update"]["after_step"] == 0
    why = steps["1"]["wrong_update"]["why"]
    assert "1 of the values that no optimizer moves differs: cache" in why


UPDATES = {
    "decay": (
        lambda name, p: (0.1, 0.1 if p.ndim > 1 else 0),
        "all those with 1 dimension and no others",
    ),
    "rate": (lambda name, p: (0.3, 0.1), "the target moves their norms"),
    "skipped": (
        lambda name, p: (0 if name.startswith("b.") else 0.1, 0.1),
        "all those of b and no others (b.weight, b.bias); the target does not move them",
    ),
}


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
@pytest.mark.parametrize("fault", UPDATES)
def test_a_wrong_update_is_named_as_the_step(fault, level, tmp_path, msprobe_bin):
    update, shared = UPDATES[fault]
    run_forked(train, tmp_path / "good", level)
    run_forked(train, tmp_path / "bad", level, update=update)
    text, steps = compared(msprobe_bin, tmp_path, "bad")
    assert "FIRST DIVERGENCE  step 1, update of the weights after step 0" in text
    assert "wrong_update" not in steps["0"] and "wrong_update" not in steps["2"]
    why = steps["1"]["wrong_update"]["why"]
    assert why.startswith("step 0 agrees, gradients included, and step 1 begins with other weights")
    assert fault == "rate" or shared in why


def test_the_same_update_is_no_fault(tmp_path, msprobe_bin):
    run_forked(train, tmp_path / "good")
    run_forked(train, tmp_path / "same")
    text, steps = compared(msprobe_bin, tmp_path, "same")
    assert "No divergence" in text
    assert not any("wrong_update" in report for report in steps.values())


@pytest.mark.parametrize(
    ("value", "steps"), [("each_step", [0, 1, 2]), ("first_step", [0]), ("none", [])]
)
def test_the_key_weights(value, steps, tmp_path):
    run_forked(train, tmp_path / "run", weights=value)
    found = [k for k in range(3) if (tmp_path / f"run/step{k}/rank/weights.json").exists()]
    assert found == steps


def test_weights_of_an_earlier_run_are_removed(tmp_path):
    run_forked(train, tmp_path / "run")
    (tmp_path / "run/config.json").write_text('{"weights": "first_step"}')

    def again(folder):
        from msprobe.pytorch import PrecisionDebugger

        model = Net()
        debugger = PrecisionDebugger(folder / "config.json", dump_path=str(folder))
        for step in range(2):
            with debugger.step(model):
                model(torch.ones(6, 8), step)

    run_forked(again, tmp_path / "run")
    assert (tmp_path / "run/step0/rank/weights.json").exists()
    assert not (tmp_path / "run/step1/rank/weights.json").exists()

"""Steps of optimizers, clipping of gradients and GradScaler are entries."""

import gc
import json
import signal
import weakref

import pytest
import torch
from recording import digest, forked, read_dump, run_forked
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import clip_grad_norm_, clip_grad_value_

STEP = "Optimizer.{}.step.0.forward"


def small(dtype=torch.float32):
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.Linear(4, 2)).to(dtype)


def debugger(folder, level="L1", task="statistics", **config):
    from msprobe.pytorch import PrecisionDebugger

    path = folder / "config.json"
    dump_path = str(folder / "dump")
    path.write_text(json.dumps({"task": task, "level": level, "dump_path": dump_path, **config}))
    return PrecisionDebugger(str(path))


def entries(folder, step=0):
    """The entries of optimizers in one step: name -> entry."""
    data = read_dump(folder / "dump", step).data
    return {name: entry for name, entry in data.items() if name.startswith("Optimizer.")}


class Sign(torch.optim.Optimizer):
    """An optimizer of a user, with a state that is no tensor and one for all parameters."""

    def __init__(self, params, lr=0.01):
        super().__init__(params, {"lr": lr})
        self.state["runs"] = 0

    @torch.no_grad()
    def step(self, closure=None):
        loss = None if closure is None else torch.enable_grad()(closure)()
        self.state["runs"] += 1
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.add_(p.grad.sign(), alpha=-group["lr"])
                    self.state[p]["seen"] = self.state[p].get("seen", 0) + 1
        return loss


class TwicePerStep(Sign):
    """Calls the step of its base class; takes closures by keyword."""

    def step(self, closure=None):
        super().step(closure=closure)
        return super().step()


class Around(torch.optim.Optimizer):
    """Has no hooks, because it stands for another optimizer (as in Accelerate)."""

    def __init__(self, inner):
        self.inner = inner
        self.param_groups = inner.param_groups

    def step(self, closure=None):
        return self.inner.step(closure)

    def zero_grad(self, *args, **kwargs):
        self.inner.zero_grad(*args, **kwargs)


KINDS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01),
    "sgd_loop": lambda p: torch.optim.SGD(p, lr=0.1, foreach=False),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01, amsgrad=True),
    "adamw_foreach": lambda p: torch.optim.AdamW(p, foreach=True),
    "adamw_fused": lambda p: torch.optim.AdamW(p, fused=True),
    "tensor_lr": lambda p: torch.optim.Adam(
        p, lr=torch.tensor(0.01), foreach=False, capturable=False
    ),
    "adagrad": lambda p: torch.optim.Adagrad(p),
    "rmsprop": lambda p: torch.optim.RMSprop(p, centered=True),
    "adadelta": lambda p: torch.optim.Adadelta(p),
    "nadam": lambda p: torch.optim.NAdam(p),
    "radam": lambda p: torch.optim.RAdam(p),
    "rprop": lambda p: torch.optim.Rprop(p),
    "asgd": lambda p: torch.optim.ASGD(p),
    "adamax": lambda p: torch.optim.Adamax(p),
    "lbfgs": lambda p: torch.optim.LBFGS(p, max_iter=3, line_search_fn="strong_wolfe"),
    "groups": lambda p: torch.optim.SGD([{"params": p[:1], "lr": 0.5}, {"params": p[1:]}], lr=0.1),
    "user": Sign,
    "user_twice": TwicePerStep,
    "around": lambda p: Around(torch.optim.SGD(p, lr=0.1)),
}


def train(kind, folder=None, closure=False, **config):
    watch = debugger(folder, **config) if folder else None
    model = small()
    optimizer = KINDS[kind](list(model.parameters()))
    x, wanted = torch.randn(5, 3), torch.randn(5, 2)

    def evaluate():
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), wanted)
        loss.backward()
        return loss

    losses = []
    for _ in range(3):
        if watch:
            watch.start(model)
        if closure:
            losses.append(optimizer.step(evaluate))
        else:
            losses.append(evaluate())
            clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
        if watch:
            watch.stop()
            watch.step()
    own = getattr(optimizer, "inner", optimizer)
    return digest([losses, list(own.state.values()), list(model.state_dict().values())])


CLOSED = ("lbfgs", "user", "user_twice", "sgd", "around")


@pytest.mark.parametrize("kind", KINDS)
def test_training_has_the_same_bits(kind, tmp_path):
    task = "tensor" if kind in ("sgd", "lbfgs", "tensor_lr") else "statistics"
    for closure in (False, True):
        if (kind == "lbfgs" and not closure) or (closure and kind not in CLOSED):
            continue
        folder = tmp_path / str(closure)
        folder.mkdir()
        on = run_forked(train, kind, folder, closure=closure, task=task, level="mix")
        assert on == run_forked(train, kind, closure=closure)
        for step in range(3):
            found = entries(folder, step)
            steps = [name for name in found if ".step." in name]
            assert len(steps) == 1 and steps[0].endswith(".step.0.forward")
            entry = found[steps[0]]
            assert set(entry["input_kwargs"]) >= {"param_groups", "gradients", "weights", "state"}
            assert set(entry["output"][0]) == {"weights", "state"}
            assert "0.weight" in entry["input_kwargs"]["weights"] and "exception" not in entry
            # Calls inside are not recorded, those of the closure are.
            names = read_dump(folder / "dump", step).names
            assert not any("add_" in name or "_foreach" in name for name in names)
            assert "Functional.mse_loss.0.forward" in names


def record_choice(folder, choice):
    watch = debugger(folder)
    model = small()
    optimizer = torch.optim.AdamW(model.parameters(), **choice)
    watch.start(model)
    model(torch.ones(2, 3)).sum().backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=choice.get("foreach"))
    optimizer.step()
    watch.stop()


@pytest.mark.parametrize(
    ("choice", "implementation"),
    [
        ({"fused": True}, "fused"),
        ({"foreach": True}, "foreach"),
        ({"foreach": False}, "for-loop"),
        ({}, None),
    ],
)
def test_the_way_to_compute_a_step_is_recorded_where_it_is_chosen(tmp_path, choice, implementation):
    run_forked(record_choice, tmp_path, choice)
    found = entries(tmp_path)
    (group,) = found["Optimizer.AdamW.step.0.forward"]["input_kwargs"]["param_groups"]
    weights = found["Optimizer.AdamW.step.0.forward"]["input_kwargs"]["weights"]
    assert group["params"]["value"] == len(weights)
    assert group.get("implementation", {}).get("value") == implementation
    clip = found["Optimizer.clip_grad_norm_.0.forward"]["input_kwargs"]
    assert ("implementation" in clip) is ("foreach" in choice)
    assert not {"fused", "foreach"} & (group.keys() | clip.keys())


def values_of(named):
    return {name: tensor.detach().clone() for name, tensor in named if tensor is not None}


def is_same(described, tensor):
    assert described["shape"] == list(tensor.shape)
    assert described["Norm"] == pytest.approx(tensor.double().norm().item(), rel=1e-6)
    assert described["Max"] == pytest.approx(tensor.max().item(), rel=1e-6)
    return True


@forked
def test_inputs_and_outputs_are_those_of_the_step(tmp_path):
    watch = debugger(tmp_path)
    model = small()
    model[2].bias.requires_grad_(False)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=0.02, betas=(0.8, 0.9), eps=1e-6, weight_decay=0.1
    )
    for step in range(2):
        watch.start(model)
        model(torch.randn(5, 3)).square().sum().backward()
        gradients = values_of((n, p.grad) for n, p in model.named_parameters())
        total = clip_grad_norm_(model.parameters(), max_norm=0.1)
        clipped = values_of((n, p.grad) for n, p in model.named_parameters())
        before = values_of(model.named_parameters())
        optimizer.step()
        after = values_of(model.named_parameters())
        optimizer.zero_grad()
        watch.stop()
        watch.step()
        found = entries(tmp_path, step)
        assert list(found) == ["Optimizer.clip_grad_norm_.0.forward", STEP.format("AdamW")]
        clip, entry = found.values()
        assert clip["input_kwargs"]["max_norm"] == {"type": "float", "value": 0.1}
        assert is_same(clip["output"][0]["total_norm"], total)
        inputs, outputs = entry["input_kwargs"], entry["output"][0]
        for name, gradient in gradients.items():
            assert is_same(clip["input_kwargs"]["gradients"][name], gradient)
            assert is_same(clip["output"][0]["gradients"][name], clipped[name])
            assert is_same(inputs["gradients"][name], clipped[name])
        assert inputs["gradients"]["2.bias"] is None
        for name in before:
            assert is_same(inputs["weights"][name], before[name])
            assert is_same(outputs["weights"][name], after[name])
        (group,) = inputs["param_groups"]
        assert group["lr"] == {"type": "float", "value": 0.02}
        assert [beta["value"] for beta in group["betas"]] == [0.8, 0.9]
        assert group["weight_decay"]["value"] == 0.1
        assert group["params"]["value"] == len(before)
        assert ("0.weight" in inputs["state"]) == (step == 1)
        assert {"step", "exp_avg", "exp_avg_sq"} == set(outputs["state"]["0.weight"])
    stack = json.loads((tmp_path / "dump/step0/rank/stack.json").read_text())
    frames = next(frames for names, frames in stack.values() if STEP.format("AdamW") in names)
    assert any("optimizer.step()" in frame for frame in frames)


@forked
def test_a_step_after_stop_belongs_to_the_step(tmp_path):
    watch = debugger(tmp_path, level="mix", step=[0, 2])
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    original = torch.optim.SGD.step
    for _ in range(4):
        optimizer.zero_grad()
        watch.start(model)
        model(torch.randn(5, 3)).square().sum().backward()
        watch.stop()
        clip_grad_value_(model.parameters(), 0.01)
        optimizer.step()
        torch.relu(torch.ones(1))
        watch.step()
    assert torch.optim.SGD.step is original
    for step in (0, 2):
        names = read_dump(tmp_path / "dump", step).names
        assert names[-2:] == ["Optimizer.clip_grad_value_.0.forward", STEP.format("SGD")]
        assert "Torch.relu.0.forward" not in names
    assert sorted(p.name for p in (tmp_path / "dump").iterdir()) == ["step0", "step2"]


@forked
def test_a_step_outside_of_the_steps_is_not_recorded(tmp_path):
    watch = debugger(tmp_path)
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.step()
    watch.start()
    model(torch.randn(5, 3)).square().sum().backward()
    watch.stop()
    watch.step()
    optimizer.step()
    assert not entries(tmp_path) and not (tmp_path / "dump" / "step1").exists()


@pytest.mark.parametrize("config", [{"optimizer": False}, {"level": "L0"}, {"task": "nan_check"}])
def test_not_recorded(config, tmp_path):
    run_forked(train, "sgd_loop", tmp_path, **config)
    assert not entries(tmp_path)
    if "optimizer" in config:
        assert "Tensor.add_.0.forward" in read_dump(tmp_path / "dump").names


@forked
def test_several_optimizers_have_names_of_their_own(tmp_path):
    """Parameters of no model have the index of their group; a class may come while recording."""
    watch = debugger(tmp_path)
    model, other = small(), nn.Linear(2, 2)
    first = torch.optim.SGD(model.parameters(), lr=0.1)
    second = torch.optim.SGD(other.parameters(), lr=0.1)
    watch.start(model)
    (model(torch.randn(5, 3)).sum() + other(torch.ones(2)).sum()).backward()
    first.step()
    second.step()
    torch.optim.Rprop(model.parameters()).step()
    watch.stop()
    found = entries(tmp_path)
    assert list(found) == [
        "Optimizer.SGD.step.0.forward",
        "Optimizer.SGD.step.1.forward",
        "Optimizer.Rprop.step.0.forward",
    ]
    assert list(found["Optimizer.SGD.step.1.forward"]["input_kwargs"]["weights"]) == ["0.0", "0.1"]


@forked
def test_wrappers_are_not_in_the_names(tmp_path):
    watch = debugger(tmp_path)
    model = nn.DataParallel(small())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watch.start(model)
    model.module(torch.randn(5, 3)).sum().backward()
    optimizer.step()
    watch.stop()
    entry = entries(tmp_path)[STEP.format("SGD")]
    assert list(entry["input_kwargs"]["weights"]) == ["0.weight", "0.bias", "2.weight", "2.bias"]


@forked
def test_an_iterator_gives_its_parameters_once(tmp_path):
    watch = debugger(tmp_path)
    model = small()
    watch.start(model)
    model(torch.randn(5, 3)).square().sum().backward()
    some = (p for p in model.parameters() if p.dim() > 1)
    clip_grad_norm_(some, 0.1)
    assert next(some, None) is None
    clip_grad_norm_(filter(None.__ne__, model.parameters()), 0.1, norm_type=1.0)
    clip_grad_norm_(model[0].weight, 0.1)

    def raises():
        yield model[0].weight
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        clip_grad_norm_(raises(), 0.1)
    with pytest.warns(UserWarning, match="empty generator"):
        clip_grad_norm_((p for p in []), 0.1)
    watch.stop()
    found = list(entries(tmp_path).values())
    names = [list(entry["input_kwargs"]["gradients"]) for entry in found]
    assert names == [
        ["0.weight", "2.weight"],
        ["0.weight", "0.bias", "2.weight", "2.bias"],
        ["0.weight"],
        ["0.weight"],
        [],
    ]
    assert found[3]["exception"] == "ValueError"


def scaled(folder=None, dtype=torch.float16, overflows=False):
    watch = debugger(folder, level="mix") if folder else None
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=2)
    for step in range(4):
        if watch:
            watch.start(model)
        with torch.autocast("cpu", dtype=dtype):
            loss = F.mse_loss(model(torch.randn(5, 3)), torch.ones(5, 2, dtype=dtype))
        scaler.scale(loss).backward()
        if overflows and step == 1:
            model[0].weight.grad[0, 0] = float("inf")
        if step % 2:
            scaler.unscale_(optimizer)
            clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        if watch:
            watch.stop()
            watch.step()
    return digest([scaler.state_dict(), list(model.state_dict().values())])


@pytest.mark.parametrize("overflows", [False, True])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_grad_scaler(dtype, overflows, tmp_path):
    assert run_forked(scaled, tmp_path, dtype, overflows) == run_forked(
        scaled, None, dtype, overflows
    )
    found = entries(tmp_path, 0)
    unscale, step, scaler_step, update = (
        "Optimizer.GradScaler.unscale_.0.forward",
        STEP.format("SGD"),
        "Optimizer.GradScaler.step.0.forward",
        "Optimizer.GradScaler.update.0.forward",
    )
    assert list(found) == [unscale, step, scaler_step, update]
    before = found[unscale]["input_kwargs"]["gradients"]["0.weight"]["Norm"]
    after = found[unscale]["output"][0]["gradients"]["0.weight"]["Norm"]
    assert before == pytest.approx(after * 2**10)
    assert found[step]["input_kwargs"]["gradients"]["0.weight"]["Norm"] == after
    assert found[update]["input_kwargs"]["scale"]["Max"] == 2**10
    found = entries(tmp_path, 1)
    clip = "Optimizer.clip_grad_norm_.0.forward"
    skipped = [] if overflows else [step]
    assert list(found) == [unscale, clip, *skipped, scaler_step, update]
    assert found[scaler_step]["output"][0]["found_inf"]["cpu"]["Max"] == overflows
    scale = found[update]["output"][0]["scale"]["Max"]
    assert scale == (2**9 if overflows else 2**11)


@forked
def test_a_scaler_that_is_off_has_no_entries(tmp_path):
    watch = debugger(tmp_path)
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    watch.start(model)
    scaler.scale(model(torch.randn(5, 3)).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    watch.stop()
    assert list(entries(tmp_path)) == [STEP.format("SGD")]


@forked
def test_errors_inside_a_step_are_those_of_the_program(tmp_path):
    watch = debugger(tmp_path)
    model = small()
    optimizer = Sign(model.parameters())

    def refuse():
        raise ValueError("no closure today")

    class Broken(torch.optim.SGD):
        def step(self, closure=None):
            torch.relu(torch.ones(1))
            raise KeyError("no step today")

    broken = Broken(model.parameters(), lr=0.1)
    watch.start(model)
    with pytest.raises(ValueError, match="no closure today"):
        optimizer.step(refuse)
    with pytest.raises(KeyError, match="no step today"):
        broken.step()
    torch.relu(torch.ones(1))
    watch.stop()
    dump = read_dump(tmp_path / "dump")
    assert dump.names == [
        STEP.format("Sign"),
        STEP.format("Broken"),
        "Torch.relu.0.forward",
    ]
    assert dump.data[STEP.format("Sign")]["exception"] == "ValueError"
    assert dump.data[STEP.format("Broken")]["exception"] == "KeyError"
    assert "0.weight" in dump.data[STEP.format("Broken")]["input_kwargs"]["weights"]


@forked
def test_hooks_schedulers_and_sparse_gradients(tmp_path):
    watch = debugger(tmp_path, task="tensor")
    model = nn.Embedding(7, 3, sparse=True)
    optimizer = torch.optim.SparseAdam(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)

    def double(optimizer, args, kwargs):
        for p in optimizer.param_groups[0]["params"]:
            p.grad = p.grad * 2

    optimizer.register_step_pre_hook(double)
    for step in range(2):
        watch.start(model)
        model(torch.tensor([1, 2])).sum().backward()
        optimizer.step()
        schedule.step()
        watch.stop()
        watch.step()
        entry = entries(tmp_path, step)[STEP.format("SparseAdam")]
        assert entry["input_kwargs"]["param_groups"][0]["lr"]["value"] == 0.1 / 2**step
        assert entry["input_kwargs"]["gradients"]["weight"]["shape"] == [7, 3]
        optimizer.zero_grad()


def set_gradient(model):
    model[0].weight.grad.fill_(4.0)


@forked
def test_gradients_are_those_behind_the_hooks(tmp_path):
    watch = debugger(tmp_path)
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.register_step_pre_hook(lambda *_: set_gradient(model))
    watch.start(model)
    model(torch.randn(5, 3)).sum().backward()
    optimizer.step()
    watch.stop()
    gradients = entries(tmp_path)[STEP.format("SGD")]["input_kwargs"]["gradients"]
    assert gradients["0.weight"]["Max"] == gradients["0.weight"]["Min"] == 4.0


@forked
def test_nothing_is_kept_alive(tmp_path):
    watch = debugger(tmp_path, level="L1")

    def run():
        model = small()
        optimizer = torch.optim.AdamW(model.parameters())

        def evaluate():
            optimizer.zero_grad()
            loss = model(torch.randn(5, 3)).sum()
            loss.backward()
            return loss

        watch.start()
        optimizer.step(evaluate)
        clip_grad_norm_(model.parameters(), 1.0)
        watch.stop()
        watch.step()
        return [weakref.ref(each) for each in (model, optimizer, evaluate)]

    seen = run()
    gc.collect()
    assert [ref() for ref in seen] == [None] * 3


def kill_in_step(folder):
    watch = debugger(folder)
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    killer = Sign(model.parameters())
    killer.register_step_post_hook(lambda *_: signal.raise_signal(signal.SIGKILL))
    watch.start(model)
    model(torch.randn(5, 3)).sum().backward()
    optimizer.step()
    killer.step()


def test_a_killed_run_has_its_steps(tmp_path):
    with pytest.raises(AssertionError, match="died"):
        run_forked(kill_in_step, tmp_path)
    text = (tmp_path / "dump/step0/rank/dump.json").read_text()
    assert STEP.format("SGD") in text and STEP.format("Sign") in text


@forked
def test_an_optimizer_in_the_backward_pass(tmp_path):
    """A step for each parameter, as soon as its gradient is there."""
    watch = debugger(tmp_path, level="mix")
    model = small()
    optimizers = {p: torch.optim.SGD([p], lr=0.1) for p in model.parameters()}
    for p in model.parameters():
        p.register_post_accumulate_grad_hook(lambda p: optimizers[p].step())
    watch.start(model)
    model(torch.randn(5, 3)).sum().backward()
    watch.stop()
    found = entries(tmp_path)
    assert len(found) == 4
    names = {name for entry in found.values() for name in entry["input_kwargs"]["weights"]}
    assert names == {"0.weight", "0.bias", "2.weight", "2.bias"}


@forked
def test_coverage_counts_the_step(tmp_path):
    watch = debugger(tmp_path)
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
    watch.start(model)
    model(torch.randn(5, 3)).sum().backward()
    optimizer.step()
    watch.stop()
    dump = read_dump(tmp_path / "dump")
    coverage = json.loads((dump.folder / "coverage.json").read_text())
    forwards = [name for name in dump.names if name.endswith(".forward")]
    assert coverage["apis"]["recorded"] == len(forwards)
    assert coverage["apis"]["nested"] >= 4


@forked
def test_elements_are_stored_where_they_are_asked_for(tmp_path):
    watch = debugger(tmp_path, task="tensor")
    model = nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    watch.start(model)
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    watch.stop()
    files = [path.name for path in tmp_path.rglob("*.pt")]
    assert files and not [name for name in files if name.startswith("Optimizer.")]
    weight = entries(tmp_path)[STEP.format("AdamW")]["output"][0]["weights"]["weight"]
    assert weight["fp"] and "data_name" not in weight

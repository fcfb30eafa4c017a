"""torch.autograd.Function: a record of its own around the calls inside it, forward and backward."""

import json
import subprocess
from contextlib import contextmanager

import pytest
import torch
from recording import forked, read_dump, run_forked
from torch import func, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


def record(folder, call, level="L1", task="statistics", model=None, **config):
    from msprobe.pytorch import PrecisionDebugger

    path = folder.parent / f"{folder.name}.json"
    path.write_text(json.dumps({"task": task, task: config}))
    debugger = PrecisionDebugger(str(path), dump_path=str(folder), level=level)
    debugger.start(model)
    try:
        return call()
    finally:
        debugger.stop()
        debugger.step()


def numbers(*shape):
    return torch.arange(1.0, 1 + torch.Size(shape).numel()).reshape(shape) / 7


class Exp(Function):
    @staticmethod
    def forward(ctx, x, scale, name="plain"):
        y = torch.exp(x) * scale
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.saved_tensors[0], None, None


class Context(Function):
    """For torch.func: the context is set up apart from the forward."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, factor=2.0):
        return torch.sin(x) * factor

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])
        ctx.save_for_forward(inputs[0])
        ctx.factor = inputs[1]

    @staticmethod
    def backward(ctx, gradient):
        return gradient * torch.cos(ctx.saved_tensors[0]) * ctx.factor, None

    @staticmethod
    def jvp(ctx, tangent, _):
        return tangent * torch.cos(ctx.saved_tensors[0]) * ctx.factor


class Once(Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone(), x.sum()

    @staticmethod
    @once_differentiable
    def backward(ctx, a, b):
        return a + b


class InPlace(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2


class View(Function):
    @staticmethod
    def forward(ctx, x):
        return x.view(-1)

    @staticmethod
    def backward(ctx, gradient):
        return gradient.view(2, 3)


class Same(Function):
    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 3


class Fails(Function):
    @staticmethod
    def forward(ctx, x):
        torch.relu(x)
        raise ValueError("no")


class Outer(Function):
    @staticmethod
    def forward(ctx, x):
        return Exp.apply(x, 2.0).detach()

    @staticmethod
    def backward(ctx, gradient):
        return gradient


def of(dump, name):
    return dump.data[f"Function.{name}"]


@forked
def test_the_entry_stands_around_the_calls_inside(tmp_path):
    x = numbers(2, 3).requires_grad_()
    record(tmp_path / "d", lambda: Exp.apply(x, 3.0).sum().backward(), task="tensor")
    dump = read_dump(tmp_path / "d")
    names = dump.names
    order = ["Torch.exp.0.forward", "Tensor.__mul__.0.forward", "Function.Exp.0.forward"]
    assert [n for n in names if n in order] == order
    assert names.index("Tensor.__mul__.1.forward") < names.index("Function.Exp.0.backward")
    forward, backward = of(dump, "Exp.0.forward"), of(dump, "Exp.0.backward")
    assert forward["input_args"][1] == {"type": "float", "value": 3.0}
    files = dump.tensors()
    y = (x.exp() * 3).detach()
    assert torch.equal(files["Function.Exp.0.forward.input.0.pt"], x.detach())
    assert torch.equal(files["Function.Exp.0.forward.output.0.pt"], y)
    assert torch.equal(files["Function.Exp.0.backward.input.0.pt"], torch.ones(2, 3))
    assert torch.equal(files["Function.Exp.0.backward.output.0.pt"], y)
    assert len(backward["output"]) == 1


def without_functions(folder, switched_off):
    if switched_off:
        from msprobe import _engine

        _engine.add_autograd_functions = lambda apply: ""
    x = numbers(2, 3).requires_grad_()

    def run():
        for _ in range(2):
            Exp.apply(x, 3.0).sum().backward()
        checkpoint(lambda t: torch.sin(t).exp(), x, use_reentrant=True).sum().backward()

    record(folder, run, level="mix", model=nn.Linear(1, 1))
    dump = read_dump(folder)
    rest = {k: v for k, v in dump.data.items() if not k.startswith("Function.")}
    for entry in rest.values():
        entry.pop("stack", None)
    parents = dump.side("construct.json")
    return rest, {k: v for k, v in parents.items() if not k.startswith("Function.")}


def test_the_calls_inside_are_recorded_as_without_the_entry(tmp_path):
    seen = run_forked(without_functions, tmp_path / "on", False)
    assert seen == run_forked(without_functions, tmp_path / "off", True)
    assert "Torch.sin.1.forward" in seen[0]


@forked
def test_functions_of_every_kind(tmp_path):
    x = numbers(2, 3).requires_grad_()

    def run():
        a, b = Once.apply(x)
        (a.sum() + b).backward()
        InPlace.apply(x * 1).sum().backward()
        View.apply(x).sum().backward()
        Same.apply(x * 1).sum().backward()
        Context.apply(x, factor=4.0).sum().backward()
        with pytest.raises(ValueError):
            Fails.apply(x)
        Outer.apply(x).sum().backward()
        first = torch.autograd.grad(Exp.apply(x, 1.0).sum(), x, create_graph=True)[0]
        first.sum().backward()

    record(tmp_path / "d", run)
    dump = read_dump(tmp_path / "d")
    assert of(dump, "Once.0.backward")["output"][0]["Max"] == 2
    assert [v["shape"] for v in of(dump, "Once.0.backward")["input"]] == [[2, 3], []]
    assert of(dump, "InPlace.0.forward")["output"][0]["Max"] == pytest.approx(12 / 7)
    assert of(dump, "InPlace.0.backward")["output"][0]["Max"] == 2
    assert of(dump, "View.0.backward")["input"][0]["shape"] == [6]
    assert of(dump, "View.0.backward")["output"][0]["shape"] == [2, 3]
    assert of(dump, "Same.0.backward")["output"][0]["Max"] == 3
    assert of(dump, "Context.0.forward")["input_args"][0]["shape"] == [2, 3]
    assert "Function.Context.0.backward" in dump.names
    assert of(dump, "Fails.0.forward")["exception"] == "ValueError"
    assert "Torch.relu.0.forward" in dump.names
    assert {"Function.Outer.0.forward", "Function.Exp.0.forward"} < set(dump.names)
    assert of(dump, "Exp.1.backward")["output"][0]["Max"] == pytest.approx(x.exp().max().item())


@forked
def test_inside_torch_func_a_call_is_one_call(tmp_path):
    x = numbers(2, 3)

    def run():
        func.vmap(func.grad(lambda t: Context.apply(t).sum()))(x)
        func.jvp(Context.apply, (x,), (torch.ones(2, 3),))

    record(tmp_path / "d", run)
    dump = read_dump(tmp_path / "d")
    names = [n for n in dump.names if n.startswith("Function.") and n.endswith("forward")]
    assert names == ["Function.Context.0.forward", "Function.Context.1.forward"]
    entry = of(dump, "Context.0.forward")["input_args"][0]
    assert (entry["shape"], entry["vmap"]) == ([2, 3], [0])
    assert entry["Max"] == pytest.approx(6 / 7)


@forked
def test_objects_stay_and_filters_hold(tmp_path):
    before = Function.__dict__["apply"]
    code = getattr(getattr(before, "__func__", None), "__code__", None)  # None: a builtin
    x = numbers(3).requires_grad_()

    def run():
        assert Function.__dict__["apply"] is before
        Exp.apply(x, 1.0)
        Exp.apply(x, 2.0)

    record(tmp_path / "d", run, list=["Function.Exp.1.forward"])
    after = Function.__dict__["apply"]
    assert getattr(getattr(after, "__func__", None), "__code__", None) is code
    assert read_dump(tmp_path / "d").names in (
        ["Function.Exp.1.forward"],
        ["Function.Exp.1.forward"],
    )


@forked
def test_what_pytorch_is_built_of_is_not_recorded(tmp_path):
    model = nn.Linear(3, 3)
    model.register_full_backward_hook(lambda *_: None)
    x = numbers(2, 3).requires_grad_()

    def run():
        model(x).sum().backward()
        checkpoint(torch.sin, x, use_reentrant=False).sum().backward()

    record(tmp_path / "d", run, level="mix", model=model)
    assert not [n for n in read_dump(tmp_path / "d").names if n.startswith("Function.")]


class WrongBackward(Function):
    fault = False

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        wrong = gradient.detach().numpy() * (1.5 if WrongBackward.fault else 1.0)
        return torch.from_numpy(wrong)


def wrong_backward(folder, fault):
    WrongBackward.fault = fault
    torch.manual_seed(2)
    first, second = nn.Linear(4, 4), nn.Linear(4, 2)
    x = torch.randn(3, 4)

    def run():
        h = torch.tanh(first(x))
        h = WrongBackward.apply(h)  # the line of the fault
        second(h).square().sum().backward()

    record(folder, run, level="mix", model=nn.Sequential(first, second))


def compare(msprobe_bin, tmp_path, *options):
    command = [msprobe_bin, "compare", "-tp", tmp_path / "target", "-gp", tmp_path / "golden"]
    command += ["-o", tmp_path / "out", "--format", "json", *options]
    return json.loads(subprocess.run(command, capture_output=True, text=True).stdout)


def test_a_wrong_backward_is_named_at_the_line_of_its_call(tmp_path, msprobe_bin):
    run_forked(wrong_backward, tmp_path / "target", True)
    run_forked(wrong_backward, tmp_path / "golden", False)
    first = compare(msprobe_bin, tmp_path)["first_divergence"]
    assert first["target_name"] == "Function.WrongBackward.0.backward"
    assert first["class"] == "introduced"
    assert "the line of the fault" in first["source_line"]


def test_a_dump_without_these_entries_still_compares(tmp_path, msprobe_bin):
    """As a dump of an earlier version of ours, or of msprobe 26."""
    for side in ("target", "golden"):
        run_forked(wrong_backward, tmp_path / side, False)
    [path] = (tmp_path / "golden").glob("step0/*/dump.json")
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if not line.startswith('"Function.')))
    answer = compare(msprobe_bin, tmp_path)
    assert answer["rows"]["differs"] == 0 and answer["first_divergence"] is None, answer


class StraightThrough(Function):
    """Rounds; the gradient passes where the value was in range."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return (x * 4).round() / 4

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * (x.abs() <= 1)


class FusedCrossEntropy(Function):
    """The loss and its gradient in one pass; the logits' memory is used for the gradient."""

    @staticmethod
    def forward(ctx, logits, labels):
        probabilities = torch.softmax(logits, dim=-1)
        rows = torch.arange(len(labels))
        loss = -probabilities[rows, labels].log().mean()
        probabilities[rows, labels] -= 1
        ctx.save_for_backward(probabilities)
        ctx.mark_non_differentiable(labels)
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient):
        (difference,) = ctx.saved_tensors
        return difference * (gradient / len(difference)), None


class Quantized(nn.Linear):
    def forward(self, x):
        return F.linear(x, StraightThrough.apply(self.weight), self.bias)


def straight_through():
    model = nn.Sequential(Quantized(4, 6), nn.Tanh(), Quantized(6, 3))
    return model, lambda x, y: F.cross_entropy(model(x), y)


def fused_loss():
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))
    return model, lambda x, y: FusedCrossEntropy.apply(model(x), y)


def checkpointed(use_reentrant):
    model = nn.Sequential(nn.Linear(4, 6), nn.Dropout(0.5), nn.Tanh(), Quantized(6, 3))

    def loss(x, y):
        x = x.clone().requires_grad_()
        return F.cross_entropy(checkpoint(model, x, use_reentrant=use_reentrant), y)

    return model, loss


PROGRAMS = {
    "straight_through": straight_through,
    "fused_loss": fused_loss,
    "checkpoint_reentrant": lambda: checkpointed(True),
    "checkpoint": lambda: checkpointed(False),
}


def train(program, folder=None, level=None, task=None):
    """What two steps compute, as bytes; recorded if a folder is given."""
    debugger = None
    if folder is not None:
        from msprobe.pytorch import PrecisionDebugger

        debugger = PrecisionDebugger(dump_path=str(folder), level=level, task=task)

    @contextmanager
    def step(model):
        if debugger is not None:
            debugger.start(model)
        yield
        if debugger is not None:
            debugger.stop()
            debugger.step()

    torch.manual_seed(7)
    model, loss = PROGRAMS[program]()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = torch.randn(5, 4), torch.randint(3, (5,))
    losses = []
    for _ in range(2):
        with step(model):
            optimizer.zero_grad()
            losses.append(loss(x, y))
            losses[-1].backward()
            optimizer.step()
    return [t.detach().numpy().tobytes() for t in [*losses, *model.parameters(), torch.rand(1)]]


EXPECTED = {
    "straight_through": {"StraightThrough.0", "StraightThrough.1"},
    "fused_loss": {"FusedCrossEntropy.0"},
    # The second StraightThrough is the one that checkpointing runs again.
    "checkpoint_reentrant": {"CheckpointFunction.0", "StraightThrough.0", "StraightThrough.1"},
    "checkpoint": {"StraightThrough.0", "StraightThrough.1"},
}


@pytest.mark.parametrize("task", ["statistics", "tensor"])
@pytest.mark.parametrize("level", ["L1", "mix"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_is_recorded_twice_alike_and_unchanged(
    tmp_path, msprobe_bin, program, level, task
):
    bare = run_forked(train, program)
    for side in ("target", "golden"):
        assert run_forked(train, program, tmp_path / side, level, task) == bare
    names = read_dump(tmp_path / "target").names
    found = {n[9:-8] for n in names if n.startswith("Function.") and n.endswith(".forward")}
    assert found == EXPECTED[program]
    steps = compare(msprobe_bin, tmp_path)["steps"]
    answers = [step["ranks"][""] for step in steps.values()]
    assert [(a["verdict"], a["rows"]["differs"]) for a in answers] == [("equal", 0)] * 2

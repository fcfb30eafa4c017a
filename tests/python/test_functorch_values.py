"""Values inside torch.func: what a transform wraps is recorded, else the entry says why not."""

import gc
import json
import subprocess
import weakref

import pytest
import torch
from recording import forked, read_dump, run_forked
from torch import func, nn
from torch.autograd import forward_ad
from torch.nn import functional as F

LEVELS = ("L1", "mix")
TASKS = ("statistics", "tensor")


def record(folder, call, level="L1", task="tensor", model=None):
    from msprobe.pytorch import PrecisionDebugger

    debugger = PrecisionDebugger(dump_path=str(folder), level=level, task=task)
    debugger.start(model)
    try:
        return call()
    finally:
        debugger.stop()
        debugger.step()


def value(dump, place):
    """The entry of a value, and its elements: "Torch.sin.0.forward.input.0"."""
    name, _, rest = place.partition(".forward.")
    slot, index = rest.split(".")
    entry = dump.data[f"{name}.forward"][{"input": "input_args"}.get(slot, slot)][int(index)]
    return entry, dump.tensors().get(f"{place}.pt")


def check(dump, place, expected, vmap=None):
    """`expected` was computed by the test, outside of any transform."""
    entry, stored = value(dump, place)
    assert entry["shape"] == list(expected.shape), place
    assert entry.get("vmap") == vmap, place
    assert "unreadable" not in entry
    for key, number in (
        ("Max", expected.max()),
        ("Min", expected.min()),
        ("Mean", expected.double().mean()),
        ("Norm", expected.double().norm()),
    ):
        assert entry[key] == pytest.approx(number.item(), rel=1e-6), (place, key)
    assert torch.equal(stored, expected), place


def numbers(*shape):
    return torch.arange(1.0, 1 + torch.Size(shape).numel()).reshape(shape) / 7


@forked
def test_a_batch_is_recorded_with_its_dimension(tmp_path):
    x = numbers(3, 4)

    def run():
        func.vmap(torch.sin)(x)
        func.vmap(torch.cos, in_dims=1)(x)
        func.vmap(lambda a, b: torch.mul(a, b), in_dims=(0, None))(x, x[0])

    record(tmp_path, run)
    dump = read_dump(tmp_path)
    check(dump, "Torch.sin.0.forward.input.0", x, [0])
    check(dump, "Torch.sin.0.forward.output.0", x.sin(), [0])
    check(dump, "Torch.cos.0.forward.input.0", x, [1])
    check(dump, "Torch.mul.0.forward.input.1", x[0])


@forked
def test_batches_of_batches_are_named_from_the_outermost(tmp_path):
    x = numbers(2, 3, 4)

    def run():
        func.vmap(func.vmap(torch.sin), in_dims=1)(x)
        func.vmap(func.vmap(torch.cos, in_dims=1), in_dims=0)(x)

    record(tmp_path, run)
    dump = read_dump(tmp_path)
    check(dump, "Torch.sin.0.forward.input.0", x, [1, 0])
    check(dump, "Torch.cos.0.forward.input.0", x, [0, 2])


@forked
def test_levels_of_several_kinds(tmp_path):
    x = numbers(2, 3, 4)

    def inner(t):
        return torch.exp(t).sum()

    def middle(t):  # t: [3, 4]
        return func.vmap(inner)(t).sum()

    record(tmp_path, lambda: func.vmap(func.grad(middle))(x))
    dump = read_dump(tmp_path)
    check(dump, "Torch.exp.0.forward.input.0", x, [0, 1])
    check(dump, "Torch.exp.0.forward.output.0", x.exp(), [0, 1])


@forked
def test_derivatives(tmp_path):
    x = numbers(5)

    def energy(t):
        return (torch.exp(t) * t).sum()

    def dual():
        with forward_ad.dual_level():
            torch.tanh(forward_ad.make_dual(x, torch.ones(5)))

    def run():
        func.grad(energy)(x)
        func.jvp(torch.sin, (x,), (torch.ones(5),))
        func.jacrev(torch.sigmoid)(x)
        dual()

    record(tmp_path, run)
    dump = read_dump(tmp_path)
    check(dump, "Torch.exp.0.forward.input.0", x)
    check(dump, "Torch.exp.0.forward.output.0", x.exp())
    check(dump, "Torch.sin.0.forward.output.0", x.sin())
    check(dump, "Torch.sigmoid.0.forward.output.0", x.sigmoid())
    check(dump, "Torch.tanh.0.forward.output.0", x.tanh())
    entry = dump.data["Torch.exp.0.backward"]
    assert entry["output"][0]["Max"] == pytest.approx((x * x.exp()).max().item(), rel=1e-6)


@forked
def test_a_lazy_conjugate_is_read_past_the_transforms(tmp_path):
    """To read it, we compute: no level may wrap what we get."""
    z = torch.complex(numbers(4), -numbers(4))
    record(tmp_path, lambda: func.grad(lambda t: torch.mul(t, z.conj()).abs().sum())(numbers(4)))
    entry, stored = value(read_dump(tmp_path), "Torch.mul.0.forward.input.1")
    assert "unreadable" not in entry
    assert torch.equal(stored, z.conj().resolve_conj())


class Wrapper(torch.Tensor):
    """Has no memory of its own."""

    @staticmethod
    def __new__(cls, inner):
        made = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)
        made.inner = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        return function(*(a.inner if isinstance(a, cls) else a for a in args), **(kwargs or {}))


UNREADABLE = {
    "meta tensor": lambda: torch.relu(torch.ones(3, device="meta")),
    "sparse_coo tensor": lambda: torch.relu(torch.eye(3).to_sparse()),
    "quantized tensor": lambda: torch.relu(
        torch.quantize_per_tensor(numbers(3), 0.1, 0, torch.quint8)
    ),
    "subclass Wrapper without data": lambda: torch.relu(Wrapper(numbers(3))),
    "nested tensor": lambda: torch.relu(torch.nested.nested_tensor([numbers(2), numbers(3)])),
    "functional tensor": lambda: func.functionalize(torch.relu)(numbers(3)),
}


@pytest.mark.parametrize("reason", UNREADABLE)
@forked
def test_why_there_are_no_numbers(tmp_path, reason):
    record(tmp_path, UNREADABLE[reason], task="statistics")
    entry = read_dump(tmp_path).data["Torch.relu.0.forward"]["input_args"][0]
    assert (entry["unreadable"], entry["Max"]) == (reason, None)


def test_the_row_says_why_it_has_no_number(tmp_path, msprobe_bin):
    for side in ("target", "golden"):
        run_forked(record, tmp_path / side, UNREADABLE["meta tensor"], task="statistics")
    command = [msprobe_bin, "compare", "-tp", tmp_path / "target", "-gp", tmp_path / "golden"]
    command += ["--allow-nothing-compared"]
    subprocess.run([*command, "-o", tmp_path / "out"], capture_output=True)
    [table] = (tmp_path / "out").glob("*.csv")
    assert "nothing recorded on either side: meta tensor" in table.read_text()


@forked
def test_no_level_and_no_tensor_stays(tmp_path):
    x = numbers(3, 4)
    kept = []

    def see(t):
        kept.append(weakref.ref(t))
        return torch.exp(t).sum()

    record(tmp_path, lambda: func.vmap(func.grad(see))(x), task="statistics")
    gc.collect()
    assert torch._C._functorch.maybe_current_level() is None
    assert [ref() for ref in kept] == [None]


def small():
    torch.manual_seed(13)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))


def per_sample_gradients(step):
    """Gradients of each sample, clipped and added up, as private training does."""
    model = small()
    x, y = torch.randn(6, 4), torch.randint(3, (6,))

    def loss(weights, one, label):
        return F.cross_entropy(func.functional_call(model, weights, (one[None],)), label[None])

    with step(model):
        weights = {name: p.detach() for name, p in model.named_parameters()}
        gradients = func.vmap(func.grad(loss), in_dims=(None, 0, 0))(weights, x, y)
        norms = torch.stack([g.flatten(1).norm(dim=1) for g in gradients.values()]).norm(dim=0)
        scale = (1 / norms).clamp(max=1)
        return [torch.einsum("i,i...->...", scale, g) for g in gradients.values()]


def hessian_vector_product(step):
    model = small()
    weights = {name: p.detach() for name, p in model.named_parameters()}
    x, y = torch.randn(6, 4), torch.randn(6, 3)
    directions = {name: torch.randn_like(p) for name, p in weights.items()}

    def loss(weights):
        return (func.functional_call(model, weights, (x,)) - y).square().mean()

    with step(model):
        gradient, product = func.jvp(func.grad(loss), (weights,), (directions,))
    return [*gradient.values(), *product.values()]


def inner_loop(step):
    """Learns to learn: the outer loss goes through two steps of the inner training."""
    model = small()
    x, y = torch.randn(6, 4), torch.randint(3, (6,))
    with step(model):
        fast = dict(model.named_parameters())
        for _ in range(2):
            loss = F.cross_entropy(func.functional_call(model, fast, (x[:3],)), y[:3])
            gradients = torch.autograd.grad(loss, list(fast.values()), create_graph=True)
            fast = {name: p - 0.1 * g for (name, p), g in zip(fast.items(), gradients, strict=True)}
        F.cross_entropy(func.functional_call(model, fast, (x[3:],)), y[3:]).backward()
    return [p.grad for p in model.parameters()]


PROGRAMS = {run.__name__: run for run in (per_sample_gradients, hessian_vector_product, inner_loop)}


def results(program, folder=None, level=None, task=None):
    """What a program computes, as bytes; recorded if a folder is given."""
    from contextlib import contextmanager

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

    torch.manual_seed(5)
    return [t.detach().numpy().tobytes() for t in program(step)] + [torch.rand(1).item()]


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_is_recorded_twice_alike_and_unchanged(
    tmp_path, msprobe_bin, program, level, task
):
    bare = run_forked(results, PROGRAMS[program])
    for side in ("target", "golden"):
        assert run_forked(results, PROGRAMS[program], tmp_path / side, level, task) == bare
    dump = read_dump(tmp_path / "target")
    inputs = [v for e in dump.data.values() for v in e.get("input_args", []) if v and "dtype" in v]
    # PyTorch's own derivatives look at the strides of meta tensors.
    unread = [v for v in inputs if v["Max"] is None and v["unreadable"] != "meta tensor"]
    assert inputs and not unread
    command = [msprobe_bin, "compare", "-tp", tmp_path / "target", "-gp", tmp_path / "golden"]
    command += ["-o", tmp_path / "out", "--format", "json"]
    answer = json.loads(subprocess.run(command, capture_output=True, text=True).stdout)
    assert (answer["verdict"], answer["rows"]["differs"]) == ("equal", 0), answer

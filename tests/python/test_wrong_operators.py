"""Operators that are made wrong are found by the pre-check, and right ones are not blamed."""

import json

import pytest
import torch
import torch.nn.functional as F
from recording import run_forked

from msprobe import _engine
from msprobe.pytorch import PrecisionDebugger, replay
from msprobe.pytorch.replay_worker import Worker

CPU = torch.device("cpu")
ROUNDING = 23  # column of the details


class Many(torch.nn.Module):
    """Calls of many operators, each with inputs of its kind."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(16, 12))
        self.kernel = torch.nn.Parameter(torch.randn(6, 3, 3, 3) * 0.3)
        self.table = torch.nn.Parameter(torch.randn(30, 12))

    def forward(self, x, images, ids, labels):
        x = x * self.weight[:8, :].mean(0)
        rows = F.embedding(ids, self.table)
        y = F.linear(x, self.weight)
        scores = torch.matmul(y, y.transpose(-1, -2)) / 4
        probabilities = F.softmax(scores.masked_fill(scores > 3, -1e9), dim=-1)
        mixed = torch.bmm(probabilities, y)
        normed = F.layer_norm(mixed, (16,), eps=1e-5)
        active = F.gelu(normed) + F.silu(normed) + F.relu(normed) + torch.tanh(normed)
        conv = F.conv2d(images, self.kernel, padding=1)
        bn = F.batch_norm(conv, torch.zeros(6), torch.ones(6), training=True)
        gn = F.group_norm(bn, 3)
        pooled = F.max_pool2d(gn, 2) + F.avg_pool2d(gn, 2)
        logs = torch.log(active.abs() + 0.5) + torch.sqrt(active.abs() + 0.1)
        logs = logs + torch.exp(active.clamp(max=2)) + torch.sigmoid(active)
        total = torch.cumsum(logs, dim=1).sum(-1) + logs.mean(-1) + logs.var(-1)
        chosen = torch.gather(logs, 2, ids[..., None].clamp(max=15))
        attended = F.scaled_dot_product_attention(rows[:, None], rows[:, None], rows[:, None])
        best, places = torch.topk(logs, 3, dim=-1)
        joined = torch.cat([best, chosen], dim=-1)
        flipped = torch.where(joined > 0, joined, joined * 0.1)
        power = torch.pow(joined.abs() + 0.1, 1.7) + torch.rsqrt(joined.abs() + 0.2)
        loss = F.cross_entropy(y.flatten(0, 1), labels.flatten()) + F.mse_loss(flipped, power)
        loss = loss + F.smooth_l1_loss(pooled, pooled.detach() * 0.9) + attended.square().mean()
        return loss + total.mean() + torch.norm(places.float()) * 0 + F.log_softmax(y, -1).mean()


def record(folder, task):
    torch.manual_seed(11)
    model = Many()
    debugger = PrecisionDebugger(dump_path=str(folder), level="L1", task=task)
    x, images = torch.randn(4, 10, 12), torch.randn(4, 3, 8, 8)
    ids, labels = torch.randint(30, (4, 10)), torch.randint(16, (4, 10))
    debugger.start(model)
    model(x, images, ids, labels).backward()
    debugger.stop()


@pytest.fixture(scope="module", params=["tensor", "statistics"])
def dump(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    run_forked(record, folder, request.param)
    return request.param, folder / "step0" / "rank"


def scaled(factor):
    return lambda result, *args, **kwargs: result * factor


def changed(index, value):
    def change(result, *args, **kwargs):
        result = result.clone()
        with torch.no_grad():
            result.view(-1)[index] = value(result)
        return result

    return change


def low(result, *args, **kwargs):
    return result.bfloat16().float()


class HalfBackward(torch.autograd.Function):
    """Right forward, wrong backward."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 0.9


def backward(result, *args, **kwargs):
    return HalfBackward.apply(result)


def dropped_tail(result, *args, **kwargs):
    kept = result.clone()
    with torch.no_grad():
        kept.view(-1)[-max(1, kept.numel() // 50) :] = 0
    return kept


# (name of the wrong operator, API, how its right result is changed)
WRONG = [
    ("linear in bfloat16", "Functional.linear", low),
    ("linear without its tail", "Functional.linear", dropped_tail),
    ("linear, backward", "Functional.linear", backward),
    ("linear, one element", "Functional.linear", changed(5, lambda r: r.view(-1)[5] + 1)),
    ("matmul scaled", "Torch.matmul", scaled(1.01)),
    ("matmul in bfloat16", "Torch.matmul", low),
    ("bmm without its tail", "Torch.bmm", dropped_tail),
    ("softmax, wrong axis", "Functional.softmax", lambda r, x, *a, **k: torch.softmax(x, -2)),
    ("softmax in bfloat16", "Functional.softmax", low),
    ("softmax, backward", "Functional.softmax", backward),
    (
        "layer_norm, eps",
        "Functional.layer_norm",
        lambda r, x, *a, **k: F.layer_norm.right(x, (16,), eps=1e-2),
    ),
    ("layer_norm, NaN", "Functional.layer_norm", changed(3, lambda r: float("nan"))),
    ("layer_norm, backward", "Functional.layer_norm", backward),
    (
        "gelu, tanh",
        "Functional.gelu",
        lambda r, x, *a, **k: F.gelu.right(x, approximate="tanh"),
    ),
    ("silu scaled", "Functional.silu", scaled(1.005)),
    ("relu, backward", "Functional.relu", backward),
    ("relu, leaky", "Functional.relu", lambda r, x, *a, **k: F.leaky_relu(x, 0.01)),
    ("tanh, rational", "Torch.tanh", lambda r, x, *a, **k: x / (1 + x.abs())),
    ("conv2d in bfloat16", "Functional.conv2d", low),
    ("conv2d, last channel", "Functional.conv2d", dropped_tail),
    ("conv2d, backward", "Functional.conv2d", backward),
    ("batch_norm, scaled", "Functional.batch_norm", scaled(1.002)),
    ("group_norm, swapped", "Functional.group_norm", lambda r, *a, **k: r.flip(1)),
    (
        "max_pool2d, average",
        "Functional.max_pool2d",
        lambda r, x, *a, **k: F.avg_pool2d.right(x, 2),
    ),
    (
        "avg_pool2d, maximum",
        "Functional.avg_pool2d",
        lambda r, x, *a, **k: F.max_pool2d.right(x, 2),
    ),
    ("log, base 2", "Torch.log", lambda r, x, **k: torch.log2(x)),
    ("sqrt in bfloat16", "Torch.sqrt", low),
    ("exp, one element", "Torch.exp", changed(0, lambda r: r.max() * 2)),
    ("exp, infinity", "Torch.exp", changed(1, lambda r: float("inf"))),
    ("sigmoid, backward", "Torch.sigmoid", backward),
    ("cumsum, off by one", "Torch.cumsum", lambda r, *a, **k: r.roll(1, 1)),
    ("gather, off by one", "Torch.gather", lambda r, *a, **k: r.roll(1, 1)),
    ("embedding, off by one", "Functional.embedding", lambda r, *a, **k: r.roll(1, 1)),
    (
        "attention, scale",
        "Functional.scaled_dot_product_attention",
        lambda r, q, k, v, *a, **kw: F.scaled_dot_product_attention.right(q, k, v, scale=0.2),
    ),
    ("topk, last element", "Torch.topk", lambda r, *a, **k: (r[0] * 1.01, r[1])),
    ("cat, swapped", "Torch.cat", lambda r, *a, **k: r.flip(-1)),
    ("where, inverted", "Torch.where", lambda r, c, a, b, **k: torch.where.right(~c, a, b)),
    ("pow, exponent", "Torch.pow", lambda r, x, y, **k: torch.pow.right(x, 1.69)),
    ("rsqrt in bfloat16", "Torch.rsqrt", low),
    ("cross_entropy, summed", "Functional.cross_entropy", scaled(1.02)),
    ("mse_loss, backward", "Functional.mse_loss", backward),
    ("log_softmax scaled", "Functional.log_softmax", scaled(1.003)),
]


class Wrong:
    """While it is entered, an API is wrong for all dtypes but float64."""

    def __init__(self, api, change):
        prefix, self.name = api.split(".")
        self.space = F if prefix == "Functional" else torch
        self.change = change

    def __enter__(self):
        right, change = getattr(self.space, self.name), self.change
        self.right = right

        def wrong(*args, **kwargs):
            result = right(*args, **kwargs)
            first = args[0][0] if isinstance(args[0], (list, tuple)) else args[0]
            tensors = [each for each in (first, *args[1:]) if isinstance(each, torch.Tensor)]
            if any(each.dtype == torch.float64 for each in tensors):
                return result
            return change(result, *args, **kwargs)

        wrong.right = right
        setattr(self.space, self.name, wrong)

    def __exit__(self, *_):
        setattr(self.space, self.name, self.right)


def worker_of(path):
    options = {"device": 0, "dump": str(path), "seed": 7, "white_list": [], "black_list": []}
    options |= {
        "distinct": False,
        "rules": "",
        "precision": 14,
        "error_data": "",
        "roundings": True,
    }
    options |= {"jit_compile": False, "references": "", "within_one": []}
    return Worker(options)


def verdicts(worker, api=None):
    """{name of a call: (forward, backward)}"""
    found = {}
    for index, (name, skip) in enumerate(worker.calls):
        if skip or (api and not name.startswith(f"{api}.")):
            continue
        answer = json.loads(worker.answer(index))
        assert not answer[3], (api, answer[:4])  # nothing raised
        found[answer[0]] = answer[1], answer[2]
    return found


def test_wrong_operators_are_found(dump):
    task, path = dump
    worker = worker_of(path)
    # Some changes call the right version of another function.
    missed = []
    for what, api, change in WRONG:
        others = [Wrong(each, lambda result, *a, **k: result) for each in OTHERS]
        for other in others:
            other.__enter__()
        with Wrong(api, change):
            found = verdicts(worker, api)
        for other in reversed(others):
            other.__exit__()
        assert found, api
        if not any("error" in each or "warning" in each for each in found.values()):
            missed.append(what)
    share = 1 - len(missed) / len(WRONG)
    print(f"{task}: {len(WRONG) - len(missed)} of {len(WRONG)} found, missed: {missed}")
    assert share >= (0.95 if task == "tensor" else 0.8), missed


# Functions whose right version a change calls by `.right`.
OTHERS = ["Functional.avg_pool2d", "Functional.max_pool2d"]


def test_right_operators_are_not_blamed(dump):
    _, path = dump
    found = verdicts(worker_of(path))
    assert len(found) > 70
    blamed = {name: each for name, each in found.items() if {"error", "warning"} & set(each)}
    assert not blamed


def test_the_golden_is_in_float64(dump):
    _, path = dump
    recorded = replay.Recorded(path, CPU)
    names = [name for name, _ in recorded.calls()]
    results, gradients = replay.golden_of(recorded.call(names.index("Functional.linear.0")))
    assert {each.dtype for each in [*results, *gradients]} == {torch.float64}
    assert _engine.PreCheck("", 14, []).failed is False


def record_half(folder, dtype, loss_size):
    """Gradients that are sums of many terms, and gradients below the numbers of the dtype."""
    torch.manual_seed(3)
    x = torch.randn(2048, 32).to(dtype).requires_grad_()
    weight, bias = torch.ones(32, dtype=dtype), torch.zeros(32, dtype=dtype)
    matrix = torch.randn(32, 32).to(dtype)
    for each in (weight, bias, matrix):
        each.requires_grad_()
    debugger = PrecisionDebugger(dump_path=str(folder), level="L1", task="tensor")
    debugger.start()
    y = F.linear(F.layer_norm(x, (32,), weight, bias), matrix)
    size = torch.linalg.vector_norm(y.float())
    ((F.gelu(y) + y).float().mean() * loss_size + size * loss_size).backward()
    debugger.stop()


def layer_norm_is_off(dtype, loss_size):
    """By how much PyTorch's own gradient of a layer norm's weight differs from float64: the worst
    share. Its CPU kernels of halves add the rows of a thread one after the other, in the dtype of
    the result, so that a long sum no longer takes up its terms.
    """
    torch.manual_seed(3)
    x = torch.randn(2048, 32).to(dtype)
    weight, bias = torch.ones(32, dtype=dtype), torch.zeros(32, dtype=dtype)
    matrix = torch.randn(32, 32).to(dtype)
    weight.requires_grad_()
    normed = F.layer_norm(x, (32,), weight, bias)
    normed.retain_grad()
    y = F.linear(normed, matrix)
    size = torch.linalg.vector_norm(y.float())
    ((F.gelu(y) + y).float().mean() * loss_size + size * loss_size).backward()
    wide = x.double()
    centred = wide - wide.mean(-1, True)
    unit = centred / torch.sqrt(centred.square().mean(-1, True) + 1e-5)
    exact = (normed.grad.double() * unit).sum(0)
    return float(((weight.grad.double() - exact) / exact).abs().max())


@pytest.fixture(params=[1, 2])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.mark.parametrize("loss_size", [1, 1e-3])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_not_blamed(tmp_path, dtype, loss_size, threads):
    run_forked(record_half, tmp_path, dtype, loss_size)
    worker = worker_of(tmp_path / "step0")
    found = verdicts(worker)
    assert "Torch.vector_norm.0" in found or "Torch.linalg.vector_norm.0" in found
    blamed = {name: each for name, each in found.items() if {"error", "warning"} & set(each)}
    # In one thread bfloat16 is 36 % off, in two 17 % (PyTorch 2.13 and 2.15): the standards, which
    # compare with float64, blame the first of them with reason. The verdict in roundings knows
    # how the kernel adds.
    is_off = layer_norm_is_off(dtype, loss_size) > 0.25
    assert [*blamed] == (["Functional.layer_norm.0"] if is_off else []), threads
    for index in range(len(worker.calls)):
        answer = json.loads(worker.answer(index))
        assert not [row for row in [*answer[4], *answer[5]] if row[ROUNDING] == "error"]

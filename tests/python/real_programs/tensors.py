"""Tensors of special kinds: subclasses, wrappers, fake tensors, odd memory."""

import warnings

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional as F
from torch.utils._pytree import tree_map

from real_programs.watch import program, state_of

warnings.filterwarnings("ignore", message=".*(nested tensors|Sparse CSR|quantization).*")


def small():
    torch.manual_seed(17)
    return nn.Sequential(nn.Linear(3, 3), nn.ReLU())


@program("Module.0.Linear.forward.0", "Torch.cos.0.forward")
def nested(watch):
    model = small()
    parts = [torch.randn(2, 3), torch.randn(4, 3)]
    with watch(model):
        strided = torch.nested.nested_tensor(parts)
        jagged = torch.nested.nested_tensor(parts, layout=torch.jagged, requires_grad=True)
        y = model(jagged)
        z = torch.nested.to_padded_tensor(model(strided), 0.0)
        y.values().sum().backward()
        watch.note("Torch.cos.0.forward.output.0", torch.cos(z))
    return y.values(), z, jagged.grad.values(), state_of(model)


@program("Torch.mm.0.forward", "Torch.tan.0.forward")
def sparse(watch):
    model = small()
    with watch(model):
        dense = torch.eye(3, requires_grad=True)
        coo = dense.to_sparse()
        csr = torch.eye(3).to_sparse_csr()
        y = torch.mm(coo, model(torch.randn(3, 3))) + csr @ torch.ones(3, 3)
        z = (coo + coo).coalesce().values()
        y.sum().backward()
        watch.note("Torch.tan.0.forward.output.0", torch.tan(y))
        embedding = nn.Embedding(5, 3, sparse=True)
        embedding(torch.tensor([1, 3])).sum().backward()
    return y, z, dense.grad, embedding.weight.grad.to_dense(), state_of(model)


@program("Module.0.Linear.forward.0", "Torch.tan.0.forward")
def quantized(watch):
    model = small()
    torch.backends.quantized.engine = "qnnpack"
    for engine in torch.backends.quantized.supported_engines:
        if engine != "none":
            torch.backends.quantized.engine = engine
    dynamic = torch.ao.quantization.quantize_dynamic(model, {nn.Linear}, dtype=torch.qint8)
    with watch(dynamic):
        x = torch.randn(2, 3)
        y = dynamic(x)
        q = torch.quantize_per_tensor(x, 0.1, 2, torch.quint8)
        channels = torch.quantize_per_channel(
            x, torch.ones(2) * 0.1, torch.zeros(2, dtype=torch.int64), 0, torch.qint8
        )
        z = q.dequantize() + channels.dequantize()
        relu = torch.relu(q).int_repr()
        watch.note("Torch.tan.0.forward.output.0", torch.tan(z))
    return y, z, relu


class Wrapped(torch.Tensor):
    """Wraps by __torch_function__."""

    calls = 0

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        Wrapped.calls += 1
        return super().__torch_function__(function, types, args, kwargs or {})


logged = []  # the operations that Logged has seen


class Logged(torch.Tensor):
    """Wraps by __torch_dispatch__; has no data of its own."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(
            cls,
            inner.shape,
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            requires_grad=inner.requires_grad,
        )

    def __init__(self, inner):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        logged.append(str(function))
        args, kwargs = tree_map(
            lambda t: t.inner if isinstance(t, Logged) else t, (args, kwargs or {})
        )
        return tree_map(
            lambda t: Logged(t) if isinstance(t, torch.Tensor) else t, function(*args, **kwargs)
        )


@program("Module.0.Linear.forward.0", "Torch.sin.0.forward", "Module.0.Linear.backward.0")
def function_subclass(watch):
    model = small()
    Wrapped.calls = 0
    with watch(model):
        x = torch.randn(2, 3).as_subclass(Wrapped)
        y = torch.sin(model(x))
        y.sum().backward()
    return y.as_subclass(torch.Tensor), Wrapped.calls, type(y).__name__, state_of(model)


@program("Torch.sin.0.forward")
def dispatch_subclass(watch):
    model = small()
    logged.clear()
    with watch(model):
        y = torch.sin(Logged(torch.randn(2, 3))) * 2
        z = torch.cos(y.inner)
        view = torch.exp(Logged(torch.randn(4, 3)[1:]))  # its data pointer is null
    return y.inner, z, view.inner, list(logged)


@program("Module.0.Linear.forward.0", "Torch.sin.0.forward")
def meta(watch):
    model = small().to("meta")
    with watch(model):
        y = torch.sin(model(torch.empty(2, 3, device="meta", requires_grad=True)))
        y.sum().backward()
    return tuple(y.shape), tuple(model[0].weight.grad.shape)


@program("Torch.tan.0.forward", absent=["Torch.sin", "Torch.empty"])
def fake(watch):
    """Calls with fake tensors are not recorded, because they compute nothing; other calls are."""
    model = small()
    with watch(model):
        with FakeTensorMode(allow_non_fake_inputs=True) as mode:
            x = torch.empty(2, 3)
            y = torch.sin(x) + 1
            z = mode.from_tensor(torch.ones(2)).exp()
        t = watch.note("Torch.tan.0.forward.output.0", torch.tan(torch.ones(3)))
    return tuple(y.shape), tuple(z.shape), t


@program("Torch.cat.0.forward", "Module.0.Linear.forward.0", "Module.0.Linear.backward.0")
def empty(watch):
    model = small()
    with watch(model):
        x = torch.randn(0, 3, requires_grad=True)
        y = torch.cat([model(x), torch.ones(0, 3)])
        y.sum().backward()
        z = torch.nn.functional.relu(torch.tensor([])).sum()
    return y, z, x.grad, state_of(model)


@program("Torch.matmul.0.forward", "Torch.abs.0.backward")
def complex_numbers(watch):
    model = small()
    with watch(model):
        x = torch.randn(3, 3, dtype=torch.complex64, requires_grad=True)
        y = torch.abs(torch.matmul(x.conj(), x.mT) + x.imag.neg())
        y.sum().backward()
    return y, x.grad


@program("Functional.relu.0.forward", "Torch.add.0.forward")
def odd_memory(watch):
    """Expanded, overlapping, shared with NumPy, freed by resize, viewed as another dtype."""
    model = small()
    with watch(model):
        a = torch.ones(1, 4).expand(1000, 4)
        b = torch.arange(9.0).as_strided((3, 3), (1, 1))
        c = torch.from_numpy(__import__("numpy").arange(6.0)[::2].copy())
        d = torch.arange(4).view(torch.float64)
        e = torch.empty(3)
        e.untyped_storage().resize_(0)
        y = torch.add(F.relu(a).sum() + b.sum(), c.sum() + d.sum())
        attempt = None
        try:
            attempt = torch.sin(e).shape
        except RuntimeError as error:
            attempt = str(error)[:20]
    return y, attempt

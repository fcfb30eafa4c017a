"""All ways in which programs compute gradients."""

import torch
from torch import nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from real_programs.watch import program, state_of


def small(width=4):
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, width))


class Once(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.exp(x), "text", None, {"count": 3}

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient, *_):
        return gradient * torch.exp(ctx.saved_tensors[0])


class Setup(Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x, scale):
        return x * scale, x.sign()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.scale = inputs[1]
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    def backward(ctx, gradient, _):
        return (None if gradient is None else gradient * ctx.scale), None


class Dirty(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(3)

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 3


@program("Torch.exp.0.forward", "Tensor.mul.0.forward", "Module.0.Linear.backward.0")
def functions(watch):
    model = small()
    for _ in range(2):
        with watch(model):
            y, text, nothing, counted = Once.apply(model(torch.randn(2, 4)))
            y, signs = Setup.apply(y, 0.5)
            y = Dirty.apply(y.mul(1.0))
            (y.sum() + signs.sum() + counted["count"]).backward()
    return y, text, nothing, state_of(model)


@program("Module.0.Linear.backward.0", "Functional.mse_loss.0.backward")
def double_backward(watch):
    model = small()
    x = torch.randn(2, 4, requires_grad=True)
    with watch(model):
        loss = F.mse_loss(model(x), torch.ones(2, 4))
        (slope,) = torch.autograd.grad(loss, x, create_graph=True)
        slope.norm().backward()
        loss2 = model(x).pow(3).sum()
        grads = torch.autograd.grad(loss2, list(model.parameters()), create_graph=True)
        curvature = torch.autograd.grad(sum(g.sum() for g in grads), x, materialize_grads=True)
    return loss, slope, curvature, x.grad, state_of(model)


@program("Tensor.pow.0.backward")
def grad_of_several_outputs(watch):
    model = small()
    x = torch.randn(2, 4, requires_grad=True)
    with watch(model):
        y = model(x)
        a = y.pow(2)
        b = y.sin()
        got = torch.autograd.grad([a, b], [x, *model.parameters()], [torch.ones(2, 4), a.detach()])
        batched = torch.autograd.grad(
            model(x), x, torch.eye(8).view(8, 2, 4), is_grads_batched=True
        )
    return got, batched


@program("Functional.mse_loss.0.backward")
def several_backwards(watch):
    model = small()
    with watch(model):
        loss = F.mse_loss(model(torch.randn(2, 4)), torch.zeros(2, 4))
        for _ in range(3):
            loss.backward(retain_graph=True)
        torch.autograd.backward([loss, loss * 2], inputs=[model[0].weight])
    return loss, state_of(model)


@program("Functional.relu_.0.forward", "Tensor.mul_.0.backward", "Module.1.ReLU.backward.0")
def in_place(watch):
    """In-place modules and calls have gradients, and so have the calls before them (D4)."""
    torch.manual_seed(5)
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True), nn.Linear(4, 4))
    for _ in range(2):
        with watch(model):
            y = model(torch.randn(3, 4))
            y = F.relu_(y) + 1
            y.mul_(2)
            y[0].add_(1)
            y.unsqueeze_(0).transpose_(0, 1)
            y.sum().backward()
    return y, state_of(model)


@program("Torch.matmul.0.forward", "Torch.matmul.0.backward", "Functional.linear.0.backward")
def products_without_bias(watch):
    """The weight's gradient is recorded (D12)."""
    torch.manual_seed(5)
    model = nn.Sequential(nn.Linear(4, 4, bias=False))
    weight = torch.randn(4, 4, requires_grad=True)
    with watch(model):
        torch.matmul(model(torch.randn(2, 3, 4)), weight).sum().backward()
        for place, gradient in [
            ("Torch.matmul.0.backward.output.1", weight.grad),
            ("Functional.linear.0.backward.output.1", model[0].weight.grad),
        ]:
            watch.note(place, gradient)
    return weight.grad, state_of(model)


@program("Torch.split.0.backward", "Torch.max.0.backward")
def several_outputs(watch):
    """Each output has its gradient (C17); named tuples keep their type (D16)."""
    model = small()
    with watch(model):
        y = model(torch.randn(2, 4))
        parts = torch.split(y, 2, dim=1)
        best = torch.max(y, dim=1)
        (parts[0].sum() + 2 * parts[1].sum() + best.values.sum()).backward()
        for number in range(2):
            gradient = torch.full((2, 2), number + 1.0)
            watch.note(f"Torch.split.0.backward.input.{number}", gradient)
    return type(best).__name__, best._fields if hasattr(best, "_fields") else None, state_of(model)


@program("Module.0.Linear.forward.0")
def gradient_modes(watch):
    model = small()
    with watch(model):
        with torch.no_grad():
            a = model(torch.ones(2, 4))
        with torch.inference_mode():
            b = model(torch.ones(2, 4)).add_(1)
            watch.note("Tensor.mul.0.forward.output.0", b.mul(2))
        with torch.set_grad_enabled(False), torch.enable_grad():
            c = model(torch.ones(2, 4))
        c.sum().backward()
    return a, b, b.is_inference(), c, torch.is_grad_enabled(), state_of(model)


@program("Torch.exp.0.forward")
def saved_tensor_hooks(watch):
    model = small()
    packed = []

    def pack(tensor):
        packed.append(tuple(tensor.shape))
        return tensor.to(torch.float64)

    with watch(model):
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t.to(torch.float32)):
            y = torch.exp(model(torch.randn(2, 4)))
        with torch.autograd.graph.save_on_cpu():
            y = y * model(y)
        y.sum().backward()
    return packed, y, state_of(model)


@program("Torch.log.0.forward")
def anomaly_mode(watch):
    model = small()
    said = None
    with watch(model), torch.autograd.detect_anomaly(check_nan=True):
        model(torch.randn(2, 4)).sum().backward()
        try:
            torch.log(model(torch.randn(2, 4)) * 0 - 1).sum().backward()
        except RuntimeError as error:
            said = str(error)
    return said, state_of(model)


@program("Tensor.mul.0.forward")
def forward_mode(watch):
    model = small()
    with watch(model), torch.autograd.forward_ad.dual_level():
        x = torch.autograd.forward_ad.make_dual(torch.randn(2, 4), torch.ones(2, 4))
        y, slope = torch.autograd.forward_ad.unpack_dual(model(x).mul(2))
        y.sum().backward()
    return y, slope, state_of(model)


@program("Torch.sin.0.forward")
def functional_forms(watch):
    with watch(small()):
        x = torch.randn(3)
        y = [
            torch.autograd.functional.jacobian(torch.sin, x),
            torch.autograd.functional.hessian(lambda t: torch.sin(t).sum(), x),
            torch.autograd.functional.vhp(lambda t: torch.exp(t).sum(), x, x),
        ]
        checked = torch.autograd.gradcheck(
            torch.tanh, torch.randn(3, dtype=torch.float64, requires_grad=True)
        )
    return y, checked

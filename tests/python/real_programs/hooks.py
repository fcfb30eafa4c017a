"""The program's own hooks, and exceptions that are raised in various places and caught."""

import torch
from torch import nn
from torch.nn import functional as F

from real_programs.watch import program, state_of


def small():
    torch.manual_seed(7)
    return nn.Sequential(nn.Linear(3, 3), nn.GELU(), nn.Linear(3, 3))


@program("Module.2.Linear.forward.0", "Module.1.GELU.backward.0", "Module.0.Linear.backward.0")
def all_kinds(watch):
    model, seen = small(), []

    def once(module, args, output):
        seen.append("once")
        handle.remove()

    def with_kwargs(module, args, kwargs):
        return (args[0] * 1.5,), kwargs

    def after_with_kwargs(module, args, kwargs, output):
        return output + 0.5

    handle = model[0].register_forward_hook(once)
    model[1].register_forward_pre_hook(with_kwargs, with_kwargs=True)
    model[1].register_forward_hook(after_with_kwargs, with_kwargs=True, prepend=True)
    model[2].register_forward_hook(lambda *_: seen.append("always"), always_call=True)
    model[2].register_full_backward_hook(lambda m, given, made: seen.append(len(given)))
    model[0].register_full_backward_pre_hook(lambda m, made: (made[0] * 2,))
    model.register_full_backward_hook(lambda m, given, made: None)
    anywhere = nn.modules.module.register_module_forward_hook(lambda *_: seen.append("global"))
    for _ in range(2):
        with watch(model):
            x = torch.randn(2, 3, requires_grad=True)
            y = model(x)
            y.register_hook(lambda gradient: gradient * 3)
            torch.autograd.graph.register_multi_grad_hook(
                [x, y], lambda gradients: seen.append(len(gradients))
            )
            y.sum().backward()
    anywhere.remove()
    return seen, x.grad, state_of(model)


@program("Module.0.Linear.forward.0", "Functional.linear.0.backward")
def deprecated_backward_hook(watch):
    """The older tool records no gradients of such modules (D9); ours does."""
    model, seen = small(), []
    model[0].register_backward_hook(lambda m, given, made: seen.append(len(given)))
    with watch(model):
        model(torch.randn(2, 3, requires_grad=True)).sum().backward()
    return seen, state_of(model)


class Refuses(nn.Module):
    def forward(self, x, error):
        y = F.softplus(x)
        raise error(f"refused {tuple(y.shape)}")


class Stop(BaseException):
    pass


@program(
    "Module.0.Refuses.forward.0",
    "Functional.softplus.0.forward",
    "Module.1.Linear.forward.3",
    "Module.1.Linear.backward.3",
    parents={
        "Functional.softplus.0.forward": "Module.0.Refuses.forward.0",
        "Module.1.Linear.forward.0": None,
        "Tensor.mul.0.forward": None,
        "Torch.cat.0.forward": None,
    },
)
def raised_in_a_module(watch):
    """Calls after a caught exception are recorded, but not under the module that raised (C9)."""
    torch.manual_seed(7)
    model, caught = nn.Sequential(Refuses(), nn.Linear(3, 3)), []
    with watch(model):
        for error in (ValueError, KeyboardInterrupt, StopIteration, Stop):
            try:
                model[0](torch.ones(3), error)
            except BaseException as thrown:
                caught.append(repr(thrown))
            y = model[1](torch.randn(3)).mul(2)
        try:
            torch.cat([torch.ones(2), torch.ones(2, 2)])
        except RuntimeError as thrown:
            caught.append(str(thrown))
        y.sum().backward()
    return caught, y, state_of(model)


@program("Module.0.Linear.forward.1", "Module.0.Linear.forward.2", "Torch.tanh.1.forward")
def raised_in_hooks(watch):
    model, caught = small(), []

    def refuse(*_):
        raise ValueError("no")

    with watch(model):
        for register in (
            model[1].register_forward_hook,
            model[1].register_forward_pre_hook,
            model[1].register_full_backward_hook,
            model[0].weight.register_hook,
            model[0].weight.register_post_accumulate_grad_hook,
            model[2].register_full_backward_pre_hook,
        ):
            handle = register(refuse)
            try:
                torch.tanh(model(torch.randn(2, 3))).sum().backward()
            except ValueError as thrown:
                caught.append(str(thrown))
            handle.remove()
        model(torch.randn(2, 3)).sum().backward()
    return caught, state_of(model)


@program("Torch.sin.0.forward")
def raised_through_the_step(watch):
    """An exception ends the step, stop() is in a finally; the next step is recorded as usual."""
    model, caught = small(), []
    for attempt in range(2):
        try:
            with watch(model):
                y = torch.sin(model(torch.randn(2, 3)))
                if attempt == 0:
                    raise KeyboardInterrupt
                y.sum().backward()
        except KeyboardInterrupt:
            caught.append(attempt)
    return caught, y, state_of(model)


@program("Torch.sum.0.forward")
def raised_in_backward_of_a_function(watch):
    class Breaks(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, gradient):
            raise ZeroDivisionError("in backward")

    model, caught = small(), []
    with watch(model):
        try:
            Breaks.apply(model(torch.randn(2, 3))).sum().backward()
        except ZeroDivisionError as thrown:
            caught.append(str(thrown))
        torch.sum(model(torch.randn(2, 3))).backward()
    return caught, state_of(model)

"""torch.func: batched tensors, and tensors with derivatives."""

import copy

import torch
from torch import func, nn
from torch.nn import functional as F

from real_programs.watch import program, state_of


def small():
    torch.manual_seed(13)
    return nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 2))


@program("Torch.sin.0.forward")
def vmap(watch):
    model = small()
    with watch(model):
        x = torch.randn(4, 3)
        y = [
            torch.vmap(torch.sin)(x),
            func.vmap(model)(x),
            func.vmap(func.vmap(torch.cos), in_dims=1, out_dims=1)(x.view(2, 2, 3)),
            func.vmap(lambda t: F.dropout(t, 0.5), randomness="different")(x),
            func.vmap(lambda a, b: a @ b, in_dims=(0, None))(x, torch.ones(3)),
        ]
        torch.vmap(lambda t: torch.relu(model(t)).sum())(x).sum().backward()
    return y, state_of(model)


@program("Torch.exp.0.forward")
def derivatives(watch):
    def energy(t):
        return (torch.exp(t) * t).sum()

    model = small()
    with watch(model):
        x = torch.randn(3)
        y = [
            func.grad(energy)(x),
            func.grad(func.grad(lambda t: torch.sin(t)))(x[0]),
            func.grad_and_value(energy)(x),
            func.jvp(torch.tanh, (x,), (torch.ones(3),)),
            func.vjp(torch.tanh, x)[1](x),
            func.jacrev(torch.sigmoid)(x),
            func.jacfwd(torch.sigmoid)(x),
            func.hessian(energy)(x),
            func.linearize(torch.sin, x)[1](x),
            func.functionalize(lambda t: t.clone().add_(1).mul_(2))(x),
        ]
    return y


@program("Module.0.Linear.forward.0", "Functional.linear.0.forward")
def functional_call(watch):
    model = small()
    weights = {name: p.detach() * 2 for name, p in model.named_parameters()}
    with watch(model):
        x = torch.randn(4, 3)
        y = func.functional_call(model, weights, (x,))

        def loss(weights, one):
            return func.functional_call(model, weights, (one,)).square().sum()

        per_sample = func.vmap(func.grad(loss), in_dims=(None, 0))(weights, x)
    return y, per_sample, state_of(model)


@program("Module.0.0.Linear.forward.0")
def ensemble(watch):
    models = [small() for _ in range(3)]
    weights, buffers = func.stack_module_state(models)
    skeleton = copy.deepcopy(models[0]).to("meta")
    with watch(models):
        x = torch.randn(3, 4, 3)

        def one(weights, buffers, x):
            return func.functional_call(skeleton, (weights, buffers), (x,))

        y = func.vmap(one)(weights, buffers, x)
        y.sum().backward()
        z = models[0](x)
    return y, z, {name: weight.grad for name, weight in weights.items()}

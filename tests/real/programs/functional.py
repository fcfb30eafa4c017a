"""torch.func: per-sample gradients, a Hessian-vector product and an inner loop (MAML)."""

import functools

import torch
from torch.func import functional_call, grad, jvp, vmap


def train(run):
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def loss_of(weights, x, y):
        return (functional_call(model, weights, (x,)) - y).square().mean()

    for _ in range(run.steps):
        x, y = torch.randn(5, 6), torch.randn(5, 1)
        with run.recorded(model):
            weights = dict(model.named_parameters())
            plain = {name: weight.detach() for name, weight in weights.items()}
            each = vmap(grad(loss_of), in_dims=(None, 0, 0))(plain, x, y)
            scale = torch.stack([g.flatten(1).norm(dim=1) for g in each.values()]).sum(0)
            gradient = functools.partial(grad(loss_of), x=x, y=y)
            _, product = jvp(gradient, (plain,), (plain,))
            inner = torch.autograd.grad(loss_of(weights, x, y), weights.values(), create_graph=True)
            faster = {n: w - 0.1 * g for (n, w), g in zip(weights.items(), inner, strict=True)}
            loss = loss_of(faster, x, y) * scale.mean() + sum(p.sum() for p in product.values())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    return model

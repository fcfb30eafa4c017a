"""Small trainings; each has one feature that an observing tool could disturb.

PROGRAMS: name -> build(seed) -> (model, loss()). loss() is one forward pass and returns the loss.
If it returns a tuple, it has already computed the gradients.
"""

import threading

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


class Net(nn.Module):
    """Two layers with something in the middle: through(net, hidden)."""

    def __init__(self, through):
        super().__init__()
        self.first, self.second = nn.Linear(6, 10), nn.Linear(10, 6)
        self.norm, self.dropout = nn.LayerNorm(10), nn.Dropout(0.3)
        self.through = through

    def forward(self, x):
        return self.second(self.through(self, self.first(x)))


def dropout(net, x):
    x = F.dropout(net.dropout(x), 0.2, training=True)
    return x + 0.1 * torch.rand_like(x) + F.feature_alpha_dropout(x, 0.1, training=True)


def in_place(net, x):
    x = net.norm(x)
    x = F.relu(x, inplace=True) + 1
    x = x.mul_(x.new_tensor(1.5)).add_(0.5)
    x[:, 2] = x[:, 3].clone() * 2
    x[0, :4].mul_(0.5)
    x += torch.ones_like(x)
    with torch.no_grad():
        net.first.bias.clamp_(-1, 1)
    return x.clone().sigmoid_()


def views(net, x):
    halves = x.t().view(2, 5, -1).unbind(0)
    y = torch.stack([halves[1].transpose(0, 1), halves[0].t()], dim=1)
    narrow = y.narrow(1, 0, 1).expand(-1, 2, -1)
    narrow = narrow + y.as_strided(y.shape, y.stride())
    return narrow.permute(0, 2, 1).reshape(x.shape[0], -1)[:, ::2].repeat(1, 2)


def checkpointed(use_reentrant):
    def body(net, x):
        return checkpoint(
            lambda t: net.dropout(torch.tanh(net.norm(t))) * 2, x, use_reentrant=use_reentrant
        )

    return body


class Straight(torch.autograd.Function):
    """Rounds in forward and passes gradients on; the second output has no gradient."""

    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x)
        ctx.scale = scale
        signs = x.sign()
        ctx.mark_non_differentiable(signs)
        return (x * scale).round() / scale, signs

    @staticmethod
    def backward(ctx, gradient, _):
        (x,) = ctx.saved_tensors
        return gradient * torch.exp(-x.abs() / ctx.scale), None


def custom_function(net, x):
    rounded, signs = Straight.apply(x, 8.0)
    return rounded + 0.1 * signs


class Refuses(nn.Module):
    def forward(self, x):
        x = F.softplus(x)
        raise KeyError(float(x.sum()) > 0)


def exceptions(net, x):
    """Exceptions raised by a module, an API and a hook, and caught."""
    if not hasattr(net, "refuses"):
        net.refuses = Refuses()
    for attempt in (net.refuses, lambda t: torch.cat([t, t[0]]), lambda t: t.view(-1, 7)):
        try:
            attempt(x)
        except (KeyError, RuntimeError):
            x = x * 1.01
    return x


def shrink_gradient(parameter):
    parameter.grad.mul_(0.75)


def user_hooks(net, x):
    if not net._forward_hooks:
        net.norm.register_forward_hook(lambda module, inputs, output: output * 1.5)
        net.norm.register_forward_pre_hook(lambda module, inputs: (inputs[0] + 0.25,))
        net.second.register_full_backward_hook(lambda module, given, made: (given[0] * 0.5,))
        net.second.register_full_backward_pre_hook(lambda module, made: (made[0] * 3,))
        net.first.weight.register_hook(lambda gradient: gradient * 1.25)
        net.first.bias.register_post_accumulate_grad_hook(shrink_gradient)
        net.register_forward_hook(lambda module, inputs, output: None)
    x = net.norm(x)
    x.register_hook(lambda gradient: gradient.clamp(-0.01, 0.01))
    x.retain_grad()
    x.grad_fn.register_hook(lambda given, made: (given[0] * 2, *given[1:]))
    x.grad_fn.register_prehook(lambda made: (made[0] * 0.5,))
    return x


def mixed_precision(net, x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        x = net.norm(torch.tanh(x) @ torch.eye(10))
    with torch.no_grad():
        shift = net.first(torch.ones(1, 6)).mean()
    return x.float() + shift


def threads(net, x):
    parts = [None, None]

    def work(index):
        with torch.enable_grad():
            parts[index] = torch.sin(net.norm(x[:, :] * (index + 1)))

    for index in range(2):  # sequential: the order of dropout and gradients is fixed
        thread = threading.Thread(target=work, args=(index,))
        thread.start()
        thread.join()
    return parts[0] + parts[1]


def same_module_twice(net, x):
    return net.norm(F.gelu(net.norm(x)))


def transforms(net, x):
    def energy(row):
        return (torch.sin(row) * row).sum()

    return x + torch.func.vmap(torch.func.grad(energy))(x.detach()) + torch.vmap(torch.cos)(x)


def plain(net, x):
    return torch.tanh(x)


def backward_twice(model, inputs, targets):
    """retain_graph: two backward passes through the same graph."""
    loss = F.mse_loss(model(inputs), targets)
    loss.backward(retain_graph=True)
    (loss * 0.5).backward()
    return (loss,)


def gradient_penalty(model, inputs, targets):
    """A gradient of a gradient."""
    inputs = inputs.clone().requires_grad_()
    loss = F.mse_loss(model(inputs), targets)
    (slope,) = torch.autograd.grad(loss, inputs, create_graph=True)
    return loss + slope.pow(2).sum()


def gradients_by_hand(model, inputs, targets):
    """torch.autograd.grad with unused results; backward() is not called."""
    loss = F.mse_loss(model(inputs), targets)
    parameters = list(model.parameters())
    for parameter, gradient in zip(
        parameters, torch.autograd.grad(loss, parameters, allow_unused=True), strict=True
    ):
        parameter.grad = gradient
    return (loss,)


def simple_loss(model, inputs, targets):
    return F.mse_loss(model(inputs), targets)


def program(through, loss=simple_loss):
    def build(seed):
        torch.manual_seed(seed)
        model = Net(through)
        inputs, targets = torch.randn(4, 6), torch.randn(4, 6)
        return model, lambda: loss(model, inputs, targets)

    return build


PROGRAMS = {
    "dropout": program(dropout),
    "in_place": program(in_place),
    "views": program(views),
    "checkpoint": program(checkpointed(use_reentrant=False)),
    "checkpoint_reentrant": program(checkpointed(use_reentrant=True)),
    "custom_function": program(custom_function),
    "exceptions": program(exceptions),
    "user_hooks": program(user_hooks),
    "mixed_precision": program(mixed_precision),
    "threads": program(threads),
    "same_module_twice": program(same_module_twice),
    "transforms": program(transforms),
    "backward_twice": program(dropout, backward_twice),
    "gradient_penalty": program(plain, gradient_penalty),
    "gradients_by_hand": program(dropout, gradients_by_hand),
}

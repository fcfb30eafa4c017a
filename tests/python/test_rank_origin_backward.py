"""A backward pass that is wrong on one rank, before DDP's reducer spreads it unrecorded."""

import torch
from test_rank_origin import origins
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class WrongInput(torch.autograd.Function):
    """The identity with a wrong gradient."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 1.5  # the fault


class WrongWeight(torch.autograd.Function):
    """A linear layer with a correct gradient of its input and a wrong gradient of its weight."""

    @staticmethod
    def forward(ctx, x, weight, factor):
        ctx.save_for_backward(x, weight)
        ctx.factor = factor
        return x @ weight.t()

    @staticmethod
    def backward(ctx, gradient):
        x, weight = ctx.saved_tensors
        of_weight = gradient.t() @ x
        of_weight.numpy()[...] *= ctx.factor  # the fault; no recorded call makes it
        return gradient @ weight, of_weight, None


class Between(nn.Module):
    def forward(self, x):
        return WrongInput.apply(x)


class OwnLinear(nn.Linear):
    factor = 1.0

    def forward(self, x):
        return WrongWeight.apply(x, self.weight, self.factor)


def wrapped(rank, layers):
    torch.manual_seed(1)
    model = nn.Sequential(*layers())
    parallel = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.arange(12.0).reshape(3, 4) / 7 + rank

    def step():
        optimizer.zero_grad()
        parallel(x).square().sum().backward()
        optimizer.step()

    return parallel, step


def wrong_between(rank, fault):
    middle = Between if fault else nn.Identity
    return wrapped(rank, lambda: [nn.Linear(4, 4), nn.Tanh(), middle(), nn.Linear(4, 2)])


def wrong_weight_only(rank, fault):
    model, step = wrapped(rank, lambda: [nn.Linear(4, 4), nn.Tanh(), OwnLinear(4, 2, bias=False)])
    model.module[2].factor = 1.5 if fault else 1.0
    return model, step


def test_a_wrong_backward_is_named_on_its_rank(tmp_path, msprobe_bin):
    files, _ = origins(wrong_between, tmp_path, msprobe_bin, faulty=1, steps=2)
    [(rank, [node])] = files[0].items()
    assert rank == "rank_1" and node["reached"] == []
    assert node["op_name"] == "Tensor.__mul__.0.forward"  # the line of the fault
    # In the next step, what the reducer spread appears as weights that are wrong from the start.
    assert set(files[1]) == {"rank_0", "rank_1", "rank_2", "rank_3"}


def test_a_wrong_gradient_of_a_parameter_alone_is_named_on_its_rank(tmp_path, msprobe_bin):
    files, _ = origins(wrong_weight_only, tmp_path, msprobe_bin, faulty=2, steps=2)
    [(rank, [node])] = files[0].items()
    assert rank == "rank_2" and node["reached"] == []
    assert node["op_name"] == "Function.WrongWeight.0.backward", node
    assert "weight" in str(node), node

"""One layer, loss or optimizer of both frameworks in a small training, for test_layer_pairs.py.

    python layer_pairs.py torch|mindspore OUT CASE:LEVEL[:bug] ...

Each recording is made in a child of its own and lies in OUT/CASE_LEVEL[_bug]. Both frameworks begin
with the same weights and data; "bug": MindSpore's side has the mistake that the case plants.
"""

import multiprocessing
import os
import sys

import numpy as np

WIDTH, ROWS, CLASSES, STEPS = 16, 6, 4, 3
NAMES = {"gamma": "weight", "beta": "bias", "embedding_table": "weight"}


def torch_cases():
    import torch
    from torch import nn
    from torch.nn import functional as F
    from torch.optim import SGD, Adagrad, Adam, AdamW, RMSprop

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self.k, self.v = (nn.Linear(WIDTH, WIDTH) for _ in range(3))

        def forward(self, x):
            scores = torch.matmul(self.q(x), self.k(x).transpose(1, 2)) / WIDTH**0.5
            return torch.matmul(torch.softmax(scores, -1), self.v(x))

    class RmsNorm(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(WIDTH))

        def forward(self, x):
            return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * self.weight

    layers = {
        "batch_norm_1d": lambda: nn.BatchNorm1d(WIDTH),
        "batch_norm_2d": lambda: nn.BatchNorm2d(4),
        "layer_norm": lambda: nn.LayerNorm(WIDTH),
        "group_norm": lambda: nn.GroupNorm(2, 4),
        "instance_norm": lambda: nn.InstanceNorm2d(4, affine=True),
        "rms_norm": RmsNorm,
        "dropout": lambda: nn.Dropout(0.0),
        "embedding": lambda: nn.Embedding(12, WIDTH),
        "attention": Attention,
    }
    losses = {
        "cross_entropy": lambda y, label, _: F.cross_entropy(y, label),
        "nll_loss": lambda y, label, _: F.nll_loss(F.log_softmax(y, 1), label),
        "mse_loss": lambda y, _, goal: F.mse_loss(y, goal),
        "l1_loss": lambda y, _, goal: F.l1_loss(y, goal),
        "smooth_l1_loss": lambda y, _, goal: F.smooth_l1_loss(y, goal),
        "bce_with_logits": lambda y, _, goal: F.binary_cross_entropy_with_logits(
            y, (goal > 0).float()
        ),
        "kl_div": lambda y, _, goal: F.kl_div(
            F.log_softmax(y, 1), torch.softmax(goal, 1), reduction="batchmean"
        ),
    }
    optimizers = {
        "sgd": lambda p: SGD(p, 0.05),
        "momentum": lambda p: SGD(p, 0.05, 0.9),
        "adam": lambda p: Adam(p, 0.01),
        "adamw": lambda p: AdamW(p, 0.01, weight_decay=0.01),
        "rmsprop": lambda p: RMSprop(p, 0.01, alpha=0.9, eps=1e-10),
        "adagrad": lambda p: Adagrad(p, 0.02, initial_accumulator_value=0.1),
    }
    return layers, losses, optimizers


def mindspore_cases(bug):
    """`bug`: the case that has a mistake; "": none."""
    from mindspore.experimental import optim

    import mindspore
    from mindspore import Parameter, Tensor, nn, ops

    def pick(case, right, wrong):
        return wrong if bug == case else right

    class Attention(nn.Cell):
        def __init__(self):
            super().__init__()
            self.q, self.k, self.v = (nn.Dense(WIDTH, WIDTH) for _ in range(3))

        def construct(self, x):
            root = pick("attention", WIDTH**0.5, float(WIDTH))
            scores = ops.matmul(self.q(x), self.k(x).swapaxes(1, 2)) / root
            return ops.matmul(ops.softmax(scores, -1), self.v(x))

    class RmsNorm(nn.Cell):
        def __init__(self):
            super().__init__()
            self.weight = Parameter(Tensor(np.ones(WIDTH, "float32")), name="weight")

        def construct(self, x):
            eps = pick("rms_norm", 1e-6, 1e-2)
            return x * ops.rsqrt(x.square().mean(-1, keep_dims=True) + eps) * self.weight

    layers = {
        "batch_norm_1d": lambda: nn.BatchNorm1d(WIDTH, eps=pick("batch_norm_1d", 1e-5, 1e-2)),
        "batch_norm_2d": lambda: nn.BatchNorm2d(4, momentum=pick("batch_norm_2d", 0.9, 0.5)),
        "layer_norm": lambda: nn.LayerNorm((WIDTH,), epsilon=pick("layer_norm", 1e-5, 1e-2)),
        "group_norm": lambda: nn.GroupNorm(pick("group_norm", 2, 4), 4),
        # nn.InstanceNorm2d needs a GPU; with a group for each channel this is the same.
        "instance_norm": lambda: nn.GroupNorm(4, 4, eps=pick("instance_norm", 1e-5, 1e-2)),
        "rms_norm": RmsNorm,
        "dropout": lambda: nn.Dropout(p=pick("dropout", 0.0, 0.5)),
        "embedding": lambda: nn.Embedding(12, WIDTH),
        "attention": Attention,
    }
    losses = {
        "cross_entropy": lambda y, label, _: ops.cross_entropy(
            y, label, label_smoothing=pick("cross_entropy", 0.0, 0.1)
        ),
        "nll_loss": lambda y, label, _: ops.nll_loss(
            ops.log_softmax(y, 1), label, reduction=pick("nll_loss", "mean", "sum")
        ),
        "mse_loss": lambda y, _, goal: ops.mse_loss(y, goal, pick("mse_loss", "mean", "sum")),
        "l1_loss": lambda y, _, goal: ops.l1_loss(y, goal, pick("l1_loss", "mean", "sum")),
        "smooth_l1_loss": lambda y, _, goal: ops.smooth_l1_loss(
            y, goal, beta=pick("smooth_l1_loss", 1.0, 0.5), reduction="mean"
        ),
        "bce_with_logits": lambda y, _, goal: ops.binary_cross_entropy_with_logits(
            y,
            (goal > 0).astype(mindspore.float32),
            ops.ones_like(y),
            ops.full_like(y, pick("bce_with_logits", 1.0, 2.0)),
        ),
        "kl_div": lambda y, _, goal: ops.kl_div(
            ops.log_softmax(y, 1), ops.softmax(goal, 1), pick("kl_div", "batchmean", "mean")
        ),
    }
    optimizers = {
        "sgd": lambda p: nn.SGD(p, 0.05, weight_decay=pick("sgd", 0.0, 0.1)),
        "momentum": lambda p: nn.Momentum(p, 0.05, pick("momentum", 0.9, 0.8)),
        "adam": lambda p: nn.Adam(p, pick("adam", 0.01, 0.012)),
        "adamw": lambda p: optim.AdamW(p, lr=0.01, weight_decay=pick("adamw", 0.01, 0.3)),
        "rmsprop": lambda p: (
            # Its mean square begins with ones, PyTorch's with zeros.
            nn.RMSProp(p, 0.01, decay=0.9)
            if bug == "rmsprop"
            else optim.RMSprop(p, lr=0.01, alpha=0.9, eps=1e-10)
        ),
        "adagrad": lambda p: nn.Adagrad(p, pick("adagrad", 0.1, 1.0), 0.02),
    }
    return layers, losses, optimizers


def shape_of(case):
    """What the layer takes."""
    if case in ("batch_norm_2d", "group_norm", "instance_norm"):
        return (ROWS, 4, 2, 2)
    return (2, 3, WIDTH) if case == "attention" else (ROWS, WIDTH)


def net_of(case, layer, framework):
    """first -> layer -> last."""
    if framework == "torch":
        from torch import nn

        base, linear, forward = nn.Module, nn.Linear, "forward"
    else:
        from mindspore import nn

        base, linear, forward = nn.Cell, nn.Dense, "construct"

    class Net(base):
        def __init__(self):
            super().__init__()
            self.first = linear(WIDTH, WIDTH)
            if layer is not None:
                self.layer = layer
            self.last = linear(WIDTH, CLASSES)

        def run(self, x, tokens):
            if case == "embedding":
                return self.last(self.first(self.layer(tokens)))
            h = self.first(x)
            if layer is not None:
                h = self.layer(h.reshape(shape_of(case))).reshape((ROWS, WIDTH))
            return self.last(h)

    setattr(Net, forward, Net.run)
    return Net()


def data_of(step):
    r = np.random.default_rng(100 + step)
    x, goal = r.standard_normal((ROWS, WIDTH)), r.standard_normal((ROWS, CLASSES))
    label, tokens = r.integers(0, CLASSES, ROWS), r.integers(0, 11, ROWS)
    return x.astype("float32"), goal.astype("float32"), label, tokens


def weights_of(parameters):
    """The same numbers for the same parameter, whichever framework names it."""
    for number, (name, shape) in enumerate(sorted(parameters)):
        r = np.random.default_rng(number)
        one = 1.0 if name.startswith("layer.weight") and len(shape) == 1 else 0.0
        yield name, (one + 0.3 * r.standard_normal(shape)).astype("float32")


def in_torch(case, out, level, bug):
    assert not bug
    import torch

    from msprobe.pytorch import PrecisionDebugger

    layers, losses, optimizers = torch_cases()
    net = net_of(case, layers[case]() if case in layers else None, "torch")
    named = dict(net.named_parameters())
    for name, value in weights_of([(n, tuple(p.shape)) for n, p in named.items()]):
        named[name].data.copy_(torch.from_numpy(value))
    optimizer = optimizers.get(case, optimizers["momentum"])(net.parameters())
    loss_of = losses.get(case, losses["mse_loss"])
    debugger = PrecisionDebugger(dump_path=out, level=level)
    for step in range(STEPS):
        x, goal, label, tokens = (torch.from_numpy(array) for array in data_of(step))
        debugger.start(net)
        optimizer.zero_grad()
        loss_of(net(x, tokens), label, goal).backward()
        optimizer.step()
        debugger.stop()
        debugger.step()


def in_mindspore(case, out, level, bug):
    import mindspore
    from mindspore import Tensor
    from msprobe.mindspore import PrecisionDebugger

    mindspore.set_context(mode=mindspore.PYNATIVE_MODE, pynative_synchronize=True)
    mindspore.set_device("CPU")
    mindspore.set_seed(0)
    layers, losses, optimizers = mindspore_cases(case if bug else "")
    net = net_of(case, layers[case]() if case in layers else None, "mindspore")
    named = {}
    for parameter in net.trainable_params():
        *path, last = parameter.name.split(".")
        named[".".join([*path, NAMES.get(last, last)])] = parameter
    for name, value in weights_of([(n, tuple(p.shape)) for n, p in named.items()]):
        named[name].set_data(Tensor(value))
    net.set_train()
    optimizer = optimizers.get(case, optimizers["momentum"])(net.trainable_params())
    loss_of = losses.get(case, losses["mse_loss"])

    def forward(x, goal, label, tokens):
        return loss_of(net(x, tokens + 1 if bug and case == "embedding" else tokens), label, goal)

    train = mindspore.value_and_grad(forward, None, optimizer.parameters)
    debugger = PrecisionDebugger(dump_path=out, level=level)
    for step in range(STEPS):
        x, goal, label, tokens = data_of(step)
        debugger.start(net)
        _, gradients = train(
            Tensor(x), Tensor(goal), Tensor(label.astype("int32")), Tensor(tokens.astype("int32"))
        )
        optimizer(gradients)
        debugger.stop()
        debugger.step()


def main(framework, out, *wanted):
    if framework == "torch":
        import torch  # noqa: F401 - once, for all children
    else:
        import mindspore  # noqa: F401
    train = in_torch if framework == "torch" else in_mindspore
    context, failed = multiprocessing.get_context("fork"), []
    for words in wanted:
        case, level, *bug = words.split(":")
        path = os.path.join(out, words.replace(":", "_"))
        child = context.Process(target=train, args=(case, path, level, bool(bug)))
        child.start()
        child.join()
        if child.exitcode != 0:
            failed.append(words)
    if failed:
        sys.exit(f"failed: {' '.join(failed)}")


if __name__ == "__main__":
    main(*sys.argv[1:])

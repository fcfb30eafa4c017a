"""Whole models: several, without parameters, replaced, growing, deep, wide."""

import gc
import sys
import weakref

import torch
from torch import nn
from torch.nn import functional as F

from real_programs.watch import program, state_of


def small(seed=37):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 3), nn.Tanh())


@program("Module.0.0.Linear.forward.0", "Module.1.0.Linear.backward.0")
def two_models(watch):
    maker, judge = small(1), small(2)
    for _ in range(2):
        with watch([maker, judge]):
            judge(maker(torch.randn(2, 3))).sum().backward()
            judge(maker(torch.randn(2, 3)).detach()).sum().backward()
    return state_of(maker, judge)


@program("Module.0.Linear.forward.0", "Functional.linear.1.forward")
def one_of_two_models(watch):
    """A model that was not given to start() has no modules in the dump; its API calls are there."""
    student, teacher = small(1), small(2)
    with watch(student):
        x = torch.randn(2, 3)
        with torch.no_grad():
            wanted = teacher(x)
        F.mse_loss(student(x), wanted).backward()
    return wanted, state_of(student, teacher)


@program("Module.0.Linear.forward.0")
def another_model_each_step(watch):
    """Each start() gets a new model; the previous models are freed."""
    results, gone = [], []
    for seed in range(3):
        model = small(seed)
        with watch(model):
            model(torch.randn(2, 3)).sum().backward()
        results.append(state_of(model))
        gone.append(weakref.ref(model))
        del model
        gc.collect()
    return results, [ref() is None for ref in gone[:-1]]


@program("Module.0.Linear.forward.0", "Module.2.Linear.forward.0", "Module.2.Linear.backward.0")
def growing(watch):
    """Modules replaced and added, between steps and after start."""
    model = small()
    with watch(model):
        model.append(nn.Linear(3, 3))
        model(torch.randn(2, 3)).sum().backward()
    model[1] = nn.GELU()
    model.append(nn.Linear(3, 2))
    for _ in range(2):
        with watch(model):
            y = model(torch.randn(2, 3))
            y.sum().backward()
    model[0].register_parameter("extra", nn.Parameter(torch.ones(2)))
    model[0].weight = nn.Parameter(torch.ones(3, 3))
    with watch(model):
        (model(torch.randn(2, 3)).sum() + model[0].extra.sum()).backward()
    return y, state_of(model)


@program("Module.0.ReLU.forward.0", "Torch.sin.0.forward")
def without_parameters(watch):
    model = nn.Sequential(nn.ReLU(), nn.Flatten(), nn.Identity())
    with watch(model):
        y = torch.sin(model(torch.randn(2, 3, 1)))
    return y


@program("Torch.sin.0.forward")
def no_modules_at_all(watch):
    with watch(nn.Module()):
        y = torch.sin(torch.ones(3))
    return y


@program("Module.0.Linear.forward.0", "Module.0.Linear.parameters_grad.0")
def frozen(watch):
    """Some parameters need no gradient at first, and need one later."""
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    for wanted in (False, True):
        model[1].requires_grad_(wanted)
        model[0].bias.requires_grad_(wanted)
        with watch(model):
            model(torch.ones(2, 3)).sum().backward()
    return state_of(model)


@program("Module.0.Linear.forward.0", "Module.0.Linear.forward.1")
def evaluated(watch):
    model = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5), nn.BatchNorm1d(3))
    results = []
    for training in (True, False):
        model.train(training)
        with watch(model):
            results += [model(torch.randn(4, 3)), model(torch.randn(4, 3))]
    return results, state_of(model)


class Deeper(nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.inner = Deeper(depth - 1) if depth else nn.Linear(2, 2)

    def forward(self, x):
        return self.inner(x) + 1


@program("Module" + ".inner" * 31 + ".Linear.forward.0", "Tensor.__add__.30.backward")
def deep(watch):
    torch.manual_seed(37)
    model = Deeper(30)
    with watch(model):
        y = model(torch.ones(2))
        y.sum().backward()
    return y, state_of(model)


def recurse(x, depth):
    return torch.sin(x) if depth == 0 else recurse(x, depth - 1)


@program("Torch.sin.0.forward", "Torch.cos.0.forward")
def deep_recursion(watch):
    """Stacks of thousands of frames, and the RecursionError of the program itself."""
    model, limit, said = small(), sys.getrecursionlimit(), None
    with watch(model):
        sys.setrecursionlimit(6000)
        y = recurse(torch.ones(2), 4000)
        try:
            recurse(y, 10000)
        except RecursionError as error:
            said = type(error).__name__
        sys.setrecursionlimit(limit)
        z = torch.cos(y)
    return y, z, said


@program("Torch.cat.0.forward", "Torch.stack.0.backward")
def long_argument_lists(watch):
    model = small()
    with watch(model):
        parts = [torch.full((2,), float(n), requires_grad=n % 2 == 0) for n in range(2000)]
        y = torch.cat(parts)
        z = torch.stack(parts).sum()
        (y.sum() + z).backward()
    return y, z, [part.grad for part in parts[::100]]


@program("Torch.relu.0.forward")
def long_chain(watch):
    """A graph of thousands of nodes is freed without deep recursion in the tool."""
    model = small()
    with watch(model):
        x = torch.ones(2, requires_grad=True)
        y = x
        for _ in range(3000):
            y = torch.relu(y) * 1.001
        y.sum().backward()
        del y
    return x.grad

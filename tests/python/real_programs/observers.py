"""Other code that observes, copies or stores the program at the same time."""

import copy
import cProfile
import gc
import io
import pickle
import sys
import weakref

import torch
from torch import nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from real_programs.watch import program, state_of


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(23)
        self.fc, self.act = nn.Linear(3, 3), nn.Softplus()

    def forward(self, x):
        return self.act(F.relu(self.fc(x)) + 1)


def once(model):
    model(torch.randn(2, 3)).sum().backward()


RECORDS = ["Module.fc.Linear.forward.0", "Functional.relu.0.forward", "Tensor.sum.0.backward"]


@program(*RECORDS)
def profiler(watch):
    model = Net()
    activities = [torch.profiler.ProfilerActivity.CPU]
    profile = torch.profiler.profile(activities=activities, record_shapes=True)
    with profile as found, watch(model):
        once(model)
    names = {event.key: event.count for event in found.key_averages()}
    wanted = ("aten::addmm", "aten::relu", "aten::softplus", "AddmmBackward0")
    return {name: names.get(name) for name in wanted}, state_of(model)


@program(*RECORDS)
def tracing(watch):
    """A debugger or a coverage tool sees the same lines of the program as without the tool."""
    model, lines = Net(), []

    def trace(frame, event, _):
        if frame.f_code.co_filename != __file__:
            return None
        lines.append((frame.f_code.co_name, event, frame.f_lineno))
        return trace

    with watch(model):
        sys.settrace(trace)
        try:
            once(model)
        finally:
            sys.settrace(None)
    return lines, state_of(model)


@program(*RECORDS)
def profiling(watch):
    model, profile = Net(), cProfile.Profile()
    with watch(model):
        profile.runcall(once, model)
    profile.create_stats()
    calls = {key[2]: value[0] for key, value in profile.stats.items() if key[0] == __file__}
    return calls, state_of(model)


class CountFunctions(TorchFunctionMode):
    def __init__(self):
        self.seen = []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        self.seen.append(getattr(function, "__name__", str(function)))
        return function(*args, **(kwargs or {}))


class CountOperations(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.seen.append(str(function))
        return function(*args, **(kwargs or {}))


@program(*RECORDS)
def function_mode(watch):
    """The program's own function mode sees the same calls as without the tool."""
    model, mode = Net(), CountFunctions()
    with watch(model), mode:
        once(model)
    return mode.seen, state_of(model)


@program(*RECORDS)
def dispatch_mode(watch):
    model, mode = Net(), CountOperations()
    with watch(model), mode:
        once(model)
    return mode.seen, state_of(model)


@program(*RECORDS)
def flop_counter(watch):
    from torch.utils.flop_counter import FlopCounterMode

    model, mode = Net(), FlopCounterMode(display=False)
    with watch(model), mode:
        once(model)
    return mode.get_total_flops(), state_of(model)


@program(*RECORDS)
def device_context(watch):
    model = Net()
    with watch(model), torch.device("cpu"):
        once(model)
        y = torch.ones(2)
    return y, state_of(model)


def stored(model):
    whole, weights = io.BytesIO(), io.BytesIO()
    torch.save(model, whole)
    torch.save(model.state_dict(), weights)
    whole.seek(0)
    weights.seek(0)
    return torch.load(whole, weights_only=False), torch.load(weights)


@program(*RECORDS)
def copies(watch):
    """deepcopy, pickle and torch.save of a model while collecting and after."""
    model = Net()
    made = []
    for _ in range(2):
        with watch(model):
            once(model)
            made += [copy.deepcopy(model), pickle.loads(pickle.dumps(model)), *stored(model)]
            copy.deepcopy(model)(torch.ones(2, 3)).sum().backward()
        made += [copy.deepcopy(model), pickle.loads(pickle.dumps(model)), *stored(model)]
    hooks = [
        len(m._forward_hooks) + len(m._forward_pre_hooks) + len(m._backward_hooks)
        for m in model.modules()
    ]
    marks = [sorted(vars(m)) for m in model.modules()]
    states = [m if isinstance(m, dict) else dict(m.state_dict()) for m in made]
    return states, hooks, marks, len(pickle.dumps(model)), state_of(model)


@program(*RECORDS)
def freed(watch):
    """Activations and graphs are freed when the program drops them, also while collecting."""
    model, alive = Net(), []
    gc.collect()
    gc.disable()
    try:
        with watch(model):
            y = model(torch.randn(2, 3))
            held = weakref.ref(y)
            alive.append(held() is not None)
            y.sum().backward()
            del y
            alive.append(held() is not None)
            gone = weakref.ref(torch.sin(torch.ones(2)))
            alive.append(gone() is not None)
            forgotten = model(torch.randn(2, 3))  # backward is never called
            held = weakref.ref(forgotten)
            del forgotten
            alive.append(held() is not None)
    finally:
        gc.enable()
    return alive, state_of(model)


@program("Module.fc.Linear.forward.0")
def random_numbers(watch):
    """The program's own generators, fork_rng, and the generators of Python and NumPy."""
    import random

    import numpy

    model = Net()
    own = torch.Generator().manual_seed(4)
    numbers = []
    for _ in range(2):
        with watch(model):
            once(model)
            with torch.random.fork_rng():
                numbers.append(torch.rand(2))
            numbers += [torch.rand(2, generator=own), torch.rand(2), F.dropout(torch.ones(9))]
            numbers += [random.random(), numpy.random.rand()]
    return numbers, state_of(model)

"""torch.compile and other compilers: results are the same, and compiled calls stay compiled.

Calls inside compiled code are not recorded; the calls around it are.
"""

import torch
from torch import nn
from torch._dynamo.utils import counters
from torch.nn import functional as F

from real_programs.watch import program, state_of


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(11)
        self.fc1, self.fc2 = nn.Linear(4, 6), nn.Linear(6, 4)

    def forward(self, x):
        return self.fc2(F.gelu(self.fc1(x)))


class Broken(Net):
    """Has a graph break in the middle."""

    def forward(self, x):
        x = torch.relu(self.fc1(x))
        torch._dynamo.graph_break()
        return self.fc2(x)


class Counting:
    """A backend that counts compiled graphs and their calls."""

    def __init__(self):
        self.graphs, self.calls = [], 0

    def __call__(self, graph, example_inputs):
        self.graphs.append([str(node.target) for node in graph.graph.nodes])

        def run(*args):
            self.calls += 1
            return graph.forward(*args)

        return run


def counts():
    """Dynamo's counters. Graph breaks without their reasons, which may contain addresses."""
    found = {kind: dict(counters[kind]) for kind in ("stats", "frames")}
    return found, sorted(counters["graph_break"].values())


def train(watch, model, compiled, width=4, steps=3, sizes=(3, 3, 3)):
    results = []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(steps):
        with watch(model):
            x = torch.randn(sizes[step], width) * 2
            loss = torch.tanh(compiled(x)).square().sum()
            loss.backward()
        optimizer.step()
        results.append(loss)
    return results, state_of(model), counts()


AROUND = ["Torch.tanh.0.forward", "Tensor.square.0.backward"]


class Chunks(Net):
    """Views that start after the first element of their storage; tracing reads their strides."""

    def forward(self, x):
        left, right = torch.chunk(self.fc2(self.fc1(x)), 2, dim=1)
        return left * right.unsqueeze(0).expand(2, -1, -1)


@program(*AROUND, absent=("Tensor.stride", "Torch.chunk"))
def views_traced(watch):
    """Calls of the compiler itself are not recorded, neither while it traces nor at run time."""
    torch._dynamo.reset()
    counters.clear()
    model = Chunks()
    return train(watch, model, torch.compile(model, backend="aot_eager"))


@program(*AROUND)
def counting_backend(watch):
    torch._dynamo.reset()
    counters.clear()
    model, backend = Net(), Counting()
    result = train(watch, model, torch.compile(model, backend=backend, fullgraph=True))
    return result, backend.graphs, backend.calls


@program(*AROUND)
def compiled_in_place(watch):
    """model.compile() keeps the module object that start() was given."""
    torch._dynamo.reset()
    counters.clear()
    model, backend = Net(), Counting()
    model.compile(backend=backend)
    return train(watch, model, model), backend.graphs, backend.calls


@program(*AROUND)
def graph_break(watch):
    torch._dynamo.reset()
    counters.clear()
    model, backend = Broken(), Counting()
    return train(watch, model, torch.compile(model, backend=backend)), backend.graphs, backend.calls


@program(*AROUND)
def recompiles(watch):
    torch._dynamo.reset()
    counters.clear()
    model, backend = Net(), Counting()
    result = train(watch, model, torch.compile(model, backend=backend), sizes=(3, 5, 7))
    return result, backend.graphs, backend.calls


@program(*AROUND)
def compiled_before_start(watch):
    torch._dynamo.reset()
    counters.clear()
    model, backend = Net(), Counting()
    compiled = torch.compile(model, backend=backend)
    compiled(torch.randn(3, 4)).sum().backward()
    result = train(watch, model, compiled)
    last = compiled(torch.randn(3, 4))
    return result, last, counts(), backend.graphs, backend.calls


@program("Functional.gelu.0.forward", "Module.fc1.Linear.forward.0")
def compiled_after_stop(watch):
    torch._dynamo.reset()
    counters.clear()
    model, backend = Net(), Counting()
    with watch(model):
        model(torch.randn(3, 4)).sum().backward()
    compiled = torch.compile(model, backend=backend, fullgraph=True)
    y = compiled(torch.randn(3, 4))
    result = train(watch, model, compiled)
    return y, result, backend.graphs, backend.calls


@program("Torch.tanh.0.forward")
def compiled_function(watch):
    """A function called while collecting, while not collecting, and from a recorded module."""
    torch._dynamo.reset()
    counters.clear()
    backend = Counting()

    @torch.compile(backend=backend, dynamic=False)
    def swish(x):
        return F.silu(x) * torch.sigmoid(x)

    class Swish(nn.Module):
        def forward(self, x):
            return swish(x)

    model = nn.Sequential(nn.Linear(4, 4), Swish())
    result = train(watch, model, model)
    return result, swish(torch.ones(3, 4)), backend.graphs, backend.calls


@program(*AROUND, absent=["Functional.gelu"])
def aot_eager(watch):
    torch._dynamo.reset()
    counters.clear()
    model = Net()
    return train(watch, model, torch.compile(model, backend="aot_eager", fullgraph=True))


@program(*AROUND, absent=["Functional.gelu"], slow=True)
def inductor(watch):
    torch._dynamo.reset()
    counters.clear()
    model = Net()
    return train(watch, model, torch.compile(model))


@program("Torch.tanh.0.forward", absent=["backward"], slow=True)
def compiled_autograd(watch):
    """Backward runs in compiled code: no gradient is recorded, and coverage.json says so."""
    torch._dynamo.reset()
    model = Net()
    with torch._dynamo.config.patch(compiled_autograd=True):
        compiled = torch.compile(model, backend="aot_eager")

        @torch.compile(backend="aot_eager")
        def backward(loss):
            loss.backward()

        for _ in range(2):
            with watch(model):
                loss = torch.tanh(compiled(torch.randn(3, 4))).square().sum()
                backward(loss)
    return loss, state_of(model)


@program("Module.fc1.Linear.forward.0", "Functional.gelu.0.forward")
def explain_and_disable(watch):
    torch._dynamo.reset()
    model = Net()
    with watch(model):
        first = torch._dynamo.disable(model)(torch.ones(3, 4))
        found = torch._dynamo.explain(model)(torch.ones(3, 4))
    operations = [str(node.target) for graph in found.graphs for node in graph.graph.nodes]
    return first, found.graph_count, found.graph_break_count, operations


def scripted(x):
    return torch.relu(x) + F.softmax(x * 2, dim=0)


@program("Torch.sigmoid.0.forward")
def jit_script(watch):
    model = Net()
    with watch(model):
        function = torch.jit.script(scripted)
        module = torch.jit.script(model)
        y = torch.sigmoid(module(function(torch.ones(3, 4))))
        y.sum().backward()
    kinds = [node.kind() for node in function.graph.nodes()]
    return y, kinds, str(module.fc1.code), state_of(model)


@program("Torch.sigmoid.0.forward")
def jit_trace(watch):
    model = Net()
    with watch(model):
        module = torch.jit.trace(model, torch.ones(3, 4))
        function = torch.jit.trace(scripted, torch.ones(3, 4))
        y = torch.sigmoid(module(function(torch.ones(3, 4))))
        y.sum().backward()
    kinds = [node.kind() for node in module.inlined_graph.nodes()]
    return y, kinds, [node.kind() for node in function.graph.nodes()], state_of(model)


@program("Torch.sigmoid.0.forward")
def export(watch):
    model = Net()
    with watch(model):
        exported = torch.export.export(model, (torch.ones(3, 4),))
        strict = torch.export.export(model, (torch.ones(3, 4),), strict=True)
        y = torch.sigmoid(exported.module()(torch.ones(3, 4)))
    operations = [str(node.target) for node in exported.graph.nodes]
    return y, operations, [str(node.target) for node in strict.graph.nodes]


@program("Torch.sigmoid.0.forward", "Module.fc1.Linear.forward.0")
def fx_trace(watch):
    model = Net()
    with watch(model):
        traced = torch.fx.symbolic_trace(model)
        y = torch.sigmoid(traced(torch.ones(3, 4)))
        y.sum().backward()
        made = torch.fx.experimental.proxy_tensor.make_fx(scripted)(torch.ones(3))
    return y, traced.code, made.code, state_of(model)

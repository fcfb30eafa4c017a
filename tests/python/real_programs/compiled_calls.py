"""torch.compile reads and compares the code of listed functions, which the tool does not change."""

import threading

import torch
import torch.distributed as dist
from torch import nn
from torch._dynamo.utils import counters
from torch.nn import functional as F

from real_programs.compilers import Counting, counts
from real_programs.watch import program


def inlined(x):
    """Functions whose code is traced, and one function that becomes a node of the graph."""
    x = F.pad(x, (1, 1)).unflatten(0, (1, -1)) + F.threshold(1 - x.norm(), 0.1, 2.0)
    x = F.softmax(x, dim=-1)
    return F.triplet_margin_with_distance_loss(x, x + 1, x * 2)


BY_CODE = [
    "Functional.pad.0.forward",
    "Functional.pad.1.forward",
    "Functional.threshold.0.forward",
    "Tensor.unflatten.0.forward",
    "Tensor.norm.0.forward",
    "Functional.triplet_margin_with_distance_loss.0.forward",
]


def in_turns(watch, backend):
    """The same functions in compiled code and outside it, before, in and after two steps."""
    torch._dynamo.reset()
    counters.clear()
    first, second = (torch.compile(inlined, backend=backend, fullgraph=True) for _ in range(2))
    results = [first(torch.ones(3, 4))]
    for _ in range(2):
        with watch(nn.Module()):
            results += [torch.tanh(first(torch.ones(3, 4))), second(torch.ones(3, 4))]
            results += [inlined(torch.ones(3, 4)), F.pad(torch.ones(2), (1, 1))]
            results.append(first(torch.ones(3, 4)))
        results += [first(torch.ones(3, 4)), inlined(torch.ones(3, 4))]
    return results, counts()


@program("Torch.tanh.0.forward", *BY_CODE)
def inlined_functions(watch):
    backend = Counting()
    return in_turns(watch, backend), backend.graphs, backend.calls


@program("Torch.tanh.0.forward", *BY_CODE, absent=["Functional.pad.2."])
def inlined_functions_aot(watch):
    return in_turns(watch, "aot_eager")


@program("Torch.tanh.0.forward", *BY_CODE, absent=["Functional.pad.2."], slow=True)
def inlined_functions_inductor(watch):
    return in_turns(watch, "inductor")


@program(*BY_CODE, "Functional.pad.2.forward")
def between_graphs(watch):
    """Calls at a graph break, and in functions excluded from graphs, are recorded as usual."""
    torch._dynamo.reset()
    counters.clear()
    backend = Counting()

    @torch._dynamo.disable
    def outside(x):
        return inlined(x)

    def broken(x):
        x = x * 2
        torch._dynamo.graph_break()
        return F.pad(outside(x).reshape(1), (0, 1)) + 1

    compiled, results = torch.compile(broken, backend=backend), []
    for _ in range(3):
        with watch(nn.Module()):
            results += [compiled(torch.ones(3, 4)), F.pad(torch.ones(2), (1, 1))]
            results.append(F.pad(torch.ones(2), (2, 1)))
        results.append(compiled(torch.ones(3, 4)))
    return results, counts(), backend.graphs, backend.calls


@program("Torch.tanh.0.forward", "Functional.pad.0.forward")
def started_in_compiled_code(watch):
    """A step that begins and ends in a callback from compiled code."""
    torch._dynamo.reset()
    counters.clear()
    backend, results = Counting(), []

    @torch._dynamo.disable
    def step(x):
        with watch(nn.Module()):
            results.append(torch.tanh(F.pad(x, (1, 1))))
            return F.softmax(x, dim=-1)

    compiled = torch.compile(lambda x: F.softmax(step(x + 1), dim=0) * 2, backend=backend)
    for _ in range(3):
        results += [compiled(torch.ones(3, 4)), F.softmax(torch.ones(2), dim=0)]
    return results, counts(), backend.graphs, backend.calls


@program("Functional.pad.0.forward", "Functional.pad.1.forward")
def compiled_on_another_thread(watch):
    """While one thread compiles, the calls of another thread are recorded as usual."""
    torch._dynamo.reset()
    counters.clear()
    compiling, go_on, results = threading.Event(), threading.Event(), []

    def backend(graph, inputs):
        compiling.set()
        go_on.wait()
        return graph

    compiled = torch.compile(inlined, backend=backend, fullgraph=True)
    thread = threading.Thread(target=lambda: results.append(compiled(torch.ones(3, 4))))
    with watch(nn.Module()):
        thread.start()
        compiling.wait()
        results.append(F.pad(torch.ones(2), (1, 1)))
        go_on.set()
        thread.join()
        results.append(F.pad(torch.ones(2), (2, 1)))
        results.append(compiled(torch.ones(3, 4)))
    return [results[1], results[0], *results[2:]], counts()


@program("Distributed.all_reduce.0.forward", absent=["all_reduce.1."])
def compiled_collective(watch):
    """A collective in compiled code, and one outside it."""
    torch._dynamo.reset()
    counters.clear()
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)

    def exchange(x):
        dist.all_reduce(x)
        return x * 2

    compiled, results = torch.compile(exchange, backend="aot_eager", fullgraph=True), []
    for _ in range(2):
        results.append(compiled(torch.ones(3)))
        with watch(nn.Module()):
            results += [compiled(torch.ones(3)), exchange(torch.ones(3))]
    dist.destroy_process_group()
    return results, counts()


@program("Torch.tanh.0.forward", *BY_CODE)
def first_compiled_while_collecting(watch):
    torch._dynamo.reset()
    counters.clear()
    backend, results = Counting(), []
    for _ in range(3):
        with watch(nn.Module()):
            results += [F.pad(torch.ones(2), (1, 1)), inlined(torch.ones(3, 4))]
            compiled = torch.compile(inlined, backend=backend, fullgraph=True)
            results.append(torch.tanh(compiled(torch.ones(3, 4))))
            results += [F.pad(torch.ones(2), (1, 1)), inlined(torch.ones(3, 4))]
    return results, counts(), backend.graphs, backend.calls

"""Threads, processes, coroutines, generators: which calls are recorded, under which parent."""

import asyncio
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

from real_programs.watch import program, state_of


def small(seed=19):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 3), nn.Tanh())


class Calls(nn.Module):
    """Runs `work(module, x)`."""

    def __init__(self, work):
        super().__init__()
        torch.manual_seed(19)
        self.fc, self.work = nn.Linear(3, 3), work

    def forward(self, x):
        return self.work(self, x)


def in_thread(function, *args):
    results = []
    thread = threading.Thread(target=lambda: results.append(function(*args)))
    thread.start()
    thread.join()
    return results[0]


@program(
    "Module.0.fc.Linear.forward.0",
    "Functional.linear.0.backward",
    parents={
        "Module.0.fc.Linear.forward.0": None,
        "Functional.linear.0.forward": "Module.0.fc.Linear.forward.0",
        "Torch.cos.0.forward": "Module.0.Calls.forward.0",
        "Module.0.Calls.forward.0": None,
    },
)
def thread_in_a_module(watch):
    """The parent of a call is a module of the same thread."""
    model = nn.Sequential(Calls(lambda self, x: torch.cos(in_thread(self.fc, x))))
    with watch(model):
        y = model(torch.randn(2, 3))
        y.sum().backward()
    return y, state_of(model)


@program("Module.0.0.Linear.forward.0", "Module.3.0.Linear.backward.19")
def concurrent_models(watch):
    """Four threads at the same time, each with its own model."""
    models = [small(seed) for seed in range(4)]
    inputs = [torch.randn(4, 3) for _ in models]
    ready = threading.Barrier(4)

    def work(model, x):
        ready.wait()
        for _ in range(20):
            F.gelu(model(x)).sum().backward()

    with watch(models), ThreadPoolExecutor(4) as pool:
        list(pool.map(work, models, inputs))
    return state_of(*models)


@program("Module.0.Linear.backward.0", "Torch.sin.0.backward")
def backward_in_a_thread(watch):
    model = small()
    with watch(model):
        loss = torch.sin(model(torch.randn(2, 3))).sum()
        in_thread(loss.backward)
    return loss, state_of(model)


@program("Torch.sin.0.forward")
def threads_that_outlive_a_step(watch):
    """A thread works through several steps, and between them."""
    model, results = small(), []
    work, done = threading.Semaphore(0), threading.Semaphore(0)

    def worker():
        for number in range(6):
            work.acquire()
            results.append(torch.sin(torch.ones(3) * number))
            done.release()

    thread = threading.Thread(target=worker)
    thread.start()
    for _ in range(3):
        work.release()
        done.acquire()
        with watch(model):
            model(torch.ones(2, 3)).sum().backward()
            work.release()
            done.acquire()
    thread.join()
    return results, state_of(model)


class Squares(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return F.relu(torch.full((3,), float(index))).pow(2) + torch.rand(3)


def load(watch, **options):
    model = small()
    losses = []
    loader = DataLoader(Squares(), batch_size=4, **options)
    for _ in range(2):
        with watch(model):
            for batch in loader:
                loss = model(batch).sum()
                loss.backward()
                losses.append(loss)
    return losses, state_of(model)


@program("Module.0.Linear.forward.1", "Functional.relu.0.forward")
def loader_in_this_process(watch):
    return load(watch)


@program("Module.0.Linear.forward.1", absent=["Functional.relu", "Tensor.pow"])
def loader_forks(watch):
    """Workers of a data loader record nothing."""
    return load(watch, num_workers=2, multiprocessing_context="fork")


@program("Module.0.Linear.forward.1", absent=["Functional.relu", "Tensor.pow"])
def loader_forks_once(watch):
    return load(watch, num_workers=1, multiprocessing_context="fork", persistent_workers=True)


@program("Module.0.Linear.forward.1", absent=["Functional.relu", "Tensor.pow"], slow=True)
def loader_spawns(watch):
    return load(watch, num_workers=1, multiprocessing_context="spawn")


@program("Torch.sin.0.forward", absent=["Torch.cos"])
def fork_in_the_middle(watch):
    """The child computes the same, records nothing, and does not change our files when it ends."""
    model = small()
    with watch(model):
        x = torch.randn(2, 3)
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            torch.set_num_threads(1)
            y = torch.cos(model(x))
            y.sum().backward()
            os.write(write, y.detach().numpy().tobytes())
            if watch.debugger is not None:
                watch.debugger.stop()
                watch.debugger.step()
                watch.debugger.start(model)
                model(x)
                watch.debugger.stop()
            os._exit(0)
        os.close(write)
        told = b""
        while piece := os.read(read, 1 << 16):
            told += piece
        status = os.waitpid(pid, 0)[1]
        y = torch.sin(model(x))
        y.sum().backward()
    return told, status, y, state_of(model)


@program("Torch.sin.0.forward", "Module.0.Linear.forward.2")
def generators(watch):
    """A generator is suspended and resumed, inside and outside a step."""
    model = small()

    def numbers():
        while True:
            yield torch.sin(model(torch.randn(2, 3)))

    source, results = numbers(), []
    for _ in range(2):
        with watch(model):
            results += [next(source) for _ in range(3)]
        results.append(next(source))
    return results


@program("Torch.sin.0.forward", "Module.0.Linear.forward.3")
def coroutines(watch):
    model = small()

    async def one(number):
        y = model(torch.full((2, 3), float(number)))
        await asyncio.sleep(0)
        return torch.sin(y)

    async def all_of_them():
        with watch(model):
            parts = await asyncio.gather(*(one(number) for number in range(4)))
            sum(part.sum() for part in parts).backward()
        return parts

    return asyncio.run(all_of_them()), state_of(model)


class Suspended(nn.Module):
    """A module whose forward is a generator: its body runs after the module's call returned."""

    def forward(self, x):
        yield torch.sin(x)
        yield torch.cos(x)


@program(
    "Torch.sin.0.forward",
    "Torch.cos.0.forward",
    parents={"Torch.sin.0.forward": None, "Torch.cos.0.forward": None},
)
def generator_module(watch):
    model = nn.Sequential(Suspended())
    with watch(model):
        results = list(model(torch.ones(3)))
    return results

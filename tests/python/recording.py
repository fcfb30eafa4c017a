"""Runs recording code in forked children, and reads their dumps.

A process has only one debugger, so each recording runs in a child; a fork imports torch only once.
"""

import atexit
import functools
import hashlib
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed

import forked_python
import msprobe.pytorch  # noqa: F401  imported once, not in every child

if hasattr(torch, "compile"):
    import torch._dynamo

GIVE_UP_S = 120  # a child that hangs is killed after this time; no passing test waits so long


class ForkedError(AssertionError):
    """The exception of a child, with its traceback."""


def _work(pipe, function, args, kwargs):
    # OpenMP's threads do not exist after a fork.
    torch.set_num_threads(1)
    # PyTorch creates its autograd engine again after a fork, without a lock: do it on one thread.
    torch.ones((), requires_grad=True).exp()
    try:
        pipe.send((True, function(*args, **kwargs)))
    except BaseException:
        pipe.send((False, traceback.format_exc()))


def _start(function, args, kwargs):
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_work, args=(sender, function, args, kwargs))
    child.start()
    sender.close()
    return child, receiver


def _result(child, receiver, name):
    try:
        if not receiver.poll(GIVE_UP_S):
            raise ForkedError(f"{name} did not end in {GIVE_UP_S} s")
        done, result = receiver.recv()
    except EOFError:
        child.join()
        raise ForkedError(f"{name} died with exit code {child.exitcode}") from None
    finally:
        if child.is_alive() and not receiver.closed:
            receiver.close()
        child.join(GIVE_UP_S)
        child.kill()
    if not done:
        raise ForkedError(f"in the child:\n{result}")
    return result


def run_forked(function, *args, **kwargs):
    """Runs `function(*args, **kwargs)` in a child; returns its result, which must be picklable."""
    return _result(*_start(function, args, kwargs), function.__name__)


def _outcome(test, kwargs):
    """Runs a test in the child: ("failed", pytest's report), ("skipped", reason) or None."""
    __tracebackhide__ = True
    try:
        test(**kwargs)
    except pytest.skip.Exception as skipped:
        return "skipped", str(skipped)
    except BaseException:
        return "failed", str(pytest.ExceptionInfo.from_current().getrepr())
    return None


def forked(test):
    """Decorator: the test runs in a child; fixtures and parameters are made in the parent.

    If the test fails, pytest shows the lines and the values of the child::

        @forked
        def test_names(tmp_path):
            ...
            assert read_dump(tmp_path).names == ["Torch.relu.0.forward"]
    """

    @functools.wraps(test)
    def in_a_child(**kwargs):
        __tracebackhide__ = True
        try:
            outcome = _result(*_start(_outcome, (test, kwargs), {}), test.__name__)
        except ForkedError as error:
            outcome = "failed", str(error)
        if outcome is not None:
            what, text = outcome
            if what == "skipped":
                pytest.skip(text)
            pytest.fail(text, pytrace=False)

    return in_a_child


def _be_the_program(program, arguments, out, err):
    """In the child: what `python program arguments` does, up to its exit code."""
    atexit._clear()  # those of pytest
    os.dup2(out.fileno(), 1), os.dup2(err.fileno(), 2)
    forked_python.open_streams()
    torch.set_num_threads(1)  # as in _work
    torch.ones((), requires_grad=True).exp()
    is_text = "\n" in program or not os.path.exists(program)
    sys.path.insert(0, "" if is_text else os.path.dirname(os.path.abspath(program)))
    words = ["-c", program] if is_text else [program]
    return forked_python.be_the_program([*words, *map(str, arguments)])


def run_program(program, *arguments, cwd=None):
    """`python program arguments`, or `python -c program arguments`, in a fork of this process.

    It takes 0.1 s of processor time, not the 2.3 s of an `import torch`, and one thread computes.
    What another program starts takes `forked_python` (tests/forked_python.py).
    """
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                if cwd is not None:
                    os.chdir(cwd)
                code = _be_the_program(str(program), arguments, out, err)
            finally:
                os._exit(code)
        give_up = time.monotonic() + GIVE_UP_S
        while (ended := os.waitpid(child, os.WNOHANG))[0] == 0:
            if time.monotonic() > give_up:
                os.kill(child, signal.SIGKILL)
            time.sleep(0.01)
        out.seek(0), err.seek(0)
        code = os.waitstatus_to_exitcode(ended[1])
        return subprocess.CompletedProcess([program, *arguments], code, out.read(), err.read())


def wait_for_new_names(folder):
    """Until files whose names end in the second of their time do not meet those in `folder`."""
    while any(int(path.stat().st_mtime) == int(time.time()) for path in folder.glob("*.csv")):
        time.sleep(0.01)


def run_together(calls):
    """Runs `calls`, each (function, *args), at the same time, each in its own child."""
    children = [_start(function, args, {}) for function, *args in calls]
    return [_result(*child, call[0].__name__) for child, call in zip(children, calls, strict=True)]


def _as_rank(function, rank, ranks, store, args, kwargs):
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=ranks
    )
    torch.distributed.barrier()  # a rank that exits early breaks ranks that still connect
    return function(rank, *args, **kwargs)


def run_ranks(ranks, function, *args, **kwargs):
    """Runs `function(rank, *args, **kwargs)` in a gloo group of `ranks` children: all results."""
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "store"
        return run_together(
            [(_as_rank, function, rank, ranks, store, args, kwargs) for rank in range(ranks)]
        )


def whole_tensors(folder: Path) -> dict:
    """File name -> tensor; an incomplete file raises."""
    files = sorted(folder.glob("*.pt"))
    return {file.name: torch.load(file, weights_only=True) for file in files}


class Dump:
    """The files of one rank and step. `data`: entry name -> record."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.header = json.loads((folder / "dump.json").read_text())
        self.data = self.header.pop("data")

    @property
    def names(self) -> list:
        return list(self.data)

    def side(self, name: str) -> dict:
        """stack.json or construct.json."""
        return json.loads((self.folder / name).read_text())

    def tensors(self) -> dict:
        """File name -> tensor, for the files in dump_tensor_data."""
        return whole_tensors(self.folder / "dump_tensor_data")


def read_dump(dump_path, step: int = 0, rank="") -> Dump:
    """The dump of one rank in one step; without a rank, of a run that is not distributed."""
    return Dump(Path(dump_path) / f"step{step}" / f"rank{rank}")


def digest(value):
    """Converts a result to values that are equal only if every bit is equal."""
    if isinstance(value, torch.Tensor):
        plain = value.detach().resolve_conj().resolve_neg().contiguous()
        raw = plain.view(torch.uint8) if plain.dim() else plain.reshape(1).view(torch.uint8)
        return str(value.dtype), tuple(value.shape), hashlib.sha256(raw.numpy()).hexdigest()
    if isinstance(value, np.ndarray):
        return str(value.dtype), value.shape, hashlib.sha256(value.tobytes()).hexdigest()
    if isinstance(value, dict):
        return [(str(key), digest(item)) for key, item in value.items()]
    if isinstance(value, (list, tuple)):
        return [digest(item) for item in value]
    if isinstance(value, float):
        return value.hex()
    return value

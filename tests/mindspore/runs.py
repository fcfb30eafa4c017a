"""Runs recording code of MindSpore in forked children, and reads their dumps.

A process has only one debugger, so each recording runs in a child. The parent imports MindSpore and
runs no operator, so that the children begin as a fresh process does.
"""

import functools
import json
import multiprocessing
import traceback
import zlib
from pathlib import Path

import numpy as np

import mindspore
import msprobe.mindspore

GIVE_UP_S = 300


def _work(pipe, function, args, kwargs):
    mindspore.set_context(mode=mindspore.PYNATIVE_MODE, pynative_synchronize=True)
    try:
        pipe.send((True, function(*args, **kwargs)))
    except BaseException:
        pipe.send((False, traceback.format_exc()))


def run_forked(function, *args, **kwargs):
    """Runs `function(*args, **kwargs)` in a child; returns its result, which must be picklable."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_work, args=(sender, function, args, kwargs))
    child.start()
    sender.close()
    try:
        assert receiver.poll(GIVE_UP_S), f"the child did not end in {GIVE_UP_S} s"
        done, result = receiver.recv()
    except EOFError:
        child.join()
        raise AssertionError(f"the child died with exit code {child.exitcode}") from None
    finally:
        child.join(10)
        child.kill()
    assert done, f"in the child:\n{result}"
    return result


def forked(test):
    """Decorator: the test runs in a child."""

    @functools.wraps(test)
    def in_a_child(**kwargs):
        __tracebackhide__ = True
        run_forked(test, **kwargs)

    return in_a_child


class Dump:
    """The files of one step and rank."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.header = self._read("dump.json")
        self.data = self.header.get("data", {})
        self.names = list(self.data)

    def _read(self, name):
        return json.loads((self.folder / name).read_text())

    @property
    def parents(self):
        return self._read("construct.json")

    @property
    def stacks(self):
        return self._read("stack.json")

    @property
    def coverage(self):
        return self._read("coverage.json")

    def array(self, value):
        return np.load(self.folder / "dump_tensor_data" / value["data_name"])


def read_dump(path, step=0):
    (folder,) = (Path(path) / f"step{step}").iterdir()
    return Dump(folder)


def record(path, run, model=None, **arguments):
    """Runs `run()` between start and stop, and reads what was recorded."""
    debugger = msprobe.mindspore.PrecisionDebugger(dump_path=str(path), **arguments)
    debugger.start(model)
    try:
        result = run()
    finally:
        debugger.stop()
    # A run in which nothing was called makes no folder.
    return result, read_dump(path) if (Path(path) / "step0").exists() else None


def tensors(value):
    """All tensors below a recorded value, in order."""
    if isinstance(value, dict) and "dtype" in value and "shape" in value:
        yield value
    elif isinstance(value, (dict, list)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from tensors(part)


def bits(*values):
    """A checksum of all elements of tensors, arrays, and sequences of them."""
    total = 0
    for value in values:
        if isinstance(value, (list, tuple)):
            total = zlib.crc32(str(bits(*value)).encode(), total)
        elif value is not None:
            array = value.asnumpy() if hasattr(value, "asnumpy") else np.asarray(value)
            total = zlib.crc32(np.ascontiguousarray(array).tobytes(), total)
    return total

"""The steps of optimizers: Cells that are called with their gradients.

Their class gets a ``__call__`` of ours from start() to step() of the debugger; the engine reads the
weights, the gradients, the moments and the hyper-parameters around the call.
"""

import ast
import contextlib
import inspect
import textwrap

from mindspore.experimental.optim import Optimizer

from mindspore import nn
from msprobe import _engine
from msprobe.mindspore import compiled

_BASES = (nn.Optimizer, Optimizer)  # the second one is that of mint.optim, too
_placed = []
_calls = {}  # code of a compiled program -> what it calls


def observe():
    """Record steps until :func:`forget`."""
    if _placed or not _engine.optimizers_wanted():
        return
    for base in _BASES:
        if "__call__" not in vars(base):
            base.__call__ = _call
            _placed.append(base)


def forget():
    """The classes are as they were."""
    while _placed:
        del _placed.pop().__call__


@contextlib.contextmanager
def _recorded(optimizer, gradients, waits):
    """The step inside; ``waits``: MindSpore may compute it on another thread."""
    if waits:
        compiled.wait()
    if not _engine.cell_optimizer_begins(optimizer, gradients):
        yield
        return
    exception = ""
    try:
        yield
        if waits:
            compiled.wait()
    except BaseException as error:
        exception = type(error).__name__
        raise
    finally:
        _engine.cell_optimizer_ends(exception)


def _call(self, *args, **kwargs):
    gradients = args[0] if args else next(iter(kwargs.values()), None)
    with _recorded(self, gradients, compiled.is_graph_mode()):
        return nn.Cell.__call__(self, *args, **kwargs)


@contextlib.contextmanager
def inside(function, owner):
    """Around a program that runs compiled: a step of the optimizer that it uses, if it uses one.

    Its gradients stay inside the graph.
    """
    optimizer = _called_in(inspect.unwrap(function), owner) if _placed else None
    if optimizer is None:
        yield
        return
    with _recorded(optimizer, (), waits=True):
        yield


def _called_in(function, owner):
    """The optimizer that the function calls by its name, or as an attribute of ``self``."""
    if function.__code__ not in _calls:
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
        except (OSError, SyntaxError):  # it has no source: its steps are not seen
            tree = ast.Module([], [])
        _calls[function.__code__] = [
            node.func for node in ast.walk(tree) if isinstance(node, ast.Call)
        ]
    used = inspect.getclosurevars(function)
    for called in _calls[function.__code__]:
        value = None
        if isinstance(called, ast.Name):
            value = used.nonlocals.get(called.id, used.globals.get(called.id))
        elif isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name):
            value = getattr(owner, called.attr, None)
        if isinstance(value, _BASES):
            return value
    return None

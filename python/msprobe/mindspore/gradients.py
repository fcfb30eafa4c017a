"""Task grad_probe: the gradients that an optimizer is called with.

An optimizer of MindSpore is a Cell whose argument is a tuple with the gradient of each of its
parameters. In PyNative mode a hook of the Cell sees them. While MindSpore compiles a graph, that
hook gives way to another one, which passes each gradient through an operator that tells it
(graph.py).
"""

import atexit
import contextlib

import mindspore
from mindspore import nn, ops
from msprobe import UnsupportedError, UsageError, _engine
from msprobe._engine import message
from msprobe.mindspore import compiled, graph
from msprobe.mindspore.versions import rank

# Of MindSpore's Cells: the hooks before a call, and the method that is compiled to run them.
_HOOKS_RUN = "_jit_forward_pre_hook"

_probe = None


def monitor(optimizer):
    """Summarise the gradients at each call of this optimizer, in the place of an earlier one."""
    global _probe
    names = _names(optimizer)
    _engine.watch_gradients_of(names)
    if _probe is None:
        atexit.register(_end)
    else:
        _probe.end()
    _probe = _Probe(optimizer, names)


def _names(optimizer):
    parameters = getattr(optimizer, "parameters", None)
    if (
        not isinstance(optimizer, nn.Cell)
        or not isinstance(parameters, (list, tuple))
        or not all(isinstance(each, mindspore.Parameter) for each in parameters)
    ):
        raise UsageError(
            message(
                "monitor; expected an optimizer of MindSpore, such as nn.Adam, found {}; "
                "type debugger.monitor(optimizer)",
                type(optimizer).__name__,
            )
        )
    return [parameter.name for parameter in parameters]


def _end():
    if _probe is not None:
        _probe.end()


class _Probe:
    """Hooks on one optimizer, until no later step is wanted."""

    def __init__(self, optimizer, names):
        self._optimizer, self._count = optimizer, len(names)
        self._told = {}  # index -> gradient, of a step in a graph
        self._saw_any = self._compiled = False
        self._taps = None
        self._handle = optimizer.register_forward_pre_hook(self._called, with_kwargs=True)
        compiled.around_compiling(self._tapped)

    def _called(self, cell, args, kwargs):
        gradients = args[0] if args else next(iter(kwargs.values()), None)
        self._take(gradients)

    def _take(self, gradients):
        self._saw_any = True
        if not _engine.take_gradients(gradients, rank()):
            self._unhook()

    def _unhook(self):
        if self._handle is not None:
            self._handle.remove()
            self._handle = None
        compiled.not_around_compiling(self._tapped)

    @contextlib.contextmanager
    def _tapped(self, program):
        """While it is open, graphs that are compiled have taps."""
        if self._handle is None:
            yield
            return
        self._handle.remove()
        before = vars(nn.Cell)[_HOOKS_RUN]
        taps = None
        try:
            # The hook of an optimizer that is the program itself has seen the call already.
            if program is not self._optimizer:
                taps = self._hook_of_graph()
            if taps is not None:
                setattr(nn.Cell, _HOOKS_RUN, graph.OnceInACell(before, [self._optimizer], _same))
            yield
        finally:
            setattr(nn.Cell, _HOOKS_RUN, before)
            if taps is not None:
                taps.remove()
            self._handle = self._optimizer.register_forward_pre_hook(self._called, with_kwargs=True)

    def _hook_of_graph(self):
        try:
            graph.check_device()
        except UnsupportedError as error:
            compiled.say(
                "gradients", message("gradients inside compiled code are not recorded: {}", error)
            )
            return None
        self._compiled = True
        if self._taps is None:
            self._taps = _pass_through([self._tap(index) for index in range(self._count)])
        return self._optimizer.register_forward_pre_hook(self._taps)

    def _tap(self, index):
        """An operator that returns its input, and tells it."""

        def tap(gradient):
            self._tell(index, gradient)
            return gradient

        return ops.Custom(tap, out_shape=_first, out_dtype=_first, func_type="pyfunc")

    def _tell(self, index, gradient):
        """Called by the graph, in any order; the step is complete when all have come."""
        if self._handle is None:
            return
        try:
            if index in self._told:  # of the next step: a gradient of this one has no tap
                self._flush()
            self._told[index] = gradient.copy()  # the array is valid during the call
            if len(self._told) == self._count:
                self._flush()
        except Exception as error:  # an error of our own: the training goes on without recording
            self._told.clear()
            _engine.fault(f"{type(error).__name__}: {error}")

    def _flush(self):
        told, self._told = self._told, {}
        self._take([told.get(index) for index in range(self._count)])

    def end(self):
        """Record what has come; the optimizer is as it was."""
        if self._compiled:
            compiled.wait()
        if self._told and self._handle is not None:
            self._flush()
        if not self._saw_any and self._handle is not None:
            _engine.log(
                message(
                    "grad_probe has recorded nothing: the optimizer was not called, or in a "
                    "graph that was compiled before debugger.monitor(optimizer); call it before "
                    "the first step"
                ),
                warning=True,
            )
        self._unhook()


def _first(gradient):
    return gradient


def _same(self, inputs):
    return inputs


def _pass_through(taps):
    """The hook that is compiled: the gradients, each through its tap."""
    taps = tuple(taps)

    def pass_through(cell, inputs):
        told = ()
        for index in range(len(taps)):
            gradient = inputs[0][index]
            if isinstance(gradient, mindspore.Tensor) and gradient.dtype != mindspore.bfloat16:
                told = told + (taps[index](gradient),)  # noqa: RUF005
            else:
                told = told + (gradient,)  # noqa: RUF005
        return (told, *inputs[1:])

    return pass_through

"""Cells of compiled graphs (``GRAPH_MODE``, ``ms.jit``) on a CPU.

MindSpore compiles forward hooks of Cells into the graph. The hook here passes the Cell's outputs
through a tap, which hands the values over. The tap has a gradient of its own, which hands over the
gradients of these outputs. No number is computed, so the training stays the same in every bit.

There are two kinds of taps. The first is a kernel, the function msprobe_graph_tap of the engine: it
reads the values in the graph's memory, while other threads run Python. The second is an operator
that returns its first input, and calls Python with arrays.

An Ascend device has no such operator: its graphs are recorded by the framework (level L2,
docs/older/dialects.md).
"""

import contextlib
import os

import mindspore
from mindspore import nn, ops
from msprobe import UnsupportedError, UsageError, _engine
from msprobe._engine import message

FORWARD, BACKWARD = "forward", "backward"
_MOST_TENSORS = 4  # of one Cell's output
# Of MindSpore's Cells: the forward hooks, and the method that is compiled to run them.
_HOOKS, _HOOKS_RUN = "_forward_hook", "_jit_forward_hook"
_PARAMETERS = "_params"  # of a Cell itself, by name
_KERNEL = "msprobe_graph_tap"
_ALLOWED = "MS_CUSTOM_AOT_WHITE_LIST"  # MindSpore loads kernels from this folder only, if it is set


def kernel():
    """The operator that calls the engine, or None; and then why not: "MS_..."."""
    path = os.path.realpath(_engine.__file__)
    allowed = os.environ.get(_ALLOWED)
    if allowed is not None and os.path.realpath(allowed) not in path:
        return None, f"{_ALLOWED} is {allowed}, and msprobe is in {os.path.dirname(path)}"
    if ":" in path:
        return None, f"MindSpore takes no kernel from a path with a colon: {path}"
    operator = ops.Custom(
        f"{path}:{_KERNEL}", out_shape=(1,), out_dtype=mindspore.int32, func_type="aot"
    )
    return operator, ""


def _first(*all_inputs):
    return all_inputs[0]


def _operator(tell, count):
    """An operator that returns its first input and tells all of them.

    MindSpore counts the parameters of the function, so that it cannot take ``*arrays``.
    """

    def one(a):
        tell((a,))
        return a

    def two(a, b):
        tell((a, b))
        return a

    def three(a, b, c):
        tell((a, b, c))
        return a

    def four(a, b, c, d):
        tell((a, b, c, d))
        return a

    function = (one, two, three, four)[count - 1]
    return ops.Custom(function, out_shape=_first, out_dtype=_first, func_type="pyfunc")


class _Tap(nn.Cell):
    def __init__(self, taps, name, count):
        super().__init__(auto_prefix=False)
        self.forward_tap = _operator(lambda arrays: taps.tell(name, FORWARD, arrays), count)
        self.backward_tap = _operator(lambda arrays: taps.tell(name, BACKWARD, arrays), count)


# MindSpore compiles `construct` and `bprop` only with a fixed list of parameters.
class _Tap1(_Tap):
    def construct(self, a):
        return (self.forward_tap(a),)

    def bprop(self, a, out, dout):
        return (self.backward_tap(dout[0]),)


class _Tap2(_Tap):
    def construct(self, a, b):
        return self.forward_tap(a, b), b

    def bprop(self, a, b, out, dout):
        return self.backward_tap(dout[0], dout[1]), dout[1]


class _Tap3(_Tap):
    def construct(self, a, b, c):
        return self.forward_tap(a, b, c), b, c

    def bprop(self, a, b, c, out, dout):
        return self.backward_tap(dout[0], dout[1], dout[2]), dout[1], dout[2]


class _Tap4(_Tap):
    def construct(self, a, b, c, d):
        return self.forward_tap(a, b, c, d), b, c, d

    def bprop(self, a, b, c, d, out, dout):
        return self.backward_tap(dout[0], dout[1], dout[2], dout[3]), dout[1], dout[2], dout[3]


class _KernelTap(nn.Cell):
    """``numbers``: of the tap in each direction; its tensors wait until the kernel has run."""

    def __init__(self, operator, numbers):
        super().__init__(auto_prefix=False)
        self.tell = operator
        self.forward_number, self.backward_number = numbers


class _KernelTap1(_KernelTap):
    def construct(self, a):
        return (ops.depend(a, self.tell(self.forward_number, a)),)

    def bprop(self, a, out, dout):
        return (ops.depend(dout[0], self.tell(self.backward_number, dout[0])),)


class _KernelTap2(_KernelTap):
    def construct(self, a, b):
        told = self.tell(self.forward_number, a, b)
        return ops.depend(a, told), ops.depend(b, told)

    def bprop(self, a, b, out, dout):
        told = self.tell(self.backward_number, dout[0], dout[1])
        return ops.depend(dout[0], told), ops.depend(dout[1], told)


class _KernelTap3(_KernelTap):
    def construct(self, a, b, c):
        told = self.tell(self.forward_number, a, b, c)
        return ops.depend(a, told), ops.depend(b, told), ops.depend(c, told)

    def bprop(self, a, b, c, out, dout):
        told = self.tell(self.backward_number, dout[0], dout[1], dout[2])
        return ops.depend(dout[0], told), ops.depend(dout[1], told), ops.depend(dout[2], told)


class _KernelTap4(_KernelTap):
    def construct(self, a, b, c, d):
        told = self.tell(self.forward_number, a, b, c, d)
        return (
            ops.depend(a, told),
            ops.depend(b, told),
            ops.depend(c, told),
            ops.depend(d, told),
        )

    def bprop(self, a, b, c, d, out, dout):
        told = self.tell(self.backward_number, dout[0], dout[1], dout[2], dout[3])
        return (
            ops.depend(dout[0], told),
            ops.depend(dout[1], told),
            ops.depend(dout[2], told),
            ops.depend(dout[3], told),
        )


def _can_be_told(tensors):
    """Whether the operator takes them: not bfloat16, which NumPy does not know; compiled."""
    for tensor in tensors:  # noqa: SIM110 - graphs know no generators
        if tensor.dtype == mindspore.bfloat16:
            return False
    return True


def _flat(output):
    """The tensors of a tuple, also of tuples in it; compiled into the graph."""
    found = ()
    for item in output:
        if isinstance(item, tuple):
            found = found + _flat(item)
        elif isinstance(item, mindspore.Tensor):
            found = found + (item,)  # noqa: RUF005
    return found


def _rebuilt(output, tensors):
    """``output`` with other tensors, and the tensors that are left; compiled into the graph."""
    made = ()
    for item in output:
        if isinstance(item, tuple):
            inner, tensors = _rebuilt(item, tensors)
            made = made + (inner,)  # noqa: RUF005
        elif isinstance(item, mindspore.Tensor):
            made = made + (tensors[0],)  # noqa: RUF005
            tensors = tensors[1:]
        else:
            made = made + (item,)  # noqa: RUF005
    return made, tensors


def _hook(taps, name):
    if taps.operator is None:
        tap1, tap2 = _Tap1(taps, name, 1), _Tap2(taps, name, 2)
        tap3, tap4 = _Tap3(taps, name, 3), _Tap4(taps, name, 4)
    else:
        numbers = [
            mindspore.Tensor([taps.number_of(name, direction)], mindspore.int64)
            for direction in (FORWARD, BACKWARD)
        ]
        tap1, tap2, tap3, tap4 = (
            kind(taps.operator, numbers)
            for kind in (_KernelTap1, _KernelTap2, _KernelTap3, _KernelTap4)
        )
    left_out = taps.left_out

    def pass_through(cell, inputs, output):
        if isinstance(output, mindspore.Tensor):
            return tap1(output)[0] if _can_be_told((output,)) else output
        if isinstance(output, tuple):
            found = _flat(output)
            if not _can_be_told(found):
                return output
            if len(found) == 1:
                return _rebuilt(output, tap1(found[0]))[0]
            if len(found) == 2:
                return _rebuilt(output, tap2(found[0], found[1]))[0]
            if len(found) == 3:
                return _rebuilt(output, tap3(found[0], found[1], found[2]))[0]
            if len(found) == 4:
                return _rebuilt(output, tap4(found[0], found[1], found[2], found[3]))[0]
        return output

    left_out.add(name)
    return pass_through


def _parameter_hook(operator, number):
    """A hook of a parameter that is compiled: its gradient waits until the kernel has run."""

    def pass_through(gradient):
        if gradient.dtype == mindspore.bfloat16:
            return gradient
        return ops.depend(gradient, operator(number, gradient))

    return pass_through


def _same_output(self, inputs, output):
    return output


class OnceInACell:
    """In place of the method of ``nn.Cell`` that runs its hooks, while a graph is compiled.

    MindSpore adds the hooks of a Cell to its one graph for each place that calls the Cell: in a
    Cell that is called twice, each call would run them twice.

    Args:
        hooks: the method.
        cells: the Cells that have taps.
        nothing: a method that runs no hook.
    """

    def __init__(self, hooks, cells, nothing):
        self._hooks, self._nothing, self._seen = hooks, nothing, set()
        self._tapped = {id(cell) for cell in cells}

    def __get__(self, cell, owner=None):
        if id(cell) not in self._tapped:
            return self._hooks.__get__(cell, owner)
        hooks = self._nothing if id(cell) in self._seen else self._hooks
        self._seen.add(id(cell))
        return hooks.__get__(cell, owner)


@contextlib.contextmanager
def attached(all_taps, program=None):
    """While it is open, graphs that are compiled have these taps (a list of GraphTaps)."""
    before = vars(nn.Cell)[_HOOKS_RUN]
    try:
        for taps in all_taps:
            taps.attach(program)
        # MindSpore would compile the hooks for PyNative mode as calls of Python, and cut its graph
        # into hundreds of graphs around them.
        if program is not None and all_taps and all(taps.sees_parameters for taps in all_taps):
            _engine.set_parameter_hooks_aside(True)
        cells = [cell for taps in all_taps for cell in taps.tapped]
        setattr(nn.Cell, _HOOKS_RUN, OnceInACell(before, cells, _same_output))
        yield
    finally:
        setattr(nn.Cell, _HOOKS_RUN, before)
        for taps in all_taps:
            taps.detach()
        _engine.set_parameter_hooks_aside(False)


def check_device():
    """Raise where there is no operator for taps."""
    device = mindspore.get_context("device_target")
    if device != "CPU":
        raise UnsupportedError(
            message(
                "Cells of a graph can be recorded on a CPU only, found {}; set "
                'MINDSPORE_DUMP_CONFIG there, and read its folder with "msprobe show"',
                device,
            )
        )


class GraphTaps:
    """Taps on the Cells of a model that is going to be compiled.

    Args:
        model: a ``mindspore.nn.Cell``; taps are on the Cells inside, not on the model itself.
        record: ``record(cell_name, direction, arrays)``, called with the name of a Cell
            (``"Cell.layers.0.fc.Dense"``), ``"forward"`` or ``"backward"``, and a tuple of numpy
            arrays: the Cell's output tensors, or the gradients of these. The arrays are valid
            during the call. If it raises, the training goes on without recording, and
            :attr:`error` holds the exception.
        prefix: goes before the paths in names, such as ``"0."`` for the first of several models.
        attached: whether graphs have taps from now on; else :meth:`attach` begins that.
        operator: what :func:`kernel` returned: graphs call the engine, and never ``record``.
        number_of: then ``number_of(cell_name, direction)``, a number of the engine.
        number_of_parameter: then ``number_of_parameter(cell_name, parameter_name)``, such a number,
            by which the graph tells the gradient of the parameter; None: it tells none.
    Raises:
        msprobe.UsageError: the model is no Cell.
        msprobe.UnsupportedError: the device is not a CPU.

    The taps must be there before the model is compiled. They stay in the graph; between
    :meth:`pause` and :meth:`resume` they only pass values through. Outputs of more than four
    tensors, in bfloat16, and lists and dictionaries have no tap, and MindSpore does not
    compile the hooks of Cells in a ``SequentialCell``; :attr:`left_out` names the Cells that have
    not called yet.

    Example::

        taps = GraphTaps(net, record)
        loss = train_step(data, label)      # compiled with the taps
        taps.pause()
    """

    def __init__(
        self,
        model,
        record,
        prefix="",
        attached=True,
        operator=None,
        number_of=None,
        number_of_parameter=None,
    ):
        if not isinstance(model, nn.Cell):
            raise UsageError(
                message("expected a mindspore.nn.Cell, found {}", type(model).__name__)
            )
        check_device()
        self.error = None
        self.left_out = set()
        self.operator, self.number_of = operator, number_of
        self.sees_parameters = operator is not None and number_of_parameter is not None
        self._number_of_parameter = number_of_parameter
        self._parameter_hooks = {}
        self._record = record
        self._recording = True
        self._cells = [
            (cell, path, f"Cell.{prefix}{path}.{type(cell).__name__}")
            for path, cell in list(model.cells_and_names())
            if path
        ]
        self.names = {path: name for _, path, name in self._cells}
        self._hooks = {}
        self._handles, self.tapped = [], []
        if attached:
            self.attach()

    def attach(self, program=None):
        """Graphs that are compiled from now on have taps, but for the Cell ``program``.

        Cells with forward hooks of the program have none: MindSpore runs such hooks once more for
        each place that calls the Cell, and taps leave that as it is.
        """
        for cell, _, name in self._cells:
            if cell is program or getattr(cell, _HOOKS):
                continue
            if name not in self._hooks:
                self._hooks[name] = _hook(self, name)
            self._handles.append(cell.register_forward_hook(self._hooks[name]))
            self.tapped.append(cell)
        if self.sees_parameters and program is not None:  # not in graph mode
            for cell, _, name in self._cells:
                self._attach_to_parameters(cell, name)

    def _attach_to_parameters(self, cell, name):
        for key, parameter in getattr(cell, _PARAMETERS).items():
            if parameter is None or not parameter.requires_grad:
                continue
            if (name, key) not in self._parameter_hooks:
                number = mindspore.Tensor([self._number_of_parameter(name, key)], mindspore.int64)
                self._parameter_hooks[name, key] = _parameter_hook(self.operator, number)
            hook = self._parameter_hooks[name, key]
            self._handles.append(mindspore.Tensor.register_hook(parameter, hook))

    def detach(self):
        """Graphs that are compiled from now on have no taps."""
        for handle in self._handles:
            handle.remove()
        self._handles, self.tapped = [], []

    def tell(self, name, direction, arrays):
        """Called by the graph."""
        if not self._recording:
            return
        self.left_out.discard(name)
        try:
            self._record(name, direction, arrays)
        except Exception as error:  # an error here must not end the training
            self.error = error
            self._recording = False

    def pause(self):
        """Record nothing until :meth:`resume`."""
        self._recording = False

    def resume(self):
        """Record again; not after an error."""
        self._recording = self.error is None

    def remove(self):
        """Like :meth:`detach`; graphs that have taps record nothing more."""
        self._recording = False
        self.detach()

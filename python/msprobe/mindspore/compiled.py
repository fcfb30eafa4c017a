"""Level L0 of compiled code: each graph that is compiled while recording gets taps (graph.py).

The taps are hooks of Cells, which are there only while MindSpore compiles: what runs in PyNative
mode has none.
"""

import contextlib
import functools
import inspect
import os

import mindspore
from mindspore import _c_expression, nn
from msprobe import UnsupportedError, UsageError, _engine
from msprobe._engine import message
from msprobe.core.debugger import named_roots
from msprobe.mindspore.graph import BACKWARD, GraphTaps, attached, check_device, kernel

_EXECUTORS = ("GraphExecutor_", "JitExecutor_")  # of GRAPH_MODE, of ms.jit
_SHOWN = 5  # names of Cells in a log line

_roots = []  # [(prefix of names, model)] while recording
_taps = []  # [(prefix, model, GraphTaps)]: graphs that were compiled with them may run for ever
_compilers = []  # [(class, its method "compile")] while graphs get taps
_around = []  # what is open while a graph is compiled: contexts that take the program
_compiled = False  # since begin()
_records = False  # whether the step is recorded
_said = set()
_programs = []  # [(class, its method "__call__")] while programs are watched
_MINDSPORE = os.path.dirname(mindspore.__file__) + os.sep


def is_graph_mode():
    # Not get_context(), which takes 0.1 ms between the operators of a training.
    context = _c_expression.MSContext.get_instance()
    return context.get_param(_c_expression.ms_ctx_param.mode) == mindspore.GRAPH_MODE


def check(token_range):
    """Raise for what cannot be recorded in graph mode."""
    if _engine.apis_wanted():
        raise UsageError(
            message(
                "expected PyNative mode, in which each call can be observed, found graph "
                'mode, in which level "L0" alone is recorded; type '
                "mindspore.set_context(mode=mindspore.PYNATIVE_MODE)"
            )
        )
    if token_range is not None:
        raise UsageError(
            message(
                "token_range counts calls of the model: expected PyNative mode, found graph "
                "mode; type mindspore.set_context(mode=mindspore.PYNATIVE_MODE)"
            )
        )
    check_device()
    _engine.check_graphs()


def begin(model, records):
    """Put taps into the graphs that are compiled until end(); ``records``: the step is recorded."""
    global _compiled, _records
    _roots[:] = named_roots(model)
    _compiled, _records = False, records
    around_compiling(_with_cells)


@contextlib.contextmanager
def _with_cells(program):
    with attached(_wanted_taps(), program):
        yield


def around_compiling(context):
    """Until :func:`not_around_compiling`, ``context(program)`` is open while a graph is compiled.

    ``program``: what is compiled, a Cell or a function; None in graph mode.
    """
    if context not in _around:
        _around.append(context)
    if _compilers:
        return
    for name in _EXECUTORS:
        executor = getattr(_c_expression, name, None)
        compile_graph = vars(executor).get("compile") if executor is not None else None
        if compile_graph is not None:
            _compilers.append((executor, compile_graph))
            executor.compile = _with_taps(executor.compile)


def _with_taps(compile_graph):
    @functools.wraps(compile_graph)
    def compile_with_taps(executor, program, *args, **kwargs):
        with contextlib.ExitStack() as stack:
            for context in list(_around):
                stack.enter_context(context(None if is_graph_mode() else program))
            return compile_graph(executor, program, *args, **kwargs)

    return compile_with_taps


def not_around_compiling(context):
    """Undo :func:`around_compiling`; MindSpore's places are as they were after the last one."""
    if context in _around:
        _around.remove(context)
    while _compilers and not _around:
        executor, compile_graph = _compilers.pop()
        executor.compile = compile_graph


def _wanted_taps():
    global _compiled
    try:
        check_device()
        _engine.check_graphs()
        _compiled = True
        return [_taps_of(prefix, model) for prefix, model in _roots]
    except UnsupportedError as error:
        say("unsupported", message("calls inside compiled code are not recorded: {}", error))
    except Exception as error:  # an error of our own: the training goes on without recording
        _engine.fault(f"{type(error).__name__}: {error}")
    return []


def _taps_of(prefix, model):
    for known_prefix, known, taps in _taps:
        if known is model and known_prefix == prefix:
            return taps
    around = {}
    operator, why = kernel()
    if operator is None:
        say(
            "callback",
            message(
                "recording compiled code takes several times as long, as each value goes "
                "through Python: {}",
                why,
            ),
        )
    taps = GraphTaps(
        model,
        functools.partial(_record, around),
        prefix,
        attached=False,
        operator=operator,
        number_of=functools.partial(_number_of, around),
        number_of_parameter=_number_of_parameter,
    )
    for path, name in taps.names.items():
        while path and name not in around:
            path = path.rpartition(".")[0]
            if path in taps.names:
                around[name] = taps.names[path]
    _taps.append((prefix, model, taps))
    return taps


def _record(around, name, direction, arrays):
    _engine.record_graph(name, around.get(name, ""), direction == BACKWARD, arrays)


def _number_of(around, name, direction):
    return _engine.add_graph_tap(name, around.get(name, ""), direction == BACKWARD)


def _number_of_parameter(cell, name):
    return _engine.add_graph_tap(cell, "", True, name)


def _api():
    try:
        from mindspore.graph import api
    except ImportError:  # before 2.9
        from mindspore.common import api
    return api


def wait():
    """Wait for all graphs.

    Graphs run on a thread of MindSpore; mindspore.runtime.synchronize() refuses a CPU.
    """
    getattr(_api(), "_pynative_executor").sync()  # noqa: B009


def end():
    """Wait for the graphs, and say what they have not told; the places are as they were."""
    while _programs:
        executor, call = _programs.pop()
        executor.__call__ = call
    not_around_compiling(_with_cells)
    if not _roots:
        return
    if _taps:
        wait()
    if _records and (_compiled or is_graph_mode()):
        _say_what_is_missing()
    _roots.clear()


def _say_what_is_missing():
    names = []
    for prefix, model in _roots:
        names += _taps_of(prefix, model).names.values()
    missing = _engine.graph_cells_not_called(names)
    if names and len(missing) == len(names):
        say(
            "nothing",
            message(
                "nothing was recorded in graph mode: no Cell was called, or the graph was "
                "compiled before start(model); call it before the first call of the model"
            ),
        )
    elif missing:
        shown, more = ", ".join(missing[:_SHOWN]), len(missing) - _SHOWN
        say(
            "missing",
            message(
                "not recorded in graph mode: {} (not called, in a SequentialCell, or "
                "without a tap: docs/reference/mindspore.md)",
                message("{} and {} more", shown, more) if more > 0 else shown,
            ),
        )


def watch_programs(around):
    """Levels L1 and mix, until end(): say which programs run compiled, where no call is seen.

    ``around(function, owner)``: a context that is open while such a program runs.
    """
    executor = getattr(_api(), "_JitExecutor", None)
    call = vars(executor).get("__call__") if executor is not None else None
    if call is None or _programs:
        return

    @functools.wraps(call)
    def call_and_say(self, *args, **kwargs):
        function, owner = getattr(self, "fn", None), getattr(self, "obj", None)
        if not _say_compiled(function, owner):
            return call(self, *args, **kwargs)
        with around(function, owner):
            return call(self, *args, **kwargs)

    executor.__call__ = call_and_say
    _programs.append((executor, call))


def _say_compiled(function, owner):
    """False: it is MindSpore's own code, around which all is recorded."""
    program = None if isinstance(owner, nn.Optimizer) else _own_program(function, owner)
    if program is None:
        return False
    name, code = program
    place = f"{name} ({os.path.basename(code.co_filename)}:{code.co_firstlineno})"
    _engine.compiled_program(place)
    say(
        place,
        message(
            "{} runs compiled (mindspore.jit): calls and Cells inside it are not "
            'recorded at this level; type level="L0", which records the Cells of '
            "compiled code, or run the program without mindspore.jit",
            place,
        ),
    )
    return True


def _own_program(function, owner=None):
    """(name, code) of what a program compiled; None: MindSpore's own code alone.

    A gradient function of MindSpore holds the program's function, and a Cell of MindSpore, such as
    TrainOneStepCell, holds its Cells.
    """
    if isinstance(function, nn.Cell):
        function, owner = type(function).construct, function
    function = inspect.unwrap(function) if callable(function) else None
    code = getattr(function, "__code__", None)
    if code is None:
        return None
    if not code.co_filename.startswith(_MINDSPORE):
        return getattr(code, "co_qualname", code.co_name), code
    if isinstance(owner, nn.Cell):
        return (type(owner).__qualname__, code) if any(owner.cells()) else None
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):  # a name that has no value yet
            program = _own_program(cell.cell_contents)
            if program is not None:
                return program
    return None


def say(what, line):
    """Give a warning, once for each ``what``."""
    if what not in _said:
        _said.add(what)
        _engine.log(line, warning=True)

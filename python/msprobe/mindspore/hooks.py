"""The places where MindSpore can be observed: names of APIs, code of the framework around calls.

This file tells the engine *this object, under this name*; the engine does the rest.
"""

import os
import sys
import types

import mindspore
from mindspore import mint, nn, ops
from msprobe import ConfigError, UsageError, _engine
from msprobe._engine import message
from msprobe.core.debugger import named_roots
from msprobe.mindspore import compiled, optimizers
from msprobe.mindspore.versions import rank

_LISTS = os.path.join(os.path.dirname(__file__), "hook_module")
_apis_added = False
_places_added = False
_copies = []  # (module, name, function, copy)
_token_hook = None


def _owners():
    """Category of support_wrap_ops.yaml -> (prefix, namespace).

    In order of precedence for functions with two names.
    """
    owners = {
        "ops": ("Functional", ops),
        "tensor": ("Tensor", mindspore.Tensor),
        "mint.ops": ("Mint", mint),
        "mint.nn.functional": ("MintFunctional", mint.nn.functional),
    }
    for category, prefix, name in (
        ("communication.comm_func", "Distributed", "mindspore.communication.comm_func"),
        ("mint.distributed", "MintDistributed", "mindspore.mint.distributed"),
    ):
        if name in sys.modules:
            owners[category] = (prefix, sys.modules[name])
    return owners


def _copy(function):
    """A function that runs the same code, and is another object."""
    copy = types.FunctionType(
        function.__code__,
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    copy.__qualname__ = function.__qualname__
    copy.__module__ = function.__module__
    copy.__doc__ = function.__doc__
    copy.__annotations__ = function.__annotations__
    copy.__dict__.update(function.__dict__)
    return copy


def _add_apis():
    """Tell the engine which functions to observe.

    Some functions have several names: mint.sin is ops.sin. They are observed under the first one;
    while collecting, a copy of the function has each of the other names, and is observed under it.
    """
    for name, places in _engine.read_name_lists(os.path.join(_LISTS, "unwritten_outputs.yaml")):
        _engine.leaves_unwritten(name, [int(place) for place in places])
    lists = dict(_engine.read_name_lists(os.path.join(_LISTS, "support_wrap_ops.yaml"), ""))
    known = set()
    for category, (prefix, owner) in _owners().items():
        for name in lists.get(category, []):
            holder = owner
            *path, last = name.split(".")
            for part in path:
                holder = getattr(holder, part, None)
            function = getattr(holder, last, None)
            if function is None:
                continue
            if isinstance(function, types.FunctionType) and id(function) in known:
                if not isinstance(holder, types.ModuleType):
                    continue
                copy = _copy(function)
                _copies.append((holder, last, function, copy))
                holder = types.SimpleNamespace(**{last: copy})
            else:
                known.add(id(function))
            _engine.add_apis(prefix, holder, [last])


def _put(wanted):
    """Put the copies in their places, or the functions themselves."""
    for module, name, function, copy in _copies:
        now, then = (function, copy) if wanted else (copy, function)
        if getattr(module, name, None) is now:
            setattr(module, name, then)


def _add_places():
    """Tell the engine, once, which code of MindSpore runs around calls, and what compiles."""
    for owner in (nn.Cell, ops.Primitive, nn.SequentialCell):
        for function in vars(owner).values():
            if isinstance(function, types.FunctionType) and (
                "call" in function.__name__ or "run_construct" in function.__name__
            ):
                _engine.hide_code(function.__code__)
    try:
        from mindspore.graph import api
    except ImportError:  # before 2.9
        from mindspore.common import api
    for name in ("_JitExecutor", "_CellGraphExecutor", "_MindsporeFunctionExecutor"):
        if hasattr(getattr(api, name, None), "compile"):
            _engine.watch(getattr(api, name), "compile", "trace")


def check_model(model):
    """Raise for anything but a Cell or a list of Cells."""
    roots = named_roots(model)
    for _, root in roots or [("", model)]:
        if not isinstance(root, nn.Cell):
            raise UsageError(
                message(
                    "expected a mindspore.nn.Cell or a list of them as model, found {}",
                    type(root).__name__,
                )
            )


def begin(model, token_range=None, rank_id=None):
    """Start collecting, if the engine wants this step and rank."""
    try:
        _begin(model, token_range, rank_id)
    except (UsageError, ConfigError):  # a mistake of the caller
        raise
    except Exception as error:  # an error of our own: the training goes on without recording
        _engine.fault(f"{type(error).__name__}: {error}")
        end()


def prepare(model):
    """In a step that is not recorded: graphs that later steps use get their taps."""
    if model is not None and _engine.modules_wanted() and not _engine.apis_wanted():
        compiled.begin(model, records=False)


def _begin(model, token_range, rank_id):
    global _apis_added, _places_added
    if not _places_added:
        _add_places()
        _places_added = True
    if _engine.apis_wanted() and not _apis_added:
        _add_apis()
        _apis_added = True
    _count_tokens(model, token_range)
    models = [] if model is None else named_roots(model)
    number = rank() if rank_id is None else rank_id
    if not _engine.start(number, models, compiled.is_graph_mode()):
        return
    optimizers.observe()
    if _engine.apis_wanted():
        _put(True)
        compiled.watch_programs(optimizers.inside)
    elif models:
        compiled.begin(model, records=True)


def _count_tokens(model, token_range):
    global _token_hook
    _forget_tokens()
    _engine.set_token_range(*(token_range or (None, None)))
    if token_range is not None:
        root = model[0] if isinstance(model, (list, tuple)) else model
        _token_hook = root.register_forward_pre_hook(_begin_token)


def _begin_token(cell, arguments):
    _engine.begin_token(cell, arguments)


def _forget_tokens():
    global _token_hook
    if _token_hook is not None:
        _token_hook.remove()
        _token_hook = None


def end():
    """Stop collecting; every place is as it was, no Cell is held."""
    _forget_tokens()
    _put(False)
    compiled.end()
    _engine.stop()

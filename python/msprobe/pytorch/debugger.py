"""The class that training scripts use."""

import atexit
import contextlib
import functools
import os
import threading

from msprobe import UsageError, _engine
from msprobe.pytorch import custom_apis, dataloader, hooks, regions
from msprobe.pytorch.process import PACKAGE, rank
from msprobe.pytorch.reproducibility import seed_as_configured

_lock = threading.RLock()


def _renew_lock():
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_renew_lock)  # another thread of the parent may have held it


def _method(function):
    """A method of the class: one thread at a time, once there is a debugger."""

    @functools.wraps(function)
    def locked(cls, *args, **kwargs):
        with _lock:
            if cls.instance is None:
                raise UsageError(
                    "expected PrecisionDebugger(...) to be constructed first; add "
                    "`debugger = PrecisionDebugger()` before the loop"
                )
            return function(cls, *args, **kwargs)

    return classmethod(locked)


def _is_steps(value):
    """Whether the fifth argument is a step list, as msprobe 26 has it there, and no model."""
    elements = value if isinstance(value, (list, tuple)) else [value]
    return all(isinstance(element, (int, str)) for element in elements)


def _same(value, other):
    """Whether two arguments are equal; modules and lists of modules are compared by identity."""
    if isinstance(value, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(value) == len(other) and all(map(_same, value, other))
    return value is other or (type(value) is type(other) and value == other)


class PrecisionDebugger:
    """Records what every API and module computed between :meth:`start` and :meth:`stop`.

    A process has one debugger: a later construction returns the first object, and gives a warning
    that names its arguments if they differ. Methods may be called on the class.

    Args:
        config_path: ``config.json`` (docs/config.md); keyword arguments take precedence over it.
        task: ``"statistics"``, ``"tensor"``, ``"structure"``, ``"nan_check"``,
            ``"overflow_check"`` or ``"free_benchmark"``, or ``"grad_probe"``, which has
            :meth:`monitor`.
        dump_path: the folder for ``step<N>/rank<id>/``.
        level: ``"L0"`` modules, ``"L1"`` APIs, ``"mix"`` both.
        model: a module, or a list of modules; the modules inside are recorded under L0 and mix.
            It can be given to :meth:`start` instead. The fifth positional argument may also be
            ``step``.
        step: wanted steps, ``3``, ``"5-7"`` or ``[2, "5-7"]``; all when empty.
    Raises:
        msprobe.ConfigError: an unknown key or value; the message names the line and what is
            allowed.
        msprobe.UsageError: an argument of the wrong type or value.
        msprobe.FileError: ``dump_path`` cannot be created or written.

    Example::

        debugger = PrecisionDebugger(dump_path="run_a", level="mix")
        for batch in loader:
            debugger.start(model)
            loss = model(batch).sum()
            loss.backward()
            debugger.stop()
            debugger.step()

    The same, with the block as the step::

        for batch in loader:
            with debugger.step(model):
                loss = model(batch).sum()
                loss.backward()
    """

    instance = None  # the debugger of this process, when it is constructed
    _model = None
    _arguments = None  # those that the debugger was constructed with

    def __new__(
        cls, config_path=None, task=None, dump_path=None, level=None, model=None, step=None
    ):
        with _lock:
            if model is not None and step is None and _is_steps(model):
                model, step = None, model
            arguments = {
                "config_path": config_path,
                "task": task,
                "dump_path": dump_path,
                "level": level,
                "model": model,
                "step": step,
            }
            if cls.instance is not None:
                cls._warn_of_ignored(arguments)
                return cls.instance
            if model is not None:
                hooks.check_model(model)
            _engine.configure(config_path, task, dump_path, level, step, PACKAGE, rank())
            cls.instance = super().__new__(cls)
            cls._model = model
            cls._arguments = arguments
            atexit.register(_engine.say_end)  # last, after the end
            atexit.register(cls._end)
            atexit.register(_engine.flush_saves)  # before the end: the last registered runs first
            seed_as_configured()
            cls._follow_batches()
            return cls.instance

    @classmethod
    def _warn_of_ignored(cls, arguments):
        ignored = [
            name if name == "model" else f"{name}={value!r}"
            for name, value in arguments.items()
            if value is not None and not _same(value, cls._arguments.get(name))
        ]
        if ignored:
            _engine.log(
                "a process has one PrecisionDebugger: the second PrecisionDebugger(...) is the "
                f"first one, and ignores {', '.join(ignored)}",
                warning=True,
            )

    @_method
    def start(cls, model=None, token_range=None, rank_id=None, scheduled_tokens=None):
        """Begin to record, if the configuration selects this step.

        A second call without :meth:`stop` has no effect.

        Args:
            model: a ``torch.nn.Module`` or a list of them; required once for L0 and mix, and for
                ``token_range``.
            token_range: ``[first, last]``: record only these forward passes of the model (of the
                first model of a list) until :meth:`stop`. They count from 0; both are included.
            rank_id: names the folder ``rank<id>`` instead of the rank in ``torch.distributed``.
            scheduled_tokens: ``{request id: number of tokens}`` of this step, in the order in which
                they lie in dimension 0; with ``request_id`` in the configuration only the tokens of
                that request are recorded.
        """
        regions.check(token_range, rank_id)
        if model is not None:
            hooks.check_model(model)
            cls._model = model
        if not dataloader.warns("start"):
            cls._begin(token_range, rank_id, scheduled_tokens)

    @_method
    def _begin(cls, token_range=None, rank_id=None, scheduled_tokens=None):
        cls._refresh()
        if not _engine.step_is_wanted():
            return
        if cls._model is None and (_engine.modules_wanted() or token_range is not None):
            raise UsageError(
                "level L0 and mix record modules, and token_range counts calls of the model: "
                "expected start(model) or PrecisionDebugger(model=...), found no model"
            )
        _engine.schedule_tokens(scheduled_tokens)
        regions.begin(cls._model, token_range)
        hooks.begin(cls._model, rank_id)

    @_method
    def stop(cls):
        """Stop collecting and complete the files; :meth:`start` may follow in the same step."""
        if not dataloader.warns("stop"):
            cls._end()

    @_method
    def _end(cls):
        regions.end()
        hooks.end()
        cls._refresh()

    @classmethod
    def _refresh(cls):
        if hooks.refresh(cls._model):
            cls._follow_batches()

    @classmethod
    def _follow_batches(cls):
        asked = _engine.each_batch_is_a_step()
        dataloader.observe(cls._begin, cls._end_step) if asked else dataloader.observe()

    @_method
    def forward_backward_dump_end(cls):
        """Record no more forward calls; gradients of recorded calls are recorded until stop."""
        _engine.stop_calls()

    @_method
    def step(cls, model=None):
        """End the step: the next calls go to the next ``step<N>``, with call numbers from 0.

        As a block, ``with debugger.step(model):``, it is :meth:`start` before the block, and
        :meth:`stop` and ``step()`` after it, also if the block raises: the block is one step.

        Args:
            model: as for :meth:`start`, for the block.
        """
        if model is not None:
            hooks.check_model(model)
            cls._model = model
        if not dataloader.warns("step"):
            cls._end_step()
        return cls._block()

    @classmethod
    @contextlib.contextmanager
    def _block(cls):
        _engine.take_back_empty_step()
        cls.start()
        try:
            yield cls.instance
        finally:
            cls.stop()
            cls.step()

    @_method
    def _end_step(cls):
        cls._end()
        _engine.step()

    @_method
    def monitor(cls, model):
        """Task ``"grad_probe"``: summarise the model's gradients at each step of an optimizer.

        Call it once, before the loop; :meth:`start`, :meth:`stop` and :meth:`step` have no effect
        then.
        """
        hooks.monitor(model)

    @_method
    def save(cls, variable, name, save_backward=True):
        """Level ``"debug"``: record one value, at once, as ``<name>.<n>.debug`` in debug.json.

        Needs neither :meth:`start` nor :meth:`stop`.

        Args:
            variable: a tensor, a number, text, or lists and dictionaries of them; anything else
                gives a warning.
            name: ``n`` counts the values of this name in the step.
            save_backward: record the gradients of its tensors too, as ``<name>_grad.<n>.debug``.
        """
        _engine.save(variable, name, bool(save_backward), rank())

    @_method
    def module_dump(cls, module, dump_name):
        """Until :meth:`module_dump_end`, record this module's own calls and nothing else.

        Call it between :meth:`start` and :meth:`stop`. Entries are called
        ``Module.<dump_name>.<Class>...``.
        """
        hooks.begin_module_dump(module, dump_name)

    @_method
    def module_dump_end(cls):
        """Record everything that the level records again."""
        hooks.end_module_dump()

    @_method
    def register_custom_api(cls, module, api, api_prefix=None):
        """Record calls of ``module.api`` too, as ``<prefix>.<api>.<n>.forward``.

        Args:
            module: a module or class.
            api: the name of one of its functions.
            api_prefix: by default the module's ``__name__``, or ``Custom`` if it has no name.
        """
        custom_apis.register(module, api, api_prefix)

    @_method
    def restore_custom_api(cls, module, api):
        """Undo :meth:`register_custom_api`."""
        custom_apis.restore(module, api)

    @_method
    def set_init_step(cls, step):
        """Number the steps from ``step``; call it before the loop of a resumed training."""
        if isinstance(step, bool) or not isinstance(step, int) or not 0 <= step <= 1000000:
            raise UsageError(f"set_init_step; expected a number from 0 to 1000000, found {step!r}")
        cls._end()
        _engine.begin_at_step(step)


module_dump = PrecisionDebugger.module_dump
module_dump_end = PrecisionDebugger.module_dump_end

"""What PrecisionDebugger is for every framework: one object, a configuration, steps."""

import atexit
import contextlib
import functools
import os
import threading

from msprobe import UsageError, _engine
from msprobe._engine import message
from msprobe.core import facade

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep  # our files

lock = threading.RLock()


def _renew_lock():
    global lock
    lock = threading.RLock()


os.register_at_fork(after_in_child=_renew_lock)  # another thread of the parent may have held it


def method(function):
    """A method of the class: one thread at a time, once there is a debugger."""

    names = facade.parameters(function)

    @functools.wraps(function)
    def locked(cls, *args, **kwargs):
        if kwargs and names:
            facade.check_keywords(function.__name__, names, kwargs)
        with lock:
            if cls.instance is None:
                raise UsageError(
                    message(
                        "expected PrecisionDebugger(...) to be constructed first; add `debugger = "
                        "PrecisionDebugger()` before the loop"
                    )
                )
            return function(cls, *args, **kwargs)

    if function.__name__ != "start":
        return classmethod(locked)

    @functools.wraps(function)
    def start(cls, *args, **kwargs):
        try:
            return locked(cls, *args, **kwargs)
        except Exception as error:
            if cls.instance is not None:
                text = str(error).partition("\n")[0]
                _engine.note_failed_start(f"{type(error).__name__}: {text}")
            raise

    return classmethod(start)


def _is_count(value):
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def check_start(token_range, rank_id):
    """Raise for wrong arguments of start()."""
    if token_range is not None:
        pair = list(token_range) if isinstance(token_range, (list, tuple)) else []
        if len(pair) != 2 or not all(map(_is_count, pair)) or pair[0] > pair[1]:
            raise UsageError(
                message(
                    "start: token_range; expected [first, last], two ascending numbers of 0 or "
                    "more, found {}",
                    repr(token_range),
                )
            )
    if rank_id is not None and not _is_count(rank_id):
        raise UsageError(
            message("start: rank_id; expected a number of 0 or more, found {}", repr(rank_id))
        )


def seed_as_configured(seed_all):
    """Do what the keys seed and is_deterministic ask for; nothing when the file has neither.

    Args:
        seed_all: that of the framework; takes the seed and whether to be deterministic.
    """
    asked = _engine.seeding()
    if asked is not None:
        seed, mode = asked
        seed_all(seed, mode)
        _engine.log(
            message(
                "seeded with {}, only deterministic algorithms are used, as the configuration asks",
                seed,
            )
            if mode
            else message("seeded with {}, as the configuration asks", seed)
        )


def _from_outside(config_path, task, dump_path, level, step, baseline, baseline_action):
    """The arguments, or what the environment says in their place (docs/reference/config.md)."""
    if config := os.environ.get("MSPROBE_CONFIG"):
        _engine.log(message("the configuration is {}, as MSPROBE_CONFIG says", config))
        config_path, task, dump_path, level, step = config, None, None, None, None
        baseline, baseline_action = None, None
    dump_path = os.environ.get("MSPROBE_DUMP_PATH") or dump_path
    return (config_path, task, dump_path, level, step), (baseline, baseline_action)


def named_roots(model):
    """(prefix of names, root) of a model or a list of models."""
    if isinstance(model, (list, tuple)):
        return [(f"{index}.", root) for index, root in enumerate(model)]
    return [("", model)]


def _is_steps(value):
    """Whether the fifth argument is a step list, as msprobe 26 has it there, and no model."""
    elements = value if isinstance(value, (list, tuple)) else [value]
    return all(isinstance(element, (int, str)) for element in elements)


def _same(value, other):
    """Whether two arguments are equal; modules and lists of modules are compared by identity."""
    if isinstance(value, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(value) == len(other) and all(map(_same, value, other))
    return value is other or (type(value) is type(other) and value == other)


class Debugger:
    """The base of each framework's PrecisionDebugger, which has the documentation.

    A framework gives ``framework``, ``_check_model``, ``_rank``, ``start``, ``stop``, ``step`` and
    ``_end``.
    """

    framework = None  # as the header of dump.json names it
    instance = None  # the debugger of this process, when it is constructed
    config = facade.Part(lambda cls: facade.Config(cls, cls._override))
    service = facade.Part(lambda cls: facade.Service(cls, cls._override))
    _model = None
    _arguments = None  # those that the debugger was constructed with

    def __new__(
        cls,
        config_path=None,
        task=None,
        dump_path=None,
        level=None,
        model=None,
        step=None,
        *,
        baseline=None,
        baseline_action=None,
        **others,
    ):
        if others:
            facade.check_keywords("PrecisionDebugger", facade.parameters(cls.__new__), others)
        with lock:
            if model is not None and step is None and _is_steps(model):
                model, step = None, model
            arguments = {
                "config_path": config_path,
                "task": task,
                "dump_path": dump_path,
                "level": level,
                "model": model,
                "step": step,
                "baseline": baseline,
                "baseline_action": baseline_action,
            }
            if cls.instance is not None:
                cls._warn_of_ignored(arguments)
                return cls.instance
            if model is not None:
                cls._check_model(model)
            asked, against = _from_outside(
                config_path, task, dump_path, level, step, baseline, baseline_action
            )
            _engine.configure(*asked, PACKAGE, cls._rank(), cls.framework, *against)
            cls.instance = super().__new__(cls)
            cls._model = model
            cls._arguments = arguments
            atexit.register(_engine.end_threads)  # last: nothing of ours runs after it
            atexit.register(_engine.say_end)  # after the end
            atexit.register(cls._end)
            atexit.register(_engine.flush_saves)  # before the end: the last registered runs first
            cls._constructed()
            return cls.instance

    @property
    def task(self):
        return self.config.task

    def __getattr__(self, name):
        names = [name for name in dir(type(self)) if not name.startswith("_")]
        raise AttributeError(facade.unknown(f"PrecisionDebugger.{name}", names))

    @classmethod
    def _constructed(cls):
        """What the configuration asks for at once."""

    @classmethod
    def _warn_of_ignored(cls, arguments):
        ignored = [
            name if name == "model" else f"{name}={value!r}"
            for name, value in arguments.items()
            if value is not None and not _same(value, cls._arguments.get(name))
        ]
        if ignored:
            _engine.log(
                message(
                    "a process has one PrecisionDebugger: the second PrecisionDebugger(...) is "
                    "the first one, and ignores {}",
                    ", ".join(ignored),
                ),
                warning=True,
            )

    @classmethod
    def _take_model(cls, model):
        if model is not None:
            cls._check_model(model)
            cls._model = model

    @classmethod
    def _override(cls, task=None, level=None, step=None):
        _engine.override_config(task, level, step, cls._can_find_model(), cls._rank())

    @classmethod
    def _can_find_model(cls):
        """Whether start() may do without a model that is named."""
        return cls._model is not None

    @classmethod
    def _require_model(cls, token_range):
        if cls._model is not None:
            return
        if token_range is not None or (_engine.modules_wanted() and not cls._can_find_model()):
            raise UsageError(
                message(
                    "level L0 and mix record modules, and token_range counts calls of the model: "
                    "expected start(model) or PrecisionDebugger(model=...), found no model"
                )
            )

    @method
    def forward_backward_dump_end(cls):
        """Record no more forward calls; gradients of recorded calls are recorded until stop."""
        _engine.stop_calls()

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

    @method
    def _end_step(cls):
        cls._end()
        _engine.step()

    @method
    def _repeat_step(cls):
        cls._end()
        _engine.repeat_step()

    @method
    def set_init_step(cls, step):
        """Number the steps from ``step``; call it before the loop of a resumed training."""
        if isinstance(step, bool) or not isinstance(step, int) or not 0 <= step <= 1000000:
            raise UsageError(
                message("set_init_step; expected a number from 0 to 1000000, found {}", repr(step))
            )
        cls._end()
        _engine.begin_at_step(step)

"""``debugger.config`` and ``debugger.service``: what frameworks read and set.

docs/howto/record-from-a-framework.md describes them. There is one debugger, and nothing is kept
here: what is read comes from it, and what is set is what its methods and keyword arguments set.
"""

import difflib
import json
import os

from msprobe import UsageError, _engine
from msprobe._engine import message


class Facade:
    """Attributes by name. One that does not exist, or cannot be set, raises AttributeError."""

    _called = ""

    def __init__(self, debugger, override):
        object.__setattr__(self, "_debugger", debugger)
        object.__setattr__(self, "_override", override)

    def __getattr__(self, name):
        raise AttributeError(unknown(f"{self._called}.{name}", dir(self)))

    def __setattr__(self, name, value):
        found = getattr(type(self), name, None)
        if isinstance(found, property) and found.fset:
            found.fset(self, value)
            return
        raise AttributeError(
            message("{}.{} cannot be set; {} can", self._called, name, self._settable())
        )

    def __repr__(self):
        return f"<{self._called} of msprobe: {', '.join(dir(self))}>"

    @classmethod
    def _settable(cls):
        names = [name for name in dir(cls) if isinstance(getattr(cls, name), property)]
        return ", ".join(name for name in names if getattr(cls, name).fset)


def unknown(name, known):
    """The text about an attribute that does not exist."""
    return message(
        "{} does not exist in msprobe {}; there is {}", name, _engine.__version__, ", ".join(known)
    )


def parameters(function):
    """Names of the parameters after the first one."""
    code = function.__code__
    return code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]


def check_keywords(called, names, given):
    """Raise for a keyword argument that a function does not have."""
    for name in given:
        if name not in names:
            near = difflib.get_close_matches(name, names, 1)
            known = ", ".join(names)
            if near:
                meant = message("did you mean {}?", near[0])
            elif "config_path" in names:
                meant = message(
                    "there is {}; the other settings are keys of the file that config_path names",
                    known,
                )
            else:
                meant = message("there is {}", known)
            raise UsageError(message("{} has no argument {}: {}", called, name, meant))


class Config(Facade):
    """``debugger.config``: the configuration, with the keys of config.json as attributes.

    ``dump_path`` is the path that was configured. To set it, ``level``, ``task`` or ``step``
    between ``stop()`` and ``start()`` is the same as the keyword argument of PrecisionDebugger.
    """

    _called = "debugger.config"
    _configured = True

    def __getattr__(self, name):
        values = self._values()
        return values[name] if name in values else super().__getattr__(name)

    def __dir__(self):
        return sorted({*self._values(), "dump_path", "framework"})

    @staticmethod
    def _values():
        return json.loads(_engine.config_json())

    @property
    def framework(self):
        return self._debugger.framework

    @property
    def dump_path(self):
        return _engine.dump_path(self._configured)

    @dump_path.setter
    def dump_path(self, path):
        _engine.set_dump_path(path, self._configured)

    level = property(
        lambda self: self._values()["level"], lambda self, word: self._override(level=word)
    )
    task = property(
        lambda self: self._values()["task"], lambda self, word: self._override(task=word)
    )
    step = property(
        lambda self: self._values()["step"], lambda self, steps: self._override(step=steps)
    )


class ServiceConfig(Config):
    """``debugger.service.config``: the same, but ``dump_path`` is that of the next ``start()``.

    A new path begins a new dump there, in the same step: one for each stage of a training.
    """

    _called = "debugger.service.config"
    _configured = False


class Service(Facade):
    """``debugger.service``: the state of the recording.

    Attributes:
        config: see ServiceConfig.
        current_iter: the step in which ``start()`` was called last; to set it is ``set_init_step``.
        init_step, loop: their sum is the step that the next ``start()`` records.
        first_start: False after a ``start()`` has recorded, until it is set to True.
        should_stop_service: True when nothing more will be recorded. To set it to True ends the
            recording; False goes on with it.
        current_rank: the rank that the last ``start()`` recorded; None without ranks.
        dump_iter_dir: the folder of the step that was recorded last; None before.
    """

    _called = "debugger.service"
    _methods = ("start", "stop", "step", "save", "register_custom_api", "restore_custom_api")

    def __init__(self, debugger, override):
        super().__init__(debugger, override)
        object.__setattr__(self, "_config", ServiceConfig(debugger, override))

    def __getattr__(self, name):
        if name in self._methods and hasattr(self._debugger, name):
            return getattr(self._debugger, name)
        return super().__getattr__(name)

    def __dir__(self):
        mine = [name for name in vars(Service) if not name.startswith("_")]
        return sorted([*mine, "_reset_status", *filter(self._debugger.__dict__.get, self._methods)])

    def reset_status(self):
        """End the stage: the next ``start()`` writes a dump of its own, with numbers from 0."""
        _engine.end_stage()

    _reset_status = reset_status

    config = property(lambda self: self._config)
    current_rank = property(lambda self: _engine.last_rank())
    dump_iter_dir = property(lambda self: _engine.step_folder() or None)
    current_pid = property(lambda self: os.getpid())
    first_start = property(
        lambda self: _engine.first_start(), lambda self, first: _engine.set_first_start(bool(first))
    )
    should_stop_service = property(
        lambda self: _engine.is_over(), lambda self, over: _engine.set_over(bool(over))
    )

    def _go_to(self, step):
        if step != _engine.next_step():
            self._debugger.set_init_step(step)

    current_iter = property(lambda self: _engine.current_step(), _go_to)

    init_step = property(
        lambda self: _engine.first_step(), lambda self, step: self._debugger.set_init_step(step)
    )
    loop = property(lambda self: _engine.next_step() - _engine.first_step())


class Part:
    """A facade as a read-only attribute of PrecisionDebugger, and of its object."""

    def __init__(self, made):
        self._made = made
        self._part = None

    def __set_name__(self, owner, name):
        self._name = name

    def __get__(self, instance, owner):
        if owner.instance is None:
            raise AttributeError(
                message("PrecisionDebugger(...) is to be constructed before .{}", self._name)
            )
        if self._part is None:
            self._part = self._made(owner)
        return self._part

    def __set__(self, instance, value):
        raise AttributeError(
            message(
                "debugger.{} cannot be set; what it holds can: "
                "debugger.service.config.dump_path = ...",
                self._name,
            )
        )

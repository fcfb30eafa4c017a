"""The functions of ``torch_npu.hooks``: they record whole steps, as lines of a file or as arrays.

Example::

    from torch_npu.hooks import register_hook, seed_all, set_dump_path, wrap_acc_cmp_hook

    register_hook(model, wrap_acc_cmp_hook)
    seed_all()
    set_dump_path("./cpu.pkl")
    model(x).sum().backward()
"""

import os
import sys

from msprobe import UsageError, _engine
from msprobe._engine import message
from msprobe.compat import recorder
from msprobe.compat.errors import RegistrationError
from msprobe.pytorch.reproducibility import seed_all as _seed_all

__all__ = [
    "register_hook",
    "schedule",
    "seed_all",
    "set_dump_path",
    "step_schedule",
    "wrap_acc_cmp_hook",
    "wrap_async_datadump_hook",
    "wrap_checkoverflow_hook",
]

_path = None  # of the pkl file
_hook = None
_model = None
_options = {}  # for the engine; they depend on the hook
_fresh = True  # the file or the hook has changed since the last recording began
_begun = None  # options of the last recording


def seed_all(seed=1234):
    """Seed Python, NumPy, PyTorch and its devices."""
    try:
        _seed_all(seed)
    except UsageError as error:
        raise RegistrationError(str(error)) from None


def set_dump_path(fpath=None):
    """Name the file to which lines are written from now on; their numbers begin at 0.

    Raises:
        RuntimeError: `fpath` is missing or a folder, or the file's folder does not exist.
    """
    global _path, _fresh
    if not isinstance(fpath, (str, os.PathLike)):
        raise RegistrationError(message("set_dump_path: expected a file, found {}", repr(fpath)))
    path = os.path.abspath(os.fspath(fpath))
    reason = recorder.why_no_file(path)
    if reason:
        raise RegistrationError(message("set_dump_path: {}", reason))
    recorder.end()
    recorder.remove_earlier_dump(path)
    _path, _fresh = path, True
    _follow()


def wrap_acc_cmp_hook(*_args, **_kwargs):
    """For :func:`register_hook`: inputs, outputs and gradients of every call."""
    raise RegistrationError(message("do not call wrap_acc_cmp_hook; pass it to register_hook"))


def wrap_checkoverflow_hook(*_args, **_kwargs):
    """For :func:`register_hook`: the first overflow ends the program with a ValueError."""
    raise RegistrationError(
        message("do not call wrap_checkoverflow_hook; pass it to register_hook")
    )


def wrap_async_datadump_hook(*_args, **_kwargs):
    """For :func:`register_hook`: a thread writes arrays to the folder `path`."""
    raise RegistrationError(
        message("do not call wrap_async_datadump_hook; pass it to register_hook")
    )


_HOOKS = (wrap_acc_cmp_hook, wrap_checkoverflow_hook, wrap_async_datadump_hook)


def register_hook(model, hook, **kwargs):
    """Record calls of this process from now on; the last registration holds.

    Args:
        model: any ``torch.nn.Module``; the calls of all models are recorded.
        hook: one of the three hooks of this module.
        **kwargs: ``seed`` (1234), for :func:`seed_all`; ``sample`` (True: ten elements of each
            tensor, maximum, minimum and mean; False: all elements); ``schedule``: which steps;
            ``path`` ("./"): folder of the asynchronous hook; ``capacity`` (3 to 2048): no effect.
    Raises:
        AssertionError, RuntimeError: no model, or an unknown hook.
    """
    global _hook, _model, _options, _fresh
    recorder.check_model(model, none_is_one=False)
    if hook not in _HOOKS:
        names = ", ".join(each.__name__ for each in _HOOKS)
        raise RegistrationError(
            message("register_hook: expected one of {}, found {}", names, repr(hook))
        )
    steps = kwargs.pop("schedule", None)
    if steps is not None and not callable(steps):
        raise RegistrationError(
            message(
                "register_hook: schedule; expected schedule(begin, end, stride), found {}",
                repr(steps),
            )
        )
    capacity = kwargs.pop("capacity", None)
    if capacity is not None and not (isinstance(capacity, int) and 3 <= capacity <= 2048):
        raise RegistrationError(
            message(
                "register_hook: capacity; expected a number from 3 to 2048, found {}",
                repr(capacity),
            )
        )
    seed, sample = kwargs.pop("seed", 1234), kwargs.pop("sample", True)
    folder = kwargs.pop("path", "./")
    if not isinstance(folder, (str, os.PathLike)):
        raise RegistrationError(
            message("register_hook: path; expected a folder, found {}", repr(folder))
        )
    folder = os.path.abspath(os.fspath(folder))
    recorder.warn_no_effect("register_hook", kwargs)
    seed_all(seed)
    recorder.end()
    _hook, _model, _fresh = hook, model, True
    _options = {"dialect": "hooks", "plain_values": False}
    if hook is wrap_acc_cmp_hook:
        _options.update(data="lines", sampled=bool(sample))
    elif hook is wrap_checkoverflow_hook:
        _options.update(data="lines", sampled=False, checks_overflow=True, overflow_nums=1)
        _options.update(raises=True, file=os.getcwd())
    else:
        _options.update(data="storages", file=folder, data_folder=folder, async_dump=True)
    if _path is None and hook is wrap_acc_cmp_hook:
        recorder.warn_at_exit(message("nothing was dumped: set_dump_path was not called"))
    step_schedule.set_schedule(steps or schedule())


def schedule(begin=0, end=sys.maxsize, stride=1):
    """Which steps are recorded: `begin`, `begin + stride`, and so on up to `end`, included."""
    are_numbers = all(isinstance(each, int) for each in (begin, end, stride))
    if not are_numbers or begin < 0 or end < 0 or stride <= 0 or begin > end:
        raise RegistrationError(
            message(
                "Illegal Argument: schedule expects 0 <= begin <= end and stride >= 1, found "
                "begin={}, end={}, stride={}",
                begin,
                end,
                stride,
            )
        )
    return lambda step: begin <= step <= end and (step - begin) % stride == 0


class _StepSchedule:
    """The steps of this process, from 0 on."""

    def __init__(self):
        self.step_num = 0
        self._wants = schedule()

    def step(self):
        self.step_num += 1
        _follow()

    def reset_step(self):
        self.step_num = 0
        _follow()

    def set_schedule(self, wants):
        self._wants = wants
        _follow()

    def is_step_enable(self):
        return self._wants(self.step_num)


step_schedule = _StepSchedule()


def _follow():
    """Begin, resume or end recording, as path, hook and step ask for it."""
    global _fresh, _begun
    if not _fresh and not recorder.is_current(_begun):
        return  # since then ptdbg_ascend has begun another recording
    has_place = _path is not None or _hook is not wrap_acc_cmp_hook
    checks = _hook is wrap_checkoverflow_hook
    if _hook is None or not has_place or not (checks or step_schedule.is_step_enable()):
        recorder.end()
    elif _fresh:
        _fresh = False
        _begun = _options if "file" in _options else {**_options, "file": _path}
        recorder.begin(_begun, _model)
        _engine.set_overflow_flag(recorder.npu_overflow_flag() if checks else None)
    elif not recorder.recording():
        recorder.resume()

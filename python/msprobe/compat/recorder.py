"""The one recording that the fronts of the older tools of this process share."""

import os
from multiprocessing import util

import torch

from msprobe import _engine
from msprobe._engine import message
from msprobe.compat.errors import RegistrationError
from msprobe.pytorch import hooks
from msprobe.pytorch.process import PACKAGE

_model = None
_rank = None
_options = None
_recording = False
_process = None  # id of the process for which _at_exit is registered
_idle = ""  # logged at the end of the program when nothing was recorded


def _at_exit():
    end()
    if _idle:
        _engine.warn(_idle)
    _engine.end_threads()


def warn_at_exit(idle):
    """Log `idle` at the end of the program, unless a recording begins before that."""
    global _idle, _process
    if _process != os.getpid():
        util.Finalize(None, _at_exit, exitpriority=10)  # as atexit, but in forked workers as well
    _process, _idle = os.getpid(), idle


def begin(options, model=None, rank=None, goes_on=False):
    """Record from now on, by `options` (engine/dump/config/pkl_style.h); call numbers go on.

    goes_on: this is the next part of the same recording; if that has failed or ended, it stays so.
    """
    global _model, _rank, _recording, _options
    warn_at_exit(message(""))
    _options = options
    _engine.configure_pkl(options, PACKAGE, goes_on)
    _model, _rank, _recording = model, rank, True
    hooks.begin(model, rank)


def end():
    """Stop recording and complete the files."""
    global _recording
    if _recording:
        _recording = False
        hooks.end()


def is_current(options):
    """Whether `options` are those of the last :func:`begin`."""
    return _options is options


def resume():
    """Continue the recording that :func:`end` has stopped."""
    global _recording
    _recording = True
    hooks.begin(_model, _rank)


def flush():
    """Write everything recorded so far to the disk, for a reader in this process."""
    if _recording:
        end()
        resume()


def recording():
    return _recording


def step():
    """Begin the next step: call numbers begin at 0 again."""
    end()
    _engine.step()


def check_model(model, none_is_one):
    """Raise for a class, and for an object without modules."""
    if (model is None and none_is_one) or (
        hasattr(model, "named_modules") and not isinstance(model, type)
    ):
        return
    if isinstance(model, type):
        raise RegistrationError(
            message(
                "Please register hooks to nn.Module: expected a model, found the class {}; create "
                "it first: register_hook(Net(), ...)",
                model.__name__,
            )
        )
    raise RegistrationError(
        message(
            "Please register hooks to nn.Module: expected a model, found {}", type(model).__name__
        )
    )


def warn_no_effect(function, keywords):
    """Warn of keywords of another generation, which have no effect here."""
    for name in keywords:
        _engine.warn(message("{}: {} has no effect here", function, name))


def why_no_file(path):
    """Why a dump cannot be written to this file; None when it can."""
    folder = os.path.dirname(path)
    try:
        os.lstat(path)
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as error:  # the name is too long, or has a zero byte
        why = getattr(error, "strerror", error)
        return message("{} cannot be a file: {}; choose another one", repr(path), why)
    if os.path.isdir(path):
        return message("expected a file, found the folder {}", path)
    if not os.path.isdir(folder):
        return message("there is no folder {}; create it first", folder)
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        return message("nothing can be written to {}; choose another one", folder)
    return None


def remove_earlier_dump(path):
    """Remove the file of an earlier dump before another one is written to its place."""
    if os.path.isfile(path):
        _engine.release_pkl()
        os.remove(path)
        _engine.warn(message("{} held an earlier dump, which is overwritten", path))


def npu_overflow_flag():
    """A function that returns whether the NPU has overflowed, and resets that; None: no NPU."""
    device = getattr(torch, "npu", None)
    if device is None or not device.is_available():
        return None
    import torch_npu

    def has_overflowed():
        is_set = torch_npu._C._check_overflow_npu()
        if is_set:
            torch_npu._C._clear_overflow_npu()
        return is_set

    return has_overflowed

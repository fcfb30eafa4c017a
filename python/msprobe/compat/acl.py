"""Dumps of single operators, which the NPU writes (mode and dump_mode "acl")."""

import os

import torch

from msprobe import _engine
from msprobe._engine import message
from msprobe.compat.errors import RegistrationError

_running = False


def _npu():
    device = getattr(torch, "npu", None)
    return device if device is not None and device.is_available() else None


def check():
    """Raise, before training starts, when there is no NPU, which these dumps need."""
    if _npu() is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
        raise RegistrationError(
            message(
                "acl dumps need an NPU and torch_npu, and this machine has none: the device "
                'is {}; mode "all" dumps APIs on any device',
                device,
            )
        )


def begin(config):
    """From now on the device dumps every operator; `config` is its .json file."""
    global _running
    check()
    if not isinstance(config, (str, os.PathLike)) or not os.path.isfile(config):
        raise RegistrationError(
            message("dump_config; expected the .json file of an acl dump, found {}", repr(config))
        )
    device = _npu()
    device.init_dump()
    device.set_dump(os.fspath(config))
    _running = True
    _engine.log(
        message("the device dumps all operators up to the end of the dump, whatever the scope says")
    )


def end():
    global _running
    if _running:
        _running = False
        _npu().finalize_dump()


def set_backward_input(_files):
    check()
    raise RegistrationError(
        message(
            "set_backward_input: running a backward call again is not supported; a dump "
            'of the device over the whole step (mode "acl") holds the operators of '
            "backward too"
        )
    )

"""The key enable_dataloader: each batch of a DataLoader is a step."""

import os
import types

from torch.utils.data.dataloader import _BaseDataLoaderIter

from msprobe import MsprobeError, _engine
from msprobe._engine import message

_next = _BaseDataLoaderIter.__next__  # every iterator of a DataLoader inherits it
_code = _next.__code__
original = types.FunctionType(_code, _next.__globals__, _next.__name__, _next.__defaults__)
batches = None  # the _Batches that is called for each batch; None: nothing is called
_said = set()  # warnings that were logged


class _Batches:
    """Calls `start` before the program gets a batch, `end_step` when it asks for the next one.

    The loading of a batch lies between the two and is not recorded.
    """

    def __init__(self, start, end_step):
        self._start, self._end_step = start, end_step
        self._process = os.getpid()
        self._running = False

    def next(self, iterator):
        if os.getpid() != self._process:
            return original(iterator)
        if self._running:
            self._running = False
            _guarded(self._end_step)
        batch = original(iterator)
        self._running = True
        _guarded(self._start)
        return batch


def _guarded(method):
    """Call a method that the program did not call itself: an error is logged and not raised."""
    try:
        method()
    except MsprobeError as error:
        _warn_once(str(error))


def _warn_once(text):
    if text not in _said:
        _said.add(text)
        _engine.log(text, warning=True)


def _observed_next(self):
    from msprobe.pytorch import dataloader as ours

    return ours.batches.next(self) if ours.batches else ours.original(self)


def observe(start=None, end_step=None):
    """From now on each batch calls these; None: nothing. Only the code of __next__ is replaced."""
    global batches
    batches = None if start is None else _Batches(start, end_step)
    _next.__code__ = _code if start is None else _observed_next.__code__


def warns(method):
    """Whether batches call the debugger, so that a call of the script has no effect."""
    if batches is not None:
        _warn_once(
            message(
                "{}() has no effect: with enable_dataloader each batch of a DataLoader is a step",
                method,
            )
        )
    return batches is not None

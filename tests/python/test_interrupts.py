"""Ctrl-C inside start, stop and step has the same effect as just after the call."""

import signal
import sys
from pathlib import Path

import pytest
import torch
from recording import Dump, forked
from torch.nn.modules import module as torch_module

import msprobe
from msprobe import _engine
from msprobe.pytorch import PrecisionDebugger

OURS = str(Path(msprobe.__file__).parent)


def interrupt_at(number):
    """A trace function that raises KeyboardInterrupt after `number` lines of our code."""
    left = number

    def trace(frame, event, argument):
        nonlocal left
        if not frame.f_code.co_filename.startswith(OURS):
            return None
        if event == "line":
            left -= 1
            if left < 0:
                raise KeyboardInterrupt
        return trace

    return trace


def one_step(debugger, model):
    model.zero_grad()
    debugger.start(model)
    model(torch.ones(1, 2)).sum().backward()
    debugger.stop()
    folder = Path(_engine.folder())
    debugger.step()
    return folder


def interrupted_step(debugger, model, number):
    sys.settrace(interrupt_at(number))
    try:
        one_step(debugger, model)
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(None)
    return False


def check_left_behind(debugger, model):
    debugger.stop()
    debugger.step()
    assert not torch_module._global_module_registration_hooks
    assert not any(p._post_accumulate_grad_hooks for p in model.parameters())


@forked
def test_interrupted_everywhere(tmp_path):
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
    debugger = PrecisionDebugger(dump_path=str(tmp_path), level="mix")
    number = 0
    while interrupted_step(debugger, model, number):  # each run reads the lists of APIs again
        check_left_behind(debugger, model)
        number += 1
    assert number > 50
    whole = Dump(one_step(debugger, model)).names
    assert len(whole) == 11
    number = 0
    while interrupted_step(debugger, model, number):
        check_left_behind(debugger, model)
        assert Dump(one_step(debugger, model)).names == whole, f"after line {number}"
        number += 1
    assert number > 30


@forked
def test_started_again_without_stop(tmp_path):
    """Interrupted, and started again without stop."""
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
    debugger = PrecisionDebugger(dump_path=str(tmp_path), level="mix")
    whole, number, again = Dump(one_step(debugger, model)).names, 0, True
    while again:
        sys.settrace(interrupt_at(number))
        try:
            debugger.start(model)
            again = False
        except KeyboardInterrupt:
            number += 1
        finally:
            sys.settrace(None)
        assert Dump(one_step(debugger, model)).names == whole, f"after line {number}"
    assert number > 10


class Interrupted(torch.nn.Sequential):
    def named_modules(self, *args, **kwargs):
        raise KeyboardInterrupt


def interrupt_our_own_work(folder):
    """Interrupts while the engine calls Python code of the program."""
    model = torch.nn.Sequential(Interrupted(torch.nn.Linear(2, 2)), torch.nn.ReLU())
    debugger = PrecisionDebugger(dump_path=str(folder), level="L0")
    with pytest.raises(KeyboardInterrupt):
        debugger.start(model)
        model(torch.ones(1, 2))
    debugger.stop()


@forked
def test_interrupted_in_our_own_work(tmp_path):
    interrupt_our_own_work(tmp_path)


@forked
def test_interrupted_in_our_own_work_without_a_handler(tmp_path):
    """As in a background job of a shell, which ignores SIGINT."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    interrupt_our_own_work(tmp_path)

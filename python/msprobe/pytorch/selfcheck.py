"""Runs a program under observation, for `msprobe selfcheck` and `determinism`; see
engine/selfcheck/README.md.

python -m msprobe.pytorch.selfcheck LOG UNIT STEPS DRIVE (-m MODULE | SCRIPT) [ARGUMENTS]

At each step LOG gets a fingerprint of everything that the training depends on. UNIT says what a
step is: "optimizer" or "backward". After STEPS steps (0: never) the program is ended. DRIVE is ""
or the keyword arguments, as JSON, of a PrecisionDebugger that is started and stopped around each
step. With {"as_is": true} among them the program keeps its own: its generators are not seeded, and
a PrecisionDebugger that it constructs before its first call is the one that records.
"""

import atexit
import importlib.util
import json
import os
import random
import runpy
import sys
import time
import weakref

import torch
from torch.nn.modules.module import register_module_forward_pre_hook

try:
    from torch.optim.optimizer import register_optimizer_step_pre_hook
except ImportError:  # before PyTorch 2.0: steps are backward passes
    register_optimizer_step_pre_hook = None

from msprobe import _engine
from msprobe._engine import ValueKind
from msprobe.pytorch import PrecisionDebugger


def _plain(tensor):
    """The tensor, or a plain tensor on the host with the same elements."""
    tensor = tensor.detach()
    if hasattr(tensor, "to_local"):
        tensor = tensor.to_local()
    if tensor.layout != torch.strided:
        tensor = tensor.to_dense()
    return tensor.cpu().resolve_conj().resolve_neg()


class Watch:
    """Observes one program and writes its log."""

    def __init__(self, log, unit, steps, drive):
        self.log = _engine.RunLog(log)
        self.unit, self.limit, self.steps = unit, steps, 0
        self.drive = drive  # of a debugger that is constructed at the first call
        self.debugger = None
        if drive is not None and not drive.pop("as_is", False):
            self.debugger, self.drive = PrecisionDebugger(**drive), None
        self.roots = []  # modules that the program itself has called, in this order
        self.depth = self.backwards = 0
        self.started = self.ended = False
        self.optimizers = []
        self.names = {}  # id of a parameter -> its name
        self.process = os.getpid()
        self.since = time.perf_counter_ns()

    # Called by hooks, for what the program does.

    def module_called(self, module, _args):
        if not any(root() is module for root in self.roots):
            known = (child for root in self.roots if root() for child in root().modules())
            if not any(child is module for child in known):
                self.roots.append(weakref.ref(module))
                self.names.clear()
        self.start()

    def backward(self, original):
        def backward(tensors, *args, **kwargs):
            self.depth += 1
            try:
                if self.depth == 1:
                    self.losses(tensors)
                original(tensors, *args, **kwargs)
            finally:
                self.depth -= 1
            if self.depth == 0 and self.unit == "backward":
                self.step()

        return backward

    def losses(self, tensors):
        tensors = (tensors,) if isinstance(tensors, torch.Tensor) else tuple(tensors)
        for tensor in tensors:
            self.value(ValueKind.LOSS, f"backward {self.backwards}", tensor)
            self.backwards += 1

    def optimizer_steps(self, optimizer, _args, _kwargs):
        if not any(known() is optimizer for known in self.optimizers):
            self.optimizers.append(weakref.ref(optimizer))
            self.names.clear()
        if self.unit == "optimizer":
            self.step()

    # Writes to the log.

    def start(self):
        if self.drive is not None and PrecisionDebugger.instance is None:
            self.debugger, self.drive = PrecisionDebugger(**self.drive), None
        if self.debugger is None or self.started:
            return
        self.started = True
        modules = [root() for root in self.roots if root() is not None]
        self.debugger.start(modules if len(modules) > 1 else (modules or [torch.nn.Module()])[0])

    def step(self):
        if os.getpid() != self.process or self.ended:
            return
        if self.started:
            self.debugger.stop()
            self.debugger.step()
            self.started = False
        elapsed = time.perf_counter_ns() - self.since
        self.everything()
        self.log.end_step(elapsed)
        self.backwards = 0
        self.steps += 1
        if self.steps == self.limit:
            self.end()
            raise SystemExit(0)
        self.since = time.perf_counter_ns()
        if not self.roots:
            self.start()  # no call of a module shows that the next step begins

    def value(self, kind, name, tensor):
        if self.ended:
            return
        with torch.no_grad():
            try:
                self.log.tensor(kind, name, _plain(tensor))
            except (RuntimeError, NotImplementedError, TypeError) as error:
                self.log.note(f"{name} cannot be read: {type(error).__name__}")

    def parameters(self):
        """(name, parameter) of the optimizers and the modules, each once."""
        if not self.names:
            for root in self.roots:
                for name, parameter in root().named_parameters() if root() else ():
                    self.names.setdefault(id(parameter), name)
        seen = set()
        for number, optimizer in enumerate(o() for o in self.optimizers):
            for g, group in enumerate(optimizer.param_groups if optimizer else ()):
                for p, parameter in enumerate(group["params"]):
                    if id(parameter) not in seen:
                        seen.add(id(parameter))
                        place = f"optimizer {number} group {g} parameter {p}"
                        yield self.names.get(id(parameter), place), parameter
        for root in self.roots:
            for name, parameter in root().named_parameters() if root() else ():
                if id(parameter) not in seen:
                    seen.add(id(parameter))
                    yield name, parameter

    def everything(self):
        for name, parameter in self.parameters():
            self.value(ValueKind.WEIGHT, name, parameter)
            if parameter.grad is not None:
                self.value(ValueKind.GRADIENT, name, parameter.grad)
        self.log.tensor(ValueKind.RANDOM, "torch", torch.get_rng_state())
        self.log.bytes(ValueKind.RANDOM, "python", repr(random.getstate()).encode())
        if "numpy" in sys.modules:
            state = sys.modules["numpy"].random.get_state()
            text = state[1].tobytes() + repr(state[2:]).encode()
            self.log.bytes(ValueKind.RANDOM, "numpy", text)
        for name in ("cuda", "npu", "xpu"):
            module = getattr(torch, name, None)
            # A device that the program does not use is not initialised for the question.
            if module is not None and module.is_available() and module.is_initialized():
                for device, state in enumerate(module.get_rng_state_all()):
                    self.log.tensor(ValueKind.RANDOM, f"{name} {device}", state)

    def end(self):
        """The program is over, or has made all the steps that were asked for."""
        if self.ended:
            return
        if PrecisionDebugger.instance is not None:
            PrecisionDebugger.stop()
            if self.debugger is None:
                self.log.note("own debugger")
                if folder := _engine.folder():
                    self.log.note("folder " + os.path.dirname(os.path.dirname(folder)))
        self.everything()
        self.log.end()
        self.close()

    def close(self):
        self.ended = True
        self.log = None


def _run_module(name):
    """As ``python -m``, which has one line, and no traceback, for a module that is not there."""
    if not _is_there(name):
        sys.exit(f"error: no module named {name}")
    return runpy.run_module(name, run_name="__main__", alter_sys=True)


def _is_there(name):
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError as error:  # a package of the name, or what that imports
        if error.name and f"{name}.".startswith(f"{error.name}."):
            return False
        raise


def main():
    log, unit, steps, drive, *command = sys.argv[1:]
    drive = json.loads(drive) if drive else None
    as_is = drive is not None and drive.get("as_is", False)
    atexit.register(_engine.end_threads)  # also a program that no PrecisionDebugger observes
    watch = Watch(log, unit, int(steps), drive)
    register_module_forward_pre_hook(watch.module_called)
    torch.autograd.backward = watch.backward(torch.autograd.backward)
    if register_optimizer_step_pre_hook is None:
        watch.unit = "backward"
    else:
        register_optimizer_step_pre_hook(watch.optimizer_steps)
    if command[0] == "-m":
        sys.argv = command[1:]
        sys.path[0] = os.getcwd()
        run = lambda: _run_module(command[1])  # noqa: E731
    else:
        sys.argv = command
        sys.path[0] = os.path.dirname(os.path.abspath(command[0]))
        run = lambda: runpy.run_path(command[0], run_name="__main__")  # noqa: E731
    # These two generators begin with a different state in every process. They are seeded here, so
    # that a program that does not seed them draws the same numbers in each run.
    if not as_is:
        random.seed(0)
        if "numpy" in sys.modules:
            sys.modules["numpy"].random.seed(0)
    watch.since = time.perf_counter_ns()
    try:
        globals_of_program = run()  # kept, so that the model lives until its weights are logged
    except SystemExit as end:
        if end.code not in (None, 0) or watch.steps == watch.limit > 0:
            watch.close()
            raise
        globals_of_program = None
    except BaseException:
        watch.close()
        raise
    watch.end()
    del globals_of_program


if __name__ == "__main__":
    main()

"""A worker of `msprobe run_ut`, `run_overflow_check` and `replay`: executes recorded calls, and
compares them with their golden, or looks for overflows in both.

python -m msprobe.pytorch.replay_worker OPTIONS

OPTIONS is a JSON object. Each line of standard input is the number of a call; each answer is one
line, made by the engine. What libraries print goes to standard error.
"""

import atexit
import ctypes
import gc
import itertools
import json
import os
import signal
import sys

import torch

from msprobe import DumpError, FileError, _engine
from msprobe._engine import message
from msprobe.pytorch import references, replay, roundings
from msprobe.pytorch.imported_functions import ImportedFunctions

# Executions with roundings that show a bound: results that are beyond it after so many get more.
_LOOKS = (4, 16)
_PR_SET_PDEATHSIG = 1  # of prctl(2)


class Refused(Exception):
    """What is wrong, a tab, and what to type: no call can be executed."""


def device_of(number):
    """The device under test: an NPU, else a GPU, else the CPU."""
    try:
        import torch_npu  # noqa: F401

        kind, count = "npu", torch.npu.device_count()
    except ImportError:
        kind, count = "cuda", torch.cuda.device_count()
    if number >= max(count, 1):
        has = message("{} {} devices", count, kind) if count else message("no NPU and no GPU")
        raise Refused(
            message("-d {}: this machine has {}", number, has)
            + "\t"
            + message("leave -d out to use the first device")
        )
    return torch.device(kind, number) if count else torch.device("cpu")


def _imported(modules):
    try:
        return ImportedFunctions(modules)
    except Exception as error:  # whatever the program's code raises
        raise Refused(
            message("--import: {}", _first_line(error))
            + "\t"
            + message(
                "name a module that can be imported from here, or its file: --import train.py"
            )
        ) from error


class Worker:
    """Checks calls of one dump."""

    def __init__(self, options):
        self.device = device_of(options["device"])
        if self.device.type == "npu":
            torch.npu.set_compile_mode(jit_compile=options["jit_compile"])
        golden = references.load(options["references"])
        imports = options.get("imports")
        functions = _imported(imports) if imports else None
        self.dump = replay.Recorded(
            options["dump"], self.device, options["seed"], golden, functions
        )
        self.calls = self.dump.calls(
            options["white_list"], options["black_list"], options["distinct"]
        )
        self.overflow = options.get("mode") == "overflow"
        self.nearer = options.get("mode") == "nearer"
        self.older = options.get("rules", "") != ""
        if self.overflow:
            self.check = _engine.OverflowCheck()
        elif self.nearer:
            self.check = _engine.NearerCheck()
        else:
            rules = options["rules"], options["precision"], options["within_one"]
            self.check = _engine.PreCheck(*rules, options["roundings"])
        self.error_data = options["error_data"]

    def answer(self, index):
        """The line that tells what became of call ``index``."""
        name, skip = self.calls[index]
        self.check.begin(name, skip)
        if skip:
            return self.check.end()
        call = self.dump.call(index)
        try:
            self._compare(name, call)
        except replay.Unsupported as error:
            self.check.skip(str(error))
        except Exception as error:
            self.check.fail(f"its results cannot be compared: {_first_line(error)}")
        line = self.check.end()
        if self.error_data and self.check.failed:
            try:
                self._save(name, call)
            except (OSError, RuntimeError) as error:  # torch.save raises both
                self.check.note(f"cannot save its data: {error}")
                line = self.check.end()
        return line

    def _compare(self, name, call):
        try:
            if self.overflow:
                golden, golden_gradients = replay.reference_of(call, self.device)
            else:
                golden, golden_gradients = replay.golden_of(call, older=self.older)
        except replay.Unsupported:
            raise
        except (DumpError, FileError) as error:
            self.check.skip(_engine.UNREADABLE + str(error).splitlines()[0])
            return
        except Exception as error:
            # Elements that were made fit the statistics, not each other: lengths of sequences.
            why = "the golden cannot be computed"
            if call.makes_elements():
                why = "elements made from statistics do not fit each other"
                why += ", record it with task tensor"
            self.check.skip(f"{why}: {_first_line(error)}")
            return
        try:
            results, gradients = call.run(self.device, None)
        except replay.Unsupported:
            raise
        except Exception as error:
            if "out of memory" in str(error):
                self.check.skip(f"{self.device} has not enough memory: {_first_line(error)}")
            else:
                self.check.fail(f"on {self.device}: {_first_line(error)}")
            return
        outputs = _all_outputs((results, gradients), (golden, golden_gradients))
        if self.nearer:
            self._measure(name, call, outputs)
            return
        for direction, _, device, exact in outputs:
            if self.overflow and device is not None and exact is not None:
                exact = exact.to(device.dtype)  # a value too large for the dtype overflows
            self.check.output(direction, call.api, device, exact)
        if not self.overflow:
            self._judge(call, outputs)
            self._find_causes(call)
        if self.check.failed and not self.older:
            self._forgive(call, outputs)
        call.kept = (results, golden, gradients, golden_gradients)

    def _measure(self, name, call, outputs):
        """How far the recorded results and the new ones are from float64."""
        recorded = {}
        if call.makes_elements():
            self.check.made()  # the recorded results are those of other elements
        else:
            try:
                recorded = call.recorded()
            except (DumpError, FileError, replay.Unsupported) as error:
                self.check.note(f"recorded results cannot be read: {_first_line(error)}")
        self._measure_outputs(call, outputs, recorded)
        # The dump does not say whether two equal arguments were one tensor: the gradients do.
        if self.check.failed and call.repeats_a_tensor():
            self.check.begin(name, "")
            golden = replay.golden_of(call, shared=True)
            made = call.run(self.device, None, shared=True)
            self._measure_outputs(call, _all_outputs(made, golden), recorded, shared=True)
            if self.check.failed:
                self.check.begin(name, "")
                self._measure_outputs(call, outputs, recorded)

    def _measure_outputs(self, call, outputs, recorded, shared=False):
        for direction, index, device, exact in outputs:
            if device is not None and exact is not None:
                place = f"{direction}.output.{index}"
                self.check.output(place, recorded.get(place), device, exact)
        self._judge(call, outputs, shared)

    def _judge(self, call, outputs, shared=False):
        """Gives results that are off by more than one rounding the bound of their operation."""
        judges = self.check.judges
        if not judges.beyond:
            return
        try:
            analysis = roundings.Analysis(call, shared)
            if analysis.no_bound:
                judges.give_up(analysis.no_bound)
                return
            for direction, index, *_ in outputs:
                forward = direction == "forward"
                text = analysis.forward if forward else analysis.backward
                once = forward and analysis.rounds_once
                judges.set_kernels(f"{direction}.output.{index}", text, once)
            for seed in range(1, _LOOKS[-1] + 1):
                for direction, group in zip(("forward", "backward"), analysis.moved(seed)):  # noqa: B905
                    for index, moved in enumerate(group):
                        if moved is not None:
                            judges.add_moved(f"{direction}.output.{index}", moved)
                if seed in _LOOKS:
                    judges.judge()
                if not judges.beyond:
                    return
        except Exception as error:
            judges.give_up(f"its kernels cannot be watched: {_first_line(error)}")

    def _find_causes(self, call):
        """Whether errors stay where inputs move a little."""
        if not self.check.judges.beyond:
            return
        try:
            golden = replay.golden_of(call, moved=True)
            made = call.run(self.device, None, moved=True)
        except (RuntimeError, ValueError, IndexError) as error:
            # PyTorch refuses the moved inputs: they are outside of the operation's domain.
            why = f"unknown: the call refuses inputs that move a little: {_first_line(error)}"
            self.check.judges.no_cause(why)
            return
        for direction, index, device, exact in _all_outputs(made, golden):
            if device is not None and exact is not None:
                self.check.judges.find_cause(f"{direction}.output.{index}", device, exact)

    def _forgive(self, call, outputs):
        """What cancels is as exact as its inputs are."""
        largest, elements = call.size_of_inputs()
        for output in _nudged(call, outputs):
            self.check.forgive(*output, largest, elements)

    def _save(self, name, call):
        os.makedirs(self.error_data, exist_ok=True)

        def save(kind, tensors):
            for index, tensor in enumerate(tensors):
                if tensor is not None:
                    path = os.path.join(self.error_data, f"{name}.{kind}.{index}.pt")
                    torch.save(tensor, path)

        save("forward.input", call.elements())
        kinds = ("forward.output.device", "forward.output.bench")
        kinds += ("backward.output.device", "backward.output.bench")
        for kind, tensors in zip(kinds, getattr(call, "kept", ()), strict=False):
            save(kind, tensors)


def _all_outputs(made, expected):
    """Those of both directions; each argument: (results, gradients)."""
    outputs = [*_outputs("forward", made[0], expected[0])]
    return [*outputs, *_outputs("backward", made[1], expected[1])]


def _outputs(direction, made, expected):
    """(direction, index, the device's or None, the golden or None) of each output."""
    for index, (device, exact) in enumerate(itertools.zip_longest(made, expected)):
        yield direction, index, device, exact


def _nudged(call, outputs, shared=False):
    """The outputs, each with the golden of inputs that have moved by their last places."""
    forward, backward = replay.golden_of(call, nudged=True, shared=shared)
    for direction, index, device, exact in outputs:
        changed = forward if direction == "forward" else backward
        if device is not None and exact is not None and index < len(changed):
            yield direction, index, device, exact, changed[index]


def _first_line(error):
    text = f"{type(error).__name__}: {error}".splitlines()[0]
    return text if len(text) < 300 else text[:300] + "..."


def _give_back():
    """Give back to the system the memory that the start took and does not need any more."""
    gc.collect()
    gc.freeze()  # what PyTorch made is not looked at again
    ctypes.CDLL(None).malloc_trim(0)


def main():
    options = json.loads(sys.argv[1])
    # A worker ends with the program that started it, also when that is killed.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    atexit.register(_engine.end_threads)
    torch.set_num_threads(1)  # the same bits however many workers there are
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    _give_back()
    try:
        worker = Worker(options)
    except Refused as error:
        print(f"refused {error}", file=answers, flush=True)
        sys.exit(2)
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        print(worker.answer(int(line)), file=answers, flush=True)


if __name__ == "__main__":
    main()

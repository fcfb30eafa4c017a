"""What the programs of this folder share: the command line, the processes, the recording.

A program has tables that catalogue.py reads without importing it, each a literal:

    LAYOUTS   {"one": 1, "tp2": 2}: its layouts and how many processes each of them needs
    VARIANTS  ("", "bf16"): forms of the training, each with a recording of "one"; may be missing
    BUGS      {"name": {"layout": "tp2", "rank": 1, "near": ["blocks.1.mlp"]}}
    PAIRS     [("tp2", "tp4")]: further pairs of target and golden; may be missing
    NEEDS     ("megatron.core",): packages that it imports; may be missing
    ROUNDING  1e-6: how exact its training in float64 is; may be missing

`near` of a bug has regular expressions: names of the wrong call or of its direct neighbours. The
lines of the wrong call carry the comment `bug: NAME`; where several layers run these lines,
`within` is the module of the wrong one. `train(run)` trains once and returns the
loss of each step and the whole weights, under the names that they have in layout "one".
"""

import argparse
import contextlib
import os

import torch
import torch.distributed as dist


class Run:
    """One training in one layout.

    precise: the training in float64 that shows whether the layout is right; it is not recorded.
    """

    def __init__(self, options, debugger):
        self.layout, self.variant, self.bug_name = options.layout, options.variant, options.bug
        self.steps, self.debugger = options.steps, debugger
        self.precise = debugger is None
        self.rank = dist.get_rank() if dist.is_initialized() else 0
        self.ranks = dist.get_world_size() if dist.is_initialized() else 1

    def bug(self, name, rank=None):
        """Whether this bug is planted, and, with `rank`, whether it is planted in this process."""
        return self.bug_name == name and rank in (None, self.rank)

    def dtype(self, low):
        return torch.float64 if self.precise else low

    @contextlib.contextmanager
    def step(self, model):
        if self.debugger:
            self.debugger.start(model)
        yield
        if self.debugger:
            self.debugger.stop()
            self.debugger.step()


def objects(value, group=None):
    """What each rank of the group has, in the order of the ranks."""
    if not dist.is_initialized():
        return [value]
    values = [None] * dist.get_world_size(group)
    dist.all_gather_object(values, value, group=group)
    return values


def whole(tensor, dim, group=None):
    """The parts of all ranks of the group, joined; dim None: it is whole already."""
    tensor = tensor.detach().clone()
    return tensor if dim is None else torch.cat(objects(tensor, group), dim)


def average(number, group=None):
    numbers = objects(float(torch.as_tensor(number).detach()), group)
    return sum(numbers) / len(numbers)


def options_of(layouts, bugs, variants):
    parser = argparse.ArgumentParser()
    parser.add_argument("--layout", choices=layouts, required=True)
    parser.add_argument("--variant", choices=variants, default="")
    parser.add_argument("--bug", choices=("", *bugs), default="")
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--dump", help="folder of the recording; without it nothing is recorded")
    parser.add_argument("--task", choices=("statistics", "tensor"), default="statistics")
    parser.add_argument("--level", choices=("L0", "L1", "mix"), default="mix")
    parser.add_argument("--result", help="file for losses and weights of the training in float64")
    return parser.parse_args()


def launch(train, layouts, bugs, variants=("",)):
    """Trains in float64 without a recording, then in float32 with one."""
    options = options_of(layouts, bugs, variants)
    torch.set_num_threads(1)
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(1)
    run = Run(options, None)
    assert run.ranks == layouts[options.layout], "wrong number of processes"
    results = objects(train(run))
    if options.result and run.rank == 0:
        torch.save(results, options.result)
    if options.dump:
        from msprobe.pytorch import PrecisionDebugger

        torch.set_default_dtype(torch.float32)
        torch.manual_seed(1)
        recorded = {"task": options.task, "level": options.level}
        debugger = PrecisionDebugger(dump_path=options.dump, **recorded)
        train(Run(options, debugger))
    if dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()

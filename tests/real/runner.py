"""Trains one program many times: reads jobs from stdin, one JSON object a line, and answers each.

The libraries are imported once; each job runs in a process forked from there. A job:
  {"folder": "out/a", "task": "statistics", "level": "mix", "fault": "", "options": {}, "steps": 2,
   "threads": 1, "onednn": true, "fill": 85}
folder: where the dump is written; "": trains without recording. fill: the byte that malloc fills
new memory with, so that memory that nobody wrote differs from run to run. The answer:
  {"error": "", "losses": [...], "weights": "checksum of all weights after training"}
The job {"place": "name of a fault"} is answered with {"error": "", "place": "file.py:12"}.
"""

import contextlib
import ctypes
import hashlib
import importlib
import os
import pathlib
import random
import sys
import tempfile

import numpy
import torch

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import forked_jobs

HERE = pathlib.Path(__file__).parent
sys.path[:0] = [str(HERE / "programs"), str(HERE)]
M_PERTURB = -6  # of <malloc.h>


class Run:
    """What a program needs to know of the run that it is part of."""

    def __init__(self, job, scratch):
        self.options = dict(job.get("options", {}))
        if "layout" in self.options:
            self.options["layout"] = getattr(torch, self.options["layout"])
        self.steps = job.get("steps", 2)
        self.scratch = pathlib.Path(scratch)
        self.losses = []
        self.debugger = None
        if job["folder"]:
            from msprobe.pytorch import PrecisionDebugger

            self.debugger = PrecisionDebugger(
                dump_path=job["folder"], task=job["task"], level=job["level"]
            )

    def begin(self, model):
        if self.debugger is not None:
            self.debugger.start(model)

    def end(self):
        if self.debugger is not None:
            self.debugger.stop()
            self.debugger.step()

    @contextlib.contextmanager
    def recorded(self, model):
        self.begin(model)
        yield
        self.end()


def checksum(model):
    digest = hashlib.sha256()
    for name, value in sorted(model.state_dict().items()):
        value = value.to_local() if hasattr(value, "to_local") else value
        digest.update(name.encode())
        if isinstance(value, torch.Tensor):
            digest.update(value.detach().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def train(program, job, rank=0, store=""):
    ctypes.CDLL(None).mallopt(M_PERTURB, job.get("fill", 85))
    torch.set_num_threads(job.get("threads", 1))
    torch.backends.mkldnn.enabled = job.get("onednn", True)
    for seed in (random.seed, numpy.random.seed, torch.manual_seed):
        seed(job.get("seed", 7))
    if store:
        torch.distributed.init_process_group(
            "gloo", init_method=f"file://{store}", rank=rank, world_size=program.PROCESSES
        )
    if job.get("fault"):
        import faults

        faults.plant(job["fault"])
    with tempfile.TemporaryDirectory() as scratch:
        run = Run(job, scratch)
        model = program.train(run)
    answer = {"error": "", "losses": run.losses, "weights": checksum(model)}
    if store:
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()
    return answer


def in_library(fault):
    import faults

    return {"error": "", "place": faults.place(fault)}


def answer(program, job):
    if "place" in job:
        return in_library(job["place"])
    processes = getattr(program, "PROCESSES", 1)
    with tempfile.TemporaryDirectory() as folder:
        store = os.path.join(folder, "store") if processes > 1 else ""
        return forked_jobs.in_ranks(lambda rank: train(program, job, rank, store), processes)


def main():
    os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
    program = importlib.import_module(sys.argv[1])
    forked_jobs.serve(lambda job: answer(program, job))


if __name__ == "__main__":
    main()

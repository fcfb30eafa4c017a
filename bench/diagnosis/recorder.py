"""Records programs: reads jobs from stdin, one JSON object a line, and answers each.

PyTorch is imported once; each job runs in processes forked from there. A job:
  {"program": "gpt", "edits": ["gpt/missing_mask"], "both": "", "folder": "out", "task": "tensor",
   "level": "L1", "summary_mode": "statistics", "threads": 1, "steps": 2}
`edits`: the edits of these cases are applied; `both`: the edit of both sides of this case. With
`baseline` each call is compared with the dumps in that folder while it is recorded.
The answer: {"error": "", "seconds": 0.2, "began": 9.1, "ended": 9.0}, or the text of an exception;
`began` and `ended` are the sums of the squares of all weights before and after the training.
"""

import importlib
import json
import os
import sys
import tempfile
import time
import warnings
from pathlib import Path

import case
import libraries
import torch
import torch._dynamo  # an optimizer imports it at its first step: once here, not in every child
import torch.distributed
import torch.utils.checkpoint

import msprobe.pytorch

sys.path.append(str(Path(__file__).resolve().parents[2] / "tools"))
import forked_jobs

SEED = 1234
GIVE_UP_S = 300


def train(job, rank=0):
    program = importlib.import_module(f"models.{job['program']}")
    cases = case.all_cases()
    if job["both"]:
        cases[job["both"]].both(program)
    for name in job["edits"]:
        cases[name].edit(program)
    torch.manual_seed(SEED)
    model = program.build()
    optimizer = program.optimizer(model)
    debugger = msprobe.pytorch.PrecisionDebugger(job["config"])
    began = size_of(model)
    generator = torch.Generator().manual_seed(SEED + rank)
    torch.manual_seed(SEED + 1000 + rank)  # an edit of the initialisation changes no dropout
    for _ in range(job["steps"]):
        batch = program.batch(generator)
        debugger.start(model)
        program.step(model, optimizer, batch)
        debugger.stop()
        debugger.step()
    return {"error": "", "began": began, "ended": size_of(model)}


def size_of(model):
    """The sum of squares of all weights: the same for the same weights under other names."""
    with torch.no_grad():
        parts = [p.to_local() if hasattr(p, "to_local") else p for p in model.parameters()]
        return sum(part.double().square().sum().item() for part in parts)


def train_rank(job, rank, ranks, store):
    # OpenMP's threads do not exist after a fork; autograd's engine is created again, by one thread.
    torch.set_num_threads(job["threads"])
    torch.ones((), requires_grad=True).exp()
    if ranks == 1:
        return train(job)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=ranks
    )
    torch.distributed.barrier()
    answer = train(job, rank)
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()
    return answer


def config(job, folder):
    path = Path(folder) / "config.json"
    section = {"summary_mode": job["summary_mode"]} if job["summary_mode"] != "statistics" else {}
    content = {"task": job["task"], "level": job["level"], "dump_path": job["folder"]}
    if job["summary_mode"] == "statistics":
        content["sketch"] = True  # which relations use (compare --engine relations)
    if "baseline" in job:
        content["baseline"] = job["baseline"]
    path.write_text(json.dumps(content | {job["task"]: section}))
    return str(path)


def record(job):
    libraries.load(job["program"])
    ranks = getattr(importlib.import_module(f"models.{job['program']}"), "RANKS", 1)
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        job["config"] = config(job, folder)
        store = os.path.join(folder, "store")
        answer = forked_jobs.in_ranks(
            lambda rank: train_rank(job, rank, ranks, store), ranks, GIVE_UP_S
        )
    return answer | {"seconds": time.perf_counter() - began}


def main():
    warnings.simplefilter("ignore")
    if sys.argv[1:]:
        case.use(sys.argv[1])
    case.all_cases()
    forked_jobs.serve(record)


if __name__ == "__main__":
    main()

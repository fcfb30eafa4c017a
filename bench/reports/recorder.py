"""Runs programs: reads jobs from stdin, one JSON object a line, and answers each.

PyTorch is imported once; each job runs in processes forked from there, as a user would start them.
A job: {"program": "gan_leftover", "variant": "BUG", "folder": "out", "level": "mix", "ranks": 1}
`variant`: "", "BUG" or "ALT"; folder "": without the tool. The answer:
{"error": "", "made": "a digest of losses, weights and random state of rank 0"}, or an exception.
"""

import os
import runpy
import socket
import sys
import warnings
from pathlib import Path

import torch
import torch._dynamo  # an optimizer imports it at its first step: once here, not in every child
import torch.distributed
import torch.utils.checkpoint

import msprobe.pytorch  # noqa: F401  imported once here

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parents[1] / "tools"))
import forked_jobs  # noqa: E402

PROGRAMS = HERE / "programs"
GIVE_UP_S = 300


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def run(job, rank, port):
    # OpenMP's threads do not exist after a fork; autograd's engine is created again, by one thread.
    torch.set_num_threads(1)
    torch.ones((), requires_grad=True).exp()
    if job["variant"]:
        os.environ[job["variant"]] = "1"
    if not job["folder"]:
        os.environ["OFF"] = "1"
    if job["ranks"] > 1:
        os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(job["ranks"]))
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    sys.argv = [f"{job['program']}.py", job["folder"], job["level"]]
    sys.path.insert(0, str(PROGRAMS))
    made = runpy.run_path(str(PROGRAMS / f"{job['program']}.py"), run_name="__main__")
    return {"error": "", "made": made["made"]}


def answer(job):
    port = free_port() if job["ranks"] > 1 else 0
    return forked_jobs.in_ranks(lambda rank: run(job, rank, port), job["ranks"], GIVE_UP_S)


def main():
    warnings.simplefilter("ignore")
    forked_jobs.serve(answer)


if __name__ == "__main__":
    main()

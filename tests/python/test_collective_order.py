"""A rank that leaves the order of its group's collective calls, also where the run hangs."""

import json
import signal
import subprocess
from contextlib import nullcontext

import pytest
import torch
import torch.distributed as dist
from recording import ForkedError, run_ranks

from msprobe.pytorch import PrecisionDebugger

RANKS, HANGS_S = 3, 4


def step(rank, fault):
    x = torch.relu(torch.arange(4.0) + rank)
    dist.all_reduce(x)
    if not (fault == "skips" and rank == 1):
        y = x.sin()
        dist.all_reduce(y)  # the call
    z = x.exp()
    if fault == "one more everywhere":
        dist.all_reduce(z)
    z = z.cos()
    gathered = [torch.empty(4) for _ in range(RANKS)]
    dist.all_gather(gathered, z)
    if fault == "one more" and rank == 2:
        dist.all_reduce(z)  # one more: it fails when the others have gone


def record(rank, fault, folder):
    debugger = PrecisionDebugger(dump_path=str(folder), level="L1")
    debugger.start()
    if fault == "skips":  # the others wait for ever: the run is killed
        signal.setitimer(signal.ITIMER_REAL, HANGS_S)
    step(rank, fault)
    debugger.stop()
    debugger.step()


@pytest.fixture(scope="module")
def golden(tmp_path_factory):
    folder = tmp_path_factory.mktemp("golden") / "run"
    run_ranks(RANKS, record, "", folder)
    return folder


def compared(golden, folder, msprobe_bin, fault):
    """What is said of a run with a fault beside the golden, and as JSON."""
    ends_badly = fault in ("skips", "one more")
    with pytest.raises(ForkedError) if ends_badly else nullcontext():
        run_ranks(RANKS, record, fault, folder / "target")
    command = [msprobe_bin, "compare", folder / "target", golden, "-o", folder / "out"]
    said, report = (
        subprocess.run([*command, *more], capture_output=True, text=True, check=True).stdout
        for more in ([], ["--format", "json"])
    )
    return " ".join(said.replace("|", " ").split()), json.loads(report)


def test_a_rank_that_goes_on_without_a_call_is_named(golden, tmp_path, msprobe_bin):
    said, report = compared(golden, tmp_path, msprobe_bin, "skips")
    assert "FIRST DIVERGENCE rank 1, Distributed.all_reduce.1.forward" in said
    assert "# the call" in said and "the recording of ranks 0, 2 ends at it" in said
    assert report["first"]["rank"] == "1"


def test_a_rank_that_makes_one_call_more_is_named(golden, tmp_path, msprobe_bin):
    said, _ = compared(golden, tmp_path, msprobe_bin, "one more")
    assert "FIRST DIVERGENCE rank 2, Distributed.all_reduce.2.forward" in said
    assert "# one more" in said and "ranks 0, 1 did not" in said


def test_a_call_that_all_ranks_add_keeps_the_order(golden, tmp_path, msprobe_bin):
    said, _ = compared(golden, tmp_path, msprobe_bin, "one more everywhere")
    assert "of its group" not in said

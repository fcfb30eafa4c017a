"""A fault in one of several processes: `msprobe compare` names the rank where it began."""

import json
import subprocess

import torch
import torch.distributed as dist
from distributed_programs import pipeline_by_hand, training
from recording import run_ranks
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from msprobe.pytorch import PrecisionDebugger

RANKS = 4


def record(rank, program, faulty, folder, steps):
    model, step = program(rank, rank == faulty)
    debugger = PrecisionDebugger(dump_path=str(folder), level="mix" if model else "L1")
    for _ in range(steps):
        debugger.start(model)
        step()
        debugger.stop()
        debugger.step()


def origins(program, tmp_path, msprobe_bin, faulty, steps=1):
    """Compares runs with and without a fault: diff_analyze of each step, and the output."""
    for folder, fault in (("golden", False), ("target", True)):
        run_ranks(RANKS, record, program, faulty if fault else -1, tmp_path / folder, steps)
    command = [msprobe_bin, "compare", "-tp", tmp_path / "target", "-gp", tmp_path / "golden"]
    done = subprocess.run([*command, "-o", tmp_path / "out", "-da"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    files = sorted((tmp_path / "out").glob("**/diff_analyze_*.json"))
    return [json.loads(file.read_text()) for file in files], done.stdout


def reduced(rank, fault):
    """Computes, reduces over all ranks, computes again."""

    def step():
        x = torch.arange(8.0) + rank
        y = torch.sin(x)
        if fault:
            y = y * 1.5  # the fault
        dist.all_reduce(y)
        return F.gelu(y)

    return None, step


def test_fault_before_a_reduction(tmp_path, msprobe_bin):
    [found], printed = origins(reduced, tmp_path, msprobe_bin, faulty=2)
    [(rank, [node])] = found.items()
    assert (rank, node["op_name"]) == ("rank_2", "Tensor.__mul__.0.forward")
    assert "# the fault" in node["source_line"] and node["reached"] == [0, 1, 3]
    [hop] = node["travelled"]
    assert hop["op_name"] == "Distributed.all_reduce.0.forward"
    assert (hop["from"], hop["to"]) == ([2], [0, 1, 3]) and "all_reduce(y)" in hop["source_line"]
    assert "rank 2, Tensor.__mul__.0.forward" in printed and "to ranks 0, 1, 3" in printed


def local_after(rank, fault):
    def step():
        y = torch.sin(torch.arange(8.0) + rank)
        dist.all_reduce(y)
        z = F.gelu(y)
        if fault:
            z = z * 1.5  # the fault
        gathered = [torch.empty(8) for _ in range(RANKS)]
        dist.all_gather(gathered, z)
        return sum(gathered)

    return None, step


def test_fault_after_a_reduction(tmp_path, msprobe_bin):
    [found], _ = origins(local_after, tmp_path, msprobe_bin, faulty=3)
    [(rank, [node])] = found.items()
    assert rank == "rank_3" and "# the fault" in node["source_line"]
    assert [hop["op_name"] for hop in node["travelled"]] == ["Distributed.all_gather.0.forward"]
    assert node["reached"] == [0, 1, 2]


class Scaled(nn.Module):
    def forward(self, x):
        return x * 1.5  # the fault


def faulty_pipeline(rank, fault):
    """The fault is in the first stage; forward carries it to the second, backward returns it."""
    stage, step = pipeline_by_hand(rank, RANKS)
    if fault:
        stage[1].norm = Scaled()
    return stage, step


def test_fault_in_a_pipeline(tmp_path, msprobe_bin):
    [found], printed = origins(faulty_pipeline, tmp_path, msprobe_bin, faulty=0)
    [(rank, [node])] = found.items()
    assert rank == "rank_0" and node["reached"] == [1]
    assert node["travelled"][0]["op_name"] == "Distributed.send.0.forward"
    assert (node["travelled"][0]["from"], node["travelled"][0]["to"]) == ([0], [1])
    assert "ranks 2, 3" in printed  # these ranks do nothing, so they are equal


def ring(rank, fault):
    """Each rank sends to the next, batched: two exchanges carry the number from rank 1 to 3."""

    def step():
        x = torch.arange(4.0) + rank
        for _ in range(2):
            if fault:
                x = x * 1.5  # the fault
            got = torch.empty(4)
            parts = [
                dist.P2POp(dist.isend, x, (rank + 1) % RANKS),
                dist.P2POp(dist.irecv, got, (rank - 1) % RANKS),
            ]
            for work in dist.batch_isend_irecv(parts):
                work.wait()
            x = torch.cos(got)

    return None, step


def test_a_number_travels_from_rank_to_rank(tmp_path, msprobe_bin):
    [found], _ = origins(ring, tmp_path, msprobe_bin, faulty=1)
    [(rank, [node])] = found.items()
    assert rank == "rank_1" and node["reached"] == [2, 3]
    assert [(hop["from"], hop["to"]) for hop in node["travelled"]] == [([1], [2]), ([2], [3])]


def data_parallel(rank, fault):
    """DDP's exchanges are not recorded; in the next step all ranks have different weights."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(4, 4), Scaled() if fault else nn.Identity(), nn.Linear(4, 2))
    wrapped = DistributedDataParallel(model)
    x = torch.ones(3, 4) * (rank + 1)
    return training(wrapped, torch.optim.SGD(model.parameters(), lr=0.1), x, torch.zeros(3, 2))


def test_fault_under_data_parallel(tmp_path, msprobe_bin):
    files, printed = origins(data_parallel, tmp_path, msprobe_bin, faulty=1, steps=2)
    [(rank, [node])] = files[0].items()
    assert rank == "rank_1" and node["reached"] == []
    assert node["from_outside"].startswith("ranks 0, 2, 3 got wrong numbers")
    assert set(files[1]) == {"rank_0", "rank_1", "rank_2", "rank_3"}
    assert "step 0, rank 1" in printed

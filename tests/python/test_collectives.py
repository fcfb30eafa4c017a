"""Calls of torch.distributed: the recorded output is the completed result, also for async calls."""

import contextlib
import re
import zlib

import pytest
import torch
import torch.distributed as dist
from recording import read_dump, run_ranks
from torch.distributed import all_reduce as imported_before

from msprobe.pytorch import PrecisionDebugger

PAIR = {"ranks": [0, 1], "id": f"{zlib.crc32(b'[0, 1]'):08x}"}
N = 1 << 20  # elements: so many that the exchange is not finished when the call returns


def record(rank, calls, folder, level="L1"):
    """Runs `calls(rank)` while collecting; returns its result."""
    debugger = PrecisionDebugger(dump_path=str(folder), level=level)
    debugger.start(torch.nn.ReLU() if level == "mix" else None)
    result = calls(rank)
    debugger.stop()
    debugger.step()
    dist.barrier()  # a rank that exits early breaks the calls of the other one
    return result


def entries(folder, calls, ranks=2):
    """The records of each rank, and what the calls returned."""
    results = run_ranks(ranks, record, calls, folder)
    return [read_dump(folder, rank=rank).data for rank in range(ranks)], results


def full(rank):
    return torch.full((N,), float(rank + 1))


def waited_for(rank):
    x = full(rank)
    work = dist.all_reduce(x, async_op=True)
    answer = work.wait()
    return answer, float(x[0])


def test_output_is_recorded_when_the_work_was_waited_for(tmp_path):
    data, results = entries(tmp_path, waited_for)
    assert results == [(True, 3.0)] * 2  # wait() still returns True
    for rank, entry in enumerate(d["Distributed.all_reduce.0.forward"] for d in data):
        assert entry["input_args"][0]["Max"] == rank + 1
        assert (entry["output"][0]["Max"], entry["output"][0]["Min"]) == (3.0, 3.0)
        assert entry["async"] == "waited for"
        assert entry["group"] == PAIR | {"rank": rank}


def exchanged(rank):
    sent, received = full(rank), torch.zeros(N)
    work = [dist.isend(sent, 1 - rank), dist.irecv(received, 1 - rank)]
    for w in reversed(work):
        w.wait()
    parts = [
        dist.P2POp(dist.isend, sent, 1 - rank),
        dist.P2POp(dist.irecv, received.zero_(), 1 - rank),
    ]
    for w in dist.batch_isend_irecv(parts):
        w.wait()


def test_exchanges_between_two(tmp_path):
    data, _ = entries(tmp_path, exchanged)
    for rank in range(2):
        sent = data[rank]["Distributed.isend.0.forward"]
        received = data[rank]["Distributed.irecv.0.forward"]
        batch = data[rank]["Distributed.batch_isend_irecv.0.forward"]
        assert [name for name in data[rank] if "full" not in name and "zeros" not in name] == [
            "Distributed.irecv.0.forward",  # waited for first
            "Distributed.isend.0.forward",
            "Distributed.batch_isend_irecv.0.forward",
        ]
        # builtin_ignore_ops.yaml removes the second copy of the sent data, and the content of the
        # receiver's buffer before the call.
        assert sent["input_args"][0]["Max"] == rank + 1
        assert sent["output"][0] is None and received["input_args"][0] is None
        assert sent["group"] == PAIR | {"rank": rank, "role": "source", "to": 1 - rank}
        assert received["output"][0]["Max"] == 2 - rank
        assert received["group"] == PAIR | {"rank": rank, "role": "receiver", "from": 1 - rank}
        assert [part["tensor"]["Max"] for part in batch["output"][0]] == [rank + 1, 2 - rank]
        assert batch["group"] == PAIR | {"rank": rank}


def other_ways(rank):
    """Work that is polled, awaited through its future, not awaited, and never complete."""
    x, y, z, never = full(rank), full(rank), full(rank), torch.zeros(2)
    polled = dist.all_reduce(x, async_op=True)
    while not polled.is_completed():
        pass
    future = dist.all_reduce(y, async_op=True)
    future.get_future().wait()
    forgotten = dist.all_reduce(z, async_op=True).get_future()
    while not forgotten.done():  # the result is complete a little before done()
        pass
    unfinished = dist.irecv(never, 1 - rank)
    return torch.equal(z, torch.full((N,), 3.0)) and unfinished.is_completed()


def test_what_was_not_waited_for(tmp_path):
    data, _ = entries(tmp_path, other_ways)
    for records in data:
        reduced = [records[f"Distributed.all_reduce.{n}.forward"] for n in range(3)]
        assert [r["output"][0]["Min"] for r in reduced] == [3.0] * 3
        assert [r["async"] for r in reduced] == ["waited for"] + ["complete at stop"] * 2
        never = records["Distributed.irecv.0.forward"]
        assert never["async"] == "not complete at stop"
        assert "output" not in never and never["input_args"][0] is None


def rooted(rank):
    x = torch.full((2,), float(rank))
    dist.broadcast(x, src=1)
    dist.reduce(x, 0)
    dist.scatter(x, [torch.ones(2), torch.zeros(2)] if rank == 0 else None, src=0)
    dist.gather(x, [torch.zeros(2), torch.zeros(2)] if rank == 0 else None)
    if rank == 0:
        dist.send(x, dst=1)
    else:
        dist.recv(x)
    group = dist.new_group([1])
    if rank == 1:
        dist.all_reduce(x, group=group)
        dist.broadcast(x, group=group, group_src=0)


def test_who_gave_and_who_got(tmp_path):
    data, _ = entries(tmp_path, rooted)
    expected = {
        "broadcast": [{"role": "receiver", "from": 1}, {"role": "source", "from": 1}],
        "reduce": [{"role": "receiver", "to": 0}, {"role": "source", "to": 0}],
        "scatter": [{"role": "source", "from": 0}, {"role": "receiver", "from": 0}],
        "gather": [{"role": "receiver", "to": 0}, {"role": "source", "to": 0}],
    }
    for name, sides in expected.items():
        for rank, side in enumerate(sides):
            entry = data[rank][f"Distributed.{name}.0.forward"]
            assert entry["group"] == PAIR | {"rank": rank} | side, name
    sent, received = data[0]["Distributed.send.0.forward"], data[1]["Distributed.recv.0.forward"]
    assert sent["group"] == PAIR | {"rank": 0, "role": "source", "to": 1}
    assert received["group"] == PAIR | {"rank": 1, "role": "receiver", "from": 0}
    alone = {"ranks": [1], "id": f"{zlib.crc32(b'[1]'):08x}", "rank": 0}
    assert data[1]["Distributed.all_reduce.0.forward"]["group"] == alone
    last = data[1]["Distributed.broadcast.1.forward"]
    assert last["group"] == alone | {"role": "source", "from": 1}
    assert received["output"][0]["Max"] == 1.0


@pytest.mark.parametrize("asynchronous", [False, True])
def test_coalesced_calls_end_with_their_manager(tmp_path, asynchronous):
    def coalesced(rank):
        x, y = full(rank), full(rank + 10)
        with dist.distributed_c10d._coalescing_manager(async_ops=asynchronous) as manager:
            dist.all_reduce(x)
            dist.all_reduce(y)
        if asynchronous:
            manager.wait()
        torch.relu(x)

    data, _ = entries(tmp_path, coalesced)
    for records in data:
        assert list(records)[-1] == "Torch.relu.0.forward"
        outputs = [records[f"Distributed.all_reduce.{n}.forward"]["output"][0] for n in range(2)]
        assert [(o["Max"], o["Min"]) for o in outputs] == [(3.0, 3.0), (23.0, 23.0)]


def aliased(rank):
    imported_before(torch.ones(2))
    with contextlib.suppress(Exception):
        dist.all_reduce(torch.ones(2), group="no group")
    dist.all_gather_object([None, None], {"rank": rank})


def test_names_imported_before_and_calls_that_raise(tmp_path):
    data, _ = entries(tmp_path, aliased)
    assert data[0]["Distributed.all_reduce.0.forward"]["output"][0]["Max"] == 2.0
    assert "exception" in data[0]["Distributed.all_reduce.1.forward"]
    # Collectives of objects are recorded as the collectives of bytes that they call; PyTorch 2.15
    # gathers into one tensor.
    assert re.search(r"Distributed\.all_gather(_single)?\.0\.forward", " ".join(data[0]))


def ended_early(rank):
    x = full(rank)
    work = dist.all_reduce(x, async_op=True)
    PrecisionDebugger.forward_backward_dump_end()
    work.wait()
    x.add_(1)


def test_waiting_is_seen_after_the_end_of_forward(tmp_path):
    data, _ = entries(tmp_path, ended_early)
    assert list(data[0]) == ["Torch.full.0.forward", "Distributed.all_reduce.0.forward"]
    assert data[0]["Distributed.all_reduce.0.forward"]["output"][0]["Max"] == 3.0


def functional(rank):
    import torch.distributed._functional_collectives as functional_collectives

    pending = functional_collectives.all_reduce(full(rank), "sum", dist.group.WORLD)
    torch.nn.functional.softmax(torch.ones(2), 0, pending)  # ignores this argument
    before = pending.completed
    total = pending + 1  # waits
    return before, float(total[0]), pending.completed


def test_what_is_on_its_way_is_not_waited_for(tmp_path):
    data, results = entries(tmp_path, functional)
    assert results == [(False, 4.0, True)] * 2
    for rank, records in enumerate(data):
        given = records["Functional.softmax.0.forward"]["input_args"][2]
        kind = "torch.distributed._functional_collectives.AsyncCollectiveTensor"
        # Its numbers are those of the moment when the program had waited.
        assert (given["type"], given["shape"], given["Max"]) == (kind, [N], 3.0)
        assert "unreadable" not in given
        reduced = records["Distributed.functional_all_reduce.0.forward"]
        assert reduced["async"] == "waited for"
        assert (reduced["group"]["ranks"], reduced["group"]["rank"]) == ([0, 1], rank)
        assert reduced["input_args"][0]["Max"] == rank + 1
        assert [value["Max"] for value in reduced["output"]] == [3.0]


still_pending = []


def never_waited_for(rank):
    import torch.distributed._functional_collectives as functional_collectives

    pending = functional_collectives.all_reduce(full(rank), "sum", dist.group.WORLD)
    torch.nn.functional.softmax(torch.ones(2), 0, pending)
    still_pending.append(pending)


def test_what_nobody_waits_for_has_no_numbers(tmp_path):
    data, _ = entries(tmp_path, never_waited_for)
    for records in data:
        given = records["Functional.softmax.0.forward"]["input_args"][2]
        assert (given["Max"], given["unreadable"]) == (None, "not waited for")
        reduced = records["Distributed.functional_all_reduce.0.forward"]
        assert reduced["async"] == "not complete at stop" and "output" not in reduced


def read_before_the_wait(rank):
    x = full(rank)
    work = dist.all_reduce(x, async_op=True)
    torch.nn.functional.softmax(torch.ones(2), 0, x.view(2, -1))  # ignores this argument
    work.wait()


def test_nothing_is_read_that_a_collective_writes(tmp_path):
    data, _ = entries(tmp_path, read_before_the_wait)
    for records in data:
        given = records["Functional.softmax.0.forward"]["input_args"][2]
        assert (given["shape"], given["Max"], given["Min"]) == ([2, N // 2], 3.0, 3.0)


def compiled(rank):
    import torch.distributed._functional_collectives as functional_collectives

    @torch.compile(backend="eager", fullgraph=True)
    def double(x):
        return functional_collectives.all_reduce(x * 2, "sum", "0") + 1

    return float(double(torch.ones(2))[0])


def test_a_compiled_collective_stays_in_one_graph(tmp_path):
    _, results = entries(tmp_path, compiled)
    assert results == [5.0] * 2

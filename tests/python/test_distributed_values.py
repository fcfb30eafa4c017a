"""Arguments of torch.distributed calls that are not tensors, written as by the older tool."""

import zlib

import torch
import torch.distributed as dist
from recording import Dump, forked


@forked
def test_groups_reductions_and_exchanges(tmp_path):
    """Calls with a group, a reduction and a P2P operation; one process, so that none waits."""
    from msprobe.pytorch import PrecisionDebugger

    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    group = dist.new_group([0])
    x = torch.ones(3)
    exchange = dist.P2POp(dist.isend, x, 0, group, 7)
    debugger = PrecisionDebugger(dump_path=str(tmp_path / "dump"), level="L1")
    debugger.start()
    dist.all_reduce(x, op=dist.ReduceOp.MAX, group=group)
    dist.all_reduce(x, dist.ReduceOp.SUM)
    torch.nn.functional.softmax(x, 0, exchange)  # softmax ignores its third argument
    debugger.stop()
    debugger.step()
    data = Dump(tmp_path / "dump" / "step0" / "rank0").data
    group_id = f"{zlib.crc32(b'[0]'):08x}"
    group = {"type": "torch.ProcessGroup", "group_ranks": [0], "group_id": group_id}
    first, second = (data[f"Distributed.all_reduce.{n}.forward"] for n in (0, 1))
    largest = {"type": "torch.distributed.ReduceOp", "value": "RedOpType.MAX"}
    assert first["input_kwargs"] == {"op": largest, "group": group}
    assert first["output"][1:] == [largest, group]
    assert second["input_args"][1] == {**largest, "value": "RedOpType.SUM"}
    exchange = data["Functional.softmax.0.forward"]["input_args"][2]
    tensor = exchange.pop("tensor")
    assert (tensor["type"], tensor["shape"]) == ("torch.Tensor", [3])
    assert exchange == {
        "class_type": "torch.distributed.P2POp",
        "op": "isend",
        "peer": 0,
        "tag": 7,
        "group_id": group_id,
    }

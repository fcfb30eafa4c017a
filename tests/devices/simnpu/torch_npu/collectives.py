"""The backend "hccl" of torch.distributed: collectives of host copies, by gloo.

torch.distributed.init_process_group("hccl")    # tensors of npu:0 on one rank, of npu:1 on another
"""

from itertools import chain

import torch
import torch.distributed as dist


def _done(result):
    future = torch.futures.Future()
    future.set_result(result)
    return torch._C._distributed_c10d._create_work_from_future(future)


class _HostCopies(dist.ProcessGroup):
    """A collective copies tensors to the host, and results back; it ends before it returns."""

    def __init__(self, store, rank, size, timeout):
        super().__init__(rank, size)
        self._host = dist.ProcessGroupGloo(store, rank, size, timeout)

    def getBackendName(self):
        return "hccl"

    def allreduce(self, tensors, options=None):
        copies = [each.cpu() for each in tensors]
        self._host.allreduce(copies, options or dist.AllreduceOptions()).wait()
        return self._returned(tensors, copies)

    def broadcast(self, tensors, options):
        copies = [each.cpu() for each in tensors]
        self._host.broadcast(copies, options).wait()
        return self._returned(tensors, copies)

    def allgather(self, outputs, inputs, options=None):
        copies = [[each.cpu() for each in output] for output in outputs]
        sent = [each.cpu() for each in inputs]
        self._host.allgather(copies, sent, options or dist.AllgatherOptions()).wait()
        return self._returned([*chain(*outputs)], [*chain(*copies)], outputs)

    def barrier(self, options=None):
        self._host.barrier(options or dist.BarrierOptions()).wait()
        return _done(None)

    @staticmethod
    def _returned(tensors, copies, result=None):
        for tensor, copy in zip(tensors, copies, strict=True):
            tensor.copy_(copy)
        return _done(tensors if result is None else result)


def register():
    """Make the name "hccl" known, where this PyTorch has distributed."""
    if dist.is_available():
        dist.Backend.register_backend("hccl", _HostCopies, devices=["npu"])

"""Small programs on several processes: PROGRAMS, name -> build(rank, ranks).

`build` returns (argument of start(), step). `step()` trains once, optimizer included, and returns
the loss (0 in a process that has no loss). To run one under torchrun, with ours or msprobe 26:

    torchrun --nproc_per_node=4 distributed_programs.py NAME config.json
"""

import hashlib
import sys
from importlib.util import find_spec

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

# If False, PROGRAMS has only the programs that run under PyTorch 1.13.
HAS_DTENSOR = find_spec("torch.distributed.device_mesh") is not None
if HAS_DTENSOR:
    import torch.distributed._functional_collectives as functional_collectives
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
    from torch.distributed.pipelining import (
        PipelineStage,
        Schedule1F1B,
        ScheduleGPipe,
        SplitPoint,
    )
    from torch.distributed.pipelining import pipeline as pipeline_of
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        SequenceParallel,
        parallelize_module,
    )

WIDTH = 8


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH, bias=False)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(4, WIDTH)
        self.blocks = nn.Sequential(Block(), Block())
        self.head = nn.Linear(WIDTH, 4)

    def forward(self, x):
        return self.head(self.blocks(self.embed(x)))


def batch(rank):
    generator = torch.Generator().manual_seed(100 + rank)
    return torch.randn(2, 4, 4, generator=generator), torch.randn(2, 4, 4, generator=generator)


def net():
    torch.manual_seed(7)
    return Net()


def training(model, optimizer, x, y):
    def step():
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def ddp(rank, ranks):
    model = DistributedDataParallel(net(), bucket_cap_mb=0.001)
    return training(model, sgd(model), *batch(rank))


def ddp_hook(rank, ranks):
    """Gradient buckets are reduced by a hook in Python."""
    model = DistributedDataParallel(net(), gradient_as_bucket_view=True)

    def average(state, bucket):
        work = dist.all_reduce(bucket.buffer().div_(ranks), async_op=True)
        return work.get_future().then(lambda future: future.value()[0])

    model.register_comm_hook(None, average)
    return training(model, sgd(model), *batch(rank))


def fsdp1(rank, ranks, **options):
    inner = net()
    options["device_id"] = torch.device("cpu")
    inner.blocks[0] = FullyShardedDataParallel(inner.blocks[0], **options)
    model = FullyShardedDataParallel(inner, **options)
    return training(model, sgd(model), *batch(rank))


def fsdp1_original(rank, ranks):
    return fsdp1(rank, ranks, use_orig_params=True)


def fsdp2(rank, ranks):
    model = net()
    mesh = init_device_mesh("cpu", (ranks,))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return training(model, sgd(model), *batch(rank))


def tensor_parallel(rank, ranks):
    """With sequence parallelism: activations are passed on as DTensors."""
    model = net()
    sequence = {"output_layouts": Shard(1), "use_local_output": False}
    plan = {
        "embed": RowwiseParallel(input_layouts=Replicate(), **sequence),
        "blocks.*.norm": SequenceParallel(),
        "blocks.*.up": ColwiseParallel(input_layouts=Shard(1)),
        "blocks.*.down": RowwiseParallel(**sequence),
        "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate()),
    }
    parallelize_module(model, init_device_mesh("cpu", (ranks,)), plan)
    return training(model, sgd(model), *batch(0))


def fsdp_over_tp(rank, ranks):
    """fully_shard of what tensor parallelism has sharded; a mesh of two dimensions."""
    model = net()
    mesh = init_device_mesh("cpu", (ranks // 2, 2), mesh_dim_names=("dp", "tp"))
    plan = {"blocks.*.up": ColwiseParallel(), "blocks.*.down": RowwiseParallel()}
    parallelize_module(model, mesh["tp"], plan)
    for block in model.blocks:
        fully_shard(block, mesh=mesh["dp"])
    fully_shard(model, mesh=mesh["dp"])
    return training(model, sgd(model), *batch(mesh.get_local_rank("dp")))


class Gathered(nn.Module):
    """Functional collectives under autograd: of a gathered batch each rank returns its part."""

    def __init__(self):
        super().__init__()
        self.net = net()

    def forward(self, x):
        world = dist.group.WORLD
        whole = functional_collectives.all_gather_tensor_autograd(x.flatten(0, 1), 0, world)
        out = functional_collectives.reduce_scatter_tensor_autograd(
            self.net(whole), "sum", 0, world
        )
        largest = functional_collectives.all_reduce(out.detach().abs().max(), "max", world)
        return (out / largest).view_as(x)


def functional(rank, ranks):
    x, y = batch(rank)
    return training(model := Gathered(), sgd(model), x.requires_grad_(), y)


def halves(rank, ranks):
    """Stage `rank` of the net, and whether this process takes part."""
    model = net()
    first = nn.Sequential(model.embed, model.blocks[0])
    return first if rank == 0 else nn.Sequential(model.blocks[1], model.head)


def pipeline_by_hand(rank, ranks):
    """Two stages with send and recv; the other processes do nothing."""
    x, y = batch(0)
    stage = halves(rank, ranks)
    optimizer = sgd(stage)
    shape = (2, 4, WIDTH)

    def step():
        optimizer.zero_grad()
        loss = torch.zeros(())
        if rank == 0:
            out = stage(x)
            dist.send(out.detach(), dst=1)
            gradient = torch.empty(shape)
            dist.recv(gradient, src=1)
            out.backward(gradient)
        elif rank == 1:
            received = torch.empty(shape)
            dist.irecv(received, src=0).wait()
            received.requires_grad_()
            loss = F.mse_loss(stage(received), y)
            loss.backward()
            work = dist.isend(received.grad, dst=0)
            work.wait()
        optimizer.step()
        return loss

    return stage, step


def piped(stage, schedule, place, x, y):
    """The training of stage `place` of two."""
    model = stage.submod
    schedule = schedule(stage, n_microbatches=2, loss_fn=F.mse_loss)
    optimizer = sgd(model)

    def step():
        optimizer.zero_grad()
        losses = []
        if place == 0:
            schedule.step(x)
        else:
            schedule.step(target=y, losses=losses)
        optimizer.step()
        return torch.stack(losses).sum() if losses else torch.zeros(())

    return model, step


def stage_group(ranks):
    """Each pair of processes is one pipeline."""
    mesh = init_device_mesh("cpu", (ranks // 2, 2), mesh_dim_names=("data", "stage"))
    return mesh.get_group("stage")


def pipeline(rank, ranks):
    """Two stages of torch.distributed.pipelining."""
    group = stage_group(ranks)
    place = dist.get_rank(group)
    stage = PipelineStage(halves(place, ranks), place, 2, torch.device("cpu"), group=group)
    return piped(stage, ScheduleGPipe, place, *batch(0))


def pipeline_traced(rank, ranks):
    """The stages are cut out of a traced model."""
    x, y = batch(0)
    group = stage_group(ranks)
    place = dist.get_rank(group)
    cut = {"blocks.1": SplitPoint.BEGINNING}
    stages = pipeline_of(net(), mb_args=(x[:1],), split_spec=cut)
    return piped(stages.build_stage(place, torch.device("cpu"), group), Schedule1F1B, place, x, y)


def zero1(rank, ranks):
    model = DistributedDataParallel(net())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.1)
    return training(model, optimizer, *batch(rank))


PROGRAMS = {
    f.__name__: f
    for f in (
        ddp,
        ddp_hook,
        fsdp1,
        fsdp1_original,
        fsdp2,
        tensor_parallel,
        fsdp_over_tp,
        functional,
        pipeline_by_hand,
        pipeline,
        pipeline_traced,
        zero1,
    )
    if HAS_DTENSOR or f in (ddp, ddp_hook, pipeline_by_hand, zero1)
}


def local(tensor):
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def digest(tensor):
    return hashlib.sha256(local(tensor).detach().contiguous().numpy().tobytes()).hexdigest()


def train(name, rank, ranks, steps, debugger=None):
    """Hashes of losses, gradients and weights of this process."""
    model, step = PROGRAMS[name](rank, ranks)
    left = []
    for _ in range(steps):
        if debugger:
            debugger.start(model)
        left.append(digest(step()))
        if debugger:
            debugger.stop()
            debugger.step()
    for parameter_name, parameter in model.named_parameters():
        gradient = None if parameter.grad is None else digest(parameter.grad)
        left.append((parameter_name, digest(parameter), gradient))
    return left


if __name__ == "__main__":
    from msprobe.pytorch import PrecisionDebugger

    dist.init_process_group("gloo")
    the_debugger = PrecisionDebugger(config_path=sys.argv[2])
    train(sys.argv[1], dist.get_rank(), dist.get_world_size(), 1, the_debugger)
    dist.destroy_process_group()

"""fully_shard over what parallelize_module has sharded: a mesh of two dimensions."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from common import average, launch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

LAYOUTS = {"one": 1, "fsdp2tp2": 4, "tp2": 2}
VARIANTS = ("", "deep")
BUGS = {
    "hidden_scaled": {
        "layout": "fsdp2tp2",
        "rank": 3,
        "within": r"trunk\.1",
        "near": [r"trunk\.1"],
    },
    "same_rows": {"layout": "fsdp2tp2", "near": ["begin", r"trunk\.0"]},
    "other_tensor_rank_data": {"layout": "tp2", "rank": 1, "near": ["begin", r"trunk\.0"]},
    "output_not_reduced": {
        "layout": "fsdp2tp2",
        "within": r"trunk\.1",
        "near": [r"trunk\.1\.shrink", r"trunk\.1 \("],
    },
    "bias_twice": {
        "layout": "tp2",
        "variant": "deep",
        "within": r"trunk\.2",
        "near": [r"trunk\.2\.shrink"],
    },
    "norm_ignored": {"layout": "fsdp2tp2", "near": [r"Module\.finish\.0", "AdamW", r"finish\.0"]},
}
WIDTH = 16


class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.grow, self.gate = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, 3 * WIDTH)
        self.shrink = nn.Linear(3 * WIDTH, WIDTH)
        self.times = None

    def forward(self, x):
        y = self.norm(x)
        y = self.grow(y) * F.silu(self.gate(y))
        if self.times:
            y = torch.mul(y, self.times)  # bug: hidden_scaled
        return x + self.shrink(y)  # bug: output_not_reduced, bias_twice


class Predictor(nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.begin = nn.Linear(9, WIDTH)
        self.trunk = nn.ModuleList([Gated() for _ in range(depth)])
        self.finish = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4))

    def forward(self, x):
        x = torch.tanh(self.begin(x))  # bug: same_rows, other_tensor_rank_data
        for gated in self.trunk:
            x = gated(x)
        return self.finish(x)  # bug: norm_ignored


class Unreduced(RowwiseParallel):
    @staticmethod
    def _prepare_output_fn(output_layouts, use_local_output, mod, outputs, device_mesh):
        return outputs.to_local()


def distribute(run, model):
    data = run.ranks // 2
    mesh = init_device_mesh("cpu", (data, 2), mesh_dim_names=("data", "tensor"))
    for number, gated in enumerate(model.trunk):
        broken = number == 1 and run.bug("output_not_reduced")
        plan = {
            "grow": ColwiseParallel(),
            "gate": ColwiseParallel(),
            "shrink": Unreduced() if broken else RowwiseParallel(),
        }
        parallelize_module(gated, mesh["tensor"], plan)
        if data > 1:
            fully_shard(gated, mesh=mesh["data"])
    if data > 1:
        ignored = {model.finish[0].weight} if run.bug("norm_ignored") else set()
        fully_shard(model, mesh=mesh["data"], ignored_params=ignored)
    return mesh


def full(tensor):
    tensor = tensor.detach()
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor.clone()


def train(run):
    torch.manual_seed(47)
    model = Predictor(4 if run.variant == "deep" else 2)
    data, place = max(run.ranks // 2, 1), 0
    if run.ranks > 1:
        place = distribute(run, model).get_local_rank("data")
    if run.bug("hidden_scaled", 3):
        model.trunk[1].times = 1.1
    if run.bug("bias_twice"):
        model.trunk[2].shrink.bias.data.to_local().mul_(2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, amsgrad=True)
    numbers = torch.Generator().manual_seed(15)
    losses = []
    for _ in range(run.steps):
        x = torch.randn(8, 9, generator=numbers)
        y = torch.randn(8, 4, generator=numbers)
        if run.bug("other_tensor_rank_data", 1):
            x = x.flip(0)
        part = 0 if run.bug("same_rows") else place
        x, y = x.chunk(data)[part], y.chunk(data)[part]
        with run.step(model):
            loss = F.smooth_l1_loss(model(x), y)
            loss.backward()
            optimizer.step()  # bug: norm_ignored
            optimizer.zero_grad()
        losses.append(average(loss.item()))
    return losses, {name: full(each) for name, each in model.named_parameters()}


if __name__ == "__main__":
    launch(train, LAYOUTS, BUGS, VARIANTS)

"""An encoder that parallelize_module shards: tensor parallelism, and with sequence parallelism."""

import torch
import torch.nn.functional as F
from common import launch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

LAYOUTS = {"one": 1, "tp2": 2, "tp4": 4, "sp2": 2}
VARIANTS = ("", "bf16")
BUGS = {
    "output_not_reduced": {
        "layout": "tp2",
        "within": r"layer\.1",
        "near": [r"layer\.1\.feed\.down", r"layer\.1\.feed"],
    },
    "up_shards_swapped": {"layout": "tp2", "within": r"layer\.0", "near": [r"layer\.0\.feed\.up"]},
    "relu_scaled": {
        "layout": "tp4",
        "rank": 1,
        "within": r"layer\.1",
        "near": [r"layer\.1\.feed\.(up|down)"],
    },
    "norm_gradient_local": {
        "layout": "sp2",
        "near": [r"layer\.1\.ln_2.*(parameters_grad|backward)", "AdamW", r"layer\.1\.ln_2"],
    },
    "input_gradient_dropped": {
        "layout": "tp2",
        "within": r"layer\.1",
        "near": [r"layer\.1\.attn", r"layer\.1\.ln_1"],
    },
    "query_of_other_seed": {
        "layout": "sp2",
        "rank": 0,
        "within": r"layer\.0",
        "near": [r"layer\.0\.attn\.q"],
    },
    "value_shards_swapped": {
        "layout": "tp2",
        "variant": "bf16",
        "within": r"layer\.1",
        "near": [r"layer\.1\.attn\.v"],
    },
}


class SelfAttention(nn.Module):
    def __init__(self, dim, head_dim):
        super().__init__()
        self.head_dim = head_dim
        self.q, self.k, self.v, self.o = (nn.Linear(dim, dim) for _ in range(4))

    def forward(self, x):
        def heads(t):
            return t.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)

        q, k, v = heads(self.q(x)), heads(self.k(x)), heads(self.v(x))  # bug: query_of_other_seed
        mixed = F.scaled_dot_product_attention(q, k, v)  # bug: value_shards_swapped
        return self.o(mixed.transpose(1, 2).flatten(2))  # bug: input_gradient_dropped


class FeedForward(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.up, self.down = nn.Linear(dim, 3 * dim), nn.Linear(3 * dim, dim)
        self.factor = None

    def forward(self, x):
        hidden = F.relu(self.up(x))  # bug: up_shards_swapped
        if self.factor:
            hidden = hidden * self.factor  # bug: relu_scaled
        return self.down(hidden)  # bug: output_not_reduced


class EncoderLayer(nn.Module):
    def __init__(self, dim, head_dim):
        super().__init__()
        self.attn, self.feed = SelfAttention(dim, head_dim), FeedForward(dim)
        self.ln_1, self.ln_2 = nn.LayerNorm(dim), nn.LayerNorm(dim)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.feed(self.ln_2(x))  # bug: norm_gradient_local


class Encoder(nn.Module):
    def __init__(self, dim=32, head_dim=8, kinds=7):
        super().__init__()
        self.inp = nn.Linear(12, dim)
        self.layer = nn.ModuleList(EncoderLayer(dim, head_dim) for _ in range(2))
        self.ln_f = nn.LayerNorm(dim)
        self.out = nn.Linear(dim, kinds)

    def forward(self, x):
        x = self.inp(x)
        for layer in self.layer:
            x = layer(x)
        return self.out(self.ln_f(x))


class Unreduced(RowwiseParallel):
    """The partial results of a rank go on as they are."""

    @staticmethod
    def _prepare_output_fn(output_layouts, use_local_output, mod, outputs, device_mesh):
        return outputs.to_local()


class Detached(ColwiseParallel):
    """The gradient of the input is this rank's alone."""

    @staticmethod
    def _prepare_input_fn(layouts, desired, mod, inputs, mesh):
        return DTensor.from_local(inputs[0], mesh, [Replicate()], grad_placements=[Partial()])


def plan_of(run):
    plan = {}
    sequence = run.layout == "sp2"
    rows = {"output_layouts": Shard(1)} if sequence else {}
    for i in range(2):
        for name in ("attn.q", "attn.k", "attn.v", "feed.up"):
            plan[f"layer.{i}.{name}"] = ColwiseParallel()
        for name in ("attn.o", "feed.down"):
            plan[f"layer.{i}.{name}"] = RowwiseParallel(**rows)
        if sequence:
            gather = {"input_layouts": Shard(1), "desired_input_layouts": Replicate()}
            plan[f"layer.{i}.ln_1"] = SequenceParallel(use_local_output=True)
            plan[f"layer.{i}.ln_2"] = SequenceParallel(use_local_output=True)
            plan[f"layer.{i}.attn"] = PrepareModuleInput(use_local_output=True, **gather)
            plan[f"layer.{i}.feed"] = PrepareModuleInput(use_local_output=True, **gather)
    if sequence:
        plan["inp"] = RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1))
        plan["ln_f"] = SequenceParallel(use_local_output=True)
        plan["out"] = ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate())
    if run.bug("output_not_reduced"):
        plan["layer.1.feed.down"] = Unreduced()
    if run.bug("norm_gradient_local"):
        del plan["layer.1.ln_2"]
    if run.bug("input_gradient_dropped"):
        plan["layer.1.attn.k"] = Detached()
    return plan


def swap_shards(parameter, rank):
    local = parameter.data.to_local()
    local.copy_(parameter.data.full_tensor().chunk(2)[1 - rank])


def full(tensor):
    tensor = tensor.detach()
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor.clone()


def train(run):
    torch.manual_seed(29)
    low = torch.bfloat16 if run.variant == "bf16" else torch.float32
    model = Encoder().to(run.dtype(low))
    if run.ranks > 1:
        mesh = init_device_mesh("cpu", (run.ranks,), mesh_dim_names=("tp",))
        parallelize_module(model, mesh, plan_of(run))
    if run.bug("up_shards_swapped"):
        swap_shards(model.layer[0].feed.up.weight, run.rank)
    if run.bug("value_shards_swapped"):
        swap_shards(model.layer[1].attn.v.weight, run.rank)
    if run.bug("query_of_other_seed", 0):
        model.layer[0].attn.q.weight.data.to_local().normal_(0, 0.1)
    if run.bug("relu_scaled", 1):
        model.layer[1].feed.factor = 1.1
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    source = torch.Generator().manual_seed(8)
    losses = []
    for _ in range(run.steps):
        x = torch.randn(3, 8, 12, generator=source).to(run.dtype(low))
        y = torch.randint(7, (3, 8), generator=source)
        with run.step(model):
            logits = model(x)
            loss = F.cross_entropy(logits.flatten(0, 1).to(run.dtype(torch.float32)), y.flatten())
            loss.backward()
            optimizer.step()  # bug: norm_gradient_local
            optimizer.zero_grad()
        losses.append(loss.item())
    return losses, {name: full(each) for name, each in model.named_parameters()}


if __name__ == "__main__":
    launch(train, LAYOUTS, BUGS, VARIANTS)

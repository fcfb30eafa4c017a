"""A decoder on a mesh of data and tensor ranks, with one clipping by the norm of all gradients."""

import torch
import torch.distributed as dist
from common import average, launch, objects
from torch import nn
from torch.nn import functional as fn

LAYOUTS = {"one": 1, "dp2tp2": 4, "tp2": 2}
VARIANTS = ("", "blocked_qkv", "four_layers")
BUGS = {
    "row_over_data_group": {
        "layout": "dp2tp2",
        "within": r"layers\.0",
        "near": [r"layers\.0\.mlp\.down", r"layers\.0\.mlp \("],
    },
    "row_over_world": {
        "layout": "dp2tp2",
        "within": r"layers\.1",
        "near": [r"layers\.1\.attn\.out", r"layers\.1\.attn \("],
    },
    "gradients_over_tensor_group": {"layout": "dp2tp2", "near": ["AdamW", "parameters_grad"]},
    "norm_of_shards": {"layout": "tp2", "near": [r"Tensor\.(sqrt|mul_)"]},
    "norm_over_world": {"layout": "dp2tp2", "near": [r"Tensor\.(sqrt|mul_)"]},
    "bias_on_each_rank": {
        "layout": "tp2",
        "variant": "four_layers",
        "within": r"layers\.2",
        "near": [r"layers\.2\.mlp\.down"],
    },
    "backward_over_data_group": {
        "layout": "dp2tp2",
        "within": r"layers\.1",
        "near": [r"layers\.1\.mlp\.up", r"layers\.1\.ln_b"],
    },
    "attention_scaled": {
        "layout": "dp2tp2",
        "variant": "four_layers",
        "rank": 2,
        "within": r"layers\.3",
        "near": [r"layers\.3\.attn"],
    },
}
WIDTH, HEADS, WORDS, TIME, BATCH = 16, 4, 48, 8, 4


class Mesh:
    """Where this process is: its place and its group along each of the two dimensions."""

    def __init__(self, run):
        self.tensor = 1 if run.layout == "one" else 2
        self.data = run.ranks // self.tensor
        self.t, self.d = run.rank % self.tensor, run.rank // self.tensor
        self.tensor_group = self.data_group = None
        if run.ranks > 1:
            rows = [[d * self.tensor + t for t in range(self.tensor)] for d in range(self.data)]
            columns = [list(column) for column in zip(*rows, strict=True)]
            for ranks in rows:
                group = dist.new_group(ranks)
                self.tensor_group = group if run.rank in ranks else self.tensor_group
            for ranks in columns:
                group = dist.new_group(ranks)
                self.data_group = group if run.rank in ranks else self.data_group

    def cut(self, full, dim):
        return full.chunk(self.tensor, dim)[self.t].clone()


class ToTensorRanks(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x

    @staticmethod
    def backward(ctx, g):
        g = g.clone()
        if ctx.group is not None:
            dist.all_reduce(g, group=ctx.group)  # bug: backward_over_data_group
        return g, None


class FromTensorRanks(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        x = x.clone()
        if group is not None:
            dist.all_reduce(x, group=group)  # bug: row_over_data_group, row_over_world
        return x

    @staticmethod
    def backward(ctx, g):
        return g, None


class Rows(nn.Linear):
    """Each rank has some columns of the weight and the whole bias."""

    def __init__(self, mesh, weight, bias, group):
        super().__init__(weight.shape[1] // mesh.tensor, weight.shape[0], device="meta")
        self.weight, self.bias = nn.Parameter(mesh.cut(weight, 1)), nn.Parameter(bias.clone())
        self.group, self.early = group, False

    def forward(self, x):
        if self.early:
            y = fn.linear(x, self.weight, self.bias)  # bug: bias_on_each_rank
            return FromTensorRanks.apply(y, self.group)
        y = FromTensorRanks.apply(fn.linear(x, self.weight), self.group)  # bug: bias_on_each_rank
        return y + self.bias  # bug: row_over_data_group, row_over_world


class Attn(nn.Module):
    def __init__(self, mesh, blocked):
        super().__init__()
        self.mesh, self.group, self.factor = mesh, mesh.tensor_group, None
        full = torch.randn(3 * WIDTH, WIDTH) * 0.2
        self.heads = HEADS // mesh.tensor
        if blocked:  # all queries, all keys, all values: a shard has rows of three places
            mine = torch.cat([mesh.cut(each, 0) for each in full.chunk(3)])
        else:
            mine = mesh.cut(full, 0)
        self.blocked, self.qkv = blocked, nn.Parameter(mine)
        out = torch.randn(WIDTH, WIDTH) * 0.2
        self.out = Rows(mesh, out, torch.zeros(WIDTH), mesh.tensor_group)

    def forward(self, x):
        b, t, _ = x.shape
        y = ToTensorRanks.apply(x, self.group) @ self.qkv.t()
        if self.blocked:
            q, k, v = (z.view(b, t, self.heads, -1).transpose(1, 2) for z in y.chunk(3, -1))
        else:
            q, k, v = y.view(b, t, self.heads, 3, -1).permute(3, 0, 2, 1, 4)
        a = fn.scaled_dot_product_attention(q, k, v, is_causal=True)
        if self.factor is not None:
            a = a * self.factor  # bug: attention_scaled
        return self.out(a.transpose(1, 2).flatten(2))  # bug: row_over_world


class Mlp(nn.Module):
    def __init__(self, mesh):
        super().__init__()
        self.up = nn.Linear(WIDTH, 4 * WIDTH // mesh.tensor, bias=False, device="meta")
        self.up.weight = nn.Parameter(mesh.cut(torch.randn(4 * WIDTH, WIDTH) * 0.2, 0))
        down = torch.randn(WIDTH, 4 * WIDTH) * 0.2
        self.down = Rows(mesh, down, torch.randn(WIDTH) * 0.1, mesh.tensor_group)
        self.group = mesh.tensor_group

    def forward(self, x):
        y = self.up(ToTensorRanks.apply(x, self.group))  # bug: backward_over_data_group
        return self.down(fn.gelu(y, approximate="tanh"))  # bug: row_over_data_group


class Layer(nn.Module):
    def __init__(self, mesh, blocked):
        super().__init__()
        self.ln_a, self.ln_b = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attn, self.mlp = Attn(mesh, blocked), Mlp(mesh)

    def forward(self, x):
        x = x + self.attn(self.ln_a(x))
        return x + self.mlp(self.ln_b(x))


class Decoder(nn.Module):
    def __init__(self, run, mesh):
        super().__init__()
        torch.manual_seed(19)
        depth = 4 if run.variant == "four_layers" else 2
        self.tokens, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(TIME, WIDTH)
        blocked = run.variant == "blocked_qkv"
        self.layers = nn.ModuleList([Layer(mesh, blocked) for _ in range(depth)])
        self.last_ln = nn.LayerNorm(WIDTH)
        if run.bug("row_over_data_group"):
            self.layers[0].mlp.down.group = mesh.data_group
        if run.bug("row_over_world"):
            self.layers[1].attn.out.group = dist.group.WORLD
        if run.bug("backward_over_data_group"):
            self.layers[1].mlp.group = mesh.data_group
        if run.bug("bias_on_each_rank"):
            self.layers[2].mlp.down.early = True
        if run.bug("attention_scaled", 2):
            self.layers[3].attn.factor = 1.1

    def forward(self, ids):
        x = self.tokens(ids) + self.places(torch.arange(TIME))
        for layer in self.layers:
            x = layer(x)
        return self.last_ln(x) @ self.tokens.weight.t()


def dim_of(name):
    """Along which dimension a weight is cut; None: each rank has all of it."""
    if name.endswith(("qkv", "up.weight")):
        return 0
    return 1 if name.endswith(("out.weight", "down.weight")) else None


def average_over_data_ranks(run, mesh, model):
    if mesh.data > 1:
        group = mesh.data_group
        if run.bug("gradients_over_tensor_group"):
            group = mesh.tensor_group
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad, group=group)  # bug: gradients_over_tensor_group
            parameter.grad.div_(mesh.data)


def clip(run, mesh, model, limit=0.5):
    """By the norm of the whole gradient: what is cut counts on each rank, the rest once."""
    squares = {True: [], False: []}
    for name, parameter in model.named_parameters():
        squares[dim_of(name) is not None].append(parameter.grad.pow(2).sum())
    cut, same = (torch.stack(squares[key]).sum() for key in (True, False))
    if mesh.tensor_group is not None and not run.bug("norm_of_shards"):
        group = dist.group.WORLD if run.bug("norm_over_world") else mesh.tensor_group
        dist.all_reduce(cut, group=group)  # bug: norm_over_world, norm_of_shards
    norm = (cut + same).sqrt()  # bug: norm_of_shards
    factor = (limit / (norm + 1e-6)).clamp(max=1.0)
    for parameter in model.parameters():
        parameter.grad.mul_(factor)


def whole_weight(run, mesh, name, parameter):
    parts = objects(parameter.detach().clone(), mesh.tensor_group)
    dim = dim_of(name)
    if dim is None:
        return parts[run.rank % mesh.tensor]
    if name.endswith("qkv") and run.variant == "blocked_qkv":
        blocks = zip(*(part.chunk(3) for part in parts), strict=True)
        return torch.cat([torch.cat(block) for block in blocks])
    return torch.cat(parts, dim)


def train(run):
    mesh = Mesh(run)
    model = Decoder(run, mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, betas=(0.9, 0.95))
    seeded = torch.Generator().manual_seed(13)
    losses = []
    for _ in range(run.steps):
        ids = torch.randint(WORDS, (BATCH, TIME + 1), generator=seeded).chunk(mesh.data)[mesh.d]
        with run.step(model):
            logits = model(ids[:, :-1].contiguous())
            loss = fn.cross_entropy(logits.transpose(1, 2), ids[:, 1:])
            loss.backward()
            average_over_data_ranks(run, mesh, model)
            clip(run, mesh, model)
            optimizer.step()  # bug: gradients_over_tensor_group
        optimizer.zero_grad()
        losses.append(average(loss.item()))
    named = model.named_parameters()
    return losses, {name: whole_weight(run, mesh, name, each) for name, each in named}


if __name__ == "__main__":
    launch(train, LAYOUTS, BUGS, VARIANTS)

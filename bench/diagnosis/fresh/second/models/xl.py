"""A Transformer-XL: relative positions, a memory of the segment before, and Adafactor."""

import torch
from torch import nn
from torch.nn import functional as F

VOCABULARY, WIDTH, HEADS, INNER, LAYERS = 31, 16, 2, 24, 2
SEGMENT, MEMORY, SEGMENTS, BATCH = 6, 4, 2, 4
HEAD = WIDTH // HEADS
SMOOTHING, LARGEST, Z = 0.1, 1.0, 1e-2


def shifted(scores):
    """Column j of row i becomes the distance i - j: rows are shifted to the left."""
    b, h, rows, columns = scores.shape
    padded = torch.cat([scores.new_zeros(b, h, rows, 1), scores], dim=-1)
    return padded.view(b, h, columns + 1, rows)[:, :, 1:].view(b, h, rows, columns)


def sinusoids(length):
    """Encodings of the distances length - 1, ..., 0."""
    distance = torch.arange(length - 1, -1, -1.0)
    frequency = 1 / 10000 ** (torch.arange(0, WIDTH, 2.0) / WIDTH)
    angle = distance[:, None] * frequency
    return torch.cat([angle.sin(), angle.cos()], dim=-1)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.query = nn.Linear(WIDTH, WIDTH, bias=False)
        self.pair = nn.Linear(WIDTH, 2 * WIDTH, bias=False)
        self.position = nn.Linear(WIDTH, WIDTH, bias=False)
        self.content_bias = nn.Parameter(torch.randn(HEADS, HEAD) * 0.2)
        self.place_bias = nn.Parameter(torch.randn(HEADS, HEAD) * 0.2)
        self.outside = nn.Linear(WIDTH, WIDTH, bias=False)

    def heads(self, x):
        return x.view(*x.shape[:-1], HEADS, HEAD).transpose(-3, -2)

    def scores(self, q, k, r):
        content = (q + self.content_bias[:, None]) @ k.transpose(-2, -1)
        place = (q + self.place_bias[:, None]) @ r.transpose(-2, -1)
        return (content + shifted(place)) * HEAD**-0.5

    def forward(self, x, memory, encoded):
        whole = torch.cat([memory, x], dim=1)
        q = self.heads(self.query(x))
        k, v = (self.heads(part) for part in self.pair(whole).chunk(2, dim=-1))
        r = self.heads(self.position(encoded))
        scores = self.scores(q, k, r)
        rows, columns = scores.shape[-2:]
        later = torch.ones(rows, columns, dtype=torch.bool).triu(1 + columns - rows)
        share = scores.masked_fill(later, float("-inf")).softmax(dim=-1)
        return self.outside((share @ v).transpose(1, 2).flatten(2))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = Attention()
        self.wide = nn.Linear(WIDTH, 2 * INNER)
        self.narrow = nn.Linear(INNER, WIDTH)

    def feed(self, x):
        gate, value = self.wide(x).chunk(2, dim=-1)
        return self.narrow(F.silu(gate) * value)

    def forward(self, x, memory, encoded):
        x = x + self.attention(self.norm1(x), self.norm1(memory), encoded)
        return x + self.feed(self.norm2(x))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        nn.init.normal_(self.words.weight, std=0.4)

    def forward(self, tokens, memories):
        x = self.words(tokens) * WIDTH**0.5
        encoded = sinusoids(memories[0].shape[1] + tokens.shape[1])
        kept = []
        for layer, memory in zip(self.layers, memories, strict=True):
            kept.append(remembered(memory, x))
            x = layer(x, memory, encoded)
        return F.linear(self.norm(x), self.words.weight), kept


def remembered(memory, x):
    """The inputs of a layer that the next segment sees."""
    return torch.cat([memory, x], dim=1)[:, -MEMORY:].detach()


def loss_of(logits, labels):
    """Smoothed cross entropy, and a penalty on the normaliser."""
    norm = logits.logsumexp(dim=-1)
    right = logits.gather(-1, labels[..., None])[..., 0]
    entropy = norm - (1 - SMOOTHING) * right - SMOOTHING * logits.mean(dim=-1)
    return entropy.mean() + Z * norm.square().mean()


class Adafactor(torch.optim.Optimizer):
    """Second moments of rows and columns; the update is clipped by its root mean square."""

    def __init__(self, weights, lr, decay=0.8, floor=1e-16, threshold=1.0):
        defaults = {"lr": lr, "decay": decay, "floor": floor, "threshold": threshold}
        super().__init__(weights, defaults)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for weight in group["params"]:
                self.update(weight, self.state[weight], group)

    def update(self, weight, state, group):
        state["step"] = state.get("step", 0) + 1
        keep = 1 - state["step"] ** -group["decay"]
        square = weight.grad.square() + group["floor"]
        if weight.dim() == 2:
            rows = state.setdefault("rows", torch.zeros_like(square[:, 0]))
            columns = state.setdefault("columns", torch.zeros_like(square[0]))
            rows.mul_(keep).add_(square.mean(1), alpha=1 - keep)
            columns.mul_(keep).add_(square.mean(0), alpha=1 - keep)
            moment = torch.outer(rows / rows.mean(), columns)
        else:
            moment = state.setdefault("moment", torch.zeros_like(square))
            moment.mul_(keep).add_(square, alpha=1 - keep)
        update = weight.grad / moment.sqrt()
        update = update / (update.square().mean().sqrt() / group["threshold"]).clamp(min=1.0)
        size = weight.square().mean().sqrt().clamp(min=1e-3)
        weight.sub_(group["lr"] * size * update)


def build():
    return Model()


def optimizer(model):
    return Adafactor(model.parameters(), lr=0.02)


def batch(generator):
    tokens = torch.randint(0, VOCABULARY, (BATCH, SEGMENT * SEGMENTS + 1), generator=generator)
    return tokens


def begun(rows):
    return [torch.zeros(rows, MEMORY, WIDTH) for _ in range(LAYERS)]


def backward(model, tokens):
    memories = begun(len(tokens))
    for start in range(0, SEGMENT * SEGMENTS, SEGMENT):
        part = tokens[:, start : start + SEGMENT + 1]
        logits, memories = model(part[:, :-1], memories)
        (loss_of(logits, part[:, 1:]) / SEGMENTS).backward()


def step(model, optimizer, batch):
    backward(model, batch)
    nn.utils.clip_grad_norm_(model.parameters(), LARGEST)
    optimizer.step()
    optimizer.zero_grad()

"""A language model of selective state spaces, scanned in chunks that hand on their state."""

import math

import torch
from torch import nn
from torch.nn import functional as F

VOCABULARY, WIDTH, INNER, STATE, KERNEL = 29, 16, 24, 4, 3
LENGTH, CHUNK, BATCH, LAYERS = 12, 4, 4, 2
IGNORED = -100


class RMSNorm(nn.Module):
    def __init__(self, width, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps) * self.weight


def scan(u, dt, A, B, C, state):
    """One chunk, time after time: outputs and the state behind it."""
    outputs = []
    for t in range(u.shape[1]):
        decay = torch.exp(dt[:, t, :, None] * A)
        driven = (dt[:, t] * u[:, t])[..., None] * B[:, t, None, :]
        state = decay * state + driven
        outputs.append((state * C[:, t, None, :]).sum(-1))
    return torch.stack(outputs, dim=1), state


def chunked_scan(u, dt, A, B, C):
    state = u.new_zeros(u.shape[0], INNER, STATE)
    outputs = []
    for parts in zip(*(x.split(CHUNK, dim=1) for x in (u, dt, B, C)), strict=True):
        y, state = scan(parts[0], parts[1], A, parts[2], parts[3], state)
        outputs.append(y)
    return torch.cat(outputs, dim=1)


class Mixer(nn.Module):
    def __init__(self):
        super().__init__()
        self.inside = nn.Linear(WIDTH, 2 * INNER, bias=False)
        self.conv = nn.Conv1d(INNER, INNER, KERNEL, padding=KERNEL - 1, groups=INNER)
        self.select = nn.Linear(INNER, INNER + 2 * STATE, bias=False)
        self.dt_bias = nn.Parameter(torch.empty(INNER).uniform_(-3, -1))
        self.A_log = nn.Parameter(torch.arange(1, STATE + 1).log().repeat(INNER, 1).clone())
        self.D = nn.Parameter(torch.ones(INNER))
        self.outside = nn.Linear(INNER, WIDTH, bias=False)

    def convolve(self, u):
        length = u.shape[1]
        y = self.conv(u.transpose(1, 2))[..., :length]
        return F.silu(y).transpose(1, 2)

    def parameters_of(self, u):
        dt, B, C = self.select(u).split([INNER, STATE, STATE], dim=-1)
        return F.softplus(dt + self.dt_bias), B, C

    def forward(self, x):
        u, gate = self.inside(x).chunk(2, dim=-1)
        u = self.convolve(u)
        dt, B, C = self.parameters_of(u)
        A = -torch.exp(self.A_log)
        y = chunked_scan(u, dt, A, B, C)
        y = y + u * self.D
        return self.outside(y * F.silu(gate))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = RMSNorm(WIDTH)
        self.mixer = Mixer()

    def forward(self, x):
        return x + self.mixer(self.norm(x))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = RMSNorm(WIDTH)
        self.apply(self.initialise)

    @staticmethod
    def initialise(module):
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=0.3)

    def forward(self, tokens):
        x = self.words(tokens)
        for layer in self.layers:
            x = layer(x)
        return F.linear(self.norm(x), self.words.weight)


def build():
    return Model()


def undecayed(name, parameter):
    return parameter.dim() < 2 or name.endswith("A_log")


def optimizer(model):
    named = list(model.named_parameters())
    made = torch.optim.AdamW(
        [
            {"params": [p for n, p in named if not undecayed(n, p)], "weight_decay": 0.1},
            {"params": [p for n, p in named if undecayed(n, p)], "weight_decay": 0.0},
        ],
        lr=2e-3,
        betas=(0.9, 0.95),
    )
    model.schedule = torch.optim.lr_scheduler.LambdaLR(
        made, lambda t: 0.5 * (1 + math.cos(math.pi * (t + 1) / 20))
    )
    return made


def batch(generator):
    """Tokens and labels; the question at the begin is no label."""
    tokens = torch.randint(0, VOCABULARY, (BATCH, LENGTH + 1), generator=generator)
    labels = tokens[:, 1:].clone()
    for row, question in enumerate((3, 0, 5, 2)):
        labels[row, :question] = IGNORED
    return tokens[:, :-1], labels


def token_loss(logits, labels):
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED)


def backward(model, tokens, labels):
    token_loss(model(tokens), labels).backward()


def step(model, optimizer, batch):
    backward(model, *batch)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    model.schedule.step()
    optimizer.zero_grad(set_to_none=True)

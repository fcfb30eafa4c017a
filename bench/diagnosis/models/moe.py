"""A mixture of experts as in Mixtral: a router, the two best of six experts, a loss of balance."""

import torch
from torch import nn
from torch.nn import functional as F

VOCABULARY, WIDTH, EXPERTS, TOP, LENGTH, LAYERS, BATCH = 47, 24, 6, 2, 8, 2, 4
BALANCE = 0.05


class Router(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(EXPERTS, WIDTH))

    def forward(self, x):
        logits = F.linear(x, self.weight)
        probabilities = logits.softmax(dim=-1)
        weights, chosen = probabilities.topk(TOP, dim=-1)
        weights = weights / weights.sum(dim=-1, keepdim=True)
        return probabilities, weights, chosen


class Expert(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(WIDTH, 2 * WIDTH)
        self.down = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x):
        return self.down(F.relu(self.up(x)))


class Mixture(nn.Module):
    def __init__(self):
        super().__init__()
        self.router = Router()
        self.experts = nn.ModuleList(Expert() for _ in range(EXPERTS))
        self.balance = None

    def mix(self, x, weights, chosen):
        result = torch.zeros_like(x)
        for index, expert in enumerate(self.experts):
            rows, places = (chosen == index).nonzero(as_tuple=True)
            if len(rows):
                part = expert(x[rows]) * weights[rows, places, None]
                result = result.index_add(0, rows, part)
        return result

    def forward(self, x):
        flat = x.flatten(0, 1)
        probabilities, weights, chosen = self.router(flat)
        self.balance = balance(probabilities, chosen)
        return self.mix(flat, weights, chosen).view(x.shape)


def balance(probabilities, chosen):
    """The loss of balance of Switch: the share of tokens times the mean probability."""
    share = F.one_hot(chosen, EXPERTS).float().mean(dim=(0, 1))
    return EXPERTS * (share * probabilities.mean(dim=0)).sum()


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1 = nn.LayerNorm(WIDTH)
        self.lookback = nn.Conv1d(WIDTH, WIDTH, 3)
        self.norm2 = nn.LayerNorm(WIDTH)
        self.mixture = Mixture()

    def forward(self, x):
        past = F.pad(self.norm1(x).transpose(1, 2), (2, 0))
        x = x + self.lookback(past).transpose(1, 2)
        return x + self.mixture(self.norm2(x))


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens):
        x = self.tokens(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def build():
    model = Decoder()
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=0.25)
    return model


def optimizer(model):
    return torch.optim.AdamW(model.parameters(), lr=2e-3)


def batch(generator):
    return torch.randint(VOCABULARY, (BATCH, LENGTH + 1), generator=generator)


def loss(model, tokens):
    logits = model(tokens[:, :-1])
    value = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    extra = sum(layer.mixture.balance for layer in model.layers)
    return value + BALANCE * extra


def backward(value):
    value.backward()


def step(model, optimizer, tokens):
    optimizer.zero_grad()
    backward(loss(model, tokens))
    optimizer.step()

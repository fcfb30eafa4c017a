"""Modules of every kind: their arguments, results, names and construction."""

from collections import OrderedDict, namedtuple
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations, parametrize
from torch.nn.utils.rnn import pack_padded_sequence, pack_sequence, pad_packed_sequence

from real_programs.watch import program, state_of

Pair = namedtuple("Pair", ["left", "right"])


@dataclass
class Batch:
    ids: torch.Tensor
    mask: torch.Tensor = None


class ModelOutput(OrderedDict):
    """Like Hugging Face's ModelOutput: a dict whose values are also attributes."""

    def __getattr__(self, name):
        return self[name]


class Talker(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(31)
        self.fc = nn.Linear(3, 3)

    def forward(self, batch, pair=None, *, scale=1.0, **rest):
        hidden = self.fc(batch.ids) * scale
        if pair is not None:
            hidden = hidden + pair.left
        return ModelOutput(logits=hidden, pair=Pair(hidden * 2, [hidden, None]), extra=rest)


@program("Module.0.Talker.forward.0", "Module.0.Talker.backward.0", "Module.0.fc.Linear.backward.0")
def containers(watch):
    model = nn.ModuleList([Talker()])
    with watch(model):
        batch = Batch(torch.randn(2, 3, requires_grad=True))
        out = model[0](batch, pair=Pair(torch.ones(3), 1), scale=2, odd={"é": [1, (2, None)], 3: 4})
        (out.logits.sum() + out.pair.left.sum()).backward()
    return type(out).__name__, type(out.pair).__name__, out.logits, batch.ids.grad, state_of(model)


class KeywordsOnly(nn.Module):
    def forward(self, *, x, y=None):
        return {"sum": F.relu(x if y is None else x + y)}


@program("Module.0.KeywordsOnly.forward.0", "Module.0.KeywordsOnly.backward.0")
def keywords_only(watch):
    model = nn.ModuleList([KeywordsOnly()])
    with watch(model):
        x = torch.randn(3, requires_grad=True)
        watch.note("Module.0.KeywordsOnly.forward.0.kwargs.y", torch.ones(3))
        y = model[0](x=x, y=torch.ones(3))["sum"]
        y.sum().backward()
    return y, x.grad


@program("Module.rest.0.Linear.forward.0")
def odd_names(watch):
    torch.manual_seed(31)
    model = nn.Module()
    names = ["größe", "层", "with space", "a/b", "..".replace(".", "_"), 'quote"', "new\nline"]
    names += ["x" * 300, "data", "weight.0".replace(".", "-"), "\U0001f600", "\\", "<a>&"]
    for name in names:
        model.add_module(name, nn.Linear(2, 2))
    model.rest = nn.Sequential(nn.Linear(2, 2))
    x = torch.ones(2)
    with watch(model):
        for name in names:
            x = getattr(model, name)(x)
        x = model.rest(x)
        x.sum().backward()
    return x, state_of(model)


@program("Module.0.Linear.forward.1", "Module.0.Linear.backward.0")
def two_names(watch):
    """One object under two names, and a weight in two modules."""
    torch.manual_seed(31)
    shared = nn.Linear(3, 3)
    model = nn.Sequential(shared, nn.Tanh(), shared, nn.Linear(3, 3))
    model[3].weight = shared.weight
    for _ in range(2):
        with watch(model):
            y = model(torch.randn(2, 3))
            y.sum().backward()
    return y, state_of(model)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(31)
        self.embed, self.out = nn.Embedding(7, 4), nn.Linear(4, 7, bias=False)
        self.out.weight = self.embed.weight

    def forward(self, ids):
        return self.out(self.embed(ids))


@program("Module.embed.Embedding.backward.0", "Module.out.Linear.backward.0")
def tied_weights(watch):
    model = Tied()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        with watch(model):
            F.cross_entropy(model(torch.tensor([1, 2])), torch.tensor([2, 3])).backward()
        optimizer.step()
    return state_of(model)


@program("Module.0.ParametrizedLinear.forward.0", "Module.1.Linear.forward.0")
def reparametrized(watch):
    torch.manual_seed(31)
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 3))
    parametrizations.weight_norm(model[0])
    with torch.no_grad():
        nn.utils.weight_norm(model[1])  # the older implementation: a pre-hook
    parametrizations.spectral_norm(model[2])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        with watch(model), parametrize.cached():
            y = model(torch.randn(2, 3)).square().sum()
            y.backward()
        optimizer.step()
        optimizer.zero_grad()
    return y, state_of(model)


@program("Module.1.Linear.forward.0", "Module.0.LazyLinear.forward.0")
def lazy(watch):
    torch.manual_seed(31)
    model = nn.Sequential(nn.LazyLinear(4), nn.Linear(4, 2), nn.LazyBatchNorm1d())
    results = []
    for _ in range(3):
        with watch(model):
            y = model(torch.randn(5, 3))
            y.square().sum().backward()
        results.append(y)
    return results, [type(m).__name__ for m in model], state_of(model)


class Lists(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(31)
        self.layers = nn.ModuleList([nn.Linear(3, 3) for _ in range(2)])
        self.scales = nn.ParameterList([nn.Parameter(torch.ones(3) * n) for n in (1, 2)])
        self.shifts = nn.ParameterDict({"a": nn.Parameter(torch.ones(3))})
        self.named = nn.ModuleDict({"gelu": nn.GELU()})

    def forward(self, x):
        for layer, scale in zip(self.layers, self.scales, strict=True):
            x = self.named["gelu"](layer(x)) * scale + self.shifts["a"]
        return x


@program("Module.layers.1.Linear.backward.0", "Module.named.gelu.GELU.forward.1")
def lists(watch):
    model = Lists()
    for _ in range(2):
        with watch(model):
            model(torch.randn(2, 3)).sum().backward()
    return state_of(model)


@program("Module.rnn.LSTM.forward.0", "Module.gru.GRU.backward.0")
def packed_sequences(watch):
    torch.manual_seed(31)
    model = nn.ModuleDict(
        {"rnn": nn.LSTM(3, 4, 2, batch_first=True, bidirectional=True), "gru": nn.GRU(8, 2)}
    )
    with watch(model):
        x = torch.randn(2, 5, 3, requires_grad=True)
        packed = pack_padded_sequence(x, torch.tensor([5, 3]), batch_first=True)
        out, (h, c) = model["rnn"](packed)
        padded, lengths = pad_packed_sequence(out)
        y, last = model["gru"](padded)
        model["gru"](pack_sequence([torch.ones(3, 8), torch.ones(1, 8)]))
        (y.sum() + h.sum() + c.sum()).backward()
    return padded, lengths, y, last, x.grad, state_of(model)

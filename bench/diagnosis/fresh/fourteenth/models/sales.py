"""Sales of goods in shops: quantiles of the next week, by a small temporal fusion transformer."""

import math

import torch
import torch.nn.functional as F
from torch import nn


class CFG:
    series = 8
    history = 14
    horizon = 7
    items = 5
    shops = 3
    hidden = 12
    heads = 2
    scalars_past = ("sales", "price", "promotion", "open")
    scalars_future = ("price", "promotion", "open")
    quantiles = (0.1, 0.5, 0.9)
    max_lr = 8e-3
    weight_decay = 0.05
    max_norm = 5.0
    total_steps = 12


class GRN(nn.Module):
    """A residual block with a gate, and a context that may be given."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(CFG.hidden, CFG.hidden)
        self.context = nn.Linear(CFG.hidden, CFG.hidden, bias=False)
        self.outer = nn.Linear(CFG.hidden, CFG.hidden)
        self.gate = nn.Linear(CFG.hidden, 2 * CFG.hidden)
        self.norm = nn.LayerNorm(CFG.hidden)

    def forward(self, x, context=None):
        h = self.inner(x)
        if context is not None:
            h = h + self.context(context).unsqueeze(1)
        h = self.outer(F.elu(h))
        value, gate = self.gate(h).chunk(2, dim=-1)
        return self.norm(x + value * torch.sigmoid(gate))


class Variables(nn.Module):
    """A vector for each number of a day, and one for the day of the week."""

    def __init__(self, scalars):
        super().__init__()
        self.scale = nn.Parameter(0.5 * torch.randn(scalars, CFG.hidden))
        self.shift = nn.Parameter(torch.zeros(scalars, CFG.hidden))
        self.weekday = nn.Embedding(7, CFG.hidden)

    def forward(self, scalars, weekday):
        """(series, days, variables, hidden)"""
        numbers = scalars.unsqueeze(-1) * self.scale + self.shift
        return torch.cat([numbers, self.weekday(weekday).unsqueeze(2)], dim=2)


class Selection(nn.Module):
    """Which variables matter on a day of a series: their weights add up to one."""

    def __init__(self, variables):
        super().__init__()
        self.blocks = nn.ModuleList([GRN() for _ in range(variables)])
        self.weigh = nn.Linear(variables * CFG.hidden, variables)
        self.weigh_context = nn.Linear(CFG.hidden, variables, bias=False)

    def transform(self, variables):
        each = [grn(x) for grn, x in zip(self.blocks, variables.unbind(2), strict=True)]
        return torch.stack(each, dim=2)

    def forward(self, variables, context):
        logits = self.weigh(variables.flatten(2)) + self.weigh_context(context).unsqueeze(1)
        weights = torch.softmax(logits, dim=-1)
        return (weights.unsqueeze(-1) * self.transform(variables)).sum(dim=2)


class SharedAttention(nn.Module):
    """All heads share their values, so that weights can be explained."""

    def __init__(self):
        super().__init__()
        self.head_dim = CFG.hidden // CFG.heads
        self.query = nn.Linear(CFG.hidden, CFG.hidden)
        self.key = nn.Linear(CFG.hidden, CFG.hidden)
        self.value = nn.Linear(CFG.hidden, self.head_dim)
        self.out = nn.Linear(self.head_dim, CFG.hidden)

    def split(self, x):
        return x.unflatten(2, (CFG.heads, self.head_dim)).transpose(1, 2)

    def later(self):
        """True where a day to come would see a day after it."""
        day = torch.arange(CFG.history + CFG.horizon)
        return day > day[CFG.history :, None]

    def attend(self, q, k, v):
        scores = q @ k.transpose(2, 3) / math.sqrt(self.head_dim)
        scores = scores.masked_fill(self.later(), float("-inf"))
        return torch.softmax(scores, dim=-1) @ v

    def forward(self, x):
        q, k = self.split(self.query(x[:, CFG.history :])), self.split(self.key(x))
        heads = self.attend(q, k, self.value(x).unsqueeze(1))
        return self.out(heads.mean(dim=1))


class Static(nn.Module):
    """What does not change: contexts for the selection, the recurrence and the enrichment."""

    def __init__(self):
        super().__init__()
        self.item = nn.Embedding(CFG.items, CFG.hidden)
        self.shop = nn.Embedding(CFG.shops, CFG.hidden)
        self.contexts = nn.ModuleList([nn.Linear(CFG.hidden, CFG.hidden) for _ in range(4)])

    def forward(self, item, shop):
        x = self.item(item) + self.shop(shop)
        return [context(x) for context in self.contexts]


class TFT(nn.Module):
    def __init__(self):
        super().__init__()
        past, future = len(CFG.scalars_past), len(CFG.scalars_future)
        self.static = Static()
        self.past_variables, self.future_variables = Variables(past), Variables(future)
        self.past_selection, self.future_selection = Selection(past + 1), Selection(future + 1)
        self.encoder = nn.LSTM(CFG.hidden, CFG.hidden, batch_first=True)
        self.decoder = nn.LSTM(CFG.hidden, CFG.hidden, batch_first=True)
        self.local_norm, self.attention_norm = nn.LayerNorm(CFG.hidden), nn.LayerNorm(CFG.hidden)
        self.enrichment, self.feed_forward = GRN(), GRN()
        self.attention = SharedAttention()
        self.head = nn.Linear(CFG.hidden, len(CFG.quantiles))

    def start(self, hidden, cell):
        """The state of the encoder before the first day."""
        return hidden.unsqueeze(0), cell.unsqueeze(0)

    def recur(self, past, future, state):
        past, state = self.encoder(past, state)
        future, _ = self.decoder(future, state)
        return torch.cat([past, future], dim=1)

    def select(self, inputs, context):
        past = self.past_selection(self.past_variables(*inputs["past"]), context)
        future = self.future_selection(self.future_variables(*inputs["future"]), context)
        return past, future

    def forward(self, inputs):
        """(series, days to come, quantiles)"""
        choice, hidden, cell, meaning = self.static(inputs["item"], inputs["shop"])
        past, future = self.select(inputs, choice)
        x = self.recur(past, future, self.start(hidden, cell))
        x = self.local_norm(x + torch.cat([past, future], dim=1))
        x = self.enrichment(x, meaning)
        x = self.attention_norm(x[:, CFG.history :] + self.attention(x))
        return self.head(self.feed_forward(x))


def scale_of(batch):
    """What a series sells on an open day of its history."""
    sales, is_open = batch["sales"][:, : CFG.history], batch["open"][:, : CFG.history]
    return (sales.sum(dim=1) / is_open.sum(dim=1)).clamp(min=0.5).unsqueeze(1)


def past_inputs(batch, sales):
    values = batch | {"sales": sales}
    scalars = torch.stack([values[name] for name in CFG.scalars_past], dim=2)
    return scalars[:, : CFG.history], batch["weekday"][:, : CFG.history]


def future_inputs(batch):
    """What is known before: prices, promotions, and when the shop is open."""
    scalars = torch.stack([batch[name] for name in CFG.scalars_future], dim=2)
    return scalars[:, CFG.history :], batch["weekday"][:, CFG.history :]


def prepare(batch):
    sales = torch.log1p(batch["sales"] / scale_of(batch))
    inputs = {
        "item": batch["item"],
        "shop": batch["shop"],
        "past": past_inputs(batch, sales),
        "future": future_inputs(batch),
    }
    return inputs, sales[:, CFG.history :]


def pinball(predicted, target):
    error = target.unsqueeze(-1) - predicted
    q = torch.tensor(CFG.quantiles, dtype=error.dtype)
    return torch.maximum(q * error, (q - 1) * error).sum(dim=-1)


def counted(batch):
    """Days on which the shop is closed do not count; goods that bring much count more."""
    return batch["open"][:, CFG.history :] * batch["turnover"].unsqueeze(1)


def loss_of(model, batch, total):
    inputs, target = prepare(batch)
    losses = pinball(model(inputs), target)
    return (losses * counted(batch)).sum() / total


def backward(model, batch):
    total = counted(batch).sum()
    loss = loss_of(model, batch, total)
    loss.backward()


def clip_gradients(model):
    nn.utils.clip_grad_norm_(model.parameters(), CFG.max_norm)


def build():
    return TFT().train()


def make_optimizer(parameters, **more):
    return torch.optim.AdamW(parameters, lr=CFG.max_lr, weight_decay=CFG.weight_decay, **more)


def optimizer(model, **more):
    made = make_optimizer(model.parameters(), **more)
    model.scheduler = torch.optim.lr_scheduler.OneCycleLR(
        made, CFG.max_lr, total_steps=CFG.total_steps, div_factor=2.0, cycle_momentum=False
    )
    return made


def batch(generator):
    """Sales rise at the end of the week and with promotions; some days shops are closed."""
    shape = (CFG.series, CFG.history + CFG.horizon)

    def chance(share, size=shape):
        return (torch.rand(size, generator=generator) < share).to(torch.get_default_dtype())

    start = torch.randint(0, 7, (CFG.series, 1), generator=generator)
    weekday = (start + torch.arange(shape[1])) % 7
    is_open, promotion = chance(0.8), chance(0.25)
    level = torch.logspace(0, 1.5, CFG.series).unsqueeze(1)
    chances = 0.5 + torch.rand(shape, generator=generator)
    demand = level * (1 + 0.15 * weekday + promotion) * chances
    price = 1 + 0.2 * torch.randn(shape, generator=generator) - 0.3 * promotion
    return {
        "item": torch.randint(0, CFG.items, (CFG.series,), generator=generator),
        "shop": torch.randint(0, CFG.shops, (CFG.series,), generator=generator),
        "weekday": weekday,
        "price": price,
        "promotion": promotion,
        "open": is_open,
        "sales": torch.floor(demand) * is_open,
        "turnover": level.squeeze(1).sqrt(),
    }


def step(model, optimizer, batch):
    optimizer.zero_grad()
    backward(model, batch)
    clip_gradients(model)
    optimizer.step()
    model.scheduler.step()

"""The weather of the next hours on a sphere: windows that wrap around the earth, autocast."""

import copy
import math

import torch
from torch import nn
from torch.nn import functional as F

DAYS, ROWS, COLUMNS, PATCH = 4, 8, 16, 2
VARIABLES, STATICS, CLOCK = 5, 3, 4
WINDOW, SHIFT = (2, 4), (1, 2)  # in patches, along latitudes and longitudes
WIDTH, HEADS, HIDDEN, BLOCKS = 24, 2, 40, 2
MAX_SCALE, FAR = math.log(100.0), -100.0
HOURS, LEADS = 6, (1.0, 0.6)  # of one prediction; what each of them counts
VARIABLE_WEIGHTS = (1.0, 0.8, 0.5, 0.5, 0.2)
LR, DECAY, WARMUP, TOTAL, MAX_NORM = 3e-3, 0.1, 2, 12, 0.3
EMA_DECAY = 0.95


def to_windows(x):
    """(days, rows, columns, width) -> (days, windows, places, width)."""
    days, rows, columns, width = x.shape
    high, wide = WINDOW
    x = x.view(days, rows // high, high, columns // wide, wide, width)
    return x.transpose(2, 3).reshape(days, -1, high * wide, width)


def from_windows(x, rows, columns):
    high, wide = WINDOW
    x = x.view(len(x), rows // high, columns // wide, high, wide, -1)
    return x.transpose(2, 3).reshape(len(x), rows, columns, -1)


def relative_places():
    """The row of the table for each pair of places of a window."""
    high, wide = WINDOW
    row, column = torch.meshgrid(torch.arange(high), torch.arange(wide), indexing="ij")
    row, column = row.flatten(), column.flatten()
    down = row[:, None] - row[None] + high - 1
    right = column[:, None] - column[None] + wide - 1
    return down * (2 * wide - 1) + right


def apart_at_the_poles(rows, columns):
    """Rows of north and south that a shift brought together do not see each other."""
    shifted = (torch.arange(rows) >= rows - SHIFT[0]).view(1, rows, 1, 1)
    band = to_windows(shifted.expand(1, rows, columns, 1)).squeeze(-1)
    return FAR * (band.unsqueeze(3) != band.unsqueeze(2)).to(torch.get_default_dtype())


class Attention(nn.Module):
    """Angles between queries and keys, with a scale that is learned."""

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.log_scale = nn.Parameter(torch.full((HEADS, 1, 1), math.log(8.0)))
        pairs = (2 * WINDOW[0] - 1) * (2 * WINDOW[1] - 1)
        self.table = nn.Parameter(0.5 * torch.randn(pairs, HEADS))
        self.register_buffer("places", relative_places())

    def project(self, x):
        return self.qkv(x).chunk(3, dim=-1)

    def attend(self, q, k, v, bias):
        scale = self.log_scale.clamp(max=MAX_SCALE).exp()
        scores = scale * (F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).mT)
        return (scores + bias).softmax(dim=-1).to(v.dtype) @ v

    def forward(self, x, mask):
        q, k, v = (each.unflatten(-1, (HEADS, -1)).transpose(2, 3) for each in self.project(x))
        bias = self.table[self.places].permute(2, 0, 1)
        if mask is not None:
            bias = bias + mask.unsqueeze(2)
        return self.out(self.attend(q, k, v, bias).transpose(2, 3).flatten(3))


class Block(nn.Module):
    """Norms stand behind what is added, as in the second Swin."""

    def __init__(self, shifted):
        super().__init__()
        self.shifted = shifted
        self.attention = Attention()
        self.wide, self.narrow = nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, WIDTH)
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)

    def looked(self, x):
        _, rows, columns, _ = x.shape
        if not self.shifted:
            return from_windows(self.attention(to_windows(x), None), rows, columns)
        mask = apart_at_the_poles(rows, columns)
        x = torch.roll(x, (-SHIFT[0], -SHIFT[1]), dims=(1, 2))
        x = from_windows(self.attention(to_windows(x), mask), rows, columns)
        return torch.roll(x, SHIFT, dims=(1, 2))

    def forward(self, x):
        x = x + self.norm1(self.looked(x))
        return x + self.norm2(self.narrow(F.gelu(self.wide(x))))


def around(x):
    """West of the first column is the last one; beyond the poles is what is at the poles."""
    x = F.pad(x, (1, 1, 0, 0), mode="circular")
    return F.pad(x, (0, 0, 1, 1), mode="replicate")


class Net(nn.Module):
    """How the normalised state changes in the next hours."""

    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(VARIABLES + STATICS, WIDTH, PATCH + 2, stride=PATCH)
        self.clock = nn.Linear(CLOCK, 2 * WIDTH)
        self.blocks = nn.ModuleList(Block(shifted=k % 2 == 1) for k in range(BLOCKS))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VARIABLES * PATCH**2)

    def decode(self, x):
        return F.pixel_shuffle(self.head(x).permute(0, 3, 1, 2), PATCH)

    def forward(self, state, statics, clock):
        x = self.patches(around(torch.cat([state, statics], dim=1))).permute(0, 2, 3, 1)
        scale, shift = self.clock(clock)[:, None, None].chunk(2, dim=-1)
        x = x * (1 + scale) + shift
        for block in self.blocks:
            x = block(x)
        return self.decode(self.norm(x))


class Forecast(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = Net()
        self.slow = copy.deepcopy(self.net).requires_grad_(False)
        self.done = 0


def latitudes():
    """The middles of rows, in degrees, from the north."""
    return 90.0 - (torch.arange(ROWS) + 0.5) * 180.0 / ROWS


def row_weights():
    """A row counts as much as its part of the sphere; the mean is one."""
    weights = torch.cos(torch.deg2rad(latitudes()))
    return weights / weights.mean()


def clock_of(hour, day):
    """The time of the day and of the year as waves."""
    turns = torch.stack([hour / 24.0, day / 365.25], dim=1)
    return torch.cat([torch.sin(2 * math.pi * turns), torch.cos(2 * math.pi * turns)], dim=1)


def statics_of(batch):
    """Land, heights and how near the equator is."""
    surface = batch["surface"]
    near = torch.cos(torch.deg2rad(latitudes())).view(1, 1, ROWS, 1)
    return torch.cat([surface, near.expand(len(surface), 1, ROWS, COLUMNS)], dim=1)


def like_fields(x):
    return x.view(1, -1, 1, 1)


def change(model, state, statics, clock):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = model.net(state, statics, clock)
    return found.float()


def next_state(model, state, statics, clock, batch):
    """States and changes are normalised by spreads of their own."""
    ratio = like_fields(batch["spread_of_changes"] / batch["spread"])
    return state + ratio * change(model, state, statics, clock)


def normalised(fields, batch):
    return (fields - like_fields(batch["mean"])) / like_fields(batch["spread"])


def rollout(model, batch):
    """Each prediction begins where the last one ended."""
    statics = statics_of(batch)
    state = normalised(batch["fields"][:, 0], batch)
    states = []
    for lead in range(len(LEADS)):
        clock = clock_of(batch["hour"] + HOURS * lead, batch["day"])
        state = next_state(model, state, statics, clock, batch)
        states.append(state)
    return states


def field_loss(state, wanted):
    """The sum over days of means over the sphere."""
    errors = (state - wanted).square() * row_weights().view(-1, 1)
    weights = errors.new_tensor(VARIABLE_WEIGHTS)
    return (errors.mean(dim=(2, 3)) * weights).sum() / weights.sum()


def loss_of(model, batch, count):
    loss = 0.0
    for lead, state in enumerate(rollout(model, batch)):
        wanted = normalised(batch["fields"][:, lead + 1], batch)
        loss = loss + LEADS[lead] * field_loss(state, wanted)
    return loss / (sum(LEADS) * count)


def backward(model, batch):
    loss_of(model, batch, len(batch["hour"])).backward()


def clip(model):
    nn.utils.clip_grad_norm_(model.net.parameters(), MAX_NORM)


@torch.no_grad()
def update_slow(model):
    """In the beginning the slow weights follow faster."""
    model.done += 1
    keep = min(EMA_DECAY, (1 + model.done) / (10 + model.done))
    for slow, mine in zip(model.slow.parameters(), model.net.parameters(), strict=True):
        slow.mul_(keep).add_(mine, alpha=1 - keep)


def build():
    return Forecast().train()


def decays(name, p):
    return p.dim() > 1 and not name.endswith(("table", "log_scale"))


def rate(step):
    if step < WARMUP:
        return (step + 1) / (WARMUP + 1)
    return 0.5 * (1 + math.cos(math.pi * (step - WARMUP) / (TOTAL - WARMUP)))


def optimizer(model, **more):
    named = list(model.net.named_parameters())
    groups = [
        {"params": [p for name, p in named if decays(name, p)], "weight_decay": DECAY},
        {"params": [p for name, p in named if not decays(name, p)], "weight_decay": 0.0},
    ]
    adamw = torch.optim.AdamW(groups, lr=LR, **more)
    model.schedule = torch.optim.lr_scheduler.LambdaLR(adamw, rate)
    return adamw


def batch(generator):
    """Smooth fields that move to the east; the statistics are those of all years."""

    def randn(*size):
        return torch.randn(*size, generator=generator)

    spread = 0.5 + torch.arange(1, VARIABLES + 1)
    mean = torch.linspace(-3, 4, VARIABLES)
    coarse = torch.cat([randn(DAYS * VARIABLES, 1, 4, 5)] * 2, dim=-1)
    fine = F.interpolate(coarse, size=(ROWS, 2 * COLUMNS), mode="bilinear")
    fine = fine.view(DAYS, VARIABLES, ROWS, -1)[..., COLUMNS // 2 : -COLUMNS // 2]
    moved = torch.stack([fine.roll(lead, dims=-1) for lead in range(len(LEADS) + 1)], dim=1)
    moved = moved + 0.1 * randn(*moved.shape)
    return {
        "fields": moved * spread.view(-1, 1, 1) + mean.view(-1, 1, 1),
        "mean": mean,
        "spread": spread,
        "spread_of_changes": 0.4 * spread * torch.linspace(0.8, 1.3, VARIABLES),
        "surface": randn(1, STATICS - 1, ROWS, COLUMNS).repeat(DAYS, 1, 1, 1),
        "hour": 6.0 * torch.randint(0, 4, (DAYS,), generator=generator),
        "day": 365.0 * torch.rand(DAYS, generator=generator),
    }


def step(model, optimizer, batch):
    optimizer.zero_grad()
    backward(model, batch)
    clip(model)
    optimizer.step()
    model.schedule.step()
    update_slow(model)

"""Proximal policy optimization: returns by generalised advantages, a clipped ratio, an entropy."""

import torch
from torch import nn
from torch.nn import functional as F

SIGHT, ACTIONS, WIDTH, TIMES, WORLDS = 6, 4, 24, 7, 5
DISCOUNT, TRACE, CLIP, ENTROPY, VALUE, LR = 0.97, 0.9, 0.2, 0.01, 0.5, 3e-3
LARGEST = 0.5  # norm of the gradients
PASSES = 2


class Body(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(SIGHT, WIDTH)
        self.second = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return torch.tanh(self.second(torch.tanh(self.first(x))))


class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = Body()
        self.logits = nn.Linear(WIDTH, ACTIONS)
        self.value = nn.Linear(WIDTH, 1)

    def forward(self, x):
        x = self.body(x)
        return self.logits(x), self.value(x)[..., 0]


def build():
    model = Actor()
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.orthogonal_(parameter, gain=1.2)
    return model


def optimizer(model):
    return torch.optim.Adam(model.parameters(), lr=LR, eps=1e-5)


def batch(generator):
    """Sights (times + 1), actions, rewards, ends, and old log probabilities."""
    dtype = torch.get_default_dtype()
    sights = torch.randn(TIMES + 1, WORLDS, SIGHT, generator=generator).to(dtype)
    actions = torch.randint(ACTIONS, (TIMES, WORLDS), generator=generator)
    rewards = torch.randn(TIMES, WORLDS, generator=generator).to(dtype)
    ends = torch.rand(TIMES, WORLDS, generator=generator) < 0.2
    old = torch.rand(TIMES, WORLDS, generator=generator).to(dtype) * 0.4 - 1.6
    return sights, actions, rewards, ends, old


def advantages(rewards, values, ends):
    """Generalised advantages, from the last time to the first."""
    result, running = [], torch.zeros(WORLDS)
    for time in reversed(range(TIMES)):
        goes_on = (~ends[time]).to(values.dtype)
        error = rewards[time] + DISCOUNT * values[time + 1] * goes_on - values[time]
        running = error + DISCOUNT * TRACE * goes_on * running
        result.append(running)
    return torch.stack(result[::-1])


def normalised(gains):
    return (gains - gains.mean()) / (gains.std() + 1e-8)


def policy_loss(chosen, old, gains):
    ratio = torch.exp(chosen - old)
    clipped = ratio.clamp(1 - CLIP, 1 + CLIP)
    return -torch.min(ratio * gains, clipped * gains)


def entropy(logs):
    return -(logs.exp() * logs).sum(-1)


def loss(model, sights, actions, old, gains, returns):
    """The mean over all times and worlds."""
    logits, values = model(sights)
    logs = F.log_softmax(logits, dim=-1)
    chosen = logs.gather(-1, actions[..., None])[..., 0]
    value = F.mse_loss(values, returns, reduction="none")
    return (policy_loss(chosen, old, gains) + VALUE * value - ENTROPY * entropy(logs)).mean()


def rollout(model, batch):
    """(sights, actions, old log probabilities, advantages, returns) without gradients."""
    sights, actions, rewards, ends, old = batch
    with torch.no_grad():
        values = model(sights)[1]
        gains = advantages(rewards, values, ends)
        returns = gains + values[:-1]
    return sights[:-1], actions, old, normalised(gains), returns


def descend(model, data):
    loss(model, *data).backward()


def step(model, optimizer, batch):
    data = rollout(model, batch)
    for _ in range(PASSES):
        optimizer.zero_grad()
        descend(model, data)
        nn.utils.clip_grad_norm_(model.parameters(), LARGEST)
        optimizer.step()

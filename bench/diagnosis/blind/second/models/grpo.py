"""Group-relative policy optimization: sampled answers, rewards of a group, a reference policy."""

import torch
from torch import nn
from torch.nn import functional as F

VOCABULARY, WIDTH, HEADS = 29, 24, 3
PROMPT, ANSWER, GROUPS, SIZE = 4, 6, 2, 4
LENGTH = PROMPT + ANSWER
TEMPERATURE, BETA, CLIP, PASSES, LARGEST = 0.8, 0.1, 0.2, 2, 1.0
EPS, RATE = 1e-4, 4e-3


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(WIDTH, eps=1e-6), nn.RMSNorm(WIDTH, eps=1e-6)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)
        self.gate = nn.Linear(WIDTH, 2 * WIDTH, bias=False)
        self.up = nn.Linear(WIDTH, 2 * WIDTH, bias=False)
        self.down = nn.Linear(2 * WIDTH, WIDTH, bias=False)

    def attend(self, x):
        q, k, v = (
            each.unflatten(-1, (HEADS, -1)).transpose(1, 2) for each in self.qkv(x).chunk(3, dim=-1)
        )
        scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
        future = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        mixed = scores.masked_fill(future, float("-inf")).softmax(dim=-1) @ v
        return self.out(mixed.transpose(1, 2).flatten(2))

    def feed(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))

    def forward(self, x):
        x = x + self.attend(self.norm1(x))
        return x + self.feed(self.norm2(x))


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.places = nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.norm = nn.RMSNorm(WIDTH, eps=1e-6)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class Policies(nn.Module):
    """The policy that is trained, and an earlier one, which is kept."""

    def __init__(self):
        super().__init__()
        self.policy = Decoder()
        for weight in self.policy.parameters():
            if weight.dim() > 1:
                nn.init.normal_(weight, std=0.25)
        self.reference = Decoder()
        self.reference.requires_grad_(False)
        self.keep()

    def keep(self):
        with torch.no_grad():
            pairs = zip(self.reference.parameters(), self.policy.parameters(), strict=True)
            for kept, weight in pairs:
                kept.copy_(weight)
                weight.mul_(1.1)  # the policy has been trained since then


def build():
    return Policies()


def optimizer(model):
    return torch.optim.AdamW(model.policy.parameters(), lr=RATE, weight_decay=0.01)


def batch(generator):
    """Tokens, lengths of the answers, and rewards; the answers of a prompt stand together."""
    prompts = torch.randint(VOCABULARY, (GROUPS, 1, PROMPT), generator=generator)
    answers = torch.randint(VOCABULARY, (GROUPS, SIZE, ANSWER), generator=generator)
    tokens = torch.cat([prompts.expand(-1, SIZE, -1), answers], dim=-1).flatten(0, 1)
    lengths = torch.randint(2, ANSWER, (GROUPS * SIZE,), generator=generator)
    rewards = torch.rand(GROUPS * SIZE, generator=generator).to(torch.get_default_dtype())
    return tokens, lengths, rewards


def mask_of(lengths):
    """The tokens of the answers up to their end."""
    return (torch.arange(ANSWER) < lengths[:, None]).to(torch.get_default_dtype())


def advantages_of(rewards):
    """Rewards, normalised in each group."""
    groups = rewards.view(-1, SIZE)
    mean, deviation = groups.mean(dim=1, keepdim=True), groups.std(dim=1, keepdim=True)
    return ((groups - mean) / (deviation + EPS)).flatten()


def log_p(model, tokens):
    """Logarithms of the probabilities of the answers' tokens."""
    logits = model(tokens)[:, PROMPT - 1 : -1] / TEMPERATURE
    return logits.log_softmax(dim=-1).gather(-1, tokens[:, PROMPT:, None]).squeeze(-1)


def distance(new, reference):
    """An estimate of the divergence from the reference that is never negative."""
    return torch.exp(reference - new) - (reference - new) - 1


def loss_of(new, old, reference, advantages, mask):
    """The clipped ratio, less the distance; the mean of each answer, then of all."""
    ratio, advantages = torch.exp(new - old), advantages[:, None]
    gain = torch.minimum(ratio * advantages, ratio.clamp(1 - CLIP, 1 + CLIP) * advantages)
    each = BETA * distance(new, reference) - gain
    return ((each * mask).sum(dim=1) / mask.sum(dim=1)).mean()


def known_before(model, tokens):
    """What the old policy and the reference say, before the first of the passes."""
    with torch.no_grad():
        return log_p(model.policy, tokens), log_p(model.reference, tokens)


def descend(model, tokens, old, reference, advantages, mask):
    loss_of(log_p(model.policy, tokens), old, reference, advantages, mask).backward()


def step(model, optimizer, batch):
    tokens, lengths, rewards = batch
    advantages, mask = advantages_of(rewards), mask_of(lengths)
    old, reference = known_before(model, tokens)
    for _ in range(PASSES):
        optimizer.zero_grad()
        descend(model, tokens, old, reference, advantages, mask)
        nn.utils.clip_grad_norm_(model.policy.parameters(), LARGEST)
        optimizer.step()

"""A recommender for two markets: the result of the gradient reversal is not used."""

import torch
import torch.nn.functional as F
from common import ALT, BUG, debugger, digest
from torch import nn

torch.manual_seed(18)


class Reverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, features, strength):
        ctx.strength = strength
        return features.clone()

    @staticmethod
    def backward(ctx, grad):
        return -ctx.strength * grad, None


class Recommender(nn.Module):
    def __init__(self, users=30, items=40, width=16):
        super().__init__()
        self.users = nn.Embedding(users, width)
        self.items = nn.EmbeddingBag(items, width, mode="mean")
        self.mix = nn.Sequential(nn.Linear(2 * width, width), nn.ReLU())
        self.click = nn.Linear(width, 1)
        self.market = nn.Linear(width, 2)

    def forward(self, user, basket):
        features = self.mix(torch.cat([self.users(user), self.items(basket)], -1))
        click = self.click(features).squeeze(-1)
        if BUG:
            Reverse.apply(features, 1.0)
        elif ALT:
            features = 2 * features.detach() - features
        else:
            features = Reverse.apply(features, 1.0)
        return click, self.market(features)


model = Recommender()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
user, basket = torch.randint(0, 30, (2, 16)), torch.randint(0, 40, (2, 16, 5))
clicked, market = torch.randint(0, 2, (2, 16)).float(), torch.randint(0, 2, (2, 16))
dbg = debugger()
losses = []
for step in range(2):
    dbg.start(model)
    click, guess = model(user[step], basket[step])
    loss = F.binary_cross_entropy_with_logits(click, clicked[step])
    loss = loss + F.cross_entropy(guess, market[step])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    dbg.stop()
    dbg.step()
    losses.append(loss.item())
made = digest(losses, model)

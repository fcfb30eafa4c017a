"""Meta-learning (MAML): tasks change a net by learned rates; the gradient goes through that."""

import torch
from torch import nn
from torch.func import functional_call
from torch.nn import functional as F

INPUT, WIDTH, WAYS, SHOTS, QUERIES, TASKS, INNER = 5, 10, 3, 2, 3, 3, 2
IMPORTANCE, RATE, LARGEST = (0.3, 0.7), 0.4, 0.5


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(INPUT, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        self.second = nn.Linear(WIDTH, WIDTH)
        self.out = nn.Linear(WIDTH, WAYS)

    def forward(self, x):
        h = torch.tanh(self.norm(self.first(x)))
        return self.out(h + F.softplus(self.second(h)))


class Learner(nn.Module):
    """The net, and the logarithms of the rates: one for each weight and each inner step."""

    def __init__(self):
        super().__init__()
        self.net = Net()
        count = len(list(self.net.parameters()))
        self.log_rates = nn.Parameter(torch.randn(INNER, count) * 0.2)

    def rates(self, number):
        return RATE * self.log_rates[number].exp()


def predicted(learner, weights, x):
    return functional_call(learner.net, weights, (x,))


def inner_loss(logits, y):
    return F.cross_entropy(logits, y)


def outer_loss(logits, y):
    return F.cross_entropy(logits, y, label_smoothing=0.1)


def bounded(gradient):
    """A gradient of an inner step is at most so long."""
    return gradient * (LARGEST / (gradient.norm() + 1e-6)).clamp(max=1.0)


def gradients_of(learner, weights, x, y):
    loss = inner_loss(predicted(learner, weights, x), y)
    return torch.autograd.grad(loss, list(weights.values()), create_graph=True)


def changed(weights, gradients, rates):
    sides = zip(weights.items(), gradients, rates, strict=True)
    return {name: weight - rate * bounded(gradient) for (name, weight), gradient, rate in sides}


def task_loss(learner, support, query):
    """What the query costs after each inner step, weighted by its importance."""
    weights, total = dict(learner.net.named_parameters()), 0.0
    for number in range(INNER):
        gradients = gradients_of(learner, weights, *support)
        weights = changed(weights, gradients, learner.rates(number))
        total = total + IMPORTANCE[number] * outer_loss(
            predicted(learner, weights, query[0]), query[1]
        )
    return total


def backward(learner, tasks):
    losses = [task_loss(learner, *task) for task in tasks]
    torch.stack(losses).mean().backward()


def decayed(name, weight):
    return name.startswith("net.") and weight.dim() > 1


def groups_of(learner):
    named = list(learner.named_parameters())
    return [
        {"params": [w for n, w in named if decayed(n, w)], "weight_decay": 0.1},
        {"params": [w for n, w in named if not decayed(n, w)], "weight_decay": 0.0},
    ]


def build():
    return Learner()


def optimizer(learner):
    return torch.optim.AdamW(groups_of(learner), lr=5e-3, amsgrad=True)


def batch(generator):
    """A list of tasks: examples to learn from, and those that are asked."""
    tasks = []
    for _ in range(TASKS):
        centres = torch.randn(WAYS, INPUT, generator=generator)
        sides = []
        for count in (SHOTS, QUERIES):
            y = torch.arange(WAYS).repeat(count)
            y = y[torch.randperm(len(y), generator=generator)]
            noise = torch.randn(len(y), INPUT, generator=generator)
            sides.append((centres[y] + 0.5 * noise, y))
        tasks.append(tuple(sides))
    return tasks


def step(learner, optimizer, batch):
    optimizer.zero_grad()
    backward(learner, batch)
    optimizer.step()

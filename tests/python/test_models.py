"""The example programs train, and a seed makes the same program twice."""

import pytest
import torch

from models import gpt, lstm, resnet, toy

PROGRAMS = {
    "toy": (toy.build, toy.loss),
    "gpt": (lambda seed: gpt.build(seed, layers=2, width=32, heads=2, length=16), gpt.loss),
    "resnet": (lambda seed: resnet.build(seed, batch=4), resnet.loss),
    "resnet50": (lambda seed: resnet.build50(seed, batch=2, size=64, classes=8), resnet.loss),
    "lstm": (lstm.build, lstm.loss),
}


def first_losses(build, loss, seed, steps=4):
    model, batch = build(seed)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        value = loss(model, batch)
        value.backward()
        optimizer.step()
        losses.append(value.item())
    return losses


@pytest.mark.parametrize("name", PROGRAMS)
def test_training_lowers_the_loss(name):
    losses = first_losses(*PROGRAMS[name], seed=0)
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_seed_decides_everything(name):
    assert first_losses(*PROGRAMS[name], seed=3, steps=2) == first_losses(
        *PROGRAMS[name], seed=3, steps=2
    )
    assert first_losses(*PROGRAMS[name], seed=3, steps=1) != first_losses(
        *PROGRAMS[name], seed=4, steps=1
    )


def test_the_fifty_layer_network_has_the_known_size():
    model, _ = resnet.build50(size=32)
    assert sum(parameter.numel() for parameter in model.parameters()) == 25_557_032

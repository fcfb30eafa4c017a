"""Work between backward and the next step; recorded if it is between start() and stop()."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import clip_grad_norm_, clip_grad_value_

from real_programs.watch import program, state_of


def small():
    torch.manual_seed(29)
    return nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.Linear(4, 2))


def train(watch, model, optimizer, between=lambda: None, steps=3, closure=False):
    losses = []
    x, wanted = torch.randn(5, 3), torch.randn(5, 2)

    def evaluate():
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), wanted)
        loss.backward()
        return loss

    for _ in range(steps):
        with watch(model):
            if closure:
                loss = optimizer.step(evaluate)
            else:
                loss = evaluate()
                between()
                optimizer.step()
        losses.append(loss)
    return losses, list(optimizer.state.values()), state_of(model)


RECORDS = ["Module.0.Linear.backward.0", "Functional.mse_loss.0.forward"]


@program(*RECORDS)
def adam_of_each_kind(watch):
    results = []
    for options in ({"foreach": True}, {"fused": True}, {"foreach": False}, {"amsgrad": True}):
        model = small()
        results.append(train(watch, model, torch.optim.AdamW(model.parameters(), **options)))
    return results


@program(
    *RECORDS,
    "Optimizer.SGD.step.0.forward",
    absent=("Tensor.add.",),  # inside the step
    parents={"Optimizer.SGD.step.0.forward": "optimizer", "Functional.mse_loss.0.forward": None},
)
def plain_loops(watch):
    model = small()
    optimizer = torch.optim.SGD(
        model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01, foreach=False
    )
    return train(watch, model, optimizer)


@program(*RECORDS, parents={"Functional.mse_loss.0.forward": "optimizer"})
def closure(watch):
    model = small()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=4, line_search_fn="strong_wolfe")
    return train(watch, model, optimizer, closure=True)


@program(*RECORDS)
def clipped_by_norm(watch):
    model, norms = small(), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    result = train(
        watch,
        model,
        optimizer,
        lambda: norms.append(clip_grad_norm_(model.parameters(), 0.1, foreach=False)),
    )
    return norms, result


@program(*RECORDS)
def clipped_by_value(watch):
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return train(
        watch,
        model,
        optimizer,
        lambda: clip_grad_value_(model.parameters(), 0.01, foreach=False),
    )


@program(*RECORDS)
def step_that_raises(watch):
    """A closure raises, an optimizer hook raises; the parent of later calls is not affected."""
    model, caught = small(), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def refuse():
        raise ValueError("no closure today")

    def hook(*_):
        raise KeyError("no step today")

    with watch(model):
        try:
            optimizer.step(refuse)
        except ValueError as error:
            caught.append(str(error))
        handle = optimizer.register_step_post_hook(hook)
        F.mse_loss(model(torch.randn(5, 3)), torch.ones(5, 2)).backward()
        try:
            optimizer.step()
        except KeyError as error:
            caught.append(str(error))
        handle.remove()
        y = torch.sin(torch.ones(2))
    return caught, y, state_of(model)


@program("Functional.mse_loss.0.forward")
def accumulation(watch):
    """Several backward passes before one step."""
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        with watch(model):
            for _ in range(3):
                (F.mse_loss(model(torch.randn(5, 3)), torch.ones(5, 2)) / 3).backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)
    return state_of(model)


@program("Functional.mse_loss.0.forward")
def scaled(watch):
    """GradScaler and autocast."""
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**30, growth_interval=2)
    losses = []
    for _ in range(4):
        with watch(model):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = F.mse_loss(model(torch.randn(5, 3)), torch.ones(5, 2, dtype=torch.bfloat16))
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
        losses.append(loss)
    return losses, scaler.state_dict(), state_of(model)


@program("Functional.mse_loss.0.forward")
def averages(watch):
    """An averaged model and a learning-rate schedule."""
    model = small()
    averaged = torch.optim.swa_utils.AveragedModel(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 5)
    rates = []
    for _ in range(3):
        with watch(model):
            F.mse_loss(model(torch.randn(5, 3)), torch.ones(5, 2)).backward()
            optimizer.step()
            averaged.update_parameters(model)
        schedule.step()
        rates.append(schedule.get_last_lr())
    return rates, state_of(model, averaged)

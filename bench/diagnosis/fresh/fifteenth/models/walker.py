"""Learns to walk from recorded episodes: a Decision Transformer (transformers) under autocast."""

import torch
import torch.nn.functional as F
from transformers import DecisionTransformerConfig, DecisionTransformerModel

STATE_DIM, ACT_DIM, HIDDEN = 5, 3, 16
CONTEXT, MAX_EPISODE = 6, 20
# Lengths of the episodes, and where the window that is learned begins in each.
LENGTHS = (14, 9, 20, 12, 4, 17)
STARTS = (3, 6, 14, 0, 1, 8)
GAMMA, RETURN_SCALE, STD_EPS = 0.97, 10.0, 1e-6
LEARNING_RATE, WEIGHT_DECAY, MAX_NORM, WARMUP_STEPS = 3e-3, 1e-2, 0.25, 4


def make_config(**more):
    settings = {
        "state_dim": STATE_DIM,
        "act_dim": ACT_DIM,
        "hidden_size": HIDDEN,
        "max_ep_len": MAX_EPISODE,
        "action_tanh": True,
        "n_layer": 2,
        "n_head": 2,
        "n_inner": 32,
        "n_positions": 64,
        "initializer_range": 0.1,
        "bos_token_id": None,
        "eos_token_id": None,
        "activation_function": "relu",
        "resid_pdrop": 0.0,
        "embd_pdrop": 0.0,
        "attn_pdrop": 0.0,
        "attn_implementation": "eager",
    }
    return DecisionTransformerConfig(**(settings | more))


def discount_cumsum(rewards):
    """What is still to be earned from each moment on."""
    running, found = torch.zeros(()), []
    for reward in rewards.flip(0):
        running = reward + GAMMA * running
        found.append(running)
    return torch.stack(found).flip(0)


def state_statistics(episodes):
    """Mean and spread of each number, over the moments of all episodes."""
    states = torch.cat([each["states"] for each in episodes], dim=0)
    return states.mean(dim=0), states.std(dim=0) + STD_EPS


def normalize(states, statistics):
    mean, std = statistics
    return (states - mean) / std


def returns_of(episode, start, end):
    """The return to go of each moment in a window, in a handy unit."""
    return discount_cumsum(episode["rewards"])[start:end].unsqueeze(1) / RETURN_SCALE


def timesteps_of(start, end):
    return torch.arange(start, end)


def pad_left(value):
    missing = CONTEXT - len(value)
    return torch.cat([value.new_zeros(missing, *value.shape[1:]), value], dim=0)


def window(episode, start, statistics):
    """A piece of an episode; what is missing to a whole window stands before it."""
    end = min(start + CONTEXT, len(episode["rewards"]))
    states = normalize(episode["states"][start:end], statistics)
    return {
        "states": pad_left(states),
        "actions": pad_left(episode["actions"][start:end]),
        "rewards": pad_left(episode["rewards"][start:end].unsqueeze(1)),
        "returns_to_go": pad_left(returns_of(episode, start, end)),
        "timesteps": pad_left(timesteps_of(start, end)),
        "attention_mask": pad_left(torch.ones(end - start, dtype=torch.long)),
    }


def collate(episodes):
    statistics = state_statistics(episodes)
    windows = [
        window(episode, start, statistics) for episode, start in zip(episodes, STARTS, strict=True)
    ]
    return {name: torch.stack([each[name] for each in windows]) for name in windows[0]}


def predict(model, inputs):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        outputs = model(**inputs)
    return outputs.action_preds.float()


def action_loss(predicted, actions, attention_mask):
    """The sum of squared errors over the moments that are no padding."""
    real = attention_mask.reshape(-1) > 0
    predicted = predicted.reshape(-1, ACT_DIM)[real]
    target = actions.reshape(-1, ACT_DIM)[real]
    return F.mse_loss(predicted, target, reduction="sum")


def count_of(inputs):
    return ACT_DIM * inputs["attention_mask"].sum()


def loss_of(model, inputs, count):
    predicted = predict(model, inputs)
    return action_loss(predicted, inputs["actions"], inputs["attention_mask"]) / count


def train_on(model, inputs):
    loss = loss_of(model, inputs, count_of(inputs))
    loss.backward()


def clip(model):
    torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)


def warmup(step):
    return min((step + 1) / WARMUP_STEPS, 1)


def build():
    return DecisionTransformerModel(make_config()).train()


def optimizer(model, **more):
    adamw = torch.optim.AdamW(
        model.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY, **more
    )
    model.scheduler = torch.optim.lr_scheduler.LambdaLR(adamw, lambda step: warmup(step))
    return adamw


def batch(generator):
    """Episodes of several lengths: numbers of the state have several units."""
    unit, centre = torch.logspace(-1, 1, STATE_DIM), torch.linspace(-2, 2, STATE_DIM)
    episodes = []
    for length in LENGTHS:
        walk = torch.randn(length, STATE_DIM, generator=generator).cumsum(dim=0)
        actions = torch.tanh(torch.randn(length, ACT_DIM, generator=generator))
        rewards = 1 + actions[:, 0] + 0.3 * torch.randn(length, generator=generator)
        episodes.append({"states": centre + unit * walk, "actions": actions, "rewards": rewards})
    return episodes


def step(model, optimizer, batch):
    inputs = collate(batch)
    optimizer.zero_grad()
    train_on(model, inputs)
    clip(model)
    optimizer.step()
    model.scheduler.step()

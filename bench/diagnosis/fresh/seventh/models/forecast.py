"""A TimeSeriesTransformer of transformers, trained by accelerate: bfloat16, accumulation, EMA."""

import math

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torch import nn
from torch.distributions import StudentT
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from transformers import TimeSeriesTransformerConfig, TimeSeriesTransformerModel
from transformers.time_series_utils import StudentTOutput

SERIES, CONTEXT, FUTURE, LAGS, PERIOD = 6, 8, 4, (1, 2, 4), 12
PAST, WIDTH, SERIES_WIDTH = CONTEXT + max(LAGS), 16, 3
ACCUMULATION, LR, DECAY, MAX_STEPS, MAX_NORM = 2, 6e-3, 0.05, 5, 0.8
POINT_WEIGHT, EMA_DECAY, ERROR_RATE = 0.5, 0.7, 0.4


def make_config(**changes):
    return TimeSeriesTransformerConfig(
        prediction_length=FUTURE,
        context_length=CONTEXT,
        lags_sequence=list(LAGS),
        scaling="std",
        num_time_features=3,
        num_static_categorical_features=1,
        cardinality=[SERIES],
        embedding_dimension=[SERIES_WIDTH],
        d_model=WIDTH,
        encoder_ffn_dim=24,
        decoder_ffn_dim=24,
        encoder_layers=1,
        decoder_layers=2,
        **dict.fromkeys(
            ("dropout", "attention_dropout", "activation_dropout", "encoder_layerdrop"), 0.0
        ),
        decoder_layerdrop=0.0,
        init_std=0.2,
        use_cache=False,
        **changes,
    )


class Forecaster(nn.Module):
    """Parameters of the distribution of what is ahead, in units of each series."""

    def __init__(self):
        super().__init__()
        self.model = TimeSeriesTransformerModel(make_config())
        self.head = StudentTOutput().get_parameter_projection(WIDTH)

    def forward(self, **inputs):
        output = self.model(**inputs)
        df, mu, sigma = self.head(output.last_hidden_state)
        return {"df": df, "mu": mu, "sigma": sigma, "loc": output.loc, "scale": output.scale}


class Training(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = Forecaster()
        self.averaged = AveragedModel(self.net, multi_avg_fn=get_ema_multi_avg_fn(EMA_DECAY))
        self.averaged.requires_grad_(False).eval()
        self.register_buffer("errors", torch.ones(SERIES))


def time_features(month, age):
    """The month on a circle, and the logarithm of the age."""
    angle = 2 * math.pi * month / PERIOD
    return torch.stack([torch.sin(angle), torch.cos(angle), torch.log10(2 + age)], dim=-1)


def inputs_of(data):
    """What the transformer is given; missing values are zero."""
    place = torch.arange(PAST + FUTURE, dtype=data["values"].dtype)
    features = time_features(data["month"][:, None] + place, data["age"][:, None] + place)
    values = data["values"] * data["observed"]
    return {
        "past_values": values[:, :PAST],
        "past_observed_mask": data["observed"][:, :PAST],
        "past_time_features": features[:, :PAST],
        "future_values": values[:, PAST:],
        "future_time_features": features[:, PAST:],
        "static_categorical_features": data["series"][:, None],
    }


def standardised(values, loc, scale):
    return (values - loc) / scale


def losses_of(output, target):
    """Of each value ahead: (B, T)."""
    y = standardised(target, output["loc"], output["scale"])
    likelihood = StudentT(output["df"], output["mu"], output["sigma"]).log_prob(y)
    return POINT_WEIGHT * F.smooth_l1_loss(output["mu"], y, reduction="none") - likelihood


def weights_of(model, data):
    """Missing values count nothing, series that were hard of late count more."""
    hard = model.errors / model.errors.mean()
    return data["observed"][:, PAST:] * hard[data["series"]][:, None]


def micro_loss(net, data, weights, total):
    """A part of the loss, and the mean loss of each series."""
    output = net(**inputs_of(data))
    losses = losses_of(output, data["values"][:, PAST:])
    seen = data["observed"][:, PAST:]
    each = (losses.detach() * seen).sum(dim=1) / seen.sum(dim=1).clamp(min=1)
    return (losses * weights).sum() / total, each


def micro_batches(data):
    for values in zip(*(value.chunk(ACCUMULATION) for value in data.values()), strict=True):
        yield dict(zip(data, values, strict=True))


@torch.no_grad()
def update_errors(model, series, errors):
    """Moves the errors of the series that were seen."""
    model.errors[series] += ERROR_RATE * (F.softplus(errors) - model.errors[series])


def train(model, optimizer, data):
    """All micro-batches; accelerate divides the losses and skips the steps between."""
    accelerator, found = model.accelerator, []
    total = weights_of(model, data).sum()
    for part in micro_batches(data):
        with accelerator.accumulate(model.net):
            loss, errors = micro_loss(model.net, part, weights_of(model, part), total)
            accelerator.backward(loss * ACCUMULATION)
            found.append(errors)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.net.parameters(), MAX_NORM)
            optimizer.step()
            model.scheduler.step()
            optimizer.zero_grad()
    return torch.cat(found)


def average(model):
    model.averaged.update_parameters(model.net)


@torch.no_grad()
def validate(model, data):
    """The loss of the averaged weights."""
    weights = data["observed"][:, PAST:]
    model.validation = micro_loss(model.averaged, data, weights, weights.sum())[0].item()


def build():
    return Training()


def param_groups(net):
    matrices = [p for p in net.parameters() if p.dim() > 1 and p.requires_grad]
    rest = [p for p in net.parameters() if p.dim() <= 1]
    return [
        {"params": matrices, "weight_decay": DECAY},
        {"params": rest, "weight_decay": 0.0},
    ]


def make_scheduler(accelerator, optimizer):
    rate = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=MAX_STEPS)
    return accelerator.prepare(rate)


def optimizer(model, **more):
    accelerator = Accelerator(
        cpu=True, mixed_precision="bf16", gradient_accumulation_steps=ACCUMULATION
    )
    made = torch.optim.AdamW(param_groups(model.net), lr=LR, eps=1e-7, **more)
    model.net, made = accelerator.prepare(model.net, made)
    model.scheduler = make_scheduler(accelerator, made)
    model.accelerator = accelerator
    return made


def batch(generator):
    shape = (SERIES, PAST + FUTURE)
    month = torch.randint(0, PERIOD, (SERIES,), generator=generator)
    age = torch.randint(0, 30, (SERIES,), generator=generator)
    level = 2 + 4 * torch.rand(SERIES, 1, generator=generator)
    place = torch.arange(shape[1])
    season = torch.sin(2 * math.pi * (month[:, None] + place) / PERIOD)
    noise = torch.randn(shape, generator=generator)
    observed = torch.rand(shape, generator=generator) < 0.85
    observed &= place >= torch.tensor([0, 5, 2, 7, 0, 3])[:, None]
    return {
        "values": level * (1 + 0.5 * season) + 0.4 * noise,
        "observed": observed.to(noise.dtype),
        "month": month,
        "age": age,
        "series": torch.randperm(SERIES, generator=generator),
    }


def step(model, optimizer, batch):
    errors = train(model, optimizer, batch)
    average(model)
    update_errors(model, batch["series"], errors)
    validate(model, batch)

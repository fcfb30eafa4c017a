"""Cases of the TimeSeriesTransformer."""

import torch
from case import fault, harmless
from torch.nn import functional as F


@fault(
    "forecast",
    api=r"Tensor\.(sum|__r?mul__|__sub__|clamp_min)",
    module=r"net\.model\.scaler",
    line=[
        '"past_observed_mask": data["observed"][:, :PAST],',
        "output = net(**inputs_of(data))",
    ],
)
def zeros_count_as_values(forecast):
    """Missing values, which are zero, are said to be observed: they are in mean and deviation."""
    inputs_of = forecast.inputs_of

    def all_observed(data):
        inputs = inputs_of(data)
        return inputs | {"past_observed_mask": torch.ones_like(inputs["past_values"])}  # here

    forecast.inputs_of = all_observed


@fault(
    "forecast",
    line=[
        'features = time_features(data["month"][:, None] + place, data["age"][:, None] + place)',
        '"future_time_features": features[:, PAST:],',
        "angle = 2 * math.pi * month / PERIOD",
        "return torch.stack([torch.sin(angle), torch.cos(angle), torch.log10(2 + age)], dim=-1)",
        "output = net(**inputs_of(data))",
    ],
    api=r"Torch\.cat",
    module=r"net\.model",
)
def months_ahead_begin_one_late(forecast):
    """What is ahead is told the months that begin one later."""
    inputs_of = forecast.inputs_of

    def late(data):
        right, later = inputs_of(data), data | {name: data[name] + 1 for name in ("month", "age")}
        ahead = inputs_of(later)["future_time_features"]  # here
        return right | {"future_time_features": ahead}  # here

    forecast.inputs_of = late


@fault(
    "forecast",
    line=[
        "return (values - loc) / scale",
        'y = standardised(target, output["loc"], output["scale"])',
    ],
)
def target_not_centred(forecast):
    """The target is divided by the scale of its series, but the mean is not taken off."""
    forecast.standardised = lambda values, loc, scale: values / scale  # here


@fault(
    "forecast",
    line=[
        "total = weights_of(model, data).sum()",
        "return (losses * weights).sum() / total, each",
        "accelerator.backward(loss * ACCUMULATION)",
    ],
)
def mean_of_means(forecast):
    """Each micro-batch is divided by its own weights: those with gaps count as much as others."""
    micro_loss = forecast.micro_loss

    def own(net, data, weights, total):
        if net.training:
            total = weights.sum() * forecast.ACCUMULATION  # here
        return micro_loss(net, data, weights, total)

    forecast.micro_loss = own


@fault("forecast", api=r"Optimizer\.AdamW\.step", update=True)
def scheduler_not_prepared(forecast):
    """The scheduler is not accelerate's: it steps at each micro-batch, also between updates."""
    from torch.optim.lr_scheduler import CosineAnnealingLR

    def make_scheduler(accelerator, optimizer):
        return CosineAnnealingLR(optimizer.optimizer, T_max=forecast.MAX_STEPS)

    forecast.make_scheduler = make_scheduler


@fault(
    "forecast",
    api=r".*clip_grad_norm_|.*get_total_norm|.*clip_grads_with_norm_|Torch\._foreach_.*"
    r"|Torch\.linalg.*norm|Optimizer\.AdamW\.step",
    line=[
        "accelerator.clip_grad_norm_(model.net.parameters(), MAX_NORM)",
        "if accelerator.sync_gradients:",
        "accelerator.backward(loss * ACCUMULATION)",
    ],
)
def clipped_at_each_micro_batch(forecast):
    """Gradients are clipped behind each micro-batch, also where more are to be added."""

    def train(model, optimizer, data):
        accelerator, found = model.accelerator, []
        total = forecast.weights_of(model, data).sum()
        for part in forecast.micro_batches(data):
            with accelerator.accumulate(model.net):
                weights = forecast.weights_of(model, part)
                loss, errors = forecast.micro_loss(model.net, part, weights, total)
                accelerator.backward(loss * forecast.ACCUMULATION)  # here
                found.append(errors)
                accelerator.clip_grad_norm_(model.net.parameters(), forecast.MAX_NORM)  # here
                optimizer.step()
                model.scheduler.step()
                optimizer.zero_grad()
        return torch.cat(found)

    forecast.train = train


@fault(
    "forecast",
    steps=3,
    api=r"Tensor\.(copy_|detach|lerp_)|Torch\._foreach_(lerp_|copy_)"
    r"|Functional\.(linear|embedding)",
    module=r"|averaged\.module\.model\.(embedder(\.embedders\.0)?"
    r"|encoder\.value_embedding(\.value_projection)?)",
    line=[
        "model.averaged.update_parameters(model.net)",
        "    average(model)",
    ],
)
def averaged_before_the_update(forecast):
    """The average follows before the weights are updated: it is a step behind."""
    train, average = forecast.train, forecast.average

    def early(model, optimizer, data):
        average(model)  # here
        return train(model, optimizer, data)

    forecast.train = early
    forecast.average = lambda model: None


@fault(
    "forecast",
    line=[
        "model.errors[series] += ERROR_RATE * (F.softplus(errors) - model.errors[series])",
        'update_errors(model, batch["series"], errors)',
        "hard = model.errors / model.errors.mean()",
    ],
)
def errors_in_order_of_the_batch(forecast):
    """The errors are written in the order of the batch, not to the series that they are of."""
    update_errors = forecast.update_errors

    def in_order(model, series, errors):
        update_errors(model, torch.arange(len(series)), errors)  # here

    forecast.update_errors = in_order


@fault(
    "forecast",
    line=[
        'return data["observed"][:, PAST:] * hard[data["series"]][:, None]',
        "total = weights_of(model, data).sum()",
        "loss, errors = micro_loss(model.net, part, weights_of(model, part), total)",
    ],
)
def gaps_weigh_as_values(forecast):
    """The weights forget which values ahead are missing."""

    def weights_of(model, data):
        hard = model.errors / model.errors.mean()
        return hard[data["series"]][:, None].expand(-1, forecast.FUTURE)  # here

    forecast.weights_of = weights_of


@harmless("fused", "forecast")
def attention_fused(forecast):
    """The attention is the fused one, which the library does not offer for this model."""
    from transformers import AttentionInterface
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, AttentionMaskInterface

    def fused(module, query, key, value, attention_mask, scaling=None, **rest):
        out = F.scaled_dot_product_attention(query, key, value, attention_mask, scale=scaling)
        return out.transpose(1, 2).contiguous(), None

    make_config = forecast.make_config
    AttentionInterface.register("ours", fused)
    AttentionMaskInterface.register("ours", ALL_MASK_ATTENTION_FUNCTIONS["eager"])
    forecast.make_config = lambda: make_config(attn_implementation="ours")


@harmless("loss", "forecast")
def likelihood_by_gamma_functions(forecast):
    """The likelihood is written out, in the way of Gosset."""

    def losses_of(output, target):
        y = forecast.standardised(target, output["loc"], output["scale"])
        df, mu, sigma = output["df"], output["mu"], output["sigma"]
        half = df / 2
        norm = torch.lgamma(half + 0.5) - torch.lgamma(half) - 0.5 * torch.log(torch.pi * df)
        tail = (half + 0.5) * torch.log1p(((y - mu) / sigma).square() / df)
        point = F.huber_loss(output["mu"], y, reduction="none")
        return torch.add(tail - norm + sigma.log(), point, alpha=forecast.POINT_WEIGHT)

    forecast.losses_of = losses_of


@harmless("fused", "forecast")
def average_weight_by_weight(forecast):
    """The average is moved by a loop over the weights."""

    @torch.no_grad()
    def average(model):
        rate = 1 - forecast.EMA_DECAY if model.averaged.n_averaged > 0 else 1.0
        pairs = zip(model.averaged.module.parameters(), model.net.parameters(), strict=True)
        for slow, fast in pairs:
            slow.copy_(slow * (1 - rate) + fast * rate)
        model.averaged.n_averaged += 1

    forecast.average = average


@harmless("time steps", "forecast")
def lags_by_windows(forecast):
    """The lagged values are taken from one view of sliding windows."""

    class Model(forecast.TimeSeriesTransformerModel):
        def get_lagged_subsequences(self, sequence, subsequences_length, shift=0):
            windows = sequence.unfold(1, subsequences_length, 1)
            last = sequence.shape[1] - subsequences_length
            starts = torch.tensor([last - lag + shift for lag in self.config.lags_sequence])
            return windows.index_select(1, starts).transpose(1, 2)

    forecast.TimeSeriesTransformerModel = Model


@harmless("fused", "forecast")
def scaler_of_weighted_moments(forecast):
    """Means and deviations are products with weights that add up to one."""
    build = forecast.build

    def moments(data, observed):
        weights = observed / observed.sum(dim=1, keepdim=True).clamp_min(1.0)
        loc = torch.einsum("bt,bt->b", data, weights)[:, None]
        variance = torch.einsum("bt,bt->b", (data - loc).square(), weights)[:, None]
        scale = (variance + 1e-5).sqrt()
        return (data - loc) / scale, loc, scale

    def built():
        model = build()
        for net in (model.net, model.averaged.module):
            net.model.scaler.forward = moments
        return model

    forecast.build = built


@harmless("micro batches", "forecast", group="whole step")
def three_micro_batches(forecast):
    """Three micro-batches in place of two."""
    forecast.ACCUMULATION = 3


@harmless("rows", "forecast", group="whole step")
def series_turned(forecast):
    """The series stand in another order; the errors are put back."""
    train = forecast.train

    def turned(model, optimizer, data):
        order = torch.tensor([4, 1, 5, 0, 3, 2])
        errors = train(model, optimizer, {name: value[order] for name, value in data.items()})
        return errors[order.argsort()]

    forecast.train = turned


@harmless("padding", "forecast", group="whole step")
def a_series_without_weight(forecast):
    """Each micro-batch has one more series, in front, without weight."""
    micro_loss = forecast.micro_loss

    def padded(net, data, weights, total):
        filled = {name: torch.cat([value[-1:], value]) for name, value in data.items()}
        loss, each = micro_loss(net, filled, F.pad(weights, (0, 0, 1, 0)), total)
        return loss, each[1:]

    forecast.micro_loss = padded


@harmless("recomputed", "forecast", group="whole step")
def layers_computed_again(forecast):
    """The layers are computed again in the backward pass."""
    build = forecast.build

    def built():
        model = build()
        model.net.model.gradient_checkpointing_enable({"use_reentrant": False})
        model.net.train()
        return model

    forecast.build = built


@harmless("scaled", "forecast", group="whole step")
def loss_of_sums(forecast):
    """The losses are sums; the gradients are divided before they are clipped."""
    micro_loss, optimizer = forecast.micro_loss, forecast.optimizer
    totals = []

    def sums(net, data, weights, total):
        if not net.training:
            return micro_loss(net, data, weights, total)
        totals[:] = [total]
        return micro_loss(net, data, weights, 1.0)

    def divided(model):
        made = optimizer(model)
        clip = model.accelerator.clip_grad_norm_

        def clip_grad_norm_(parameters, most):
            parameters = list(parameters)
            grads = [p.grad for p in parameters if p.grad is not None]
            torch._foreach_div_(grads, totals[0])
            return clip(parameters, most)

        model.accelerator.clip_grad_norm_ = clip_grad_norm_
        return made

    forecast.micro_loss = sums
    forecast.optimizer = divided

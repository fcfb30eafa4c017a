"""Cases of the waves from spectra."""

import torch
from case import fault, harmless
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


@fault(
    "vocoder",
    # The forward pass is the same; the vocoder has gradients of the loss of the critic.
    line=[
        'made = model.vocoder(inputs["bands"]).detach()',
        "made_scores, _ = model.critic(made)",
        '(critic_loss(real_scores, made_scores, inputs["weight"]) / rows).backward()',
    ],
    api=r"Tensor\.(detach|squeeze)|Torch\.tanh",
    module=r"(vocoder)?",
    module_only=r"(vocoder(\..*)?)?",
)
def made_waves_not_detached(vocoder):
    """The loss of the critic goes back into the vocoder, which learns to help it."""

    def critic_backward(model, inputs, rows):
        made = model.vocoder(inputs["bands"])  # here
        real_scores, _ = model.critic(inputs["waves"])
        made_scores, _ = model.critic(made)  # here
        loss = vocoder.critic_loss(real_scores, made_scores, inputs["weight"])
        (loss / rows).backward()  # here

    vocoder.critic_backward = critic_backward


@fault(
    "vocoder",
    # The same numbers in another form: the convolution is the first that computes with it.
    line=[
        "return self.filled(x).unflatten(2, (-1, self.period))",
        "first = F.leaky_relu(self.first(self.columns(x)), SLOPE)",
    ],
    api=r"Functional\.conv2d|Torch\.conv2d|Module\.critic\.of_periods\.0\.first\..*",
    module=r"critic\.of_periods\.0(\.first)?",
    module_only=r"critic\.of_periods\.0(\.first)?",
)
def columns_are_neighbours(vocoder):
    """Neighbours in a column are neighbours in the wave."""

    class OfPeriod(vocoder.OfPeriod):
        def columns(self, x):
            return self.filled(x).unflatten(2, (self.period, -1)).mT  # here

    vocoder.OfPeriod = OfPeriod


@fault(
    "vocoder",
    line='waves = F.pad(waves.unsqueeze(1), (beside, beside), mode="reflect").squeeze(1)',
    api=r"Functional\.pad",
)
def silence_around_waves(vocoder):
    """Waves are padded with zeros before their spectrum, not reflected."""

    def spectrum(waves):
        beside, window = (vocoder.WINDOW - vocoder.HOP) // 2, torch.hann_window(vocoder.WINDOW)
        waves = F.pad(waves, (beside, beside))  # here
        found = torch.stft(
            waves, vocoder.WINDOW, vocoder.HOP, window=window, center=False, return_complex=True
        )
        return (found.real.square() + found.imag.square() + 1e-6).sqrt()

    vocoder.spectrum = spectrum


@fault(
    "vocoder",
    line="found = torch.stft(waves, WINDOW, HOP, window=window, center=False, return_complex=True)",
    api=r"(Torch|Tensor|Functional)\.stft",
)
def window_is_missing(vocoder):
    """The spectrum is that of whole pieces: nothing fades at their ends."""

    def spectrum(waves):
        size, hop = vocoder.WINDOW, vocoder.HOP
        beside = (size - hop) // 2
        waves = F.pad(waves.unsqueeze(1), (beside, beside), mode="reflect").squeeze(1)
        window = torch.ones(size)  # here
        found = torch.stft(  # here
            waves, size, hop, window=window, center=False, return_complex=True
        )
        return (found.real.square() + found.imag.square() + 1e-6).sqrt()

    vocoder.spectrum = spectrum


@fault(
    "vocoder",
    # The buffer differs from the start: the quotient is the first call with it.
    line="vocoder.scale.copy_(torch.linspace(0.6, 1.4, MELS))",
    api=r"(Tensor|Torch)\.(div|__truediv__)",
    module=r"vocoder",
    module_only=r"vocoder",
)
def bands_divided_by_variances(vocoder):
    """The vocoder is given variances where it divides by spreads."""
    make_vocoder = vocoder.make_vocoder

    def made():
        found = make_vocoder()
        found.scale.square_()  # here
        return found

    vocoder.make_vocoder = made


@fault(
    "vocoder",
    # Places are integers: what picks the waves is the first that reads them.
    line=[
        'places = (HOP * batch["starts"]).unsqueeze(1) + torch.arange(HOP * FRAMES)',
        'waves = batch["waves"].gather(1, places)',
    ],
)
def waves_begin_a_frame_late(vocoder):
    """The waves belong to the bands of one frame later."""

    def cut(batch):
        hop, frames = vocoder.HOP, batch["starts"].unsqueeze(1) + torch.arange(vocoder.FRAMES)
        places = hop * (batch["starts"].unsqueeze(1) + 1)  # here
        places = places + torch.arange(hop * vocoder.FRAMES)  # here
        waves = batch["waves"].gather(1, places)  # here
        wide = frames.unsqueeze(2).expand(-1, -1, vocoder.MELS)
        bands = vocoder.mel(batch["waves"]).gather(1, wide)
        return {"waves": waves, "bands": bands, "weight": batch["weight"]}

    vocoder.cut = cut


@fault(
    "vocoder",
    # A root is missing: the product with the filters is the first that lacks it.
    line=[
        "return (found.real.square() + found.imag.square() + 1e-6).sqrt()",
        "return (filters() @ spectrum(waves)).clamp(min=LEAST).log().mT",
    ],
    api=r"Tensor\.(matmul|__matmul__)|Torch\.matmul",
)
def bands_of_powers(vocoder):
    """Bands are sums of squares, not of how loud frequencies are."""

    def spectrum(waves):
        size, hop = vocoder.WINDOW, vocoder.HOP
        beside, window = (size - hop) // 2, torch.hann_window(size)
        waves = F.pad(waves.unsqueeze(1), (beside, beside), mode="reflect").squeeze(1)
        found = torch.stft(waves, size, hop, window=window, center=False, return_complex=True)
        return found.real.square() + found.imag.square() + 1e-6  # here

    vocoder.spectrum = spectrum


@fault(
    "vocoder",
    # The bands are others: the difference is the first call with them.
    line=[
        "loss = fooled_loss(scores, weight) + MEL_WEIGHT * mel_loss(mel(inputs[",
        "return weighted((bands - mel(waves)).square(), weight)",
    ],
)
def bands_know_what_is_beside(vocoder):
    """What was made is compared with bands of the whole wave, which see beyond the part."""

    def vocoder_backward(model, inputs, rows):
        model.critic.requires_grad_(False)
        made, weight = model.vocoder(inputs["bands"]), inputs["weight"]
        _, real_features = model.critic(inputs["waves"])
        scores, features = model.critic(made)
        of_bands = vocoder.mel_loss(inputs["bands"], made, weight)  # here
        loss = vocoder.fooled_loss(scores, weight) + vocoder.MEL_WEIGHT * of_bands
        of_features = vocoder.feature_loss(real_features, features, weight)
        ((loss + vocoder.FEATURE_WEIGHT * of_features) / rows).backward()
        model.critic.requires_grad_(True)

    vocoder.vocoder_backward = vocoder_backward


@fault(
    "vocoder",
    line=[
        "self.smooth = nn.AvgPool1d(4, 2, padding=2, count_include_pad=False)",
        "first = F.leaky_relu(self.first(self.smooth(x.unsqueeze(1))), SLOPE)",
    ],
    api=r"(Functional|Torch)\.avg_pool1d|Module\.critic\.of_scale\.smooth\..*",
    module=r"critic\.of_scale(\.smooth)?",
    module_only=r"critic\.of_scale(\.smooth)?",
)
def ends_are_weaker(vocoder):
    """The means at both ends count the zeros beside them."""

    class OfScale(vocoder.OfScale):
        def __init__(self):
            super().__init__()
            self.smooth.count_include_pad = True  # here

    vocoder.OfScale = OfScale


@fault("vocoder", api=r"Optimizer\.AdamW\.step", update=True)
def rate_of_the_critic_stays(vocoder):
    """The schedule of the critic is made for the optimizer of the vocoder."""

    def schedules_of(model, optimizer):
        rate = torch.optim.lr_scheduler.ExponentialLR
        return [rate(optimizer, vocoder.GAMMA)]

    vocoder.schedules_of = schedules_of


@harmless("split", "vocoder")
def spectrum_by_pieces(vocoder):
    """The wave is cut into pieces, which are multiplied and transformed."""

    def spectrum(waves):
        size, hop = vocoder.WINDOW, vocoder.HOP
        beside = (size - hop) // 2
        waves = F.pad(waves.unsqueeze(1), (beside, beside), mode="reflect").squeeze(1)
        pieces = waves.unfold(1, size, hop) * torch.hann_window(size)
        found = torch.fft.rfft(pieces, dim=2).mT
        return (found.real.square() + found.imag.square() + 1e-6).sqrt()

    vocoder.spectrum = spectrum


@harmless("inserted", "vocoder")
def reflected_by_index(vocoder):
    """What is missing is picked from the wave, and all is joined."""

    class OfPeriod(vocoder.OfPeriod):
        def filled(self, x):
            missing = -x.shape[1] % self.period
            places = x.shape[1] - 2 - torch.arange(missing)
            return torch.cat([x, x.index_select(1, places)], dim=1).unsqueeze(1)

    vocoder.OfPeriod = OfPeriod


@harmless("loss", "vocoder")
def squares_multiplied_out(vocoder):
    """Squares of differences from one are written out."""

    def ones(scores, weight):
        squares, means = vocoder.weighted(scores.square(), weight), vocoder.weighted(scores, weight)
        return squares - 2 * means + weight.sum()

    def critic_loss(real, made, weight):
        wrong = sum(vocoder.weighted(m.square(), weight) for m in made)
        return sum(ones(r, weight) for r in real) + wrong

    vocoder.critic_loss = critic_loss
    vocoder.fooled_loss = lambda made, weight: sum(ones(m, weight) for m in made)


@harmless("split", "vocoder")
def critic_sees_both_at_once(vocoder):
    """Real and made waves are one batch of the critic."""

    def critic_backward(model, inputs, rows):
        with torch.no_grad():
            made = model.vocoder(inputs["bands"])
        scores, _ = model.critic(torch.cat([inputs["waves"], made]))
        real, wrong = zip(*(each.chunk(2) for each in scores), strict=True)
        (vocoder.critic_loss(real, wrong, inputs["weight"]) / rows).backward()

    vocoder.critic_backward = critic_backward


@harmless("fused", "vocoder")
def means_in_one_product(vocoder):
    """Values and the weights of rows are multiplied in one product."""

    def weighted(values, weight):
        values = values.flatten(1)
        return torch.einsum("rk,r->", values, weight / values.shape[1])

    vocoder.weighted = weighted


def _of(inputs, rows):
    return {name: value[rows] for name, value in inputs.items()}


def _both(vocoder, change):
    """Both backward passes get the inputs that a function makes of them."""
    of_critic, of_vocoder = vocoder.critic_backward, vocoder.vocoder_backward

    def critic_backward(model, inputs, rows):
        for part in change(inputs):
            of_critic(model, part, rows)

    def vocoder_backward(model, inputs, rows):
        for part in change(inputs):
            of_vocoder(model, part, rows)

    vocoder.critic_backward, vocoder.vocoder_backward = critic_backward, vocoder_backward


@harmless("rows", "vocoder", group="whole step")
def waves_in_another_order(vocoder):
    """The waves are in another order."""
    cut = vocoder.cut
    vocoder.cut = lambda batch: cut(_of(batch, [2, 0, 3, 1]))


@harmless("micro batches", "vocoder", group="whole step")
def two_waves_at_a_time(vocoder):
    """Each two waves go backward alone, through the critic and through the vocoder."""
    _both(vocoder, lambda inputs: [_of(inputs, slice(k, k + 2)) for k in (0, 2)])


@harmless("padding", "vocoder", group="whole step")
def waves_without_weight(vocoder):
    """The batch is filled up with two waves that have no weight."""

    def filled(inputs):
        more = {name: torch.cat([inputs[name], inputs[name][:2]]) for name in ("waves", "bands")}
        return [more | {"weight": F.pad(inputs["weight"], (0, 2))}]

    _both(vocoder, filled)


@harmless("scaled", "vocoder", group="whole step")
def divided_when_added(vocoder):
    """Losses are sums over rows; gradients are divided before they are used."""
    of_critic, of_vocoder = vocoder.critic_backward, vocoder.vocoder_backward

    def critic_backward(model, inputs, rows):
        of_critic(model, inputs, 1)
        for p in model.critic.parameters():
            p.grad.div_(rows)

    def vocoder_backward(model, inputs, rows):
        of_vocoder(model, inputs, 1)
        for p in model.vocoder.parameters():
            p.grad.div_(rows)

    vocoder.critic_backward, vocoder.vocoder_backward = critic_backward, vocoder_backward


@harmless("recomputed", "vocoder", group="whole step")
def periods_computed_again(vocoder):
    """What the critic finds in columns is computed again in the backward pass."""

    class OfPeriod(vocoder.OfPeriod):
        def forward(self, x):
            return checkpoint(super().forward, x, use_reentrant=False)

    vocoder.OfPeriod = OfPeriod

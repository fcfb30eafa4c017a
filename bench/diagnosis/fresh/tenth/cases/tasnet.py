"""Cases of the two speakers."""

import torch
from case import fault, harmless
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


@fault(
    "tasnet",
    line=[
        'gain = 10 ** (batch["decibels"] / 20)',
        'sources = batch["sources"] * gain[:, :, None]',
    ],
)
def gains_of_power(tasnet):
    """Decibels become a factor of power, by which the sounds are multiplied."""

    def mix(batch):
        gain = 10 ** (batch["decibels"] / 10)  # here
        sources = batch["sources"] * gain[:, :, None]
        return sources.sum(dim=1), sources

    tasnet.mix = mix


@fault("tasnet", line="return ratio(wanted, estimate - wanted)")
def loudness_is_noise(tasnet):
    """What differs from the source is noise, not what differs from the scaled source."""

    def si_snr(estimate, source, heard):
        estimate, source = tasnet.centred(estimate, heard), tasnet.centred(source, heard)
        along = (estimate * source).sum(dim=-1, keepdim=True)
        length = source.square().sum(dim=-1, keepdim=True) + tasnet.EPS
        return tasnet.ratio(along * source / length, estimate - source)  # here

    tasnet.si_snr = si_snr


@fault(
    "tasnet",
    # The product is missing; the spectra are the first that lack it.
    line=[
        "return model(mixture) * heard",
        "estimates = separate(model, mixture, heard)",
        "a, b = magnitudes(estimates, size), magnitudes(sources, size)",
    ],
)
def noise_behind_the_end(tasnet):
    """What the model says after the end of a recording is not silenced."""
    tasnet.separate = lambda model, mixture, heard: model(mixture)  # here


@fault(
    "tasnet",
    line=[
        "best, index = torch.stack(scores, dim=1).max(dim=1)",
        "order = torch.tensor(orders)[index]",
        "return sources.gather(1, order[:, :, None].expand_as(sources)), best",
    ],
)
def one_order_for_all(tasnet):
    """The order that is best on average is taken for all recordings."""
    permutations = tasnet.itertools.permutations

    def best_order(estimates, sources, heard):
        orders = [list(order) for order in permutations(range(tasnet.SPEAKERS))]
        scores = [tasnet.si_snr(estimates, sources[:, o], heard).mean(dim=1) for o in orders]
        index = int(torch.stack(scores, dim=1).mean(dim=0).argmax())  # here
        return sources[:, orders[index]], scores[index]  # here

    tasnet.best_order = best_order


@fault(
    "tasnet",
    api=r"Functional\.conv1d|Torch\.conv1d|Module\.separator\.blocks\.3\.depthwise\..*",
    module=r"separator\.blocks\.3(\.depthwise)?",
    line=[
        "return [2 ** (index % DILATIONS) for index in range(REPEATS * DILATIONS)]",
        "h = self.norm2(self.act2(self.depthwise(h)))",
    ],
)
def dilations_go_on(tasnet):
    """The second row of blocks does not begin again with neighbours."""
    count = tasnet.REPEATS * tasnet.DILATIONS
    tasnet.dilations = lambda: [2**index for index in range(count)]  # here


@fault(
    "tasnet",
    line=[
        "mean = x.mean(dim=(1, 2), keepdim=True)",
        "variance = (x - mean).pow(2).mean(dim=(1, 2), keepdim=True)",
    ],
)
def norm_of_each_time(tasnet):
    """The norm is over the channels of each time alone."""

    class GlobalNorm(tasnet.GlobalNorm):
        def forward(self, x):
            mean = x.mean(dim=1, keepdim=True)  # here
            variance = (x - mean).pow(2).mean(dim=1, keepdim=True)  # here
            return self.gain * (x - mean) / torch.sqrt(variance + tasnet.EPS) + self.bias

    tasnet.GlobalNorm = GlobalNorm


@fault(
    "tasnet",
    # The sum is missing; the activation is the first that lacks it.
    line=[
        "total = total + skip",
        "masks = torch.sigmoid(self.masks(self.act(total)))",
    ],
)
def last_block_alone(tasnet):
    """What the blocks say is not added up: the last one alone is heard."""

    class Separator(tasnet.Separator):
        def forward(self, coded):
            x = self.bottleneck(self.norm(coded))
            for block in self.blocks:
                x, total = block(x)  # here
            masks = torch.sigmoid(self.masks(self.act(total)))  # here
            return masks.unflatten(1, (tasnet.SPEAKERS, tasnet.FILTERS))

    tasnet.Separator = Separator


@fault(
    "tasnet",
    api=r"Torch\.(stft|hann_window|ones)|Tensor\.stft|Functional\.stft",
    line=[
        "window = torch.hann_window(size, dtype=x.dtype)",
        "spectrum = torch.stft(",
        "x.flatten(0, 1), size, hop_length=size // 4, window=window, return_complex=True",
    ],
)
def spectrum_without_a_window(tasnet):
    """The spectra have the default window, which is none."""

    def magnitudes(x, size):
        spectrum = torch.stft(  # here
            x.flatten(0, 1),
            size,
            hop_length=size // 4,
            window=torch.ones(size, dtype=x.dtype),  # here
            return_complex=True,
        )
        power = spectrum.real.square() + spectrum.imag.square()
        return torch.sqrt(power + tasnet.EPS).unflatten(0, x.shape[:2])

    tasnet.magnitudes = magnitudes


@fault("tasnet", api=r"Optimizer\.AdamW?\.step", update=True)
def decay_in_the_gradient(tasnet):
    """The optimizer is Adam, which adds the decay to the gradient."""

    def make_optimizer(parameters, **more):
        decay = tasnet.WEIGHT_DECAY
        return torch.optim.Adam(parameters, lr=tasnet.LR, weight_decay=decay, **more)

    tasnet.make_optimizer = make_optimizer


@harmless("fused", "tasnet")
def norms_of_one_group(tasnet):
    """The global norm is a group norm with one group."""

    class GlobalNorm(tasnet.GlobalNorm):
        def forward(self, x):
            return F.group_norm(x, 1, self.gain[:, 0], self.bias[:, 0], tasnet.EPS)

    tasnet.GlobalNorm = GlobalNorm


@harmless("loss", "tasnet")
def difference_of_logarithms(tasnet):
    """The logarithm of a ratio is the difference of two."""

    def ratio(wanted, noise):
        a, b = ((each * each).sum(dim=-1) + tasnet.EPS for each in (wanted, noise))
        return 10 * (a.log10() - b.log10())

    tasnet.ratio = ratio


@harmless("split", "tasnet")
def taps_one_by_one(tasnet):
    """A depthwise convolution is a sum of three shifted products."""

    class DepthwiseConv(tasnet.DepthwiseConv):
        def forward(self, x):
            step, count = self.dilation[0], x.shape[-1]
            wide, y = F.pad(x, (step, step)), self.bias[:, None]
            for tap in range(3):
                y = y + self.weight[:, :, tap] * wide[..., tap * step : tap * step + count]
            return y

    tasnet.DepthwiseConv = DepthwiseConv


@harmless("fused", "tasnet")
def encoder_by_unfold(tasnet):
    """The encoder is a product with overlapping pieces of the mixture."""

    class TasNet(tasnet.TasNet):
        def encode(self, mixture):
            pieces = mixture.unfold(1, tasnet.KERNEL, tasnet.HOP)
            return F.relu(pieces @ self.encoder.weight[:, 0].t()).transpose(1, 2)

    tasnet.TasNet = TasNet


@harmless("split", "tasnet")
def speakers_decoded_apart(tasnet):
    """One speaker is decoded after the other."""

    class TasNet(tasnet.TasNet):
        def decode(self, coded):
            return torch.cat([self.decoder(each) for each in coded.unbind(dim=1)], dim=1)

    tasnet.TasNet = TasNet


@harmless("micro batches", "tasnet", group="whole step")
def one_recording_at_a_time(tasnet):
    """Each recording goes backward on its own."""

    def train(model, batch):
        total = 0.0
        for row in range(tasnet.RECORDINGS):
            part = {name: value[row : row + 1] for name, value in batch.items()}
            loss = tasnet.losses(model, part).sum() / tasnet.RECORDINGS
            loss.backward()
            total += loss.item()
        return total

    tasnet.train = train


@harmless("rows", "tasnet", group="whole step")
def recordings_in_another_order(tasnet):
    """The recordings are in another order."""
    train = tasnet.train

    def shuffled(model, batch):
        return train(model, {name: value[[2, 3, 1, 0]] for name, value in batch.items()})

    tasnet.train = shuffled


@harmless("rows", "tasnet", group="whole step")
def second_speaker_first(tasnet):
    """The speakers of a recording change places; their order does not matter."""
    mix = tasnet.mix

    def exchanged(batch):
        names = ("sources", "decibels")
        return mix(batch | {name: batch[name].flip(1) for name in names})

    tasnet.mix = exchanged


@harmless("recomputed", "tasnet", group="whole step")
def blocks_computed_again(tasnet):
    """The blocks are computed again in the backward pass."""

    class Again(tasnet.TemporalBlock):
        def forward(self, x):
            return checkpoint(super().forward, x, use_reentrant=False)

    tasnet.TemporalBlock = Again


@harmless("scaled", "tasnet", group="whole step")
def divided_before_clipping(tasnet):
    """The loss is a sum over recordings; its gradients are divided before they are clipped."""
    clip = tasnet.clip

    def train(model, batch):
        loss = tasnet.losses(model, batch).sum()
        loss.backward()
        return loss.item() / tasnet.RECORDINGS

    def divided(model):
        for p in model.parameters():
            if p.grad is not None:
                p.grad.div_(tasnet.RECORDINGS)
        clip(model)

    tasnet.train, tasnet.clip = train, divided

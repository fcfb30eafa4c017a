"""Cases of the pictures in few bits."""

import torch
from case import fault, harmless
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


@fault(
    "codec",
    line="return x * energy.sqrt() if self.inverse else x * energy.rsqrt()",
    api=r"(Tensor|Torch)\.r?sqrt",
    module=r"synthesis\.norm",
    module_only=r"synthesis\.norm",
)
def decoder_divides_too(codec):
    """The decoder divides by the energy, as the encoder does, and does not multiply."""

    class Divisive(codec.Divisive):
        def forward(self, x):
            return x * self.energy(x).rsqrt()  # here

    codec.Divisive = Divisive


@fault(
    "codec",
    # The forward pass is the same; gradients differ where a value is below its bound.
    line=[
        "return Bounded.apply(x, bound)",
        "return mean, bounded(scale, SCALE_MIN)",
        "return bounded(upper - lower, CHANCE_MIN)",
        "back, bounded(chances, CHANCE_MIN)",
        "passes = (x >= ctx.bound) | (gradient < 0)",
    ],
    api=r"Tensor\.clamp|Torch\.clamp",
    module_only=r"|hyper_synthesis",
)
def nothing_leads_up_again(codec):
    """What is below a bound has no gradient, and stays there."""

    def bounded(x, bound):
        return x.clamp(min=bound)  # here

    codec.bounded = bounded


@fault(
    "codec",
    # A call is missing: the convolution is the first that lacks it.
    line="return self.last(F.leaky_relu(self.first(y.abs())))",
    api=r"Functional\.conv2d|Torch\.conv2d|Module\.hyper_analysis\.first\..*",
    module=r"hyper_analysis(\.first)?",
    module_only=r"hyper_analysis(\.first)?",
)
def hyper_codes_of_signs(codec):
    """The second encoder sees the codes, not how large they are."""

    class HyperAnalysis(codec.HyperAnalysis):
        def forward(self, y):
            return self.last(F.leaky_relu(self.first(y)))  # here

    codec.HyperAnalysis = HyperAnalysis


@fault(
    "codec",
    # Means are not taken away: what rounds is the first that lacks it.
    line=[
        "return self.synthesis(rounded(y - mean) + mean), chances_y, chances_z",
        "return x + (x.round() - x).detach()",
    ],
)
def rounded_without_means(codec):
    """Codes are rounded to whole numbers, not to whole distances from their means."""

    class Codec(codec.Codec):
        def forward(self, x, noise_y, noise_z):
            y = self.analysis(x)
            z, chances_z = self.density(self.hyper_analysis(y), noise_z)
            mean, scale = self.hyper_synthesis(z)
            chances_y = codec.chances_of(y + noise_y, mean, scale)
            return self.synthesis(codec.rounded(y)), chances_y, chances_z  # here

    codec.Codec = Codec


@fault(
    "codec",
    line="return -chances.log2().sum()",
    api=r"(Tensor|Torch)\.log",
)
def bits_are_nats(codec):
    """The logarithm is the natural one."""

    def bits(chances):
        return -chances.log().sum()  # here

    codec.bits = bits


@fault(
    "codec",
    line="rate = (bits(chances_y) + bits(chances_z)) / pixels",
)
def bits_for_pixels_of_padding(codec):
    """Bits are divided by all pixels, also by those of padding; errors are not."""

    def loss_of(model, inputs, pixels):
        noise = codec.centred(inputs["noise_y"]), codec.centred(inputs["noise_z"])
        made, chances_y, chances_z = model(inputs["pictures"], *noise)
        rate = (codec.bits(chances_y) + codec.bits(chances_z)) / inputs["real"].numel()  # here
        return rate + codec.LAMBDA * codec.distortion(made, inputs) / pixels

    codec.loss_of = loss_of


@fault(
    "codec",
    # A difference is missing: the sums of codes and noise are the first that lack it.
    line=[
        "return noise - 0.5",
        "chances = self.chances(columns + spread)",
        "chances_y = chances_of(y + noise_y, mean, scale)",
        'noise = centred(inputs["noise_y"]), centred(inputs["noise_z"])',
    ],
    module_only="density",
)
def noise_from_zero_to_one(codec):
    """The noise is not centred: all codes seem to be larger by a half."""
    codec.centred = lambda noise: noise  # here


@fault(
    "codec",
    # The forward pass is the same; what is not detached has a gradient more.
    line=[
        "return (self.logits(self.quantiles, learn=False) - wanted).abs().sum()",
        "matrix, bias = (matrix, bias) if learn else (matrix.detach(), bias.detach())",
        "x = F.softplus(matrix) @ x + bias",
        "factor = self.factors[k] if learn else self.factors[k].detach()",
        "x = x + factor.tanh() * x.tanh()",
        "model.density.misplaced().backward()",
    ],
    api=r"Tensor\.detach",
    module_only=r"|density",
)
def tails_move_the_density(codec):
    """The density learns from the loss of the quantiles, too."""

    class Density(codec.Density):
        def misplaced(self):
            tail = torch.logit(torch.tensor(codec.TAIL / 2))
            wanted = torch.stack([tail, torch.zeros_like(tail), -tail])
            return (self.logits(self.quantiles) - wanted).abs().sum()  # here

    codec.Density = Density


@fault("codec", line="nn.utils.clip_grad_norm_(main_parameters(model), MAX_NORM)")
def clipped_with_the_quantiles(codec):
    """The gradients of the quantiles count in the norm by which all are clipped."""

    def clip(model):
        nn.utils.clip_grad_norm_(model.parameters(), codec.MAX_NORM)  # here

    codec.clip = clip


@fault("codec", api=r"Optimizer\.Adam\.step", update=True)
def cycle_begins_early(codec):
    """The schedule moves on before the step of the optimizer: the first rate is left out."""

    def step(model, optimizer, batch):
        optimizer.zero_grad()
        model.aux.zero_grad()
        codec.backward(model, batch)
        codec.backward_aux(model)
        codec.clip(model)
        model.schedule.step()
        optimizer.step()
        model.aux.step()

    codec.step = step


@harmless("fused", "codec")
def energy_by_einsum(codec):
    """The energy is a sum of products, not a convolution of single pixels."""

    class Divisive(codec.Divisive):
        def energy(self, x):
            least = (codec.BETA_MIN + codec.PEDESTAL) ** 0.5
            beta = codec.bounded(self.beta, least).square() - codec.PEDESTAL
            gamma = codec.bounded(self.gamma, codec.PEDESTAL**0.5).square() - codec.PEDESTAL
            return torch.einsum("oi,nihw->nohw", gamma, x.square()) + beta.view(-1, 1, 1)

    codec.Divisive = Divisive


@harmless("fused", "codec")
def normal_by_erfc(codec):
    """The normal distribution is half of a complementary error function."""

    def chances_of(y, mean, scale):
        away = (y - mean).abs()
        upper, lower = (-(each - away) / (scale * 2**0.5) for each in (0.5, -0.5))
        chances = 0.5 * (torch.erfc(upper) - torch.erfc(lower))
        return codec.bounded(chances, codec.CHANCE_MIN)

    codec.chances_of = chances_of


@harmless("zero in theory", "codec")
def sigmoids_on_one_side(codec):
    """The difference of sigmoids is taken on the same side for all codes."""

    class Density(codec.Density):
        def chances(self, x):
            return self.logits(x + 0.5).sigmoid() - self.logits(x - 0.5).sigmoid()

    codec.Density = Density


@harmless("loss", "codec")
def errors_of_real_pixels(codec):
    """The pixels that are there are selected before they are compared."""

    def distortion(made, inputs):
        real = inputs["real"]
        made, wanted = (x.movedim(1, 3)[real] for x in (made, inputs["pictures"]))
        return codec.RANGE**2 * F.mse_loss(made, wanted, reduction="sum") / made.shape[1]

    codec.distortion = distortion


@harmless("loss", "codec")
def bits_from_nats(codec):
    """Bits are natural logarithms, divided when they have been added."""

    def bits(chances):
        nats = chances.log().sum()
        return nats / -torch.log(nats.new_tensor(2.0))

    codec.bits = bits


@harmless("split", "codec")
def means_and_scales_apart(codec):
    """Means and scales are two convolutions."""

    class HyperSynthesis(codec.HyperSynthesis):
        def forward(self, z):
            x = F.leaky_relu(self.first(z))
            halves = zip(self.last.weight.chunk(2), self.last.bias.chunk(2), strict=True)
            mean, scale = (F.conv2d(x, w, b, padding=1) for w, b in halves)
            return mean, codec.bounded(scale, codec.SCALE_MIN)

    codec.HyperSynthesis = HyperSynthesis


@harmless("rows", "codec", group="whole step")
def pictures_in_another_order(codec):
    """The pictures are in another order, each with its noise."""
    backward = codec.backward

    def shuffled(model, inputs):
        backward(model, {name: value[[2, 3, 0, 1]] for name, value in inputs.items()})

    codec.backward = shuffled


@harmless("micro batches", "codec", group="whole step")
def one_picture_at_a_time(codec):
    """Each picture goes backward alone; all are divided by the pixels of all."""

    def backward(model, inputs):
        pixels = inputs["real"].sum()
        for k in range(len(inputs["real"])):
            part = {name: value[k : k + 1] for name, value in inputs.items()}
            codec.loss_of(model, part, pixels).backward()

    codec.backward = backward


@harmless("scaled", "codec", group="whole step")
def loss_is_scaled(codec):
    """The loss is scaled, and gradients are unscaled before they are clipped."""
    loss_of, clip = codec.loss_of, codec.clip
    codec.loss_of = lambda *given: 256.0 * loss_of(*given)

    def unscaled(model):
        for p in codec.main_parameters(model):
            p.grad.mul_(1 / 256.0)
        clip(model)

    codec.clip = unscaled


@harmless("recomputed", "codec", group="whole step")
def decoder_computed_again(codec):
    """The decoder is computed again in the backward pass."""

    class Synthesis(codec.Synthesis):
        def forward(self, y):
            return checkpoint(super().forward, y, use_reentrant=False)

    codec.Synthesis = Synthesis

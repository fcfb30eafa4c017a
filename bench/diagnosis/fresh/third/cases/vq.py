"""Cases of the VQ autoencoder."""

import torch
from case import fault, harmless
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

BOOK = "codebook"
NEXT = ["found = self.look_up(choice)", "return self.codes[choice]"]
FAR = "return rows.square().sum(1, keepdim=True) - 2 * crossed + self.codes.square().sum(1)"


@fault("vq", module="", line="return z + (found - z).detach()")
def nothing_goes_through(vq):
    """The codes go to the decoder without the gradient of what they stand for. The numbers are
    the same; the first that is missing is the gradient that goes back to the encoder."""
    vq.straight_through = lambda z, found: z.detach() + (found - z).detach()  # here


@fault("vq", line=["return F.mse_loss(z, found.detach())"])
def commitment_of_the_codes(vq):
    """The wrong side is detached: the commitment has no gradient."""
    vq.commitment_of = lambda z, found: F.mse_loss(z.detach(), found)  # here


@fault("vq", line=["return F.mse_loss(z, found.detach())"])
def commitment_summed(vq):
    """The commitment is a sum over the numbers of a vector, not their mean."""

    def commitment_of(z, found):
        return (z - found.detach()).square().sum(dim=1).mean()  # here

    vq.commitment_of = commitment_of


@fault("vq", module=BOOK, line=[FAR, "return self.distances(rows).argmin(dim=1)"])
def length_of_codes_left_out(vq):
    """The distance lacks the square of the codes: long ones are preferred."""

    class Codebook(vq.Codebook):
        def distances(self, rows):
            crossed = rows @ self.codes.T
            return rows.square().sum(1, keepdim=True) - 2 * crossed  # here

    vq.Codebook = Codebook


@fault(
    "vq",
    module=BOOK,
    line=[
        "self.counts.mul_(DECAY).add_(chosen.sum(dim=0), alpha=1 - DECAY)",
        "self.sums.mul_(DECAY).add_(chosen.T @ rows, alpha=1 - DECAY)",
    ],
)
def averages_the_wrong_way(vq):
    """The averages keep what they should take over."""

    class Codebook(vq.Codebook):
        @torch.no_grad()
        def follow(self, rows, choice):
            chosen = F.one_hot(choice, vq.CODES).to(rows.dtype)
            self.counts.mul_(1 - vq.DECAY).add_(chosen.sum(dim=0), alpha=vq.DECAY)  # here
            self.sums.mul_(1 - vq.DECAY).add_(chosen.T @ rows, alpha=vq.DECAY)  # here
            self.codes.copy_(self.sums / self.smoothed()[:, None])

    vq.Codebook = Codebook


@fault(
    "vq",
    line=[
        "self.counts.mul_(DECAY).add_(chosen.sum(dim=0), alpha=1 - DECAY)",
        "self.sums.mul_(DECAY).add_(chosen.T @ rows, alpha=1 - DECAY)",
        "self.sums[dead] = rows[far]",
        "self.counts[dead] = 1.0",
    ],
)
def sums_of_dead_codes_stay(vq):
    """A revived code keeps the sum and the count of the dead one; it goes back at the next step."""

    class Codebook(vq.Codebook):
        @torch.no_grad()
        def revive(self, rows):
            dead = torch.nonzero(self.counts < vq.DEAD).squeeze(1)
            far = self.distances(rows).min(dim=1).values.topk(len(dead)).indices
            self.codes[dead] = rows[far]  # here

    vq.Codebook = Codebook


@fault("vq", module=BOOK, line=["rows = z.transpose(1, 2).reshape(-1, SIZE)"])
def vectors_across_times(vq):
    """The vectors are cut out of the channels first: a vector has several times of one channel."""

    class Codebook(vq.Codebook):
        def forward(self, z):
            rows = z.reshape(-1, vq.SIZE)  # here
            with torch.no_grad():
                choice = self.choose(rows)
                found = self.look_up(choice)
            return found.view_as(z), rows.detach(), choice

    vq.Codebook = Codebook


@fault(
    "vq",
    line=[
        "self.sums.mul_(DECAY).add_(chosen.T @ rows, alpha=1 - DECAY)",
        "model.codebook.follow(rows, choice)",
    ],
)
def codes_follow_themselves(vq):
    """The codes follow what was looked up, not what chose it."""

    class Codebook(vq.Codebook):
        def follow(self, rows, choice):
            super().follow(self.codes[choice], choice)  # here

    vq.Codebook = Codebook


@fault("vq", api=r"Functional\.group_norm", module=r"encoder\.norm")
def one_group(vq):
    """The norm of the encoder has one group for two."""

    class Encoder(vq.Encoder):
        def __init__(self):
            super().__init__()
            self.norm = torch.nn.GroupNorm(1, vq.WIDTH)

    vq.Encoder = Encoder


@fault("vq", line=["sides = (torch.fft.rfft(each, dim=-1).abs()"])
def spectrum_of_the_channels(vq):
    """The spectrum is that along the channels."""

    def spectrum_loss(made, x):
        sides = (torch.fft.rfft(each, dim=1).abs() for each in (made, x))  # here
        ours, wanted = (torch.log(each + 1e-2) for each in sides)
        return (ours - wanted).abs().mean()

    vq.spectrum_loss = spectrum_loss


@harmless("fused", "vq")
def distances_of_pytorch(vq):
    """cdist gives the distances; a product with one-hot rows looks the codes up."""

    class Codebook(vq.Codebook):
        def distances(self, rows):
            return torch.cdist(rows, self.codes).square()

        def look_up(self, choice):
            return F.one_hot(choice, vq.CODES).to(self.codes.dtype) @ self.codes

    vq.Codebook = Codebook


@harmless("fused", "vq")
def averages_by_index_add(vq):
    """The averages are lerped towards sums that index_add makes."""

    class Codebook(vq.Codebook):
        @torch.no_grad()
        def follow(self, rows, choice):
            counts = torch.bincount(choice, minlength=vq.CODES).to(rows.dtype)
            sums = torch.zeros_like(self.sums).index_add_(0, choice, rows)
            self.counts.lerp_(counts, 1 - vq.DECAY)
            self.sums.lerp_(sums, 1 - vq.DECAY)
            share = self.counts.add(vq.SMOOTH)
            share = share * (self.counts.sum() / share.sum())
            torch.div(self.sums, share.unsqueeze(1), out=self.codes)

    vq.Codebook = Codebook


@harmless("split", "vq")
def convolution_as_a_product(vq):
    """The first convolution is a product with unfolded signals; the norm is written out."""

    class Encoder(vq.Encoder):
        def forward(self, x):
            rows = F.pad(x, (1, 1)).unfold(2, 4, 2)
            h = torch.einsum("bcti,wci->bwt", rows, self.enter.weight)
            h = (h + self.enter.bias[:, None]).reshape(len(x), 2, -1)
            h = (h - h.mean(dim=2, keepdim=True)) * torch.rsqrt(
                h.var(dim=2, keepdim=True, correction=0) + self.norm.eps
            )
            h = h.reshape(len(x), vq.WIDTH, -1)
            h = F.silu(h * self.norm.weight[:, None] + self.norm.bias[:, None])
            return self.leave(F.silu(h + self.inside(h)))

    vq.Encoder = Encoder


@harmless("loss", "vq")
def losses_decomposed(vq):
    """The losses are written out; the spectra are sums of cosines and sines."""

    def spectrum_loss(made, x):
        times = torch.arange(x.shape[-1])
        angles = 2 * torch.pi / x.shape[-1] * torch.outer(times, times[: x.shape[-1] // 2 + 1])
        angles = angles.to(x.dtype)

        def size(signal):
            real, other = signal @ angles.cos(), signal @ angles.sin()
            return torch.log(torch.sqrt(real * real + other * other + 1e-30) + 1e-2)

        return F.l1_loss(size(made), size(x))

    def losses_of(made, x, z, found):
        apart = (made - x).abs()
        small = torch.where(apart < 1, 0.5 * apart * apart, apart - 0.5).mean()
        rebuilt = torch.add(small, vq.spectrum_loss(made, x), alpha=vq.SPECTRUM)
        return rebuilt, vq.commitment_of(z, found) * vq.COMMITMENT

    vq.spectrum_loss, vq.losses_of = spectrum_loss, losses_of


@harmless("rows", "vq", group="whole step")
def signals_turned(vq):
    """The signals stand in the other order."""
    step = vq.step
    vq.step = lambda model, optimizer, batch: step(model, optimizer, batch.flip(0))


@harmless("micro batches", "vq", group="whole step")
def two_parts(vq):
    """Micro-batches of three signals and of two; the codes follow behind both."""

    def backward(model, x):
        seen = []
        for part in x.split([3, 2]):
            made, z, found, rows, choice = model(part)
            (sum(vq.losses_of(made, part, z, found)) * (len(part) / len(x))).backward()
            seen.append((rows, choice))
        return tuple(torch.cat(each) for each in zip(*seen, strict=True))

    vq.backward = backward


@harmless("recomputed", "vq", group="whole step")
def decoder_computed_again(vq):
    """The decoder is computed again in the backward pass."""

    class Decoder(vq.Decoder):
        def __call__(self, z):
            return checkpoint(super().__call__, z, use_reentrant=False)

    vq.Decoder = Decoder


@harmless("scaled", "vq", group="whole step")
def commitment_backward_apart(vq):
    """The commitment goes backward first, then the rest; both are 16 times as large."""

    def backward(model, x):
        made, z, found, rows, choice = model(x)
        rebuilt, committed = vq.losses_of(made, x, z, found)
        (16 * committed).backward(retain_graph=True)
        (16 * rebuilt).backward()
        for weight in model.parameters():
            weight.grad.mul_(1 / 16)
        return rows, choice

    vq.backward = backward

"""Cases of the filter of states."""

import torch
from case import fault, harmless
from torch.utils.checkpoint import checkpoint


@fault(
    "kalman",
    line=[
        "left = rest @ cov @ rest.transpose(-2, -1)",
        "return left + k @ torch.diag_embed(noise) @ k.transpose(-2, -1)",
    ],
)
def noise_of_frames_left_out(kalman):
    """The corrected covariance lacks the noise of the frame: the filter is too sure."""

    def corrected(model, cov, k, noise):
        rest = torch.eye(kalman.STATE) - k @ model.look
        return rest @ cov @ rest.transpose(-2, -1)  # here

    kalman.corrected = corrected


@fault(
    "kalman",
    api=r"Tensor\.(exp|__r?mul__|mul)|Torch\.(diag_embed|exp)",
    module=r"motion",
    line="return torch.diag_embed((2 * self.log_deviation).exp())",
)
def deviation_as_variance(kalman):
    """The noise of the motion is its deviation, not its square."""

    class Motion(kalman.Motion):
        def noise(self):
            return torch.diag_embed(self.log_deviation.exp())  # here

    kalman.Motion = Motion


@fault(
    "kalman",
    api=r"Tensor\.(__matmul__|matmul|t|__add__)|Torch\.(matmul|bmm)",
    module=r"motion",
    line=["return a @ cov @ a.t() + self.noise()", "a = self.matrix()"],
)
def spread_by_the_transposed(kalman):
    """The transposed matrix stands before the covariance."""

    class Motion(kalman.Motion):
        def spread(self, cov):
            a = self.matrix()
            return a.t() @ cov @ a + self.noise()  # here

    kalman.Motion = Motion


@fault(
    "kalman",
    line=[
        "mean = torch.where(is_new[:, None], model.first_mean, model.mean)",
        "cov = torch.where(is_new[:, None, None], torch.eye(STATE), model.cov)",
        '*sums, state = losses(model, data, begin(model, data["is_new"]))',
    ],
)
def new_streams_begin_old(kalman):
    """The covariance of a new stream is what another stream has left."""

    def begin(model, is_new):
        mean = torch.where(is_new[:, None], model.first_mean, model.mean)
        return mean, model.cov.clone()  # here

    kalman.begin = begin


@fault(
    "kalman",
    line=[
        "back = look_back(model.motion, known[t][1], expected[t + 1][1])",
        "return torch.linalg.solve(expected_cov, motion.matrix() @ cov).transpose(-2, -1)",
    ],
)
def expected_one_frame_early(kalman):
    """On the way back, the covariance that was expected is that of the frame itself."""

    def smoothed(model, expected, known):
        mean = known[-1][0]
        means = [mean]
        for t in range(len(known) - 2, -1, -1):
            back = kalman.look_back(model.motion, known[t][1], expected[t][1])  # here
            mean = known[t][0] + (back @ (mean - expected[t + 1][0])[:, :, None]).squeeze(2)
            means.insert(0, mean)
        return torch.stack(means, dim=1)

    kalman.smoothed = smoothed


@fault(
    "kalman",
    line=[
        "log_det = 2 * root.diagonal(dim1=-2, dim2=-1).log().sum(dim=-1)",
        "return 0.5 * (white.square().sum(dim=-1) + log_det + SEEN * math.log(2 * math.pi))",
    ],
)
def determinant_of_the_root(kalman):
    """The logarithm of the determinant is that of the root: a factor of two is missing."""

    def surprise_loss(residual, total):
        root = torch.linalg.cholesky(total)
        white = torch.linalg.solve_triangular(root, residual[:, :, None], upper=False).squeeze(2)
        log_det = root.diagonal(dim1=-2, dim2=-1).log().sum(dim=-1)  # here
        constant = kalman.SEEN * kalman.math.log(2 * kalman.math.pi)
        return 0.5 * (white.square().sum(dim=-1) + log_det + constant)  # here

    kalman.surprise_loss = surprise_loss


@fault(
    "kalman",
    # The second window: what is kept is first read where it begins.
    line=[
        "model.mean.copy_(state[0].detach())",
        "model.cov.copy_(state[1].detach())",
        "    keep(model, state)",
        "mean = torch.where(is_new[:, None], model.first_mean, model.mean)",
        "return surprises.sum(), drawn, known[-1]",
    ],
)
def kept_before_the_last_frame(kalman):
    """The state that is kept is what was expected at the last frame, not what was known there."""

    def losses(model, data, state):
        surprises, expected, known = kalman.filtered(model, data, state)
        means = kalman.smoothed(model, expected, known)
        drawn = kalman.drawn_loss(model, means, data["frames"])
        return surprises.sum(), drawn, expected[-1]  # here

    kalman.losses = losses


@fault(
    "kalman",
    line=[
        'return data["seen"].sum(), data["frames"].numel()',
        "return surprise_sum / seen + DRAWN_WEIGHT * drawn_sum / pixels",
    ],
)
def divided_by_all_frames(kalman):
    """The sum over the frames that are seen is divided by all frames."""

    def counts(data):
        return data["seen"].numel(), data["frames"].numel()  # here

    kalman.counts = counts


@harmless("fused", "kalman")
def gain_by_the_inverse(kalman):
    """The gain is a product with the inverse."""

    def gain(model, cov, total):
        return cov @ model.look.t() @ torch.linalg.inv(total)

    kalman.gain = gain


@harmless("split", "kalman")
def covariance_in_the_short_form(kalman):
    """The corrected covariance is the shorter form, which is the same for the best gain."""

    def corrected(model, cov, k, noise):
        return cov - k @ (model.look @ cov)

    kalman.corrected = corrected


@harmless("loss", "kalman")
def surprise_of_a_distribution(kalman):
    """The loss is that of a normal distribution of the library."""

    def surprise_loss(residual, total):
        zero = torch.zeros_like(residual)
        normal = torch.distributions.MultivariateNormal(zero, total, validate_args=False)
        return -normal.log_prob(residual)

    kalman.surprise_loss = surprise_loss


@harmless("time steps", "kalman")
def frames_encoded_one_by_one(kalman):
    """The encoder looks at frame after frame."""

    def encoded(model, frames):
        places, noises = zip(*(model.encoder(frame) for frame in frames.unbind(1)), strict=True)
        return torch.stack(places, dim=1), torch.stack(noises, dim=1)

    kalman.encoded = encoded


def _part(data, chosen):
    return {name: value[chosen] for name, value in data.items()}


@harmless("micro batches", "kalman", group="whole step")
def two_streams_and_four(kalman):
    """Two streams go backward, then the other four."""

    def backward(model, data):
        states = []
        for chosen in (slice(0, 2), slice(2, None)):
            part = _part(data, chosen)
            begun = kalman.begin(_Kept(model, chosen), part["is_new"])
            *sums, state = kalman.losses(model, part, begun)
            kalman.total_loss(*sums, *kalman.counts(data)).backward()
            states.append([each.detach() for each in state])
        kalman.keep(model, [torch.cat(each) for each in zip(*states, strict=True)])

    kalman.backward = backward


class _Kept:
    """The states of some of the streams."""

    def __init__(self, model, chosen):
        self.first_mean = model.first_mean
        self.mean, self.cov = model.mean[chosen], model.cov[chosen]


@harmless("rows", "kalman", group="whole step")
def streams_turned(kalman):
    """The last stream is computed first; their states return to their places."""

    def backward(model, data):
        turned = torch.arange(kalman.STREAMS - 1, -1, -1)
        part = _part(data, turned)
        *sums, state = kalman.losses(
            model, part, kalman.begin(_Kept(model, turned), part["is_new"])
        )
        kalman.total_loss(*sums, *kalman.counts(part)).backward()
        kalman.keep(model, [each.flip(0) for each in state])

    kalman.backward = backward


@harmless("scaled", "kalman", group="whole step")
def loss_times_a_power_of_two(kalman):
    """The loss is scaled, as for float16; gradients are unscaled before they are clipped."""
    total_loss, clip = kalman.total_loss, kalman.clip
    kalman.total_loss = lambda *sums: total_loss(*sums) * 256.0

    def unscaled(model):
        torch._foreach_div_([p.grad for p in model.parameters()], 256.0)
        clip(model)

    kalman.clip = unscaled


@harmless("recomputed", "kalman", group="whole step")
def encoder_and_pictures_computed_again(kalman):
    """The nets beside the filter are computed again in the backward pass."""

    class Filter(kalman.Filter):
        def __init__(self):
            super().__init__()
            for net in (self.encoder, self.draw):
                right = net.forward

                def again(x, right=right):
                    return checkpoint(right, x, use_reentrant=False)

                net.forward = again

    kalman.Filter = Filter

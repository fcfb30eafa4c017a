"""Cases of the GAN."""

import torch
from case import fault, harmless


@fault("wgan", line=["norm = gradient.flatten(1).norm(2, dim=1)"])
def norm_of_the_batch(wgan):
    """The penalty takes one norm of all gradients of the batch."""

    def gradient_penalty(critic, real, fake, kinds, share):
        between = wgan.mixed(real, fake, share)
        score = critic(between, kinds)
        (gradient,) = torch.autograd.grad(score.sum(), between, create_graph=True)
        return (gradient.norm(2) - 1).square()  # here

    wgan.gradient_penalty = gradient_penalty


@fault(
    "wgan",
    line=[
        "(gradient,) = torch.autograd.grad(score.sum()",
        "norm = gradient.flatten(1).norm(2, dim=1)",
        "loss = loss + PENALTY * gradient_penalty",
    ],
)
def penalty_without_graph(wgan):
    """The gradient of the penalty has no graph: its value is right, and it trains nothing."""

    def gradient_penalty(critic, real, fake, kinds, share):
        between = wgan.mixed(real, fake, share)
        score = critic(between, kinds)
        (gradient,) = torch.autograd.grad(score.sum(), between, retain_graph=True)  # here
        norm = gradient.flatten(1).norm(2, dim=1)  # here
        return (norm - 1).square().mean()

    wgan.gradient_penalty = gradient_penalty


@fault(
    "wgan", line=["share = share.view(-1, 1, 1, 1)", "return (share * real + (1 - share) * fake)"]
)
def share_along_the_width(wgan):
    """The shares of the pictures are broadcast along the columns."""
    wgan.mixed = lambda real, fake, share: (
        (
            share.repeat(2) * real + (1 - share.repeat(2)) * fake  # here
        ).requires_grad_(True)
    )


@fault(
    "wgan",
    line=[
        "(gradient,) = torch.autograd.grad(score.sum()",
        "norm = gradient.flatten(1).norm(2, dim=1)",
    ],
)
def penalty_of_the_mean(wgan):
    """The gradient is that of the mean score: a batch of four makes it a quarter."""

    def gradient_penalty(critic, real, fake, kinds, share):
        between = wgan.mixed(real, fake, share)
        score = critic(between, kinds)
        (gradient,) = torch.autograd.grad(score.mean(), between, create_graph=True)  # here
        norm = gradient.flatten(1).norm(2, dim=1)  # here
        return (norm - 1).square().mean()

    wgan.gradient_penalty = gradient_penalty


@fault("wgan", line=["return loss + DRIFT * good.square().mean()"])
def drift_of_the_mean(wgan):
    """The drift is the square of the mean score."""

    def critic_loss(model, real, fake, kinds, share):
        good, bad = model.critic(real, kinds), model.critic(fake, kinds)
        loss = bad.mean() - good.mean()
        penalty = wgan.gradient_penalty(model.critic, real, fake, kinds, share)
        loss = loss + wgan.PENALTY * penalty
        return loss + wgan.DRIFT * good.mean().square()  # here

    wgan.critic_loss = critic_loss


@fault("wgan", module="critic", line=["deviation = (x.var(0, unbiased=False)"])
def unbiased_deviation(wgan):
    """The deviation over the batch is divided by one less than the batch."""

    def minibatch_deviation(x):
        deviation = (x.var(0) + 1e-8).sqrt().mean()  # here
        return torch.cat([x, deviation.expand(len(x), 1, *x.shape[2:])], dim=1)

    wgan.minibatch_deviation = minibatch_deviation


@fault(
    "wgan",
    line=["fake = model.generator(z, kinds)"],
    module=r"generator.norm1.norm",
    api="Functional.batch_norm",
)
def generator_in_eval_mode_for_the_critic(wgan):
    """The critic sees pictures of a generator in eval mode."""
    train_critic = wgan.train_critic

    def changed(model, real, kinds, z, share):
        model.generator.eval()
        train_critic(model, real, kinds, z, share)
        model.generator.train()

    wgan.train_critic = changed


@fault("wgan", module="generator.norm1", line=["return (1 + gamma) * self.norm(x) + beta"])
def modulation_of_other_kinds(wgan):
    """The first norm's scale is of the neighbour's kind."""

    class ModulatedNorm(wgan.ModulatedNorm):
        def forward(self, x, kinds):
            if x.shape[1] != 16:
                return super().forward(x, kinds)
            gamma, beta = self.embed(kinds)[..., None, None].chunk(2, dim=1)
            return (1 + gamma.roll(1, 0)) * self.norm(x) + beta  # here

    wgan.ModulatedNorm = ModulatedNorm


@harmless("fused", "wgan")
def penalty_with_ones(wgan):
    """grad_outputs of ones, and the norm as a root of squares."""

    def gradient_penalty(critic, real, fake, kinds, share):
        between = wgan.mixed(real, fake, share)
        score = critic(between, kinds)
        gradient = torch.autograd.grad(
            outputs=score,
            inputs=between,
            grad_outputs=torch.ones_like(score),
            create_graph=True,
            retain_graph=True,
            only_inputs=True,
        )[0]
        norm = gradient.square().sum(dim=(1, 2, 3)).sqrt()
        return ((norm - 1) ** 2).mean()

    wgan.gradient_penalty = gradient_penalty


@harmless("loss", "wgan")
def critic_losses_apart(wgan):
    """Scores, penalty and drift go backward one after the other."""

    def train_critic(model, real, kinds, z, share):
        with torch.no_grad():
            fake = model.generator(z, kinds)
        model.critic_optimizer.zero_grad()
        model.critic(fake, kinds).mean().backward()
        good = model.critic(real, kinds)
        (wgan.DRIFT * good.pow(2).mean() - good.mean()).backward()
        penalty = wgan.gradient_penalty(model.critic, real, fake, kinds, share)
        (wgan.PENALTY * penalty).backward()
        model.critic_optimizer.step()

    wgan.train_critic = train_critic


@harmless("inserted", "wgan")
def fake_detached(wgan):
    """The generator runs with a graph, and its pictures are detached."""

    def train_critic(model, real, kinds, z, share):
        fake = model.generator(z, kinds).detach()
        model.critic_optimizer.zero_grad()
        wgan.critic_loss(model, real, fake, kinds, share).backward()
        model.critic_optimizer.step()

    wgan.train_critic = train_critic


@harmless("fused", "wgan")
def modulation_by_batch_norm(wgan):
    """Scale and shift by addcmul, the normalised value by its own mean and variance."""

    class ModulatedNorm(wgan.ModulatedNorm):
        def forward(self, x, kinds):
            gamma, beta = self.embed(kinds)[..., None, None].chunk(2, dim=1)
            y = self.norm(x)
            return torch.addcmul(y + beta, gamma, y)

    wgan.ModulatedNorm = ModulatedNorm


@harmless("rows", "wgan", group="whole step")
def pictures_turned(wgan):
    """The pictures and the noises of each round are in another order."""
    step = wgan.step
    turn = torch.tensor([2, 0, 3, 1])

    def changed(model, optimizer, batch):
        rounds, kinds, z = batch
        rounds = [tuple(each[turn] for each in one) for one in rounds]
        step(model, optimizer, (rounds, kinds[turn], z[turn]))

    wgan.step = changed

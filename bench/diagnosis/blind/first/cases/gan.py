"""Cases of the generator and the critic."""

import torch
from case import fault, harmless
from torch.nn import functional as F


def one_batch_for_the_critic(gan):
    """Real and fake pictures go through the critic together."""

    def train_critic(model, optimizer, real, noise, classes):
        optimizer.critic.zero_grad()
        fake = model.generator(noise, classes).detach()
        scores = model.critic(torch.cat([fake, real]), torch.cat([classes, classes]))
        value = gan.critic_loss(scores[len(fake) :], scores[: len(fake)])
        (value + gan.PENALTY * gan.penalty(model.critic, real, classes)).backward()
        optimizer.critic.step()

    gan.train_critic = train_critic


def losses_go_backward_apart(gan):
    """The parts of the critic's loss go backward one after the other, in another order."""

    def train_critic(model, optimizer, real, noise, classes):
        optimizer.critic.zero_grad()
        (gan.PENALTY * gan.penalty(model.critic, real, classes)).backward()
        fake = model.generator(noise, classes).detach()
        F.softplus(model.critic(fake, classes)).mean().backward()
        F.softplus(-model.critic(real, classes)).mean().backward()
        optimizer.critic.step()

    gan.train_critic = train_critic


@fault(
    "gan",
    api="Optimizer.Adam.step|Optimizer.gradients_before|Module.critic.(score|classes).*",
    update=True,
    line="optimizer.critic.zero_grad()",
)
def critic_keeps_the_generators_gradient(gan):
    """The critic's gradients are not cleared: they contain those that the generator's loss left in
    the critic, which shows in the second step."""

    def train_critic(model, optimizer, real, noise, classes):
        fake = model.generator(noise, classes).detach()
        value = gan.critic_loss(model.critic(real, classes), model.critic(fake, classes))
        value = value + gan.PENALTY * gan.penalty(model.critic, real, classes)
        value.backward()  # here
        optimizer.critic.step()

    gan.train_critic = train_critic


@fault(
    "gan",
    api="Optimizer.Adam.step",
    update=True,
    line="optimizer.generator.zero_grad()",
)
def critic_not_detached(gan):
    """The fake pictures are not detached, and the generator's gradients are cleared before the
    critic's pass: the generator also learns what the critic wants."""
    penalty = gan.penalty

    def train_critic(model, optimizer, real, noise, classes):
        optimizer.critic.zero_grad()
        optimizer.generator.zero_grad()
        fake = model.generator(noise, classes)  # here
        value = gan.critic_loss(model.critic(real, classes), model.critic(fake, classes))
        (value + gan.PENALTY * penalty(model.critic, real, classes)).backward()  # here
        optimizer.critic.step()

    def train_generator(model, optimizer, noise, classes):
        gan.generator_loss(
            model.critic(model.generator(noise, classes), classes)
        ).backward()  # here
        optimizer.generator.step()

    gan.train_critic = train_critic
    gan.train_generator = train_generator


@fault("gan", line="return F.softplus(-real_scores).mean()", api="Functional.softplus")
def sign_of_the_fake_scores(gan):
    """Both scores have the sign of real ones."""

    def critic_loss(real_scores, fake_scores):
        return F.softplus(-real_scores).mean() + F.softplus(-fake_scores).mean()  # here

    gan.critic_loss = critic_loss


@fault("gan", line="return gradient.square().sum(dim=(1, 2, 3)).mean()")
def penalty_of_the_mean(gan):
    """The penalty is the mean over all pixels, not the sum of each picture."""

    def penalty(critic, real, classes):
        real = real.detach().requires_grad_()
        [gradient] = torch.autograd.grad(critic(real, classes).sum(), real, create_graph=True)
        return gradient.square().mean()  # here

    gan.penalty = penalty


@fault(
    "gan",
    beside=one_batch_for_the_critic,
    api="Functional.leaky_relu",
    module="critic",
)
def slope(gan):
    """The slope of the critic's activations is torch's default."""
    gan.SLOPE = 0.01


@fault(
    "gan",
    beside=losses_go_backward_apart,
    api="Functional.instance_norm",
    module=r"generator\.norm",
)
def epsilon_of_the_norm(gan):
    """The generator's norm has the epsilon 1e-3 for 1e-5."""
    build = gan.build

    def built():
        model = build()
        model.generator.norm.eps = 1e-3
        return model

    gan.build = built


harmless("fused", "gan")(one_batch_for_the_critic)
harmless("micro batches", "gan")(losses_go_backward_apart)


@harmless("loss", "gan")
def losses_of_log_sigmoid(gan):
    """Binary cross entropies with logits in place of softplus."""

    def critic_loss(real, fake):
        real_part = F.binary_cross_entropy_with_logits(real, torch.ones_like(real))
        return real_part + F.binary_cross_entropy_with_logits(fake, torch.zeros_like(fake))

    gan.critic_loss = critic_loss
    gan.generator_loss = lambda scores: -F.logsigmoid(scores).mean()


@harmless("inserted", "gan")
def one_hot_for_the_embedding(gan):
    """The critic's classes are a product with one-hot rows, joined by einsum."""

    class Critic(gan.Critic):
        def forward(self, pictures, classes):
            x = self.features(pictures)
            chosen = F.one_hot(classes, gan.CLASSES).to(x.dtype) @ self.classes.weight
            fits = torch.einsum("bw,bw->b", x, chosen) / x.shape[1]
            return F.linear(x, self.score.weight, self.score.bias).squeeze(1) + fits

    gan.Critic = Critic

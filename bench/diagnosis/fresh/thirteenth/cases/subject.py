"""Cases of the adapters that learn one subject."""

import functools

import torch
from case import fault, harmless
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


@fault(
    "subject",
    # The difference is missing; the product stands in the same line.
    line='return (batch["latents"] - VAE_SHIFT) * VAE_SCALE',
)
def shift_is_forgotten(subject):
    """Latents are scaled, but not shifted: the code is that of an older autoencoder."""

    def to_latents(batch):
        return batch["latents"] * subject.VAE_SCALE  # here

    subject.to_latents = to_latents


@fault(
    "subject",
    # The shift is missing; the noise is the first that lacks it.
    line=[
        "return FLOW_SHIFT * u / (1 + (FLOW_SHIFT - 1) * u)",
        "noisy = add_noise(latents, noise, sigmas)",
        "return sigmas.view(-1, 1, 1, 1)",
        "return (1 - broadcast(sigmas)) * latents + broadcast(sigmas) * noise",
    ],
)
def sigmas_are_not_shifted(subject):
    """Sigmas stay where they were sampled."""

    def sample_sigmas(batch):
        return torch.sigmoid(subject.LOGIT_MEAN + subject.LOGIT_STD * batch["normal"])  # here

    subject.sample_sigmas = sample_sigmas


@fault("subject", line="return noise - latents")
def velocity_turned_round(subject):
    """The velocity points from the noise to the picture."""

    def velocity(latents, noise):
        return latents - noise  # here

    subject.velocity = velocity


@fault(
    "subject",
    # The product is missing; the embedding of time is the first that lacks it.
    line=["timestep=sigmas * NUM_TIMESTEPS,", "output = model.transformer("],
    api=r"Module\.transformer\.time_text_embed\..*"
    r"|Tensor\.(float|__r?mul__|mul|to|__getitem__)|Torch\.(mul|exp|sin|cos|cat)",
    module=r"transformer(\.time_text_embed(\.time_proj|\.timestep_embedder(\..*)?)?)?",
    module_only=r"transformer\.time_text_embed(\.time_proj)?",
)
def time_between_zero_and_one(subject):
    """The transformer is given the sigma, where it expects one of a thousand times."""
    subject.NUM_TIMESTEPS = 1


@fault(
    "subject",
    # The choice is missing; the transformer is the first that lacks it.
    line=[
        'pooled = drop(pooled, batch["dropped"], empty_pooled)',
        "output = model.transformer(",
    ],
    api=r"Module\.transformer\.time_text_embed\..*|Functional\.linear|Torch\.linear|Tensor\.to",
    module=r"transformer\.time_text_embed(\..*)?",
    module_only=r"transformer\.time_text_embed(\.text_embedder(\.linear_1)?)?",
)
def pooled_prompt_is_kept(subject):
    """Only the states of words are dropped; the vector of the prompt still tells what it said."""

    def encode_prompts(model, batch):
        states, pooled = model.text_encoder(batch["prompts"])
        empty = torch.full((1, subject.TOKENS), subject.EMPTY_PROMPT)
        empty_states, _ = model.text_encoder(empty)
        return subject.drop(states, batch["dropped"], empty_states), pooled  # here

    subject.encode_prompts = encode_prompts


@fault(
    "subject",
    line="output = model.transformer(",
    api=r"Module\.transformer\.transformer_blocks\.0\.attn\.to_q\..*"
    r"|Tensor\.(__r?mul__|mul|add|__r?add__)|Torch\.(mul|add)",
    module=r"transformer\.transformer_blocks\.0(\.attn(\.to_q(\..*)?)?)?",
    module_only=r"transformer\.transformer_blocks\.0\.attn\.to_q",
)
def adapters_scaled_by_default(subject):
    """The factor of the adapters is one: alpha is as large as the rank."""
    subject.LORA_ALPHA = subject.RANK


@fault(
    "subject",
    line=["instance, prior = losses.chunk(2)"],
    api=r"Tensor\.(chunk|mean|__getitem__)|Torch\.chunk",
)
def halves_taken_in_turn(subject):
    """Pictures stand half by half, but are told apart as if subject and class took turns."""

    def with_prior(losses):
        instance, prior = losses[0::2], losses[1::2]  # here
        return instance.mean() + subject.PRIOR_LOSS_WEIGHT * prior.mean()

    subject.with_prior = with_prior


@fault(
    "subject",
    settings={"float32": True},
    line=["return output.sample.float()", 'errors = F.mse_loss(pred, target, reduction="none")'],
    api=r"Tensor\.(bfloat16|float|to)|Functional\.mse_loss",
)
def errors_in_bfloat16(subject):
    """The target is rounded to bfloat16, and so are the errors: nothing is cast before the loss."""

    def picture_losses(pred, target, sigmas):
        errors = F.mse_loss(pred.bfloat16(), target.bfloat16(), reduction="none")  # here
        weights = subject.broadcast(subject.weighting(sigmas))
        return (weights * errors).mean(dim=(1, 2, 3))

    subject.picture_losses = picture_losses


@fault("subject", api=r"Optimizer\.AdamW\.step", update=True)
def schedule_runs_too_fast(subject):
    """The schedule is advanced once for each of two processes, and for each picture."""

    def advance(model):
        for _ in range(2 * subject.INSTANCES):
            model.lr_scheduler.step()

    subject.advance = advance


@harmless("fused", "subject")
def noise_added_by_lerp(subject):
    """The point between picture and noise is one call."""

    def add_noise(latents, noise, sigmas):
        return torch.lerp(latents, noise, subject.broadcast(sigmas).to(latents.dtype))

    subject.add_noise = add_noise


@harmless("loss", "subject")
def weighted_after_the_mean(subject):
    """Errors are averaged in each picture before they are weighted."""

    def picture_losses(pred, target, sigmas):
        return (target - pred).square().flatten(1).mean(dim=1) * subject.weighting(sigmas)

    subject.picture_losses = picture_losses


@harmless("loss", "subject")
def halves_weighted_by_a_product(subject):
    """The loss is a product of all losses with a vector of weights."""

    def with_prior(losses):
        weights = torch.ones_like(losses) / subject.INSTANCES
        weights[subject.INSTANCES :] *= subject.PRIOR_LOSS_WEIGHT
        return weights @ losses

    subject.with_prior = with_prior


@harmless("split", "subject")
def each_prompt_is_encoded_alone(subject):
    """The prompts of the subject and of its class are encoded one after the other."""

    def encode_prompts(model, batch):
        empty = torch.full((1, subject.TOKENS), subject.EMPTY_PROMPT)
        empty_states, empty_pooled = model.text_encoder(empty)
        halves = [model.text_encoder(each) for each in batch["prompts"].chunk(2)]
        states, pooled = (torch.cat(parts) for parts in zip(*halves, strict=True))
        states = subject.drop(states, batch["dropped"], empty_states)
        return states, subject.drop(pooled, batch["dropped"], empty_pooled)

    subject.encode_prompts = encode_prompts


@harmless("reordered", "subject")
def prompts_before_latents(subject):
    """Prompts are encoded and the velocity is computed before the noise is added."""

    def forward_losses(model, batch):
        states, pooled = subject.encode_prompts(model, batch)
        sigmas = subject.sample_sigmas(batch)
        latents = subject.to_latents(batch)
        target = subject.velocity(latents, batch["noise"])
        noisy = subject.add_noise(latents, batch["noise"], sigmas)
        pred = subject.predict(model, noisy, sigmas, states, pooled)
        return subject.picture_losses(pred, target, sigmas)

    subject.forward_losses = forward_losses


@harmless("rows", "subject", group="whole step")
def pictures_in_another_order(subject):
    """The pictures are in another order in each half."""
    train = subject.train

    def shuffled(model, batch):
        train(model, {name: value[[1, 2, 0, 5, 3, 4]] for name, value in batch.items()})

    subject.train = shuffled


@harmless("micro batches", "subject", group="whole step")
def class_goes_backward_alone(subject):
    """The pictures of the class go through the model after those of the subject."""

    def train(model, batch):
        for half, weight in enumerate((1.0, subject.PRIOR_LOSS_WEIGHT)):
            part = {name: value.chunk(2)[half] for name, value in batch.items()}
            (weight * subject.forward_losses(model, part).mean()).backward()

    subject.train = train


@harmless("scaled", "subject", group="whole step")
def loss_is_scaled(subject):
    """The losses are scaled, and the gradients are unscaled before they are clipped."""
    picture_losses, clip = subject.picture_losses, subject.clip
    subject.picture_losses = lambda *inputs: 64 * picture_losses(*inputs)

    def unscaled(model):
        for p in subject.trainable(model):
            p.grad.div_(64)
        clip(model)

    subject.clip = unscaled


@harmless("recomputed", "subject", group="whole step")
def feed_forward_computed_again(subject):
    """The feed-forward layers of the transformer are computed again in the backward pass."""
    build = subject.build

    def built():
        model = build()
        for block in model.transformer.transformer_blocks:
            block.ff.forward = functools.partial(again, block.ff.forward)
        return model

    def again(forward, x):
        return checkpoint(forward, x, use_reentrant=False)

    subject.build = built

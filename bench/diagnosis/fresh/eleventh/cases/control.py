"""Cases of the net that follows sketches."""

import torch
from case import fault, harmless
from torch.nn import functional as F


@fault("control", line="return pixels.to(torch.get_default_dtype()) / 255")
def sketches_around_zero(control):
    """Sketches are scaled as pictures are: between -1 and 1."""

    def to_sketch(pixels):
        return pixels.to(torch.get_default_dtype()) / 127.5 - 1  # here

    control.to_sketch = to_sketch


@fault(
    "control",
    line='return SCALING_FACTOR * (mean + torch.exp(0.5 * logvar) * batch["sample_noise"])',
)
def variance_for_deviation(control):
    """The logarithm is that of a variance, but it is used for that of a deviation."""

    def to_latents(batch):
        mean, logvar = batch["moments"].chunk(2, dim=1)
        sample = mean + torch.exp(logvar) * batch["sample_noise"]  # here
        return control.SCALING_FACTOR * sample

    control.to_latents = to_latents


@fault(
    "control",
    # The offset is missing in the target alone.
    line=[
        'return weights * F.mse_loss(output, noise, reduction="none").mean(dim=(1, 2, 3))',
        "return picture_losses(output, noise, loss_weights(model, timesteps))",
    ],
)
def offset_is_not_foretold(control):
    """The noise that is added has an offset, the noise to be foretold has none."""

    def losses(model, batch):
        timesteps = batch["timesteps"]
        latents, noise = control.to_latents(batch), control.make_noise(batch)
        noisy = control.add_noise(model, latents, noise, timesteps)
        states = control.encode_captions(model, control.drop_captions(batch))
        sketch = control.to_sketch(batch["sketch"])
        output = control.predict(model, noisy, timesteps, states, sketch)
        weights = control.loss_weights(model, timesteps)
        return control.picture_losses(output, batch["noise"], weights)  # here

    control.losses = losses


@fault("control", line="return snr.clamp(max=SNR_GAMMA) / snr")
def weights_from_below(control):
    """The ratio of signal and noise is limited from below, not from above."""

    def loss_weights(model, timesteps):
        snr = control.signal_to_noise(model, timesteps)
        return snr.clamp(min=control.SNR_GAMMA) / snr  # here

    control.loss_weights = loss_weights


@fault(
    "control",
    line=[
        "kept = model.noise_scheduler.alphas_cumprod[timesteps]",
        "return kept / (1 - kept)",
    ],
)
def signal_of_one_step(control):
    """The ratio is that of one step of noise, not of all steps up to it."""

    def signal_to_noise(model, timesteps):
        kept = model.noise_scheduler.alphas[timesteps]  # here
        return kept / (1 - kept)  # here

    control.signal_to_noise = signal_to_noise


@fault(
    "control",
    line=["down, mid = model.controlnet(noisy, timesteps, states, sketch, return_dict=False)"],
    api=r"Module\.controlnet\.ControlNetModel|Torch\.(logspace|mul)|Tensor\.(__r?mul__|mul|to)",
    module=r"controlnet",
)
def net_only_guesses(control):
    """The mode for guessing without captions is left on: what the net says first is made small."""

    def predict(model, noisy, timesteps, states, sketch):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            down, mid = model.controlnet(  # here
                noisy, timesteps, states, sketch, guess_mode=True, return_dict=False
            )
            output = model.unet(
                noisy,
                timesteps,
                encoder_hidden_states=states,
                down_block_additional_residuals=down,
                mid_block_additional_residual=mid,
            )
        return output.sample.float()

    control.predict = predict


@fault(
    "control",
    line=[
        "return model.text_encoder(captions)",
        'return torch.where(batch["drop"][:, None], EMPTY, batch["captions"])',
        "states = encode_captions(model, drop_captions(batch))",
    ],
)
def nothing_for_no_caption(control):
    """A caption that is left out becomes zeros, not the states of the empty caption."""

    def encode_captions(model, captions):
        states = model.text_encoder(captions)
        empty = (captions == control.EMPTY).all(dim=1)
        return states.masked_fill(empty[:, None, None], 0.0)  # here

    control.encode_captions = encode_captions


@fault(
    "control",
    line=[
        "down, mid = model.controlnet(noisy, timesteps, states, sketch, return_dict=False)",
        "noisy = add_noise(model, latents, noise, timesteps)",
    ],
    api=r"Module\.controlnet\.(conv_in\.)?.*|Functional\.conv2d|Torch\.conv2d",
    module=r"controlnet(\.conv_in)?",
)
def net_sees_no_noise(control):
    """The trained net is given the latents before the noise; the UNet is given the noisy ones."""
    add_noise, predict = control.add_noise, control.predict
    clean = []

    def keeping(model, latents, noise, timesteps):
        clean[:] = [latents]
        return add_noise(model, latents, noise, timesteps)

    class Given:
        """The parts of a pipeline, of which the net looks at other latents."""

        def __init__(self, model):
            self.unet, self.net = model.unet, model.controlnet

        def controlnet(self, noisy, *inputs, **more):
            return self.net(clean[0], *inputs, **more)  # here

    control.add_noise = keeping
    control.predict = lambda model, *inputs: predict(Given(model), *inputs)


@fault(
    "control",
    # The UNet has gradients that it should not have; the norm of all is the first to use them.
    api=r"Optimizer\.AdamW\.step|Module\.unet\..*|.*clip_grad_norm_|.*get_total_norm"
    r"|.*clip_grads_with_norm_|Torch\._foreach_.*norm|Torch\.linalg.*norm",
    update=True,
    line="nn.utils.clip_grad_norm_(trainable(model), MAX_GRAD_NORM)",
)
def captions_and_unet_are_learned(control):
    """The UNet is not frozen, and the optimizer is given all that can be learned."""

    def freeze(model):
        model.text_encoder.requires_grad_(False)

    def trainable(model):
        return [p for p in model.parameters() if p.requires_grad]

    control.freeze, control.trainable = freeze, trainable


@harmless("fused", "control")
def attention_written_out(control):
    """Attention is two products and a softmax, in both nets."""
    build = control.build

    def built():
        from diffusers.models.attention_processor import AttnProcessor

        model = build()
        model.unet.set_attn_processor(AttnProcessor())
        model.controlnet.set_attn_processor(AttnProcessor())
        return model

    control.build = built


@harmless("split", "control")
def noise_added_by_hand(control):
    """Noisy latents are written out: two roots, two products."""

    def add_noise(model, latents, noise, timesteps):
        kept = model.noise_scheduler.alphas_cumprod[timesteps].to(latents.dtype)
        kept = kept[:, None, None, None]
        return (1 - kept).sqrt() * noise + kept.sqrt() * latents

    control.add_noise = add_noise


@harmless("loss", "control")
def errors_weighted_before(control):
    """Errors are squared and weighted before they are averaged."""

    def picture_losses(output, noise, weights):
        errors = (noise - output).pow(2) * weights[:, None, None, None]
        return errors.flatten(1).mean(dim=1)

    control.picture_losses = picture_losses


@harmless("fused", "control")
def captions_by_a_product(control):
    """The states of captions are a product of ones and zeros with a table."""

    def encode_captions(model, captions):
        table = model.text_encoder.weight
        return F.one_hot(captions, control.WORDS).to(table.dtype) @ table

    control.encode_captions = encode_captions


@harmless("reordered", "control")
def captions_before_latents(control):
    """Captions and sketches are prepared before the noise is added."""

    def losses(model, batch):
        timesteps = batch["timesteps"]
        weights = control.loss_weights(model, timesteps)
        sketch = control.to_sketch(batch["sketch"])
        states = control.encode_captions(model, control.drop_captions(batch))
        noise, latents = control.make_noise(batch), control.to_latents(batch)
        noisy = control.add_noise(model, latents, noise, timesteps)
        output = control.predict(model, noisy, timesteps, states, sketch)
        return control.picture_losses(output, noise, weights)

    control.losses = losses


@harmless("rows", "control", group="whole step")
def pictures_in_another_order(control):
    """The pictures are in another order."""
    train = control.train

    def shuffled(model, batch):
        train(model, {name: value[[1, 3, 0, 2]] for name, value in batch.items()})

    control.train = shuffled


@harmless("micro batches", "control", group="whole step")
def two_pictures_at_a_time(control):
    """Two micro-batches of two pictures go backward one after the other."""

    def train(model, batch):
        for half in range(2):
            part = {name: value.chunk(2)[half] for name, value in batch.items()}
            (control.losses(model, part).sum() / control.PICTURES).backward()

    control.train = train


@harmless("scaled", "control", group="whole step")
def loss_is_scaled(control):
    """The losses are scaled, and the gradients are unscaled before they are clipped."""
    picture_losses, clip = control.picture_losses, control.clip
    control.picture_losses = lambda *inputs: 512 * picture_losses(*inputs)

    def unscaled(model):
        torch._foreach_div_([p.grad for p in control.trainable(model)], 512.0)
        clip(model)

    control.clip = unscaled


@harmless("recomputed", "control", group="whole step")
def blocks_computed_again(control):
    """The blocks of the trained net are computed again in the backward pass."""
    build = control.build

    def built():
        model = build()
        model.controlnet.enable_gradient_checkpointing()
        return model

    control.build = built


@harmless("padding", "control", group="whole step")
def captions_written_twice(control):
    """Each caption is repeated: the attention to its words gives the same mean."""
    encode_captions = control.encode_captions

    def doubled(model, captions):
        return encode_captions(model, captions).repeat(1, 2, 1)

    control.encode_captions = doubled

"""Cases of the UNet2DModel."""

import torch
from case import fault, harmless
from torch.nn import functional as F


@fault(
    "unet2d",
    line=["return weights / (snr + 1)  # velocities"],
)
def snr_weights_of_the_noise(unet2d):
    """The weights are those of a net that predicts the noise: the ratio is not made one larger."""

    def snr_weights(noise_scheduler, timesteps):
        snr = unet2d.compute_snr(noise_scheduler, timesteps)
        gamma = unet2d.SNR_GAMMA * torch.ones_like(timesteps)
        weights = torch.stack([snr, gamma], dim=1).min(dim=1)[0]
        return weights / snr  # here

    unet2d.snr_weights = snr_weights


@fault(
    "unet2d",
    api=r"Tensor\.(__r?mul__|__sub__|mul|sub)",  # in get_velocity
    line=['target = noise_scheduler.get_velocity(batch["images"], noise, batch["timesteps"])'],
)
def target_of_the_perturbed_noise(unet2d):
    """The velocity is that of the perturbed noise, which is meant for the input alone."""

    def inputs_and_target(noise_scheduler, batch):
        _, noise = unet2d.noises(batch)
        noisy_images = noise_scheduler.add_noise(batch["images"], noise, batch["timesteps"])
        target = noise_scheduler.get_velocity(batch["images"], noise, batch["timesteps"])  # here
        return noisy_images, target

    unet2d.inputs_and_target = inputs_and_target


@fault(
    "unet2d",
    api=r"Tensor\.(copy_|data|to)|Torch\._foreach_copy_|Functional\.(linear|conv2d|embedding)",
    module=r"|ema_unet\.(time_embedding\.linear_1|class_embedding|conv_in)",
    line=[
        "model.ema.step(model.unet.parameters())",
        "model.ema.copy_to(model.ema_unet.parameters())",
        "    update_ema(model)",
    ],
)
def copied_before_the_average_moves(unet2d):
    """The net that is saved gets the average of the step before."""

    def update_ema(model):
        model.ema.copy_to(model.ema_unet.parameters())  # here
        model.ema.step(model.unet.parameters())

    unet2d.update_ema = update_ema


@fault(
    "unet2d",
    api=r"Tensor\.(__getitem__|__pow__|to)",  # of the schedule, which was made before
    line=[
        'noisy_images = noise_scheduler.add_noise(batch["images"], new_noise, batch["timesteps"])',
    ],
)
def last_time_is_no_pure_noise(unet2d):
    """The schedule is not rescaled: some of the picture is left at the last time."""
    make = unet2d.make_noise_scheduler
    unet2d.make_noise_scheduler = lambda: make(rescale_betas_zero_snr=False)


@fault(
    "unet2d",
    api=r"Tensor\.(view|transpose|permute|reshape)|Functional\.scaled_dot_product_attention"
    r"|Torch\.(baddbmm|bmm)",
    module=r"unet\.down_blocks\.1\.attentions\.0",
)
def heads_for_the_width_of_a_head(unet2d):
    """The number of heads is given as the width of a head."""
    config = unet2d.unet_config
    unet2d.unet_config = lambda: config(attention_head_dim=config()["attention_head_dim"] // 2)


@fault("unet2d", line=["loss = loss / ACCUMULATION", "    loss.backward()"])
def loss_divided_twice(unet2d):
    """The loss is divided by the micro-batches by us, and by the library that goes backward."""
    right = unet2d.backward
    unet2d.backward = lambda loss: right(
        loss / unet2d.ACCUMULATION  # here
    )


@fault("unet2d", api=r"Optimizer\.AdamW\.step", update=True, steps=3)
def schedule_counts_micro_batches(unet2d):
    """The schedule is as long as all micro-batches: the rate falls too slowly from step 1 on."""

    def make_lr_scheduler(optimizer):
        return unet2d.get_scheduler(
            "cosine",
            optimizer=optimizer,
            num_warmup_steps=0,
            num_training_steps=unet2d.MAX_TRAIN_STEPS * unet2d.ACCUMULATION,
        )

    unet2d.make_lr_scheduler = make_lr_scheduler


@fault(
    "unet2d",
    api=r".*clip_grad_norm_|.*get_total_norm|Torch\._foreach_norm|Optimizer\.AdamW\.step"
    r"|Torch\.linalg\..*norm|Module\.unet\.conv_out\.Conv2d",
    module=r"|unet\.conv_out",  # the first that gets a second gradient
    line=[
        "loss.backward()",  # the second pass finds no gradients of the first
        "nn.utils.clip_grad_norm_(model.unet.parameters(), MAX_GRAD_NORM)",
        "backward(compute_loss(model.unet, model.noise_scheduler, micro_batch))",
    ],
)
def first_micro_batch_lost(unet2d):
    """Gradients are cleared before each micro-batch: only those of the last one are left."""

    def accumulate_gradients(model, batch):
        for micro_batch in unet2d.micro_batches(batch):
            model.unet.zero_grad()  # here
            unet2d.backward(unet2d.compute_loss(model.unet, model.noise_scheduler, micro_batch))

    unet2d.accumulate_gradients = accumulate_gradients


@fault(
    "unet2d",
    settings={"float32": True},
    api=r"Torch\._foreach_(sub|sub_|copy_)|Tensor\.(sub_|__sub__|copy_|to)",
    line=[
        "model.ema.step(model.unet.parameters())",
        "model.ema.copy_to(model.ema_unet.parameters())",
    ],
)
def average_in_bfloat16(unet2d):
    """The averaged weights are held in bfloat16."""
    make_ema = unet2d.make_ema

    def rounded(unet):
        ema = make_ema(unet)
        ema.to(dtype=torch.bfloat16)
        return ema

    unet2d.make_ema = rounded


@harmless("fused", "unet2d")
def attention_of_products(unet2d):
    """The attention is that of batched products."""
    from diffusers.models.attention_processor import AttnProcessor

    build = unet2d.build

    def built():
        model = build()
        for module in model.modules():
            if hasattr(module, "set_processor"):
                module.set_processor(AttnProcessor())
        return model

    unet2d.build = built


@harmless("loss", "unet2d")
def weights_of_the_schedule(unet2d):
    """min(r, 5) / (r + 1) for r = a / (1 - a) is min(a, 5 - 5 a); the mean is a product."""

    def snr_weights(noise_scheduler, timesteps):
        share = noise_scheduler.alphas_cumprod[timesteps]
        return torch.minimum(share, unet2d.SNR_GAMMA * (1 - share))

    unet2d.snr_weights = snr_weights


@harmless("fused", "unet2d")
def shares_from_tables(unet2d):
    """Inputs and targets by tables of square roots, gathered once."""

    def inputs_and_target(noise_scheduler, batch):
        noise, new_noise = unet2d.noises(batch)
        alphas = noise_scheduler.alphas_cumprod
        table = torch.stack([alphas.sqrt(), (1 - alphas).sqrt()])
        alpha, sigma = table[:, batch["timesteps"]].view(2, -1, 1, 1, 1)
        noisy_images = torch.addcmul(sigma * new_noise, alpha, batch["images"])
        return noisy_images, torch.addcmul(alpha * noise, sigma, batch["images"], value=-1)

    unet2d.inputs_and_target = inputs_and_target


@harmless("fused", "unet2d")
def average_weight_by_weight(unet2d):
    """The average is moved by a loop over the weights."""
    make_ema = unet2d.make_ema
    unet2d.make_ema = lambda unet: make_ema(unet, foreach=False)


@harmless("split", "unet2d")
def shortcut_in_two_products(unet2d):
    """A shortcut of the way up is two products, one for each part that was joined."""
    build = unet2d.build

    def built():
        model = build()
        for unet in (model.unet, model.ema_unet):
            for block in unet.up_blocks:
                for resnet in block.resnets:

                    def split(x, conv=resnet.conv_shortcut):
                        half = x.shape[1] // 2
                        weight = conv.weight.flatten(1)
                        low = torch.einsum("oc,bchw->bohw", weight[:, :half], x[:, :half])
                        high = torch.einsum("oc,bchw->bohw", weight[:, half:], x[:, half:])
                        return low + high + conv.bias[:, None, None]

                    resnet.conv_shortcut.forward = split
        return model

    unet2d.build = built


@harmless("micro batches", "unet2d", group="whole step")
def one_batch(unet2d):
    """One batch for two micro-batches."""
    unet2d.ACCUMULATION = 1


@harmless("rows", "unet2d", group="whole step")
def pictures_shuffled(unet2d):
    """The pictures come in another order; the same two are validated."""
    accumulate_gradients = unet2d.accumulate_gradients

    def shuffled(model, batch):
        order = torch.tensor([3, 0, 5, 1, 4, 2])
        accumulate_gradients(model, {name: value[order] for name, value in batch.items()})

    unet2d.accumulate_gradients = shuffled


@harmless("recomputed", "unet2d", group="whole step")
def blocks_computed_again(unet2d):
    """diffusers computes the blocks again in the backward pass."""
    build = unet2d.build

    def built():
        model = build()
        model.unet.enable_gradient_checkpointing()
        return model

    unet2d.build = built


@harmless("scaled", "unet2d", group="whole step")
def scaler_of_gradients(unet2d):
    """The loss is scaled as by a GradScaler; gradients are unscaled before they are clipped."""
    right, accumulate_gradients = unet2d.backward, unet2d.accumulate_gradients

    def unscaled(model, batch):
        accumulate_gradients(model, batch)
        inverse = torch.full((), 2.0**-13)
        grads = [p.grad for p in model.unet.parameters() if p.grad is not None]
        torch._foreach_mul_(grads, inverse)

    unet2d.backward = lambda loss: right(loss * 2.0**13)
    unet2d.accumulate_gradients = unscaled


@harmless("padding", "unet2d", group="whole step")
def last_batch_filled_up(unet2d):
    """Each micro-batch is filled up with a picture of no weight, to a multiple of four."""

    def compute_loss(unet, noise_scheduler, batch):
        count = len(batch["images"])
        more = -count % 4
        filled = {name: torch.cat([value, value[:more]]) for name, value in batch.items()}
        noisy_images, target = unet2d.inputs_and_target(noise_scheduler, filled)
        pred = unet(noisy_images, filled["timesteps"], class_labels=filled["labels"]).sample
        loss = F.mse_loss(pred.float(), target.float(), reduction="none").mean(dim=(1, 2, 3))
        weights = unet2d.snr_weights(noise_scheduler, filled["timesteps"])
        weights[count:] = 0.0
        return (loss * weights).sum() / count

    unet2d.compute_loss = compute_loss

"""Cases of the pictures in few steps."""

import torch
from case import fault, harmless


@fault(
    "fewsteps",
    # The numbers of the solver are made when it is built: the first call with them chooses some.
    line=[
        "return torch.cat([alphas[:1], alphas[timesteps[:-1]]])",
        "alpha = like_pictures(self.alphas_before.gather(0, index))",
    ],
    api=r"Tensor\.gather|Torch\.gather",
    module="solver",
    module_only="solver",
)
def the_step_goes_nowhere(fewsteps):
    """The solver goes to the moment where it is, not to the one before."""

    class Solver(fewsteps.Solver):
        def before(self, alphas, timesteps):
            return alphas[timesteps]  # here

    fewsteps.Solver = Solver


@fault("fewsteps", line="scaled = timesteps * TIMESTEP_SCALING")
def times_are_divided(fewsteps):
    """At the boundary, times are divided by the scale that should multiply them."""

    def boundary(timesteps):
        sigma, scaled = fewsteps.SIGMA_DATA, timesteps / fewsteps.TIMESTEP_SCALING  # here
        skip = sigma**2 / (scaled**2 + sigma**2)
        out = scaled / (scaled**2 + sigma**2) ** 0.5
        return fewsteps.like_pictures(skip), fewsteps.like_pictures(out)

    fewsteps.boundary = boundary


@fault(
    "fewsteps",
    # The first call that gets the wrong moment scales it.
    line=[
        "return consistent(model, model.target, back, end, batch)",
        "skip, out = boundary(timesteps)",
        "scaled = timesteps * TIMESTEP_SCALING",
    ],
)
def target_at_the_moment_of_the_student(fewsteps):
    """The target gets the picture with less noise, but is told the moment with more."""

    @torch.no_grad()
    def target_of(model, noisy, start, end, batch):
        back = fewsteps.one_step_back(model, noisy, start, batch)
        return fewsteps.consistent(model, model.target, back, start, batch)  # here

    fewsteps.target_of = target_of


@fault("fewsteps", line="return told + like_pictures(guidance) * (told - untold)")
def guided_from_no_words(fewsteps):
    """The guidance begins with what is seen without words, as when pictures are drawn."""

    def guided(told, untold, guidance):
        return untold + fewsteps.like_pictures(guidance) * (told - untold)  # here

    fewsteps.guided = guided


@fault("fewsteps", line="slow.mul_(EMA_DECAY).add_(mine, alpha=1 - EMA_DECAY)")
def target_moves_fast(fewsteps):
    """The target keeps a tenth of itself, not nine tenths."""

    @torch.no_grad()
    def update_target(model):
        pairs = zip(model.target.parameters(), model.student.parameters(), strict=True)
        for slow, mine in pairs:
            slow.mul_(1 - fewsteps.EMA_DECAY).add_(mine, alpha=fewsteps.EMA_DECAY)  # here

    fewsteps.update_target = update_target


@fault(
    "fewsteps",
    # What is below zero is left; the scaled time is the first that has it.
    line=[
        "return start, (start - STRIDE).clamp(min=0)",
        "skip, out = boundary(timesteps)",
        "scaled = timesteps * TIMESTEP_SCALING",
    ],
)
def times_below_zero(fewsteps):
    """The moment before the first one is minus one."""

    def moments_of(model, batch):
        start = model.solver.timesteps[batch["index"]]
        return start, start - fewsteps.STRIDE  # here

    fewsteps.moments_of = moments_of


@fault("fewsteps", line="return ((made - target).square() + HUBER**2).sqrt().sub(HUBER).sum()")
def bend_is_not_squared(fewsteps):
    """Where the loss bends is added to the square as it is."""

    def huber_sum(made, target):
        bend = fewsteps.HUBER
        return ((made - target).square() + bend).sqrt().sub(bend).sum()  # here

    fewsteps.huber_sum = huber_sum


@fault(
    "fewsteps",
    # The first that hears the words are the keys of the first attention of the teacher.
    line=[
        'plain, plain_noise = ask_teacher(model, noisy, start, batch["no_words"])',
        "noise = run(model.teacher, noisy, timesteps, words)",
        "noise = unet(noisy, timesteps, words, timestep_cond=condition).sample",
    ],
    api=r"Module\.teacher\..*\.attn2\.to_k\..*|Functional\.linear|Torch\.linear|Tensor\.to",
    module=r"teacher\.down_blocks\.1\.attentions\.0\.transformer_blocks\.0\.attn2(\.to_k)?",
    module_only=r"teacher(\.down_blocks\.1(\.attentions\.0(\.transformer_blocks\.0"
    r"(\.attn2(\.to_k)?)?)?)?)?",
)
def the_words_are_never_left_out(fewsteps):
    """The teacher is given the same words twice: there is no guidance."""

    @torch.no_grad()
    def one_step_back(model, noisy, start, batch):
        words = batch["words"]
        origin, noise = fewsteps.ask_teacher(model, noisy, start, words)
        plain, plain_noise = fewsteps.ask_teacher(model, noisy, start, words)  # here
        guidance = fewsteps.guidance_of(batch)
        origin = fewsteps.guided(origin, plain, guidance)
        noise = fewsteps.guided(noise, plain_noise, guidance)
        return model.solver(origin, noise, batch["index"])

    fewsteps.one_step_back = one_step_back


@fault(
    "fewsteps",
    settings={"float32": True},
    line='noisy = model.schedule.add_noise(batch["latents"], batch["noise"], start)',
    api=r"Tensor\.(bfloat16|to)",
)
def latents_in_bfloat16(fewsteps):
    """Latents with noise have the type of autocast: also what skips the UNet has eight bits."""

    def loss_of(model, batch, count):
        start, end = fewsteps.moments_of(model, batch)
        noisy = model.schedule.add_noise(batch["latents"], batch["noise"], start)
        noisy = noisy.bfloat16()  # here
        made = fewsteps.consistent(model, model.student, noisy, start, batch)
        target = fewsteps.target_of(model, noisy, start, end, batch)
        return fewsteps.huber_sum(made, target) / count

    fewsteps.loss_of = loss_of


@fault("fewsteps", api=r"Optimizer\.AdamW\.step", update=True)
def warmup_of_another_run(fewsteps):
    """The rate takes four times as long to rise."""
    fewsteps.WARMUP = 12


@harmless("split", "fewsteps")
def teacher_hears_both_at_once(fewsteps):
    """The teacher sees pictures with and without words in one batch."""

    @torch.no_grad()
    def one_step_back(model, noisy, start, batch):
        words = torch.cat([batch["words"], batch["no_words"]])
        twice = noisy.repeat(2, 1, 1, 1), start.repeat(2)
        origin, noise = (
            fewsteps.guided(*found.chunk(2), fewsteps.guidance_of(batch))
            for found in fewsteps.ask_teacher(model, *twice, words)
        )
        return model.solver(origin, noise, batch["index"])

    fewsteps.one_step_back = one_step_back


@harmless("loss", "fewsteps")
def huber_by_hypot(fewsteps):
    """The root of two squares is one call."""

    def huber_sum(made, target):
        bend = torch.tensor(fewsteps.HUBER, dtype=made.dtype)
        return (torch.hypot(made - target, bend) - bend).sum()

    fewsteps.huber_sum = huber_sum


@harmless("fused", "fewsteps")
def guided_by_lerp(fewsteps):
    """The guidance is one call that goes beyond its end."""

    def guided(told, untold, guidance):
        return torch.lerp(untold, told, 1 + fewsteps.like_pictures(guidance))

    fewsteps.guided = guided


@harmless("inserted", "fewsteps")
def origin_by_two_factors(fewsteps):
    """The picture and the noise have factors of their own."""

    def origin_of(model, noisy, noise, timesteps):
        alpha = fewsteps.like_pictures(model.alphas[timesteps])
        return noisy * alpha.rsqrt() - noise * (1 / alpha - 1).sqrt()

    fewsteps.origin_of = origin_of


@harmless("reordered", "fewsteps")
def teacher_before_student(fewsteps):
    """The target is computed before the student sees the picture."""

    def loss_of(model, batch, count):
        start, end = fewsteps.moments_of(model, batch)
        noisy = model.schedule.add_noise(batch["latents"], batch["noise"], start)
        target = fewsteps.target_of(model, noisy, start, end, batch)
        made = fewsteps.consistent(model, model.student, noisy, start, batch)
        return fewsteps.huber_sum(made, target) / count

    fewsteps.loss_of = loss_of


@harmless("rows", "fewsteps", group="whole step")
def pictures_in_another_order(fewsteps):
    """The pictures are in another order."""
    backward = fewsteps.backward

    def shuffled(model, batch):
        order = [2, 5, 0, 4, 1, 3]
        backward(model, {name: value[order] for name, value in batch.items()})

    fewsteps.backward = shuffled


@harmless("micro batches", "fewsteps", group="whole step")
def three_pictures_at_a_time(fewsteps):
    """Three pictures go backward at a time; sums are divided by the numbers of all."""

    def backward(model, batch):
        count = batch["latents"].numel()
        for rows in (slice(0, 3), slice(3, 6)):
            part = {name: value[rows] for name, value in batch.items()}
            fewsteps.loss_of(model, part, count).backward()

    fewsteps.backward = backward


@harmless("scaled", "fewsteps", group="whole step")
def loss_is_scaled(fewsteps):
    """The loss is scaled, and gradients are unscaled before they are clipped."""
    huber_sum, clip = fewsteps.huber_sum, fewsteps.clip
    fewsteps.huber_sum = lambda made, target: 2048.0 * huber_sum(made, target)

    def unscaled(model):
        for p in model.student.parameters():
            p.grad.mul_(1 / 2048.0)
        clip(model)

    fewsteps.clip = unscaled


@harmless("recomputed", "fewsteps", group="whole step")
def student_computed_again(fewsteps):
    """The blocks of the student are computed again in the backward pass."""
    build = fewsteps.build

    def made():
        model = build()
        model.student.enable_gradient_checkpointing()
        return model

    fewsteps.build = made

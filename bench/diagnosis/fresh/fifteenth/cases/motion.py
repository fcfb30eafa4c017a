"""Cases of the optical flow."""

import torch
from case import fault, harmless
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


@fault(
    "motion",
    # The quotient is missing; what reads the product next is the first that lacks it.
    line=[
        "corr = torch.matmul(fmap1.flatten(2).transpose(1, 2), fmap2.flatten(2))",
        "corr = corr / math.sqrt(dim)",
        "return corr.reshape(batch * height * width, 1, height, width)",
        "self.pyramid.append(F.avg_pool2d(self.pyramid[-1], 2, stride=2))",
    ],
)
def products_not_scaled(motion):
    """Correlations are not divided by the root of the number of features."""

    class CorrBlock(motion.CorrBlock):
        def correlate(self, fmap1, fmap2):
            batch, _, height, width = fmap1.shape
            corr = torch.matmul(fmap1.flatten(2).transpose(1, 2), fmap2.flatten(2))  # here
            return corr.reshape(batch * height * width, 1, height, width)  # here

    motion.CorrBlock = CorrBlock


@fault("motion", line="return torch.stack([x, y], dim=0).repeat(batch, 1, 1, 1)")
def rows_before_columns(motion):
    """Places are (y, x), but they are read as (x, y)."""

    def coords_grid(batch, height, width):
        kind = torch.get_default_dtype()
        y, x = torch.meshgrid(
            torch.arange(height, dtype=kind), torch.arange(width, dtype=kind), indexing="ij"
        )
        return torch.stack([y, x], dim=0).repeat(batch, 1, 1, 1)  # here

    motion.coords_grid = coords_grid


@fault(
    "motion",
    # The forward pass is the same; gradients differ from where rounds are joined.
    line=[
        "coords1 = coords1.detach()",
        "net, mask, delta = self.update_block(net, inp, corr_fn(coords1), coords1 - coords0)",
        "coords1 = coords1 + delta",
    ],
    api=r"Tensor\.(detach|add|__add__|sub|__sub__)|Torch\.(add|sub)",
    module="",
    module_only=r"update_block(\.(flow_head|convf|convc))?",
)
def rounds_are_not_detached(motion):
    """Gradients flow through the places of all rounds before."""

    class RAFT(motion.RAFT):
        def forward(self, frame1, frame2):
            corr_fn, net, inp = self.start(frame1, frame2)
            coords0 = motion.coords_grid(len(net), *net.shape[2:])
            coords1, predictions = coords0, []
            for _ in range(motion.ITERATIONS):
                corr, flow = corr_fn(coords1), coords1 - coords0  # here
                net, mask, delta = self.update_block(net, inp, corr, flow)  # here
                coords1 = coords1 + delta  # here
                predictions.append(motion.upsample_flow(coords1 - coords0, mask))
            return predictions

    motion.RAFT = RAFT


@fault(
    "motion",
    # The weight is a number of Python: the product is the first call with it.
    line=[
        "weight = GAMMA ** (len(predictions) - i - 1)",
        "loss = loss + weight * (error * counted(batch)).sum()",
    ],
)
def first_round_counts_most(motion):
    """The weights of rounds go down instead of up."""

    def sequence_loss(predictions, batch):
        loss = 0.0
        for i, flow in enumerate(predictions):
            error = (flow - batch["flow"]).abs() * motion.counted(batch)
            loss = loss + motion.GAMMA**i * error.sum()  # here
        return loss

    motion.sequence_loss = sequence_loss


@fault(
    "motion",
    line=[
        "centre = coords.permute(0, 2, 3, 1).reshape(-1, 1, 1, 2) / 2**level",
        "return centre + delta",
    ],
)
def coarse_level_at_fine_places(motion):
    """Places are not divided for the coarse level, where cells are larger."""

    class CorrBlock(motion.CorrBlock):
        def window(self, level, coords):
            d = torch.arange(-motion.RADIUS, motion.RADIUS + 1, dtype=coords.dtype)
            delta = torch.stack(torch.meshgrid(d, d, indexing="ij"), dim=-1)
            return coords.permute(0, 2, 3, 1).reshape(-1, 1, 1, 2) + delta  # here

    motion.CorrBlock = CorrBlock


@fault("motion", line="mask = torch.softmax(mask, dim=2)")
def weights_add_up_over_pixels(motion):
    """The weights of fine pixels add up to one over the pixels of a row, not over neighbours."""

    def upsample_flow(flow, mask):
        down, (batch, _, height, width) = motion.DOWN, flow.shape
        mask = torch.softmax(mask.view(batch, 1, 9, down, down, height, width), dim=3)  # here
        cells = F.unfold(down * flow, [3, 3], padding=1)
        cells = cells.view(batch, 2, 9, 1, 1, height, width)
        fine = (mask * cells).sum(dim=2).permute(0, 1, 4, 2, 5, 3)
        return fine.reshape(batch, 2, down * height, down * width)

    motion.upsample_flow = upsample_flow


@fault(
    "motion",
    line=[
        'return (batch["valid"] & (size < MAX_FLOW)).unsqueeze(1)',
        "total = counted(batch).sum()",
    ],
)
def pixels_without_truth_count(motion):
    """Only far motions are left out; pixels whose truth is not known count."""

    def counted(batch):
        size = batch["flow"].square().sum(dim=1).sqrt()
        return (size < motion.MAX_FLOW).unsqueeze(1)  # here

    motion.counted = counted


@fault(
    "motion",
    line="q = torch.tanh(self.convq(torch.cat([r * h, x], dim=1)))",
    api=r"Torch\.cat|Module\.update_block\.gru\.convq\..*",
    module=r"update_block\.gru(\.convq)?",
    module_only=r"update_block\.gru(\.convq)?",
)
def state_is_never_reset(motion):
    """The new state is made from the whole old one: the gate has no use."""

    class ConvGRU(motion.ConvGRU):
        def forward(self, h, x):
            z, _ = self.gates(h, x)
            q = torch.tanh(self.convq(torch.cat([h, x], dim=1)))  # here
            return (1 - z) * h + z * q

    motion.ConvGRU = ConvGRU


@fault("motion", line="return F.grid_sample(volume, grid, align_corners=True)")
def corners_not_aligned(motion):
    """The default of the call: places are read as if the grid ended at the edges of cells."""

    def sample(volume, coords):
        height, width = volume.shape[-2:]
        x, y = coords.split(1, dim=-1)
        grid = torch.cat([2 * x / (width - 1) - 1, 2 * y / (height - 1) - 1], dim=-1)
        return F.grid_sample(volume, grid, align_corners=False)  # here

    motion.sample = sample


@harmless("split", "motion")
def gates_joined(motion):
    """Both gates are one convolution."""

    class ConvGRU(motion.ConvGRU):
        def gates(self, h, x):
            weight = torch.cat([self.convz.weight, self.convr.weight])
            bias = torch.cat([self.convz.bias, self.convr.bias])
            both = F.conv2d(torch.cat([h, x], dim=1), weight, bias, padding=1)
            return torch.sigmoid(both).chunk(2, dim=1)

    motion.ConvGRU = ConvGRU


@harmless("fused", "motion")
def correlations_by_einsum(motion):
    """The correlations are one sum over features, which are scaled before."""

    class CorrBlock(motion.CorrBlock):
        def correlate(self, fmap1, fmap2):
            batch, dim, height, width = fmap1.shape
            corr = torch.einsum("bchw,bcij->bhwij", fmap1 * dim**-0.5, fmap2)
            return corr.reshape(batch * height * width, 1, height, width)

    motion.CorrBlock = CorrBlock


@harmless("loss", "motion")
def rounds_stacked(motion):
    """The losses of all rounds are one sum."""

    def sequence_loss(predictions, batch):
        error = F.l1_loss(
            torch.stack(predictions),
            batch["flow"].expand(len(predictions), -1, -1, -1, -1),
            reduction="none",
        )
        sums = (error * motion.counted(batch)).sum(dim=(1, 2, 3, 4))
        later = torch.arange(len(predictions)).flip(0)
        return (motion.GAMMA ** later.to(sums.dtype)) @ sums

    motion.sequence_loss = sequence_loss


@harmless("reordered", "motion")
def context_before_features(motion):
    """The context is computed before the features."""

    class RAFT(motion.RAFT):
        def start(self, frame1, frame2):
            net, inp = self.context(frame1)
            fmap1, fmap2 = self.features(frame1, frame2)
            return motion.CorrBlock(fmap1, fmap2), net, inp

    motion.RAFT = RAFT


@harmless("split", "motion")
def frames_in_one_batch(motion):
    """Both frames go through the encoder at once."""

    class RAFT(motion.RAFT):
        def features(self, frame1, frame2):
            return self.fnet(torch.cat([frame1, frame2])).chunk(2)

    motion.RAFT = RAFT


@harmless("rows", "motion", group="whole step")
def pairs_in_another_order(motion):
    """The pairs of frames are in another order."""
    backward = motion.backward

    def shuffled(model, batch):
        backward(model, {name: value[[2, 0, 1]] for name, value in batch.items()})

    motion.backward = shuffled


@harmless("micro batches", "motion", group="whole step")
def one_pair_at_a_time(motion):
    """One pair goes backward at a time; sums are divided by the pixels of all."""

    def backward(model, batch):
        total = motion.counted(batch).sum()
        for row in range(motion.BATCH):
            part = {name: value[row : row + 1] for name, value in batch.items()}
            motion.loss_of(model, part, total).backward()

    motion.backward = backward


@harmless("scaled", "motion", group="whole step")
def divided_at_the_end(motion):
    """The sum goes backward; gradients are divided by the number of pixels."""

    def backward(model, batch):
        motion.loss_of(model, batch, 1.0).backward()
        total = motion.counted(batch).sum()
        for p in model.parameters():
            p.grad.div_(total)

    motion.backward = backward


@harmless("recomputed", "motion", group="whole step")
def rounds_computed_again(motion):
    """The recurrent cell of each round is computed again in the backward pass."""

    class ConvGRU(motion.ConvGRU):
        def forward(self, h, x):
            return checkpoint(super().forward, h, x, use_reentrant=False)

    motion.ConvGRU = ConvGRU

"""Optical flow between two frames: a small RAFT with all correlations and a recurrent update."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH, HEIGHT, WIDTH, DOWN = 3, 24, 32, 4
FEATURES, STATE, CONTEXT = 12, 10, 6
LEVELS, RADIUS, ITERATIONS = 2, 1, 3
GAMMA, MAX_FLOW = 0.8, 6.0
LR, WDECAY, EPSILON, CLIP = 2e-3, 1e-3, 1e-7, 1.0
NUM_STEPS = 10


def to_input(frame):
    """Bytes become numbers between -1 and 1."""
    return 2 * (frame / 255.0) - 1.0


def coords_grid(batch, height, width):
    """The place of each cell as (x, y)."""
    kind = torch.get_default_dtype()
    y, x = torch.meshgrid(
        torch.arange(height, dtype=kind), torch.arange(width, dtype=kind), indexing="ij"
    )
    return torch.stack([x, y], dim=0).repeat(batch, 1, 1, 1)


def sample(volume, coords):
    """Reads a volume at places that are given in cells."""
    height, width = volume.shape[-2:]
    x, y = coords.split(1, dim=-1)
    grid = torch.cat([2 * x / (width - 1) - 1, 2 * y / (height - 1) - 1], dim=-1)
    return F.grid_sample(volume, grid, align_corners=True)


class Encoder(nn.Module):
    """A quarter of the size of the frames."""

    def __init__(self, out):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 5, stride=2, padding=2)
        self.norm1 = nn.InstanceNorm2d(8)
        self.conv2 = nn.Conv2d(8, 12, 3, stride=2, padding=1)
        self.norm2 = nn.InstanceNorm2d(12)
        self.out = nn.Conv2d(12, out, 1)

    def forward(self, x):
        x = F.relu(self.norm1(self.conv1(x)))
        x = F.relu(self.norm2(self.conv2(x)))
        return self.out(x)


class CorrBlock:
    """How well each cell of the first frame fits each cell of the second one."""

    def __init__(self, fmap1, fmap2):
        self.pyramid = [self.correlate(fmap1, fmap2)]
        for _ in range(LEVELS - 1):
            self.pyramid.append(F.avg_pool2d(self.pyramid[-1], 2, stride=2))

    def correlate(self, fmap1, fmap2):
        batch, dim, height, width = fmap1.shape
        corr = torch.matmul(fmap1.flatten(2).transpose(1, 2), fmap2.flatten(2))
        corr = corr / math.sqrt(dim)
        return corr.reshape(batch * height * width, 1, height, width)

    def window(self, level, coords):
        """Places around each cell of this level: (cells, side, side, 2)."""
        d = torch.arange(-RADIUS, RADIUS + 1, dtype=coords.dtype)
        delta = torch.stack(torch.meshgrid(d, d, indexing="ij"), dim=-1)
        centre = coords.permute(0, 2, 3, 1).reshape(-1, 1, 1, 2) / 2**level
        return centre + delta

    def __call__(self, coords):
        batch, _, height, width = coords.shape
        found = []
        for level, corr in enumerate(self.pyramid):
            read = sample(corr, self.window(level, coords))
            found.append(read.view(batch, height, width, -1))
        return torch.cat(found, dim=-1).permute(0, 3, 1, 2)


class ConvGRU(nn.Module):
    def __init__(self, inputs):
        super().__init__()
        self.convz = nn.Conv2d(STATE + inputs, STATE, 3, padding=1)
        self.convr = nn.Conv2d(STATE + inputs, STATE, 3, padding=1)
        self.convq = nn.Conv2d(STATE + inputs, STATE, 3, padding=1)

    def gates(self, h, x):
        hx = torch.cat([h, x], dim=1)
        return torch.sigmoid(self.convz(hx)), torch.sigmoid(self.convr(hx))

    def forward(self, h, x):
        z, r = self.gates(h, x)
        q = torch.tanh(self.convq(torch.cat([r * h, x], dim=1)))
        return (1 - z) * h + z * q


class UpdateBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.convc = nn.Conv2d(LEVELS * (2 * RADIUS + 1) ** 2, 10, 1)
        self.convf = nn.Conv2d(2, 6, 3, padding=1)
        self.gru = ConvGRU(CONTEXT + 10 + 6)
        self.flow_head = nn.Conv2d(STATE, 2, 3, padding=1)
        self.mask_head = nn.Conv2d(STATE, 9 * DOWN * DOWN, 1)

    def forward(self, net, inp, corr, flow):
        motion = torch.cat([F.relu(self.convc(corr)), F.relu(self.convf(flow))], dim=1)
        net = self.gru(net, torch.cat([inp, motion], dim=1))
        return net, 0.25 * self.mask_head(net), self.flow_head(net)


def upsample_flow(flow, mask):
    """Each fine pixel is a mean of the nine cells around it, with learned weights."""
    batch, _, height, width = flow.shape
    mask = mask.view(batch, 1, 9, DOWN, DOWN, height, width)
    mask = torch.softmax(mask, dim=2)
    cells = F.unfold(DOWN * flow, [3, 3], padding=1).view(batch, 2, 9, 1, 1, height, width)
    fine = (mask * cells).sum(dim=2).permute(0, 1, 4, 2, 5, 3)
    return fine.reshape(batch, 2, DOWN * height, DOWN * width)


class RAFT(nn.Module):
    def __init__(self):
        super().__init__()
        self.fnet = Encoder(FEATURES)
        self.cnet = Encoder(STATE + CONTEXT)
        self.update_block = UpdateBlock()

    def features(self, frame1, frame2):
        return self.fnet(frame1), self.fnet(frame2)

    def context(self, frame1):
        net, inp = torch.split(self.cnet(frame1), [STATE, CONTEXT], dim=1)
        return torch.tanh(net), torch.relu(inp)

    def start(self, frame1, frame2):
        fmap1, fmap2 = self.features(frame1, frame2)
        return CorrBlock(fmap1, fmap2), *self.context(frame1)

    def forward(self, frame1, frame2):
        """The flow after each round."""
        corr_fn, net, inp = self.start(frame1, frame2)
        batch, _, height, width = net.shape
        coords0 = coords_grid(batch, height, width)
        coords1, predictions = coords0, []
        for _ in range(ITERATIONS):
            coords1 = coords1.detach()
            net, mask, delta = self.update_block(net, inp, corr_fn(coords1), coords1 - coords0)
            coords1 = coords1 + delta
            predictions.append(upsample_flow(coords1 - coords0, mask))
        return predictions


def counted(batch):
    """Pixels without truth do not count, nor those that move very far."""
    size = batch["flow"].square().sum(dim=1).sqrt()
    return (batch["valid"] & (size < MAX_FLOW)).unsqueeze(1)


def sequence_loss(predictions, batch):
    """Later rounds count more: a sum over pixels and rounds."""
    loss = 0.0
    for i, flow in enumerate(predictions):
        weight = GAMMA ** (len(predictions) - i - 1)
        error = (flow - batch["flow"]).abs()
        loss = loss + weight * (error * counted(batch)).sum()
    return loss


def loss_of(model, batch, total):
    predictions = model(to_input(batch["frame1"]), to_input(batch["frame2"]))
    return sequence_loss(predictions, batch) / total


def backward(model, batch):
    total = counted(batch).sum()
    loss_of(model, batch, total).backward()


def clip(model):
    nn.utils.clip_grad_norm_(model.parameters(), CLIP)


def build():
    return RAFT().train()


def optimizer(model, **more):
    adamw = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=WDECAY, eps=EPSILON, **more)
    model.scheduler = torch.optim.lr_scheduler.PolynomialLR(adamw, NUM_STEPS)
    return adamw


def batch(generator):
    """Smooth pictures that move; the truth of some pixels is not known."""
    coarse = 255 * torch.rand(BATCH, 3, 7, 9, generator=generator)
    frame = F.interpolate(coarse, size=(HEIGHT + 8, WIDTH + 8), mode="bilinear")
    base = torch.randn(BATCH, 2, 1, 1, generator=generator)
    noise = torch.randn(BATCH, 2, HEIGHT, WIDTH, generator=generator)
    return {
        "frame1": frame[:, :, 4:-4, 4:-4].round(),
        "frame2": frame[:, :, 3:-5, 6:-2].round(),
        "flow": torch.tensor([-2.0, 1.0]).view(1, 2, 1, 1) + base + 2 * noise,
        "valid": torch.rand(BATCH, HEIGHT, WIDTH, generator=generator) < 0.8,
    }


def step(model, optimizer, batch):
    optimizer.zero_grad()
    backward(model, batch)
    clip(model)
    optimizer.step()
    model.scheduler.step()

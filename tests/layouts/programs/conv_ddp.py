"""A convolutional network under DDP that exchanges gradients in the last part of a batch only."""

import torch
from common import average, launch
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

LAYOUTS = {"one": 1, "ddp2": 2, "ddp4": 4}
VARIANTS = ("", "checkpointed")
BUGS = {
    "not_divided_by_parts": {"layout": "ddp2", "near": ["binary_cross_entropy", "truediv"]},
    "last_part_repeated": {
        "layout": "ddp2",
        "rank": 0,
        "near": [r"features\.0", r"Module\.features"],
    },
    "gradients_cleared_between": {"layout": "ddp2", "near": ["parameters_grad", "Adamax"]},
    "never_exchanged": {"layout": "ddp4", "near": ["parameters_grad", "Adamax"]},
    "flipped_on_one_rank": {"layout": "ddp4", "rank": 1, "near": [r"features\.0"]},
}
PARTS, BATCH = 2, 16


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(2, 8, 3, padding=1),
            nn.GroupNorm(2, 8),
            nn.ELU(),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 12, 3, padding=1, groups=2),
            nn.GroupNorm(3, 12),
            nn.ELU(),
        )
        self.decide = nn.Linear(12, 1)
        self.checkpointed = False

    def forward(self, pictures):
        if self.checkpointed:
            from torch.utils.checkpoint import checkpoint

            maps = checkpoint(self.features, pictures, use_reentrant=False)
        else:
            maps = self.features(pictures)
        return self.decide(maps.mean((2, 3))).squeeze(1)


class Data:
    """Pictures and answers of a step, cut into the parts of this rank."""

    def __init__(self, run):
        self.run, self.generator = run, torch.Generator().manual_seed(909)

    def parts(self):
        pictures = torch.rand(BATCH, 2, 8, 8, generator=self.generator) - 0.5
        answers = (torch.rand(BATCH, generator=self.generator) > 0.5).to(pictures.dtype)
        if self.run.bug("flipped_on_one_rank", 1):
            pictures = pictures.flip(3)
        found = []
        for part in range(PARTS):
            if part == PARTS - 1 and self.run.bug("last_part_repeated", 0):
                part = 0
            halves = (each.chunk(PARTS)[part] for each in (pictures, answers))
            found.append([each.chunk(self.run.ranks)[self.run.rank] for each in halves])
        return found


def train(run):
    torch.manual_seed(17)
    net = ConvNet()
    net.checkpointed = run.variant == "checkpointed"
    model = DistributedDataParallel(net) if run.ranks > 1 else net
    optimizer = torch.optim.Adamax(model.parameters(), lr=0.01)
    data, losses = Data(run), []
    for _ in range(run.steps):
        parts, total = data.parts(), 0.0
        with run.step(model):
            for number, (pictures, answers) in enumerate(parts):
                last = number == PARTS - 1
                if run.ranks > 1:
                    model.require_backward_grad_sync = last and not run.bug("never_exchanged")
                scores = model(pictures)  # bug: last_part_repeated, flipped_on_one_rank
                loss = F.binary_cross_entropy_with_logits(scores, answers)
                if not run.bug("not_divided_by_parts"):
                    loss = loss / PARTS  # bug: not_divided_by_parts
                if run.bug("gradients_cleared_between"):
                    optimizer.zero_grad()
                loss.backward()  # bug: gradients_cleared_between, never_exchanged
                total += loss.item()
            optimizer.step()  # bug: never_exchanged, gradients_cleared_between
            optimizer.zero_grad()
        losses.append(average(total))
    return losses, {name: each.detach().clone() for name, each in net.named_parameters()}


if __name__ == "__main__":
    launch(train, LAYOUTS, BUGS, VARIANTS)

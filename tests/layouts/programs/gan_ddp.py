"""Two models of a GAN under DDP, two optimizers, and an average of the weights of one."""

import torch
from common import average, launch
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

LAYOUTS = {"one": 1, "ddp2": 2, "ddp4": 4}
VARIANTS = ("", "views")
BUGS = {
    "noise_of_one_rank": {
        "layout": "ddp2",
        "rank": 1,
        "near": ["generator", "make", "Linear", "linear"],
    },
    "fake_not_detached": {"layout": "ddp2", "near": ["detach", "judge", "make", "backward"]},
    "labels_swapped_on_one": {
        "layout": "ddp4",
        "rank": 3,
        "near": ["binary_cross", "softplus", "neg"],
    },
    "average_of_one_step": {"layout": "ddp2", "near": ["lerp", "mul", "average", "ema"]},
}
BATCH = 8


class Make(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 24), nn.Linear(24, 6)
        self.norm = nn.LayerNorm(24)

    def forward(self, z):
        return torch.tanh(self.b(F.leaky_relu(self.norm(self.a(z)), 0.2)))


class Judge(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(6, 24), nn.Linear(24, 1)

    def forward(self, x):
        return self.b(F.leaky_relu(self.a(x), 0.2)).squeeze(1)


class Both(nn.Module):
    def __init__(self):
        super().__init__()
        self.make, self.judge = Make(), Judge()


def train(run):
    torch.manual_seed(23)
    both = Both()
    average_weights = [p.detach().clone() for p in both.make.parameters()]
    wrap = (
        (lambda m: DDP(m, gradient_as_bucket_view=run.variant == "views"))
        if run.ranks > 1
        else (lambda m: m)
    )
    make, judge = wrap(both.make), wrap(both.judge)
    for_make = torch.optim.Adam(both.make.parameters(), lr=0.01, betas=(0.5, 0.9))
    for_judge = torch.optim.Adam(both.judge.parameters(), lr=0.02, betas=(0.5, 0.9))
    generator = torch.Generator().manual_seed(12)
    losses = []
    for _ in range(run.steps):
        real = torch.randn(BATCH, 6, generator=generator).tanh()
        z = torch.randn(BATCH, 4, generator=generator)
        real, z = real.chunk(run.ranks)[run.rank], z.chunk(run.ranks)[run.rank]
        if run.bug("noise_of_one_rank", 1):
            z = z * 1.3
        with run.step(both):
            fake = make(z)  # bug: noise_of_one_rank
            given = (
                fake if run.bug("fake_not_detached") else fake.detach()
            )  # bug: fake_not_detached
            right, wrong = judge(real), judge(given)
            if run.bug("labels_swapped_on_one", 3):
                right, wrong = wrong, right  # bug: labels_swapped_on_one
            loss = F.softplus(-right).mean() + F.softplus(wrong).mean()
            loss.backward(retain_graph=run.bug("fake_not_detached"))  # bug: fake_not_detached
            for_judge.step()
            for_judge.zero_grad()
            if not run.bug("fake_not_detached"):
                for_make.zero_grad()
            other = F.softplus(-judge(make(z))).mean()
            other.backward()
            for_make.step()
            for_make.zero_grad()
            for_judge.zero_grad()
            with torch.no_grad():
                for mean, p in zip(average_weights, both.make.parameters(), strict=True):
                    mean.lerp_(
                        p, 0.5 if run.bug("average_of_one_step") else 0.1
                    )  # bug: average_of_one_step
        losses += [average(loss), average(other)]
    weights = {n: p.detach().clone() for n, p in both.named_parameters()}
    weights.update({f"average.{i}": p for i, p in enumerate(average_weights)})
    return losses, weights


if __name__ == "__main__":
    launch(train, LAYOUTS, BUGS, VARIANTS)

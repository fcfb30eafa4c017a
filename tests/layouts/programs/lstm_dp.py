"""A recurrent language model under data parallelism by hand: one bucket of gradients."""

import torch
import torch.distributed as dist
from common import average, launch
from torch import nn
from torch.nn import functional as F

LAYOUTS = {"one": 1, "dp2": 2, "dp3": 3}
VARIANTS = ("", "tied")
BUGS = {
    "clipped_before_exchange": {"layout": "dp2", "near": ["clip", "all_reduce", "AdamW"]},
    "half_of_bucket": {"layout": "dp2", "near": ["all_reduce", "clip", "copy_", "AdamW"]},
    "same_batch_on_all": {"layout": "dp3", "near": ["embed", "embedding", "batch"]},
    "state_of_before": {"layout": "dp2", "rank": 1, "near": ["lstm", "LSTM"]},
}
WORDS, WIDTH, BATCH, LENGTH = 40, 16, 6, 7


class Net(nn.Module):
    def __init__(self, tied):
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.lstm = nn.LSTM(WIDTH, WIDTH, num_layers=2, batch_first=True)
        self.out = nn.Linear(WIDTH, WORDS)
        if tied:
            self.out.weight = self.embed.weight

    def forward(self, tokens, state=None):
        x, state = self.lstm(self.embed(tokens), state)  # bug: state_of_before
        return self.out(x), state


def exchange(net, run):
    grads = [p.grad for p in net.parameters()]
    flat = torch.cat([g.reshape(-1) for g in grads])
    if run.bug("half_of_bucket"):
        dist.all_reduce(flat[: flat.numel() // 2])  # bug: half_of_bucket
    else:
        dist.all_reduce(flat)
    flat /= run.ranks
    at = 0
    for g in grads:
        g.copy_(flat[at : at + g.numel()].view_as(g))
        at += g.numel()


def train(run):
    torch.manual_seed(14)
    net = Net(run.variant == "tied")
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01, weight_decay=0.1)
    generator = torch.Generator().manual_seed(77)
    losses = []
    for _ in range(run.steps):
        tokens = torch.randint(0, WORDS, (BATCH, LENGTH + 1), generator=generator)
        each = BATCH // run.ranks
        at = 0 if run.bug("same_batch_on_all") else run.rank * each
        mine = tokens[at : at + each]
        with run.step(net):
            state = None
            if run.bug("state_of_before", 1):
                state = (torch.full((2, each, WIDTH), 0.2), torch.full((2, each, WIDTH), 0.2))
            scores, _ = net(mine[:, :-1], state)  # bug: same_batch_on_all, state_of_before
            loss = F.cross_entropy(scores.flatten(0, 1), mine[:, 1:].flatten())
            loss.backward()
            if run.bug("clipped_before_exchange"):
                nn.utils.clip_grad_norm_(net.parameters(), 0.05)  # bug: clipped_before_exchange
            if run.ranks > 1:
                exchange(net, run)
            if not run.bug("clipped_before_exchange"):
                nn.utils.clip_grad_norm_(net.parameters(), 0.05)
            optimizer.step()  # bug: half_of_bucket
            optimizer.zero_grad()
        losses.append(average(loss))
    return losses, {n: p.detach().clone() for n, p in net.named_parameters()}


if __name__ == "__main__":
    launch(train, LAYOUTS, BUGS, VARIANTS)

"""Two processes with DistributedDataParallel, and collectives of the program itself."""

import torch
import torch.distributed as dist

PROCESSES = 2


def train(run):
    model = torch.nn.Sequential(
        torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.LayerNorm(16), torch.nn.Linear(16, 4)
    )
    model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    torch.manual_seed(100 + dist.get_rank())
    for _ in range(run.steps):
        x, y = torch.randn(4, 8), torch.randint(4, (4,))
        with run.recorded(model):
            loss = torch.nn.functional.cross_entropy(model(x), y)
            loss.backward()
            shown = loss.detach().clone()
            dist.all_reduce(shown)
            parts = [torch.empty(4, 8) for _ in range(dist.get_world_size())]
            dist.all_gather(parts, x)
            (torch.cat(parts).mean() + shown).item()
            optimizer.step()
            optimizer.zero_grad()
    return model

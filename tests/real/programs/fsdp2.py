"""Two processes with fully_shard (FSDP2) and mixed precision."""

import torch
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

PROCESSES = 2


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(16)
        self.up = torch.nn.Linear(16, 32)
        self.down = torch.nn.Linear(32, 16)

    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


def train(run):
    model = torch.nn.Sequential(Block(), Block(), torch.nn.Linear(16, 4))
    half = run.options.get("bf16", False)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16 if half else None)
    for block in model:
        fully_shard(block, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    torch.manual_seed(100 + torch.distributed.get_rank())
    for _ in range(run.steps):
        x, y = torch.randn(4, 16), torch.randint(4, (4,))
        with run.recorded(model):
            torch.nn.functional.cross_entropy(model(x).float(), y).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
    return model

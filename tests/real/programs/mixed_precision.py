"""A small GPT under autocast and GradScaler, with gradient accumulation and clipping."""

import torch
import torch.nn.functional as F


class Attention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = torch.nn.Linear(32, 96)
        self.out = torch.nn.Linear(32, 32)

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, 4, 8)).permute(2, 0, 3, 1, 4)
        mask = torch.full((x.shape[1], x.shape[1]), torch.finfo(torch.float32).min).triu(1)
        scores = (q @ k.transpose(-1, -2)).float() / 8**0.5 + mask
        return self.out((scores.softmax(-1).to(v.dtype) @ v).transpose(1, 2).flatten(2))


class Gpt(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(40, 32)
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(32) for _ in range(2))
        self.attention = torch.nn.ModuleList(Attention() for _ in range(2))

    def forward(self, tokens):
        x = self.embed(tokens)
        for norm, attention in zip(self.norms, self.attention, strict=True):
            x = x + attention(norm(x))
        return F.linear(x, self.embed.weight)


def train(run):
    model = Gpt()
    half = run.options.get("bf16", True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=run.options.get("foreach"))
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
    for _ in range(run.steps):
        with run.recorded(model):
            for _ in range(2):
                tokens = torch.randint(40, (2, 8))
                with torch.autocast("cpu", torch.bfloat16, enabled=half):
                    loss = (
                        F.cross_entropy(model(tokens).float().flatten(0, 1), tokens.flatten()) / 2
                    )
                scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
    return model

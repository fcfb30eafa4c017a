"""A transformer layer under torch.compile, or eager with the option compile=False."""

import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(32, 16)
        self.layer = torch.nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.head = torch.nn.Linear(16, 32)

    def forward(self, tokens):
        return self.head(self.layer(self.embed(tokens)))


def train(run):
    model = Net()
    compiled = (
        torch.compile(model, backend="aot_eager") if run.options.get("compile", True) else model
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(run.steps):
        tokens = torch.randint(32, (2, 8))
        with run.recorded(model):
            logits = compiled(tokens)
            torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten()).backward()
            optimizer.step()
            optimizer.zero_grad()
    return model

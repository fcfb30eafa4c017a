"""Graph attention and convolution of PyTorch Geometric: scatter and index operations."""

import torch
from torch_geometric.nn import GATConv, GCNConv, global_mean_pool


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = GATConv(8, 8, heads=2, dropout=0.1)
        self.convolution = GCNConv(16, 16)
        self.head = torch.nn.Linear(16, 3)

    def forward(self, x, edges, batch):
        x = torch.nn.functional.elu(self.attention(x, edges))
        return self.head(global_mean_pool(self.convolution(x, edges).relu(), batch))


def train(run):
    model = Net()
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-2)
    for _ in range(run.steps):
        x, edges = torch.randn(20, 8), torch.randint(20, (2, 60))
        batch = torch.arange(20) // 5
        with run.recorded(model):
            out = model(x, edges, batch)
            torch.nn.functional.cross_entropy(out, torch.tensor([0, 1, 2, 0])).backward()
            optimizer.step()
            optimizer.zero_grad()
    return model

"""A bidirectional LSTM over packed sequences of different lengths."""

import torch
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


class Tagger(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(30, 12, padding_idx=0)
        self.lstm = torch.nn.LSTM(12, 10, num_layers=2, bidirectional=True, batch_first=True)
        self.head = torch.nn.Linear(20, 5)

    def forward(self, tokens, lengths):
        packed = pack_padded_sequence(
            self.embed(tokens), lengths, batch_first=True, enforce_sorted=False
        )
        out, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True)
        return self.head(out)


def train(run):
    model = Tagger()
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05)
    for _ in range(run.steps):
        lengths = torch.tensor([7, 3, 5])
        tokens = torch.randint(1, 30, (3, 7))
        padded = torch.arange(7) >= lengths[:, None]
        tokens[padded] = 0
        labels = torch.randint(5, (3, 7)).masked_fill(padded, -100)
        with run.recorded(model):
            logits = model(tokens, lengths)
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    return model

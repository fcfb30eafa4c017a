"""A tagger that accumulates over two micro-batches: zero_grad stands inside the inner loop."""

import torch
import torch.nn.functional as F
from common import ALT, BUG, debugger, digest
from torch import nn

torch.manual_seed(13)


class Tagger(nn.Module):
    def __init__(self, words=50, tags=7, width=24):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.lstm = nn.LSTM(width, width, bidirectional=True, batch_first=True)
        self.tags = nn.Linear(2 * width, tags)

    def forward(self, sentence):
        states, _ = self.lstm(self.words(sentence))
        return self.tags(states)


def loss_of(tagger, words, tags):
    return F.cross_entropy(tagger(words).flatten(0, 1), tags.flatten())


tagger = Tagger()
optimizer = torch.optim.Adagrad(tagger.parameters(), lr=0.05)
words, tags = torch.randint(0, 50, (2, 2, 4, 9)), torch.randint(0, 7, (2, 2, 4, 9))
dbg = debugger()
losses = []
for step in range(2):
    dbg.start(tagger)
    optimizer.zero_grad()
    if ALT:
        both = [loss_of(tagger, words[step, micro], tags[step, micro]) for micro in range(2)]
        (sum(both) / 2).backward()
        losses += [each.item() for each in both]
    for micro in range(0 if ALT else 2):
        loss = loss_of(tagger, words[step, micro], tags[step, micro])
        if BUG:
            optimizer.zero_grad()
        (loss / 2).backward()
        losses.append(loss.item())
    optimizer.step()
    dbg.stop()
    dbg.step()
made = digest(losses, tagger)

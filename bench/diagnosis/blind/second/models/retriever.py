"""Retrieval with a BERT of transformers: hard negatives, documents of a batch, a temperature."""

import torch
from torch import nn
from torch.nn import functional as F
from transformers import BertConfig, BertModel

VOCABULARY, WIDTH, QUERY, DOCUMENT, QUERIES, HARD = 43, 16, 5, 8, 4, 2
EACH = 1 + HARD  # documents of a query: the right one stands first
RATE, LAYER_DECAY, LARGEST, BACKWARD = 3e-3, 0.6, 100.0, 0.5


def config():
    return BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=WIDTH,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=DOCUMENT,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )


class Retriever(nn.Module):
    """Queries and documents go through one encoder."""

    def __init__(self):
        super().__init__()
        self.encoder = BertModel(config(), add_pooling_layer=False)
        for weight in self.encoder.parameters():
            if weight.dim() == 2:
                nn.init.normal_(weight, std=0.25)
        self.heat = nn.Parameter(torch.tensor(2.0))  # the logarithm of the scale of the scores

    def forward(self, tokens, known):
        states = self.encoder(input_ids=tokens, attention_mask=known).last_hidden_state
        return F.normalize(pooled(states, known), dim=-1)

    def scale(self):
        return self.heat.exp().clamp(max=LARGEST)


def pooled(states, known):
    """The mean over the known tokens."""
    known = known[..., None].to(states.dtype)
    return (states * known).sum(dim=1) / known.sum(dim=1)


def build():
    return Retriever()


def depth_of(name):
    """The number of layers under the head of a weight: its rate is smaller for each."""
    if "embeddings" in name:
        return 3
    return 2 - int(name.split(".")[3]) if "layer." in name else 0


def optimizer(model):
    groups = [
        {"params": [weight], "lr": RATE * LAYER_DECAY ** depth_of(name)}
        for name, weight in model.named_parameters()
    ]
    return torch.optim.Adamax(groups, lr=RATE, eps=1e-6, weight_decay=1e-2)


def texts(generator, rows, length):
    tokens = torch.randint(1, VOCABULARY, (rows, length), generator=generator)
    lengths = torch.randint(2, length + 1, (rows, 1), generator=generator)
    known = torch.arange(length) < lengths
    return tokens * known, known.long()


def batch(generator):
    """Queries and documents with masks; and the topics of the queries, some of which agree."""
    queries = texts(generator, QUERIES, QUERY)
    return *queries, *texts(generator, QUERIES * EACH, DOCUMENT), torch.tensor([0, 1, 0, 2])


def scores_of(model, queries, documents):
    return model.scale() * queries @ documents.mT


def labels():
    """The number of the right document of each query."""
    return torch.arange(QUERIES) * EACH


def too_near(topics):
    """The right documents of other queries with the same topic: they are no negatives."""
    same = topics[:, None] == topics
    right = F.one_hot(labels(), QUERIES * EACH).bool()
    return (same & ~torch.eye(QUERIES, dtype=torch.bool)).long() @ right.long() > 0


def loss_of(scores, topics):
    """From queries to documents, and from right documents to queries."""
    forth = F.cross_entropy(scores.masked_fill(too_near(topics), float("-inf")), labels())
    back = F.cross_entropy(scores[:, labels()].mT, torch.arange(QUERIES))
    return forth + BACKWARD * back


def descend(model, words, words_known, texts, texts_known, topics):
    queries, documents = model(words, words_known), model(texts, texts_known)
    loss_of(scores_of(model, queries, documents), topics).backward()


def step(model, optimizer, batch):
    optimizer.zero_grad()
    descend(model, *batch)
    optimizer.step()

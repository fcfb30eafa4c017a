"""Small trainings: each function takes a seed and gives (net, loss), both ready to train."""

import numpy as np

import mindspore
from mindspore import Tensor, mint, nn, ops


def _data(seed, *shape):
    return Tensor(np.random.default_rng(seed).standard_normal(shape).astype("float32"))


def _error(logits, labels):
    """Not ops.cross_entropy: on the CPU its gradients are not the same bits in each run."""
    wanted = ops.one_hot(labels, logits.shape[-1], Tensor(1.0), Tensor(0.0))
    return ((mint.nn.functional.softmax(logits, dim=-1) - wanted) ** 2).mean()


def _begin(seed):
    mindspore.set_seed(seed)
    np.random.seed(seed)


class _Block(nn.Cell):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm((width,))
        self.fc1 = nn.Dense(width, 2 * width)
        self.fc2 = nn.Dense(2 * width, width)

    def construct(self, x):
        y = ops.gelu(self.fc1(self.norm(x)))
        return x + self.fc2(y) * 0.5


def mlp(seed):
    _begin(seed)
    net = nn.SequentialCell(_Block(8), _Block(8), nn.Dense(8, 3))
    x, label = _data(seed, 5, 8), Tensor(np.arange(5) % 3, mindspore.int32)
    return net, lambda: _error(net(x), label)


def dropout(seed):
    _begin(seed)
    net = nn.SequentialCell(nn.Dense(8, 8), nn.Dropout(p=0.4), nn.Dense(8, 3))
    x, label = _data(seed, 5, 8), Tensor(np.arange(5) % 3, mindspore.int32)
    return net, lambda: _error(net(x), label)


class _Cnn(nn.Cell):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 4, 3, has_bias=True)
        self.bn = nn.BatchNorm2d(4)
        self.pool = nn.MaxPool2d(2, 2)
        self.conv2 = nn.Conv2d(4, 4, 3, pad_mode="valid")
        self.flat = nn.Flatten()
        self.fc = nn.Dense(16, 3)

    def construct(self, x):
        x = self.pool(ops.relu(self.bn(self.conv1(x))))
        x = self.flat(mint.tanh(self.conv2(x)))
        return self.fc(x)


def cnn(seed):
    _begin(seed)
    net, x, y = _Cnn(), _data(seed, 4, 1, 8, 8), _data(seed + 1, 4, 3)
    return net, lambda: ((net(x) - y) ** 2).mean()


class _Lstm(nn.Cell):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(11, 6)
        self.lstm = nn.LSTM(6, 5, batch_first=True)
        self.fc = nn.Dense(5, 11)

    def construct(self, tokens):
        hidden, (_, _) = self.lstm(self.embedding(tokens))
        return self.fc(hidden)


def lstm(seed):
    _begin(seed)
    net = _Lstm()
    tokens = Tensor(np.random.default_rng(seed).integers(0, 11, (3, 7)), mindspore.int32)

    def loss():
        logits = net(tokens)
        return _error(logits[:, :-1].reshape(-1, 11), tokens[:, 1:].reshape(-1))

    return net, loss


class _Attention(nn.Cell):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Dense(width, 3 * width)
        self.out = nn.Dense(width, width)

    def construct(self, x):
        batch, length, width = x.shape
        parts = ops.split(self.qkv(x), width, axis=2)
        q, k, v = (
            part.reshape(batch, length, self.heads, width // self.heads).transpose(0, 2, 1, 3)
            for part in parts
        )
        scores = ops.matmul(q, k.swapaxes(2, 3)) / (width // self.heads) ** 0.5
        mask = ops.triu(ops.ones((length, length)), diagonal=1) > 0
        weights = mint.nn.functional.softmax(scores.masked_fill(mask, -1e9), dim=-1)
        y = ops.matmul(weights, v).transpose(0, 2, 1, 3).reshape(batch, length, width)
        return self.out(y)


class _Transformer(nn.Cell):
    def __init__(self, width=8, heads=2, tokens=13):
        super().__init__()
        self.embedding = nn.Embedding(tokens, width)
        self.norm = nn.LayerNorm((width,))
        self.attention = _Attention(width, heads)
        self.block = _Block(width)
        self.head = nn.Dense(width, tokens)

    def construct(self, tokens):
        x = self.embedding(tokens)
        x = x + self.attention(self.norm(x))
        return self.head(self.block(x))


def transformer(seed):
    _begin(seed)
    net = _Transformer()
    tokens = Tensor(np.random.default_rng(seed).integers(0, 13, (2, 6)), mindspore.int32)

    def loss():
        logits = net(tokens)
        return _error(logits.reshape(-1, 13), tokens.reshape(-1))

    return net, loss


PROGRAMS = {
    "mlp": mlp,
    "cnn": cnn,
    "lstm": lstm,
    "transformer": transformer,
    "dropout": dropout,
}


def trainer(net, loss):
    """A function that takes one step and gives (loss, gradients), and the optimizer."""
    net.set_train()
    optimizer = nn.Adam(net.trainable_params(), 1e-2)
    return mindspore.value_and_grad(loss, None, optimizer.parameters), optimizer

"""Changes of all programs that only a whole step proves harmless: values between differ."""

import functools

import torch
from case import harmless
from cases import bert as bert_cases
from cases import gpt as gpt_cases
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

whole = functools.partial(harmless, group="whole step")
SCALE = 1024.0


def of_rows(step, change):
    """The step of a program with a changed batch: a tensor, or several."""

    def changed(model, optimizer, batch):
        if isinstance(batch, torch.Tensor):
            return step(model, optimizer, change(batch))
        return step(model, optimizer, tuple(change(each) for each in batch))

    return changed


def divide_gradients(model, by):
    for parameter in model.parameters():
        if parameter.grad is not None:
            parameter.grad.div_(by)


@whole("rows", "gpt")
def rows_dealt(gpt):
    """The texts are in another order, so that other texts share a micro batch."""
    gpt.step = of_rows(gpt.step, lambda rows: rows[[2, 0, 3, 1]])


@whole("scaled", "gpt")
def loss_scaled(gpt):
    """The loss is multiplied by 1024, the gradients are divided before they are clipped."""
    loss, clip = gpt.loss, gpt.clip
    gpt.loss = lambda model, tokens, count: loss(model, tokens, count) * SCALE

    def unscale_and_clip(model):
        divide_gradients(model, SCALE)
        clip(model)

    gpt.clip = unscale_and_clip


@whole("scaled", "gpt")
def divided_behind_the_backward_pass(gpt):
    """Sums over tokens go backward; the gradients are divided by the number of tokens."""

    def accumulate(model, tokens):
        for part in tokens.chunk(gpt.ACCUMULATE):
            gpt.loss(model, part, 1).backward()
        divide_gradients(model, int((tokens[:, 1:] != gpt.PAD).sum()))

    gpt.accumulate = accumulate


@whole("padding", "gpt", both=gpt_cases.tokens_see_themselves)
def more_padding(gpt):
    """Three more columns of padding, at the right."""
    gpt.step = of_rows(gpt.step, lambda tokens: F.pad(tokens, (0, 3), value=gpt.PAD))


@whole("padding", "gpt", both=gpt_cases.tokens_see_themselves)
def texts_in_one_row(gpt):
    """The texts of a micro batch stand in one row; the mask keeps them apart."""

    class GPT(gpt.GPT):
        def forward(self, tokens):
            rows, length = tokens.shape
            valid = tokens != gpt.PAD
            apart = gpt.causal_mask(length, valid)[:, 0]
            mask = torch.full((rows * length, rows * length), torch.finfo(apart.dtype).min)
            for row, own in enumerate(apart):
                place = slice(row * length, (row + 1) * length)
                mask[place, place] = own
            cos, sin = gpt.rotary_angles(gpt.positions_of(valid).view(1, -1))
            x = self.tokens(tokens.view(1, -1))
            x = self.run_blocks(x, mask[None, None], cos, sin)
            return self.head(self.norm(x)).view(rows, length, -1)

    gpt.GPT = GPT


def autocast(program):
    """The forward pass of both sides runs in bfloat16 where autocast wants it."""
    loss = program.loss

    def in_bfloat16(*arguments):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return loss(*arguments)

    program.loss = in_bfloat16


@whole("precision", "gpt", both=autocast)
def casts_written_out(gpt):
    """Autocast is off in the gated layers, which cast weights and inputs on their own."""

    class MLP(gpt.MLP):
        def forward(self, x):
            x, gate, up, down = (
                each.bfloat16() for each in (x, self.gate.weight, self.up.weight, self.down.weight)
            )
            with torch.autocast("cpu", enabled=False):
                return F.linear(F.silu(F.linear(x, gate)) * F.linear(x, up), down)

    gpt.MLP = MLP


@whole("rows", "bert", both=bert_cases.without_dropout)
def rows_reversed(bert):
    """The texts are in the opposite order."""
    bert.step = of_rows(bert.step, lambda rows: rows.flip(0))


@whole("micro batches", "bert", both=bert_cases.without_dropout)
def two_micro_batches(bert):
    """Two micro batches; each loss is a sum that is divided by the words of both."""

    def step(model, optimizer, batch):
        bert.train_mode(model)
        optimizer.zero_grad()
        count = int(batch[3].sum())
        for part in zip(*(each.chunk(2) for each in batch), strict=True):
            tokens, types, valid, chosen = part
            logits = model(tokens.masked_fill(chosen, bert.MASK), types, valid)
            labels = bert.labels_of(tokens, chosen)
            (bert.loss(logits, labels) * int(chosen.sum()) / count).backward()
        optimizer.step()
        bert.schedule(optimizer)

    bert.step = step


@whole("scaled", "bert")
def loss_multiplied(bert):
    """The loss is multiplied by 1024 and the gradients are divided."""

    def step(model, optimizer, batch):
        tokens, types, valid, chosen = batch
        bert.train_mode(model)
        optimizer.zero_grad()
        logits = model(tokens.masked_fill(chosen, bert.MASK), types, valid)
        (bert.loss(logits, bert.labels_of(tokens, chosen)) * SCALE).backward()
        divide_gradients(model, SCALE)
        optimizer.step()
        bert.schedule(optimizer)

    bert.step = step


@whole("padding", "bert", both=bert_cases.without_dropout)
def two_columns_of_padding(bert):
    """Two more columns of padding at the right."""
    bert.step = of_rows(bert.step, lambda rows: F.pad(rows, (0, 2)))


@whole("recomputed", "bert")
def layers_computed_again(bert):
    """Each layer is computed again in the backward pass, with the same dropout."""

    class Layer(bert.Layer):
        def forward(self, x, mask):
            return checkpoint(super().forward, x, mask, use_reentrant=False)

    bert.Layer = Layer


@whole("rows", "resnet")
def pictures_reversed(resnet):
    """The pictures are in the opposite order."""
    resnet.step = of_rows(resnet.step, lambda rows: rows.flip(0))


@whole("scaled", "resnet")
def summed_and_divided(resnet):
    """The loss is the sum over pictures; the gradients are divided by their number."""

    def step(model, optimizer, batch):
        pictures, labels = batch
        resnet.prepare(model)
        value = resnet.loss(model(resnet.normalise(pictures)), labels) * len(pictures)
        optimizer.zero_grad()
        value.backward()
        divide_gradients(model, len(pictures))
        optimizer.step()

    resnet.step = step


@whole("scaled", "resnet")
def rate_for_the_loss(resnet):
    """The loss is divided by 8, the gradients are multiplied by 8."""
    step = resnet.step
    loss = resnet.loss
    resnet.loss = lambda logits, labels: loss(logits, labels) / 8

    class Multiplied:
        def __init__(self, model, optimizer):
            self.model, self.optimizer = model, optimizer
            self.zero_grad = optimizer.zero_grad

        def step(self):
            divide_gradients(self.model, 1 / 8)
            self.optimizer.step()

    resnet.step = lambda model, optimizer, batch: step(model, Multiplied(model, optimizer), batch)


@whole("rows", "lstm")
def texts_rotated(lstm):
    """The second text stands first, the first stands last."""
    lstm.step = of_rows(lstm.step, lambda rows: rows.roll(-1, 0))


@whole("micro batches", "lstm")
def text_by_text(lstm):
    """Each text goes backward on its own; its loss has its share of the known words."""

    def step(model, optimizer, batch):
        optimizer.zero_grad()
        count = int(batch[2].sum())
        for words, tags, valid in zip(*(each.split(1) for each in batch), strict=True):
            share = int(valid.sum()) / count
            (lstm.loss(model(words, valid), tags) * share).backward()
        lstm.clip(model)
        optimizer.step()

    lstm.step = step


@whole("padding", "lstm")
def one_more_time(lstm):
    """One more time that all texts are padded at."""
    step = lstm.step

    def padded(model, optimizer, batch):
        words, tags, valid = batch
        tags = F.pad(tags, (0, 1), value=lstm.IGNORED)
        return step(model, optimizer, (F.pad(words, (0, 1)), tags, F.pad(valid, (0, 1))))

    lstm.step = padded


@whole("scaled", "lstm")
def loss_of_the_sum(lstm):
    """The loss is a sum over words; the gradients are divided before they are clipped."""

    def step(model, optimizer, batch):
        words, tags, valid = batch
        optimizer.zero_grad()
        count = int(valid.sum())
        (lstm.loss(model(words, valid), tags) * count).backward()
        divide_gradients(model, count)
        lstm.clip(model)
        optimizer.step()

    lstm.step = step


@whole("rows", "moe")
def texts_reversed(moe):
    """The texts are in the opposite order: experts see their tokens in another order."""
    moe.step = of_rows(moe.step, lambda rows: rows.flip(0))


@whole("scaled", "moe")
def loss_times_1024(moe):
    """The loss is multiplied by 1024 and the gradients are divided."""

    def step(model, optimizer, tokens):
        optimizer.zero_grad()
        moe.backward(moe.loss(model, tokens) * SCALE)
        divide_gradients(model, SCALE)
        optimizer.step()

    moe.step = step


@whole("recomputed", "moe")
def decoder_computed_again(moe):
    """Each layer is computed again in the backward pass."""

    class Layer(moe.Layer):
        def forward(self, x):
            return checkpoint(super().forward, x, use_reentrant=False)

    moe.Layer = Layer


@whole("rows", "seq2seq")
def sentences_rotated(seq2seq):
    """The last sentence stands first."""
    seq2seq.step = of_rows(seq2seq.step, lambda rows: rows.roll(1, 0))


@whole("padding", "seq2seq")
def sentences_padded(seq2seq):
    """Two more columns of padding in sources and targets."""
    pad = functools.partial(F.pad, pad=(0, 2), value=seq2seq.PAD)
    seq2seq.step = of_rows(seq2seq.step, pad)


@whole("scaled", "seq2seq")
def sum_divided_later(seq2seq):
    """The loss is multiplied by the number of sentences, the gradients are divided by it."""

    def step(model, optimizer, batch):
        source, target = batch
        optimizer.zero_grad()
        value = seq2seq.loss(model(source, seq2seq.shifted(target)), target)
        (seq2seq.scaled(value) * len(source)).backward()
        divide_gradients(model, len(source))
        optimizer.step()

    seq2seq.step = step


def feed_in_bfloat16(seq2seq):
    """The feed-forward part of both sides runs in bfloat16."""

    class Feed(seq2seq.Feed):
        def forward(self, x):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return super().forward(x).float()

    seq2seq.Feed = Feed


@whole("precision", "seq2seq", both=feed_in_bfloat16)
def feed_casts_itself(seq2seq):
    """No autocast: the inputs and weights of the feed-forward part are cast by hand."""

    class Feed(seq2seq.Feed):
        def forward(self, x):
            y = F.relu(F.linear(x.bfloat16(), self.up.weight.bfloat16()))
            return F.linear(y, self.down.weight.bfloat16()).float()

    seq2seq.Feed = Feed


@whole("rows", "unet")
def pictures_rotated(unet):
    """The second picture stands first."""
    unet.step = of_rows(unet.step, lambda rows: rows.roll(-1, 0))


@whole("micro batches", "unet")
def picture_by_picture(unet):
    """Each picture goes backward on its own."""

    def step(model, optimizer, batch):
        optimizer.zero_grad()
        for pictures, noise, times in zip(*(each.split(1) for each in batch), strict=True):
            predicted = model(unet.add_noise(pictures, noise, times), times)
            value = unet.loss(predicted, unet.wanted(pictures, noise, times))
            (value / len(batch[0])).backward()
        optimizer.step()
        model.follow()

    unet.step = step


@whole("scaled", "unet")
def loss_scaled_by_1024(unet):
    """The loss is multiplied by 1024 and the gradients are divided."""

    def step(model, optimizer, batch):
        pictures, noise, times = batch
        optimizer.zero_grad()
        predicted = model(unet.add_noise(pictures, noise, times), times)
        (unet.loss(predicted, unet.wanted(pictures, noise, times)) * SCALE).backward()
        divide_gradients(model, SCALE)
        optimizer.step()
        model.follow()

    unet.step = step


@whole("rows", "graph")
def nodes_reversed(graph):
    """The nodes and the edges are in the opposite order."""
    step = graph.step

    def reordered(model, optimizer, batch):
        x, edges, graphs, labels = batch
        edges = (graph.NODES - 1 - edges).flip(1)
        return step(model, optimizer, (x.flip(0), edges, graphs.flip(0), labels))

    graph.step = reordered


@whole("scaled", "graph")
def loss_of_all_graphs(graph):
    """The loss is the sum over graphs; the gradients are divided by their number."""

    def step(model, optimizer, batch):
        x, edges, graphs, labels = batch
        optimizer.zero_grad()
        (graph.loss(model(x, edges, graphs), labels) * len(labels)).backward()
        divide_gradients(model, len(labels))
        optimizer.step()

    graph.step = step


@whole("micro batches", "graph")
def graph_by_graph(graph):
    """The labels of the graphs go backward one after the other, through one forward pass."""

    def step(model, optimizer, batch):
        x, edges, graphs, labels = batch
        optimizer.zero_grad()
        logits = model(x, edges, graphs)
        for index in range(len(labels)):
            value = graph.loss(logits[index : index + 1], labels[index : index + 1])
            (value / len(labels)).backward(retain_graph=index + 1 < len(labels))
        optimizer.step()

    graph.step = step

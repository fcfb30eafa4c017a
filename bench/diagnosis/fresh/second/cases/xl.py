"""Cases of the Transformer-XL."""

import torch
from case import fault, harmless
from torch.nn import functional as F

ATTENTION = r"layers.0.attention"


@fault("xl", line="distance = torch.arange(length - 1, -1, -1.0)")
def distances_ascend(xl):
    """Distances are encoded in ascending order."""

    def sinusoids(length):
        distance = torch.arange(0.0, length)  # here
        frequency = 1 / 10000 ** (torch.arange(0, xl.WIDTH, 2.0) / xl.WIDTH)
        angle = distance[:, None] * frequency  # here
        return torch.cat([angle.sin(), angle.cos()], dim=-1)

    xl.sinusoids = sinusoids


@fault(
    "xl",
    module=ATTENTION,
    line=[
        "return (content + shifted(place)) * HEAD**-0.5",
        "return padded.view(b, h, columns + 1, rows)",
        "padded = torch.cat([scores.new_zeros",
        "def shifted",
    ],
)
def places_not_shifted(xl):
    """The scores of the distances are not shifted."""

    class Attention(xl.Attention):
        def scores(self, q, k, r):
            content = (q + self.content_bias[:, None]) @ k.transpose(-2, -1)
            place = (q + self.place_bias[:, None]) @ r.transpose(-2, -1)
            return (content + place) * xl.HEAD**-0.5  # here

    xl.Attention = Attention


@fault(
    "xl",
    module=ATTENTION,
    line=["later = torch.ones(rows, columns", "share = scores.masked_fill(later"],
)
def mask_without_the_memory(xl):
    """The mask forgets the memory: a token sees what stands before it, counted from the left."""

    class Attention(xl.Attention):
        def forward(self, x, memory, encoded):
            whole = torch.cat([memory, x], dim=1)
            q = self.heads(self.query(x))
            k, v = (self.heads(part) for part in self.pair(whole).chunk(2, dim=-1))
            r = self.heads(self.position(encoded))
            scores = self.scores(q, k, r)
            rows, columns = scores.shape[-2:]
            later = torch.ones(rows, columns, dtype=torch.bool).triu(1)  # here
            share = scores.masked_fill(later, float("-inf")).softmax(dim=-1)  # here
            return self.outside((share @ v).transpose(1, 2).flatten(2))

    xl.Attention = Attention


@fault(
    "xl",
    module=r"(layers.0.*)?",
    line=[
        "return torch.cat([memory, x], dim=1)[:, -MEMORY:].detach()",
        "kept.append(remembered(memory, x))",
    ],
)
def memory_of_the_oldest(xl):
    """The memory keeps the oldest of the inputs."""
    xl.remembered = lambda memory, x: torch.cat([memory, x], dim=1)[:, : xl.MEMORY].detach()  # here


@fault("xl", line=["entropy = norm - (1 - SMOOTHING) * right - SMOOTHING * logits.mean(dim=-1)"])
def smoothing_added_to_the_right(xl):
    """The right word keeps its whole share beside the smoothing."""

    def loss_of(logits, labels):
        norm = logits.logsumexp(dim=-1)
        right = logits.gather(-1, labels[..., None])[..., 0]
        entropy = norm - right - xl.SMOOTHING * logits.mean(dim=-1)  # here
        return entropy.mean() + xl.Z * norm.square().mean()

    xl.loss_of = loss_of


@fault("xl", line=["return entropy.mean() + Z * norm.square().mean()"])
def penalty_of_the_mean_normaliser(xl):
    """The penalty is that of the mean normaliser."""

    def loss_of(logits, labels):
        norm = logits.logsumexp(dim=-1)
        right = logits.gather(-1, labels[..., None])[..., 0]
        entropy = norm - (1 - xl.SMOOTHING) * right - xl.SMOOTHING * logits.mean(dim=-1)
        return entropy.mean() + xl.Z * norm.mean().square()  # here

    xl.loss_of = loss_of


@fault(
    "xl",
    line=[
        "logits, memories = model(part[:, :-1], memories)",
        "memories = begun(len(tokens))",
        "return torch.cat([memory, x], dim=1)[:, -MEMORY:].detach()",
    ],
)
def memory_forgotten(xl):
    """Each segment begins with an empty memory."""

    def backward(model, tokens):
        for start in range(0, xl.SEGMENT * xl.SEGMENTS, xl.SEGMENT):
            part = tokens[:, start : start + xl.SEGMENT + 1]
            memories = xl.begun(len(tokens))  # here
            logits, memories = model(part[:, :-1], memories)  # here
            (xl.loss_of(logits, part[:, 1:]) / xl.SEGMENTS).backward()

    xl.backward = backward


@fault(
    "xl",
    line=[
        "rows.mul_(keep).add_(square.mean(1)",
        "columns.mul_(keep).add_(square.mean(0)",
        "moment = torch.outer(rows / rows.mean(), columns)",
        'square = weight.grad.square() + group["floor"]',
    ],
    api=r"Optimizer\.Adafactor\.step",
    update=True,
)
def factors_of_absolute_values(xl):
    """The factored moments are those of absolute gradients, not of squares."""

    class Adafactor(xl.Adafactor):
        def update(self, weight, state, group):
            state["step"] = state.get("step", 0) + 1
            keep = 1 - state["step"] ** -group["decay"]
            square = weight.grad.abs() + group["floor"]  # here
            if weight.dim() == 2:
                rows = state.setdefault("rows", torch.zeros_like(square[:, 0]))
                columns = state.setdefault("columns", torch.zeros_like(square[0]))
                rows.mul_(keep).add_(square.mean(1), alpha=1 - keep)  # here
                columns.mul_(keep).add_(square.mean(0), alpha=1 - keep)  # here
                moment = torch.outer(rows / rows.mean(), columns)  # here
            else:
                moment = state.setdefault("moment", torch.zeros_like(square))
                moment.mul_(keep).add_(square, alpha=1 - keep)
            update = weight.grad / moment.sqrt()
            update = update / (update.square().mean().sqrt() / group["threshold"]).clamp(min=1.0)
            size = weight.square().mean().sqrt().clamp(min=1e-3)
            weight.sub_(group["lr"] * size * update)

    xl.Adafactor = Adafactor


@harmless("reordered", "xl")
def places_by_gather(xl):
    """The distances are gathered, not shifted by a view."""

    def shifted(scores):
        rows, columns = scores.shape[-2:]
        i, j = torch.arange(rows)[:, None], torch.arange(columns)[None]
        wanted = (columns - 1 - (i + columns - rows - j)).clamp(max=columns - 1)
        return scores.gather(-1, wanted.expand_as(scores))

    xl.shifted = shifted


@harmless("fused", "xl")
def attention_of_pytorch(xl):
    """scaled_dot_product_attention with the scores of the distances as its mask."""

    class Attention(xl.Attention):
        def forward(self, x, memory, encoded):
            whole = torch.cat([memory, x], dim=1)
            q = self.heads(self.query(x))
            k, v = self.pair(whole).split(xl.WIDTH, dim=-1)
            r = self.heads(self.position(encoded))
            place = xl.shifted((q + self.place_bias[:, None]) @ r.transpose(-2, -1))
            rows, columns = place.shape[-2:]
            later = torch.ones(rows, columns, dtype=torch.bool).triu(1 + columns - rows)
            place = (place * xl.HEAD**-0.5).masked_fill(later, float("-inf"))
            y = F.scaled_dot_product_attention(
                q + self.content_bias[:, None], self.heads(k), self.heads(v), attn_mask=place
            )
            return self.outside(y.transpose(1, 2).flatten(2))

    xl.Attention = Attention


@harmless("split", "xl")
def keys_and_values_apart(xl):
    """Keys and values of the memory and of the segment are computed apart."""

    class Attention(xl.Attention):
        def forward(self, x, memory, encoded):
            key, value = self.pair.weight.split(xl.WIDTH)
            k = self.heads(torch.cat([F.linear(memory, key), F.linear(x, key)], dim=1))
            v = self.heads(torch.cat([memory @ value.T, x @ value.T], dim=1))
            q, r = self.heads(self.query(x)), self.heads(self.position(encoded))
            scores = self.scores(q, k, r)
            rows, columns = scores.shape[-2:]
            seen = torch.arange(columns)[None] <= torch.arange(rows)[:, None] + columns - rows
            share = torch.where(seen, scores, -torch.inf).softmax(dim=-1)
            return self.outside(torch.einsum("bhij,bhjd->bihd", share, v).flatten(2))

    xl.Attention = Attention


@harmless("loss", "xl")
def loss_of_pytorch(xl):
    """cross_entropy smooths the labels."""

    def loss_of(logits, labels):
        entropy = F.cross_entropy(
            logits.flatten(0, 1), labels.flatten(), label_smoothing=xl.SMOOTHING
        )
        norm = torch.logsumexp(logits, -1)
        return torch.add(entropy, torch.mean(norm * norm), alpha=xl.Z)

    xl.loss_of = loss_of


@harmless("scaled", "xl", group="whole step")
def one_backward_of_all_segments(xl):
    """The losses of all segments are added up, and go backward at once."""

    def backward(model, tokens):
        memories, losses = xl.begun(len(tokens)), []
        for start in range(0, xl.SEGMENT * xl.SEGMENTS, xl.SEGMENT):
            part = tokens[:, start : start + xl.SEGMENT + 1]
            logits, memories = model(part[:, :-1], memories)
            losses.append(xl.loss_of(logits, part[:, 1:]))
        torch.stack(losses).mean().backward()

    xl.backward = backward


@harmless("micro batches", "xl", group="whole step")
def row_after_row(xl):
    """Each text is a micro-batch of its own, through all segments."""
    whole = xl.backward

    def backward(model, tokens):
        for row in tokens.split(1):
            whole(model, row)
        for weight in model.parameters():
            weight.grad.mul_(1 / len(tokens))

    xl.backward = backward


@harmless("rows", "xl", group="whole step")
def texts_turned(xl):
    """The texts of the batch stand in another order."""
    backward = xl.backward
    xl.backward = lambda model, tokens: backward(model, tokens[torch.tensor([2, 0, 3, 1])])


@harmless("recomputed", "xl", group="whole step")
def layers_computed_again(xl):
    """Each layer is computed again in the backward pass."""
    from torch.utils.checkpoint import checkpoint

    class Layer(xl.Layer):
        def forward(self, x, memory, encoded):
            return checkpoint(super().forward, x, memory, encoded, use_reentrant=False)

    xl.Layer = Layer

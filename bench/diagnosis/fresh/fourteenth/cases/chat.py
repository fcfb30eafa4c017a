"""Cases of the chats that a Gemma 2 learns."""

import functools

import torch
from case import fault, harmless
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


@fault(
    "chat",
    line=[
        "lengths = attention_mask.sum(dim=1)",
        "return (NOISE_ALPHA / torch.sqrt(lengths * HIDDEN)).view(-1, 1, 1)",
    ],
)
def noise_by_padded_length(chat):
    """Noise is scaled by the length of the longest chat, padding included."""

    def noise_scale(attention_mask):
        lengths = torch.full((len(attention_mask),), attention_mask.shape[1])  # here
        return (chat.NOISE_ALPHA / torch.sqrt(lengths * chat.HIDDEN)).view(-1, 1, 1)  # here

    chat.noise_scale = noise_scale


@fault(
    "chat",
    # What is made from a number alone may not be recorded: the next call has it.
    line=[
        "answer = torch.full((length + 3,), role == ASSISTANT)",
        "answer[:2] = False",
        "answers.append(is_answer(role, len(words)))",
        "return torch.cat(ids), torch.cat(answers)",
    ],
)
def users_have_a_loss(chat):
    """The model learns to speak for the user, too: only the template is left out."""

    def is_answer(role, length):
        answer = torch.full((length + 3,), True)  # here
        answer[:2] = False  # here
        return answer

    chat.is_answer = is_answer


@fault(
    "chat",
    # One more assignment; the concatenation is the first that reads its result.
    line=["answer[:2] = False", "return torch.cat(ids), torch.cat(answers)"],
)
def end_of_turn_has_no_loss(chat):
    """The token that ends a turn is left out of the loss: the model never learns to stop."""

    def is_answer(role, length):
        answer = torch.full((length + 3,), role == chat.ASSISTANT)
        answer[:2] = False
        answer[-1] = False  # here
        return answer

    chat.is_answer = is_answer


@fault(
    "chat",
    # A slice may not be recorded: the first calls with its result stand in the loss.
    line=[
        "return logits[:, :-1], labels[:, 1:]",
        "logits, labels = shift(logits, labels)",
        "nll = F.cross_entropy(",
        "logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORE",
    ],
)
def labels_shifted_twice(chat):
    """Labels are shifted by two words: once for the data, and once more for the loss."""

    def shift(logits, labels):
        return logits[:, :-2], labels[:, 2:]  # here

    chat.shift = shift


@fault(
    "chat",
    api=r"Tensor\.(mul|__r?mul__)|Torch\.mul",
    module=r"model\.layers\.0(\.self_attn)?",
    module_only=r"model\.layers\.0(\.self_attn)?",
)
def scores_by_size_of_heads(chat):
    """Scores are scaled by the size of a head, where Gemma 2 has a number of its own."""
    chat.SCORES_SCALAR = chat.HEAD_DIM


@fault(
    "chat",
    # The quotient is missing, and what follows it; what the loss does first lacks them.
    line=[
        "return logits[:, :-1], labels[:, 1:]",
        "logits, labels = shift(logits, labels)",
        "logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORE",
    ],
    api=r"Tensor\.(div|__truediv__|true_divide|tanh|mul|__r?mul__)|Torch\.(div|tanh|mul)",
)
def final_cap_is_lost(chat):
    """The scores of words are not kept below the cap: the setting got lost."""
    chat.FINAL_CAP = None


@fault(
    "chat",
    # The mask differs from its first comparison on; the sum with the scores is the first to use it.
    api=r"Tensor\.(sub|__r?sub__|gt|__gt__|logical_and|__r?and__|where|masked_fill|add|__r?add__)"
    r"|Torch\.(sub|gt|where|logical_and|bitwise_and|add)",
    module=r"(model(\.layers\.0(\.self_attn)?)?)?",
    module_only=r"model(\.layers\.0(\.self_attn)?)?",
)
def window_one_word_longer(chat):
    """The window of the first layer is one word too long."""
    chat.WINDOW = chat.WINDOW + 1


@fault(
    "chat",
    # The product is missing; the sum is the first that lacks it.
    line=[
        "return log_z.square() * (labels != IGNORE)",
        "return nll + Z_WEIGHT * z_losses(logits, labels).sum()",
    ],
)
def padding_has_a_z_loss(chat):
    """The second loss counts all places, also prompts and padding."""

    def z_losses(logits, labels):
        return torch.logsumexp(logits, dim=-1).square()  # here

    chat.z_losses = z_losses


@fault(
    "chat",
    line=["torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_GRAD_NORM)", "    clip(model)"],
)
def clipped_after_each_micro_batch(chat):
    """Gradients are clipped before all of them are there."""

    def train_on(model, inputs):
        num_items = (inputs["labels"] != chat.IGNORE).sum()
        for part in chat.micro_batches(inputs):
            logits = chat.forward(model, part)
            (chat.sum_of_losses(logits, part["labels"]) / num_items).backward()
            chat.clip(model)  # here

    chat.train_on = train_on


@harmless("split", "chat")
def projections_joined(chat):
    """Gate and value of the feed-forward layers are one product."""
    build = chat.build

    def joined(mlp, x):
        weight = torch.cat([mlp.gate_proj.weight, mlp.up_proj.weight])
        gate, up = F.linear(x, weight).chunk(2, dim=-1)
        return mlp.down_proj(mlp.act_fn(gate) * up)

    def built():
        model = build()
        for layer in model.model.layers:
            layer.mlp.forward = functools.partial(joined, layer.mlp)
        return model

    chat.build = built


@harmless("fused", "chat")
def norms_by_pytorch(chat):
    """Norms before the layers are one call."""
    build = chat.build

    def normed(norm, x):
        return F.rms_norm(x, x.shape[-1:], 1.0 + norm.weight, norm.eps)

    def built():
        model = build()
        for layer in model.model.layers:
            for norm in (layer.input_layernorm, layer.pre_feedforward_layernorm):
                norm.forward = functools.partial(normed, norm)
        return model

    chat.build = built


@harmless("loss", "chat")
def entropy_from_the_same_sum(chat):
    """The entropy is the logarithm of the sum less the score of the word; the sum is used twice."""

    def sum_of_losses(logits, labels):
        logits, labels = chat.shift(logits, labels)
        counted = labels != chat.IGNORE
        log_z = logits[counted].logsumexp(dim=-1)
        said = logits[counted].gather(1, labels[counted].unsqueeze(1)).squeeze(1)
        return (log_z - said + chat.Z_WEIGHT * log_z**2).sum()

    chat.sum_of_losses = sum_of_losses


@harmless("mask", "chat")
def masks_made_before(chat):
    """Both masks are made by the program, as numbers that are added to scores."""

    def additive(seen):
        return torch.zeros(seen.shape).masked_fill(~seen, torch.finfo().min).unsqueeze(1)

    def forward(model, inputs):
        keys = inputs["attention_mask"].bool().unsqueeze(1)
        place = torch.arange(keys.shape[2])
        back = place.unsqueeze(1) - place
        masks = {
            "full_attention": additive(keys & (back >= 0)),
            "sliding_attention": additive(keys & (back >= 0) & (back < chat.WINDOW)),
        }
        embeddings = chat.noisy_embeddings(model, inputs)
        return model(inputs_embeds=embeddings, attention_mask=masks, use_cache=False).logits

    chat.forward = forward


@harmless("reordered", "chat")
def noise_before_embeddings(chat):
    """Noise is scaled before words are looked up, and the small loss is computed first."""

    def noisy_embeddings(model, inputs):
        length = inputs["input_ids"].shape[1]
        noise = chat.noise_scale(inputs["attention_mask"]) * inputs["noise"][:, :length]
        return noise + model.get_input_embeddings()(inputs["input_ids"])

    def sum_of_losses(logits, labels):
        logits, labels = chat.shift(logits, labels)
        small = chat.Z_WEIGHT * chat.z_losses(logits, labels).sum()
        scores = logits.flatten(0, 1)
        return small + F.cross_entropy(
            scores, labels.flatten(), ignore_index=chat.IGNORE, reduction="sum"
        )

    chat.noisy_embeddings, chat.sum_of_losses = noisy_embeddings, sum_of_losses


@harmless("rows", "chat", group="whole step")
def chats_in_another_order(chat):
    """The chats are in another order, and so in other micro-batches."""
    train_on = chat.train_on

    def shuffled(model, inputs):
        train_on(model, {name: value[[2, 0, 3, 1]] for name, value in inputs.items()})

    chat.train_on = shuffled


@harmless("micro batches", "chat", group="whole step")
def whole_batch_at_once(chat):
    """There is one batch of all chats."""
    chat.MICRO_BATCHES = 1


@harmless("padding", "chat", group="whole step")
def padded_to_a_multiple(chat):
    """Chats are padded to a multiple of eight words, and eight more."""
    collate = chat.collate

    def padded(chats):
        inputs = collate(chats)
        more = 16 - inputs["input_ids"].shape[1] % 8
        values = {"input_ids": chat.PAD, "attention_mask": 0, "labels": chat.IGNORE}
        return {name: F.pad(inputs[name], (0, more), value=v) for name, v in values.items()}

    chat.collate = padded


@harmless("scaled", "chat", group="whole step")
def divided_at_the_end(chat):
    """Sums of losses go backward; gradients are divided by the number of words at the end."""

    def train_on(model, inputs):
        for part in chat.micro_batches(inputs):
            chat.sum_of_losses(chat.forward(model, part), part["labels"]).backward()
        num_items = (inputs["labels"] != chat.IGNORE).sum()
        for parameter in model.parameters():
            parameter.grad /= num_items

    chat.train_on = train_on


@harmless("recomputed", "chat", group="whole step")
def feed_forward_computed_again(chat):
    """The feed-forward layers are computed again in the backward pass."""
    build = chat.build

    def again(forward, x):
        return checkpoint(forward, x, use_reentrant=False)

    def built():
        model = build()
        for layer in model.model.layers:
            layer.mlp.forward = functools.partial(again, layer.mlp.forward)
        return model

    chat.build = built

"""Cases of the headlines for articles."""

import functools

import torch
from case import fault, harmless
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


@fault("headlines", line="return input_ids.ne(args.pad_token_id).long()")
def padding_is_taken_for_zero(headlines):
    """The mask is made for padding with 0, as other models have it: BART pads with 1."""

    def get_attention_mask(input_ids):
        return input_ids.ne(0).long()  # here

    headlines.get_attention_mask = get_attention_mask


@fault(
    "headlines",
    # The padding stays as it is; the count is the first that should not see it.
    line=[
        "return labels.masked_fill(labels == args.pad_token_id, IGNORE)",
        'labels = ignore_padding(features["labels"])',
        "return labels.ne(IGNORE).sum()",
        'num_items = count_items(inputs["labels"])',
    ],
)
def padding_has_a_loss(headlines):
    """Padding of headlines is not marked: the model learns to say it."""

    def ignore_padding(labels):
        return labels  # here

    headlines.ignore_padding = ignore_padding


@fault(
    "headlines",
    line=[
        "shifted[:, 1:] = labels[:, :-1]",
        "return shifted.masked_fill(shifted == IGNORE, args.pad_token_id)",
        'decoder_input_ids=shift_tokens_right(inputs["labels"]),',
    ],
)
def decoder_sees_the_answer(headlines):
    """The headline is not shifted: the decoder is given the word that it has to say."""

    def shift_tokens_right(labels):
        return labels.masked_fill(labels == headlines.IGNORE, headlines.args.pad_token_id)  # here

    headlines.shift_tokens_right = shift_tokens_right


@fault(
    "headlines",
    line=[
        "shifted[:, 0] = args.decoder_start_token_id",
        "return shifted.masked_fill(shifted == IGNORE, args.pad_token_id)",
    ],
)
def decoder_starts_with_bos(headlines):
    """The decoder starts with the beginning of a sentence; BART's starts with the end of one."""
    headlines.args.decoder_start_token_id = headlines.args.bos_token_id


@fault(
    "headlines",
    # The product is with one: its result is the first wrong number.
    line="outputs = model(",
    api=r"Module\.model\.(encoder|decoder)\.embed_tokens\..*|Tensor\.(mul|__r?mul__)|Torch\.mul",
    module=r"model\.(encoder|decoder)(\.embed_tokens)?",
    module_only=r"model\.encoder\.embed_tokens",
)
def embeddings_are_not_scaled(headlines):
    """Embeddings are not multiplied with the root of the width: the setting got lost."""
    headlines.args.scale_embedding = False


@fault("headlines", line="smooth_loss = -lprobs.mean(dim=-1)")
def smoothing_adds_all_words(headlines):
    """The smooth part is the sum over the vocabulary, not its mean."""

    def smoothed_nll(logits, labels):
        lprobs = torch.log_softmax(logits, dim=-1)
        padded = labels.eq(headlines.IGNORE)
        target = labels.clamp(min=0).unsqueeze(-1)
        nll_loss = -lprobs.gather(dim=-1, index=target).squeeze(-1)
        smooth_loss = -lprobs.sum(dim=-1)  # here
        nll_loss = nll_loss.masked_fill(padded, 0.0).sum()
        smooth_loss = smooth_loss.masked_fill(padded, 0.0).sum()
        part = headlines.args.label_smoothing
        return (1 - part) * nll_loss + part * smooth_loss

    headlines.smoothed_nll = smoothed_nll


@fault("headlines", line="return loss / num_items")
def micro_batches_have_own_means(headlines):
    """Each micro-batch is divided by its own words: short headlines count more."""

    def compute_loss(model, inputs, num_items):
        loss = headlines.smoothed_nll(headlines.get_logits(model, inputs), inputs["labels"])
        items = headlines.count_items(inputs["labels"])  # here
        return loss / items / headlines.args.gradient_accumulation_steps  # here

    headlines.compute_loss = compute_loss


@fault(
    "headlines",
    # The gradients of the first micro-batch are gone; nothing shows it before the norm of all.
    line=[
        "optimizer.zero_grad()",
        "loss.backward()",
        "torch.nn.utils.clip_grad_norm_(model.parameters(), args.max_grad_norm)",
    ],
    api=r"Optimizer\.AdamW\.zero_grad",
)
def gradients_forgotten_between(headlines):
    """Gradients are set to zero before each micro-batch: the last one alone counts."""

    def training_step(model, optimizer, inputs):
        num_items = headlines.count_items(inputs["labels"])
        for micro_batch in headlines.split(inputs):
            optimizer.zero_grad()  # here
            loss = headlines.compute_loss(model, micro_batch, num_items)
            loss.backward()  # here

    headlines.training_step = training_step


@fault("headlines", api=r"Optimizer\.AdamW\.step", update=True)
def norms_are_decayed(headlines):
    """The norms have another name than the one that is kept from decay."""
    headlines.args.no_decay = ("bias", "LayerNorm.weight")


@harmless("fused", "headlines")
def attention_written_out(headlines):
    """Attention is two products and a softmax."""
    get_config = headlines.get_config
    headlines.get_config = lambda **more: get_config(attn_implementation="eager", **more)


@harmless("loss", "headlines")
def smoothing_by_pytorch(headlines):
    """The smoothed loss is PyTorch's."""

    def smoothed_nll(logits, labels):
        return F.cross_entropy(
            logits.flatten(0, 1),
            labels.flatten(),
            ignore_index=headlines.IGNORE,
            label_smoothing=headlines.args.label_smoothing,
            reduction="sum",
        )

    headlines.smoothed_nll = smoothed_nll


@harmless("mask", "headlines")
def mask_as_numbers(headlines):
    """The mask is given as four dimensions of numbers that are added to scores."""

    def get_attention_mask(input_ids):
        padded = (input_ids == headlines.args.pad_token_id)[:, None, None, :]
        numbers = torch.zeros(padded.shape).masked_fill(padded, torch.finfo().min)
        return numbers.expand(-1, 1, input_ids.shape[1], -1)

    def get_logits(model, inputs):
        encoded = model.model.encoder(inputs["input_ids"], inputs["attention_mask"])
        shifted = headlines.shift_tokens_right(inputs["labels"])
        seen = inputs["attention_mask"][:, :, :1].expand(-1, -1, shifted.shape[1], -1)
        outputs = model(encoder_outputs=encoded, attention_mask=seen, decoder_input_ids=shifted)
        return outputs.logits

    headlines.get_attention_mask, headlines.get_logits = get_attention_mask, get_logits


@harmless("reordered", "headlines")
def decoder_inputs_first(headlines):
    """The headline is shifted before the mask is made, and words are counted last."""

    def collate(features):
        attention_mask = headlines.get_attention_mask(features["input_ids"])
        labels = headlines.ignore_padding(features["labels"])
        return features | {"attention_mask": attention_mask, "labels": labels}

    def get_logits(model, inputs):
        shifted = headlines.shift_tokens_right(inputs["labels"])
        mask = inputs["attention_mask"]
        return model(inputs["input_ids"], mask, decoder_input_ids=shifted).logits

    headlines.collate, headlines.get_logits = collate, get_logits


@harmless("split", "headlines")
def vocabulary_in_two_halves(headlines):
    """The scores of words are two products, one for each half of the vocabulary."""

    def get_logits(model, inputs):
        outputs = model.model(
            input_ids=inputs["input_ids"],
            attention_mask=inputs["attention_mask"],
            decoder_input_ids=headlines.shift_tokens_right(inputs["labels"]),
        )
        states = outputs.last_hidden_state
        parts = [F.linear(states, half) for half in model.lm_head.weight.chunk(2)]
        return torch.cat(parts, dim=-1) + model.final_logits_bias

    headlines.get_logits = get_logits


@harmless("rows", "headlines", group="whole step")
def articles_in_another_order(headlines):
    """The articles are in another order, and so in other micro-batches."""
    collate = headlines.collate

    def shuffled(features):
        return collate({name: value[[4, 2, 5, 0, 3, 1]] for name, value in features.items()})

    headlines.collate = shuffled


@harmless("micro batches", "headlines", group="whole step")
def three_micro_batches(headlines):
    """There are three micro-batches of two articles."""
    headlines.args.gradient_accumulation_steps = 3


@harmless("padding", "headlines", group="whole step")
def padded_further(headlines):
    """Articles have five more columns of padding, headlines two."""
    collate = headlines.collate

    def padded(features):
        value = headlines.args.pad_token_id
        input_ids = F.pad(features["input_ids"], (0, 5), value=value)
        return collate(
            {"input_ids": input_ids, "labels": F.pad(features["labels"], (0, 2), value=value)}
        )

    headlines.collate = padded


@harmless("scaled", "headlines", group="whole step")
def divided_after_the_backward_pass(headlines):
    """Sums go backward; the gradients are divided by the words before they are clipped."""
    clip_gradients = headlines.clip_gradients

    def training_step(model, optimizer, inputs):
        optimizer.zero_grad()
        for micro_batch in headlines.split(inputs):
            headlines.compute_loss(model, micro_batch, 1).backward()
        model.num_items = headlines.count_items(inputs["labels"])

    def divided(model):
        for param in model.parameters():
            param.grad.div_(model.num_items)
        clip_gradients(model)

    headlines.training_step, headlines.clip_gradients = training_step, divided


@harmless("recomputed", "headlines", group="whole step")
def encoder_computed_again(headlines):
    """The layers of the encoder are computed again in the backward pass."""
    build = headlines.build

    def built():
        model = build()
        for layer in model.model.encoder.layers:
            layer.forward = functools.partial(again, layer.forward)
        return model

    def again(forward, *inputs, **more):
        return checkpoint(forward, *inputs, use_reentrant=False, **more)

    headlines.build = built

"""Cases of the answers in paragraphs."""

import torch
from case import fault, harmless
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


@fault(
    "squad",
    line=[
        "return torch.where(answerable, place + question_length + 2, 0)",
        'first = place_in_row(batch["first"], length, answerable)',
        'last = place_in_row(batch["last"], length, answerable)',
    ],
)
def answers_one_word_early(squad):
    """Of the two special words before the paragraph one is forgotten."""

    def place_in_row(place, question_length, answerable):
        return torch.where(answerable, place + question_length + 1, 0)  # here

    squad.place_in_row = place_in_row


@fault(
    "squad",
    # Which places are hidden is first used where they are filled.
    line=[
        "allowed = (token_type_ids == 1) & (attention_mask == 1) & (input_ids != SEP)",
        "hidden = ~may_answer(input_ids, token_type_ids, attention_mask)",
        "start, end = start.masked_fill(hidden, lowest), end.masked_fill(hidden, lowest)",
    ],
)
def questions_answer_themselves(squad):
    """Words of the question have a chance to be the answer, too."""

    def may_answer(input_ids, token_type_ids, attention_mask):
        allowed = (attention_mask == 1) & (input_ids != squad.SEP)  # here
        allowed[:, 0] = True
        return allowed

    squad.may_answer = may_answer


@fault(
    "squad",
    line=["output = self.albert(", "token_type_ids=token_type_ids,"],
    api=r"Module\..*token_type_embeddings\..*|Functional\.embedding"
    r"|Tensor\.(expand|gather|__r?add__|add)|Torch\.(gather|zeros)",
    module=r"(.*\.)?albert(\.embeddings(\.token_type_embeddings)?)?",
)
def segments_not_given(squad):
    """The model is not told which words are the question: all are of the first segment."""

    class Reader(squad.Reader):
        def forward(self, input_ids, token_type_ids, attention_mask):
            output = self.albert(input_ids, attention_mask, output_hidden_states=True)  # here
            start, end = self.span_scores(self.mix(output.hidden_states))
            hidden = ~squad.may_answer(input_ids, token_type_ids, attention_mask)
            lowest = torch.finfo(start.dtype).min
            start, end = start.masked_fill(hidden, lowest), end.masked_fill(hidden, lowest)
            return start, end, self.verdict(output.pooler_output).squeeze(-1)

    squad.Reader = Reader


@fault(
    "squad",
    line=[
        "weights = self.depth.softmax(dim=0)",
        'return torch.einsum("d,dblh->blh", weights, torch.stack(hidden_states))',
    ],
)
def weights_of_depths_as_they_are(squad):
    """The states of the layers are added with raw weights, without a softmax."""

    class Reader(squad.Reader):
        def mix(self, hidden_states):
            stacked = torch.stack(hidden_states)
            return torch.einsum("d,dblh->blh", self.depth, stacked)  # here

    squad.Reader = Reader


@fault(
    "squad",
    api=r"Optimizer\.AdamW\.step|Tensor\.copy_",
    update=True,
    line=["self.weight.data.copy_(self.saved)", "model.attack.restore()"],
)
def words_stay_attacked(squad):
    """The embeddings are not moved back: the optimizer goes on from the attacked ones."""

    class Attack(squad.Attack):
        def restore(self):
            self.saved = None

    squad.Attack = Attack


@fault(
    "squad",
    # The sum of both gradients is first read where they are clipped.
    line="model.fabric.clip_gradients(model.net, optimizer, max_norm=MAX_GRAD_NORM)",
    # Or what lay in .grad before the second pass, which was added after the first look.
    api=r".*clip_grad_norm_|.*get_total_norm|.*clip_grads_with_norm_|Torch\._foreach_.*norm"
    r"|Torch\.linalg.*norm|Optimizer\.gradients_before",
)
def attack_alone_is_learned(squad):
    """The gradient of the words as they are is set to zero before that of the attacked ones."""

    def gradients(model, optimizer, batch):
        optimizer.zero_grad()
        squad.accumulate(model, batch)
        model.attack.move()
        optimizer.zero_grad()  # here
        squad.accumulate(model, batch)  # here
        model.attack.restore()
        model.fabric.clip_gradients(  # here
            model.net, optimizer, max_norm=squad.MAX_GRAD_NORM
        )

    squad.gradients = gradients


@fault("squad", api=r"Optimizer\.AdamW\.step", update=True)
def warmup_begins_at_nothing(squad):
    """The warm-up counts from zero: the first step has a rate of zero."""
    rate = squad.rate

    def late(t):
        return t / squad.WARMUP_STEPS if t < squad.WARMUP_STEPS else rate(t)

    squad.rate = late


@fault("squad", api=r"Optimizer\.AdamW\.step", update=True)
def gains_of_layers_decay(squad):
    """The names without decay are those of a BERT, whose norms have other names."""
    squad.NO_DECAY = ("bias", "LayerNorm.weight")


@fault("squad", line="return (cross_entropy(start, first) + cross_entropy(end, last)) / 2")
def ends_where_it_begins(squad):
    """The scores of the end learn the place of the beginning."""

    def span_loss(start, end, batch):
        answerable, length = batch["answerable"], batch["question_length"]
        first = squad.place_in_row(batch["first"], length, answerable)
        of_start = squad.cross_entropy(start, first)
        return (of_start + squad.cross_entropy(end, first)) / 2  # here

    squad.span_loss = span_loss


@harmless("fused", "squad")
def gelu_of_pytorch(squad):
    """The approximate GELU is PyTorch's, not composed."""
    make_config = squad.make_config
    squad.make_config = lambda: make_config(hidden_act="gelu_pytorch_tanh")


@harmless("loss", "squad")
def entropy_of_two_parts(squad):
    """The entropy is the logarithm of a sum, less the score that is right."""

    def cross_entropy(scores, place):
        return (scores.logsumexp(dim=-1) - scores.gather(1, place[:, None])[:, 0]).sum()

    squad.cross_entropy = cross_entropy


@harmless("split", "squad")
def begins_and_ends_apart(squad):
    """There is a product for the beginning and one for the end."""

    class Reader(squad.Reader):
        def span_scores(self, states):
            weights, biases = self.span.weight, self.span.bias
            return tuple(states @ w + b for w, b in zip(weights, biases, strict=True))

    squad.Reader = Reader


@harmless("mask", "squad")
def mask_of_numbers(squad):
    """The mask has a number for each pair of words, which is added to the scores."""

    class Reader(squad.Reader):
        def __init__(self):
            super().__init__()
            albert = self.albert
            right = albert.forward

            def forward(input_ids, attention_mask, **inputs):
                length = attention_mask.shape[1]
                hidden = (attention_mask == 0)[:, None, None, :].expand(-1, 1, length, -1)
                kind = albert.pooler.weight.dtype
                added = torch.zeros(hidden.shape, dtype=kind)
                added = added.masked_fill(hidden, torch.finfo(kind).min)
                return right(input_ids, attention_mask=added, **inputs)

            albert.forward = forward

    squad.Reader = Reader


@harmless("reordered", "squad")
def verdict_before_the_span(squad):
    """The loss of the verdict is computed before that of the answer."""

    def loss_of(net, batch):
        names = ("input_ids", "token_type_ids", "attention_mask")
        start, end, verdict = net(*(batch[name] for name in names))
        of_verdict = squad.VERDICT_WEIGHT * squad.verdict_loss(verdict, batch)
        return of_verdict + squad.span_loss(start, end, batch)

    squad.loss_of = loss_of


@harmless("micro batches", "squad", group="whole step")
def three_parts_for_two(squad):
    """There are three micro-batches in place of two."""
    squad.ACCUMULATE = 3


@harmless("rows", "squad", group="whole step")
def rows_in_another_order(squad):
    """The rows are in another order, and in other micro-batches."""
    gradients = squad.gradients

    def shuffled(model, optimizer, batch):
        order = torch.tensor([4, 0, 5, 2, 1, 3])
        gradients(model, optimizer, {name: value[order] for name, value in batch.items()})

    squad.gradients = shuffled


@harmless("padding", "squad", group="whole step")
def five_more_columns(squad):
    """Rows have five more words of padding."""
    gradients = squad.gradients
    names = ("input_ids", "token_type_ids", "attention_mask")

    def padded(model, optimizer, batch):
        wide = {name: F.pad(batch[name], (0, 5)) for name in names}
        gradients(model, optimizer, batch | wide)

    squad.gradients = padded


@harmless("recomputed", "squad", group="whole step", settings={"float32": True})
def layers_computed_again(squad):
    """What the shared layer does is computed again in the backward pass."""

    class Reader(squad.Reader):
        def __init__(self):
            super().__init__()
            [layer] = self.albert.encoder.albert_layer_groups[0].albert_layers
            right = layer.ff_chunk
            layer.ff_chunk = lambda x: checkpoint(right, x, use_reentrant=False)

    squad.Reader = Reader


@harmless("scaled", "squad", group="whole step")
def divided_after_both_parts(squad):
    """Sums over rows go backward; gradients are divided when both parts are done."""

    def accumulate(model, batch):
        before = [p.grad for p in model.net.parameters()]
        model.net.zero_grad()
        for part in squad.chunks(batch):
            model.fabric.backward(squad.loss_of(model.net, part))
        for p, grad in zip(model.net.parameters(), before, strict=True):
            if p.grad is not None:
                p.grad = p.grad / len(batch["input_ids"]) + (0 if grad is None else grad)

    squad.accumulate = accumulate

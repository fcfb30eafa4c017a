"""Cases of the scanned forms."""

import functools

import torch
from case import fault, harmless
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


@fault(
    "forms",
    # Boxes are integers that are looked up: the first tables that read them are right, too.
    line=[
        "scale = page.repeat(2)",
        "return (boxes * (GRID - 1) / scale).long().clamp(0, GRID - 1)",
    ],
    api=r"Module\.layout\.embeddings\.[xy]_position_embeddings\..*|Functional\.embedding",
    module=r"layout\.embeddings(\.[xy]_position_embeddings)?",
    module_only=r"(layout(\.embeddings(\.[xy]_position_embeddings)?)?)?",
)
def page_on_its_side(forms):
    """Columns are divided by the height of the page, rows by its width."""

    def on_grid(boxes, page):
        scale = page.flip(0).repeat(2)  # here
        return (boxes * (forms.GRID - 1) / scale).long().clamp(0, forms.GRID - 1)  # here

    forms.on_grid = on_grid


@fault(
    "forms",
    # The labels are integers, which the loss reads first.
    line=[
        'labels[first] = form["labels"]',
        "labels = torch.full((int(pieces.sum()),), IGNORE)",
        "return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction=",
        'return (inputs["labels"] != IGNORE).sum(), inputs["pairs"].sum()',
    ],
)
def all_pieces_have_labels(forms):
    """Each piece of a word has its label, not the first one alone."""
    spread = forms.spread

    def labelled(form):
        boxes, _, first = spread(form)
        return boxes, form["labels"].repeat_interleave(form["pieces"]), first  # here

    forms.spread = labelled


@fault(
    "forms",
    # Places are integers, which what picks the states reads first; labels are read before.
    line=[
        "first = pieces.cumsum(0) - pieces",
        'labels[first] = form["labels"]',
        "starts = 1 + first[form",
        "return states.gather(1, places.unsqueeze(2).expand(-1, -1, states.shape[2]))",
    ],
)
def last_pieces_stand_for_words(forms):
    """The last piece of a word has its label and its links, not the first one."""

    def spread(form):
        pieces = form["pieces"]
        boxes = forms.on_grid(form["boxes"], form["page"]).repeat_interleave(pieces, dim=0)
        last = pieces.cumsum(0) - 1  # here
        labels = torch.full((int(pieces.sum()),), forms.IGNORE)
        labels[last] = form["labels"]  # here
        return boxes, labels, last

    forms.spread = spread


@fault(
    "forms",
    # The mask is missing: the attention is the first that lacks it.
    line='input_ids=inputs["tokens"], bbox=inputs["boxes"], attention_mask=inputs["mask"]',
    api=r"(Functional|Torch)\.scaled_dot_product_attention",
    module=r"layout\.encoder\.layer\.0\.attention\.self",
    module_only=r"(layout(\.encoder)?)?|layout\.encoder\.layer\.0(\.attention(\.self)?)?",
)
def padding_is_read(forms):
    """Words look at padding."""

    class Reader(forms.Reader):
        def read(self, inputs):
            answer = self.layout(input_ids=inputs["tokens"], bbox=inputs["boxes"])  # here
            return answer.last_hidden_state

    forms.Reader = Reader


@fault(
    "forms",
    # The counts are arguments: the quotients are the first calls with them.
    line=[
        "loss_of(model, part, counts).backward()",
        'loss = label_loss(logits, inputs["labels"]) / labels',
        "return loss + LINKED * link_loss(links, inputs) / pairs",
    ],
)
def each_part_counts_for_itself(forms):
    """Losses are divided by the counts of the micro-batch, and by the number of them."""

    def accumulate(model, inputs):
        parts = list(forms.in_parts(inputs))
        for part in parts:
            counts = [len(parts) * count for count in forms.counts_of(part)]  # here
            forms.loss_of(model, part, counts).backward()  # here

    forms.accumulate = accumulate


@fault(
    "forms",
    line=[
        "questions, answers = (chosen(states, inputs[name]) for name in",
        "return states.gather(1, places.unsqueeze(2).expand(-1, -1, states.shape[2]))",
        "return self.label(states), self.linker(questions, answers)",
        "asked = F.gelu(self.question(questions)) @ self.between",
    ],
    api=r"Functional\.linear|Module\.linker\.question\..*|Module\.linker\..*",
    module=r"linker(\.question)?",
    module_only=r"(linker(\.question)?)?",
)
def answers_ask(forms):
    """The arguments of the linker are swapped."""

    class Reader(forms.Reader):
        def forward(self, inputs):
            states = self.read(inputs)
            questions = forms.chosen(states, inputs["questions"])
            answers = forms.chosen(states, inputs["answers"])
            return self.label(states), self.linker(answers, questions)  # here

    forms.Reader = Reader


@fault(
    "forms",
    # A difference is missing: the power is the first that lacks it.
    line=[
        "wrong = 1 - torch.exp(-losses)",
        'return (wrong**FOCUS * losses * inputs["pairs"]).sum()',
    ],
)
def easy_pairs_count_more(forms):
    """The loss of a pair has the weight of how right it is."""

    def link_loss(logits, inputs):
        linked = inputs["linked"].to(logits.dtype)
        losses = F.binary_cross_entropy_with_logits(logits, linked, reduction="none")
        right = torch.exp(-losses)
        return (right**forms.FOCUS * losses * inputs["pairs"]).sum()  # here

    forms.link_loss = link_loss


@fault(
    "forms",
    # A product is missing: the sum is the first that lacks it.
    line='return (wrong**FOCUS * losses * inputs["pairs"]).sum()',
)
def pairs_of_padding(forms):
    """Pairs of fields that are not there should not be linked, and are learned."""

    def link_loss(logits, inputs):
        linked = inputs["linked"].to(logits.dtype)
        losses = F.binary_cross_entropy_with_logits(logits, linked, reduction="none")
        wrong = 1 - torch.exp(-losses)
        return (wrong**forms.FOCUS * losses).sum()  # here

    forms.link_loss = link_loss


@fault(
    "forms",
    line=[
        "loss_of(model, part, counts).backward()",
        "nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)",
    ],
)
def each_part_is_clipped(forms):
    """The gradients are clipped whenever a micro-batch has been added."""

    def accumulate(model, inputs):
        counts = forms.counts_of(inputs)
        for part in forms.in_parts(inputs):
            forms.loss_of(model, part, counts).backward()
            nn.utils.clip_grad_norm_(model.parameters(), forms.MAX_NORM)  # here

    forms.accumulate = accumulate


@fault("forms", api=r"Optimizer\.AdamW\.step", update=True)
def rate_of_each_part(forms):
    """The schedule moves on with each micro-batch."""
    clip = forms.clip

    def moved(model):
        clip(model)
        for _ in range(len(forms.FIELDS) // forms.PER_DEVICE - 1):
            model.schedule.step()

    forms.clip = moved


@harmless("fused", "forms")
def attention_by_products(forms):
    """The attention is two products and a softmax."""
    make_layout = forms.make_layout
    forms.make_layout = lambda: make_layout(attn_implementation="eager")


@harmless("fused", "forms")
def links_by_einsum(forms):
    """Questions, the matrix and answers are multiplied in one call."""

    class Linker(forms.Linker):
        def forward(self, questions, answers):
            asked, told = F.gelu(self.question(questions)), F.gelu(self.answer(answers))
            return torch.einsum("rqd,de,rae->rqa", asked, self.between, told) + self.bias

    forms.Linker = Linker


@harmless("loss", "forms")
def labels_by_gather(forms):
    """The losses of labels are logarithms that are picked."""

    def label_loss(logits, labels):
        real = labels != forms.IGNORE
        chosen = labels.masked_fill(~real, 0).unsqueeze(2)
        chances = logits.log_softmax(dim=2).gather(2, chosen).squeeze(2)
        return -(chances * real).sum()

    forms.label_loss = label_loss


@harmless("loss", "forms")
def links_by_their_side(forms):
    """The logit of what is right has a sign; a sigmoid says how wrong the other side is."""

    def link_loss(logits, inputs):
        sign = 2 * inputs["linked"].to(logits.dtype) - 1
        losses = -(F.logsigmoid(sign * logits) * torch.sigmoid(-sign * logits) ** forms.FOCUS)
        return losses[inputs["pairs"]].sum()

    forms.link_loss = link_loss


@harmless("inserted", "forms")
def words_embedded_before(forms):
    """Words are embedded before the model is called."""

    class Reader(forms.Reader):
        def read(self, inputs):
            words = self.layout.get_input_embeddings()(inputs["tokens"])
            answer = self.layout(
                inputs_embeds=words, bbox=inputs["boxes"], attention_mask=inputs["mask"]
            )
            return answer.last_hidden_state

    forms.Reader = Reader


@harmless("micro batches", "forms", group="whole step")
def three_forms_at_a_time(forms):
    """Three forms are a micro-batch."""
    forms.PER_DEVICE = 3


@harmless("rows", "forms", group="whole step")
def forms_in_another_order(forms):
    """The forms are in another order."""
    collate = forms.collate
    forms.collate = lambda rows: collate([rows[k] for k in (3, 0, 5, 4, 1, 2)])


@harmless("padding", "forms", group="whole step")
def longer_padding(forms):
    """There are three more places of padding behind all forms."""
    collate = forms.collate

    def longer(rows):
        inputs = collate(rows)
        values = {"tokens": forms.PAD, "labels": forms.IGNORE, "mask": 0}
        more = {name: F.pad(inputs[name], (0, 3), value=value) for name, value in values.items()}
        return inputs | more | {"boxes": F.pad(inputs["boxes"], (0, 0, 0, 3))}

    forms.collate = longer


@harmless("scaled", "forms", group="whole step")
def divided_when_added(forms):
    """The losses are multiplied by the words, and gradients are divided when all are added."""
    accumulate = forms.accumulate
    loss_of = forms.loss_of
    forms.loss_of = lambda model, inputs, counts: counts[0] * loss_of(model, inputs, counts)

    def divided(model, inputs):
        accumulate(model, inputs)
        words = forms.counts_of(inputs)[0]
        for p in model.parameters():
            if p.grad is not None:
                p.grad.div_(words)

    forms.accumulate = divided


@harmless("recomputed", "forms", group="whole step")
def layers_computed_again(forms):
    """The layers are computed again in the backward pass."""
    make_layout = forms.make_layout

    def made(**more):
        layout = make_layout(**more)
        for layer in layout.encoder.layer:
            layer.forward = functools.partial(checkpoint, layer.forward, use_reentrant=False)
        return layout

    forms.make_layout = made

"""Cases of the music from words."""

import torch
from case import fault, harmless
from torch.nn import functional as F


@fault(
    "music",
    line=[
        "labels = late[:, :, 1:]",
        "return labels.masked_fill(labels == BEGIN, IGNORE)",
    ],
)
def labels_are_not_shifted(music):
    """Each code is its own label: the model learns to copy."""

    def labels_of(late):
        labels = late[:, :, :-1]  # here
        return labels.masked_fill(labels == music.BEGIN, music.IGNORE)  # here

    music.labels_of = labels_of


@fault(
    "music",
    # What turns codes round may not be recorded: the first that reads them joins or embeds them.
    line=["codes.flatten(0, 1),", "logits = self.decoder("],
    api=r"Tensor\.(flatten|transpose|reshape)|Functional\.embedding|Torch\.embedding"
    r"|Module\.decoder\.model\.decoder\.embed_tokens\.0\..*",
    module=r"(decoder(\.model(\.decoder(\.embed_tokens\.0)?)?)?)?",
    module_only=r"decoder(\.model(\.decoder(\.embed_tokens\.0)?)?)?",
)
def songs_within_books(music):
    """Codes are joined with the songs of a book together, not with the books of a song."""

    class Composer(music.Composer):
        def forward(self, codes, texts, mask, keep):
            logits = self.decoder(
                codes.transpose(0, 1).flatten(0, 1),  # here
                encoder_hidden_states=self.read(texts, mask, keep),
                encoder_attention_mask=mask,
                use_cache=False,
            ).logits
            return logits.unflatten(0, (-1, music.BOOKS))

    music.Composer = Composer


@fault(
    "music",
    # The mask is missing; the attention to words is the first that lacks it.
    line=["encoder_attention_mask=mask,", "logits = self.decoder("],
    api=r"Functional\.scaled_dot_product_attention|Torch\.scaled_dot_product_attention",
    module=r"decoder\.model\.decoder\.layers\.0\.encoder_attn",
    module_only=r"decoder(\.model(\.decoder(\.layers\.0(\.encoder_attn)?)?)?)?",
)
def padding_of_texts_is_heard(music):
    """The decoder also looks at the padding of short texts."""

    class Composer(music.Composer):
        def forward(self, codes, texts, mask, keep):
            states = self.read(texts, mask, keep)
            logits = self.decoder(  # here
                codes.flatten(0, 1), encoder_hidden_states=states, use_cache=False
            ).logits
            return logits.unflatten(0, (-1, music.BOOKS))

    music.Composer = Composer


@fault(
    "music",
    line="states = self.to_decoder(states) * keep.view(-1, 1, 1)",
    api=r"Module\.to_decoder\..*|Functional\.linear|Torch\.linear",
    module=r"(to_decoder)?",
    module_only="to_decoder",
)
def words_left_out_before_the_projection(music):
    """States are made zero before they are projected: the bias is left."""

    class Composer(music.Composer):
        def read(self, texts, mask, keep):
            states = self.text_encoder(texts, attention_mask=mask).last_hidden_state
            states = self.to_decoder(states * keep.view(-1, 1, 1))  # here
            return states * mask.unsqueeze(-1)

    music.Composer = Composer


@fault("music", line="log_z = logits.logsumexp(dim=-1)")
def sum_of_chances_is_one(music):
    """The logarithm of the sum is that of scores that are normalised: it is zero."""

    def z_losses(logits, labels):
        log_z = logits.log_softmax(dim=-1).logsumexp(dim=-1)  # here
        return (log_z.square() * (labels != music.IGNORE)).sum(dim=(0, 2))

    music.z_losses = z_losses


@fault(
    "music",
    # The count is no tensor any more; the quotient is the first to use it.
    line=[
        'return (inputs["labels"] != IGNORE).sum(dim=(0, 2))',
        "return (weights * losses / counts).sum() / weights.sum()",
    ],
)
def moments_without_a_code_count(music):
    """Losses are divided by all moments of all songs, with a code or without."""

    def counts_of(inputs):
        return inputs["labels"][:, 0].numel()  # here

    music.counts_of = counts_of


@fault(
    "music",
    api=r"Functional\.(relu|gelu)|Torch\.(relu|gelu)"
    r"|Module\.decoder\.model\.decoder\.layers\.0\.activation_fn\..*",
    module=r"decoder\.model\.decoder\.layers\.0(\.activation_fn)?",
    module_only=r"decoder\.model\.decoder\.layers\.0(\.activation_fn)?",
)
def activation_of_another_model(music):
    """The activation is that of T5, not that of MusicGen."""
    make_decoder = music.make_decoder

    def changed():
        return make_decoder(activation_function="relu")

    music.make_decoder = changed


@fault(
    "music",
    # What is written into a slice may not be recorded: what reads it next is the first.
    line=[
        "late[:, book, book + 1 : book + 1 + length] = codes[:, book]",
        '"codes": late[:, :, :-1],',
        "labels = late[:, :, 1:]",
        "return labels.masked_fill(labels == BEGIN, IGNORE)",
    ],
)
def all_books_begin_together(music):
    """No book is later than another one."""

    def delayed(codes):
        songs, books, length = codes.shape
        late = codes.new_full((songs, books, length + books), music.BEGIN)
        late[:, :, 1 : 1 + length] = codes  # here
        return late

    music.delayed = delayed


@fault(
    "music",
    # The first number that differs is a gradient that is clipped too early.
    line=[
        "        loss_of(model, part, counts).backward()",
        "nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)",
    ],
)
def clipped_after_each_micro_batch(music):
    """Gradients are clipped while they are added."""

    def accumulate(model, inputs):
        counts = music.counts_of(inputs)
        for part in music.micro_batches(inputs):
            music.loss_of(model, part, counts).backward()  # here
            music.clip(model)  # here

    music.accumulate = accumulate


@fault("music", api=r"Optimizer\.AdamW\.step", update=True)
def rate_moves_with_each_micro_batch(music):
    """The schedule makes a step for each micro-batch."""

    def step(model, optimizer, batch):
        inputs = music.collate(batch)
        optimizer.zero_grad()
        music.accumulate(model, inputs)
        music.clip(model)
        optimizer.step()
        for _ in music.micro_batches(inputs):
            model.schedule.step()

    music.step = step


@harmless("fused", "music")
def attention_by_products(music):
    """The attention of the decoder is two products and a softmax."""
    make_decoder = music.make_decoder
    music.make_decoder = lambda: make_decoder(attn_implementation="eager")


@harmless("split", "music")
def heads_in_one_product(music):
    """The scores of all books are one sum over the width."""

    class Composer(music.Composer):
        def forward(self, codes, texts, mask, keep):
            hidden = self.decoder.model(
                codes.flatten(0, 1),
                encoder_hidden_states=self.read(texts, mask, keep),
                encoder_attention_mask=mask,
                use_cache=False,
            ).last_hidden_state
            heads = torch.stack([head.weight for head in self.decoder.lm_heads])
            return torch.einsum("smw,bcw->sbmc", hidden, heads)

    music.Composer = Composer


@harmless("loss", "music")
def losses_by_log_chances(music):
    """The losses of all books are read from logarithms of chances."""

    def book_losses(logits, labels):
        real = labels != music.IGNORE
        chosen = labels.masked_fill(~real, 0).unsqueeze(-1)
        chances = logits.log_softmax(dim=-1).gather(-1, chosen).squeeze(-1)
        return -chances.masked_fill(~real, 0.0).sum(dim=(0, 2))

    music.book_losses = book_losses


@harmless("reordered", "music")
def sums_before_losses(music):
    """The penalty of large scores is computed first."""

    def loss_of(model, inputs, counts):
        logits = model(inputs["codes"], inputs["texts"], inputs["mask"], inputs["keep"])
        losses = music.Z_WEIGHT * music.z_losses(logits, inputs["labels"])
        losses = losses + music.book_losses(logits, inputs["labels"])
        weights = torch.tensor(music.BOOK_WEIGHTS, dtype=logits.dtype)
        return ((weights / weights.sum()) * losses / counts).sum()

    music.loss_of = loss_of


@harmless("mask", "music")
def words_chosen_by_where(music):
    """States of padding and of songs without words are chosen away, with one condition."""

    class Composer(music.Composer):
        def read(self, texts, mask, keep):
            states = self.text_encoder(texts, attention_mask=mask).last_hidden_state
            heard = (mask > 0) & (keep > 0).unsqueeze(1)
            return torch.where(heard.unsqueeze(-1), self.to_decoder(states), 0.0)

    music.Composer = Composer


@harmless("inserted", "music")
def books_padded_apart(music):
    """Each book gets its marks before and behind it, and then they are stacked."""

    def delayed(codes):
        count = codes.shape[1]
        late = [
            F.pad(codes[:, book], (book + 1, count - 1 - book), value=music.BEGIN)
            for book in range(count)
        ]
        return torch.stack(late, dim=1)

    music.delayed = delayed


@harmless("rows", "music", group="whole step")
def songs_in_another_order(music):
    """The songs are in another order, and so in other micro-batches."""
    accumulate = music.accumulate

    def shuffled(model, inputs):
        order = torch.tensor([4, 2, 0, 5, 1, 3])
        accumulate(model, {name: value[order] for name, value in inputs.items()})

    music.accumulate = shuffled


@harmless("micro batches", "music", group="whole step")
def all_songs_at_once(music):
    """There is one micro-batch."""
    music.micro_batches = lambda inputs: [inputs]


@harmless("padding", "music", group="whole step")
def longer_songs_and_texts(music):
    """Songs are three codes longer, and texts have two words more, all of them padding."""
    pad_songs, pad_texts = music.pad_songs, music.pad_texts
    music.pad_songs = lambda songs: F.pad(pad_songs(songs), (0, 3), value=music.BEGIN)
    music.pad_texts = lambda texts: F.pad(pad_texts(texts), (0, 2))


@harmless("scaled", "music", group="whole step")
def loss_is_scaled(music):
    """The loss is scaled, and gradients are unscaled before they are clipped."""
    loss_of, clip = music.loss_of, music.clip
    music.loss_of = lambda model, inputs, counts: 512.0 * loss_of(model, inputs, counts)

    def unscaled(model):
        for p in model.parameters():
            if p.grad is not None:
                p.grad.div_(512.0)
        clip(model)

    music.clip = unscaled


@harmless("recomputed", "music", group="whole step")
def layers_computed_again(music):
    """The layers of the decoder are computed again in the backward pass."""
    build = music.build

    def made():
        model = build()
        model.decoder.gradient_checkpointing_enable({"use_reentrant": False})
        return model

    music.build = made

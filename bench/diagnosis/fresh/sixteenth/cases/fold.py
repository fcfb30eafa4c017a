"""Cases of the proteins that fold."""


import torch
from case import fault, harmless
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


@fault(
    "fold",
    # What is made from a number alone may not be recorded: the difference has it.
    line=[
        "away = residue_index.unsqueeze(1) - residue_index.unsqueeze(0)",
        'm, z = self.embedder(protein["msa"], protein["residue_index"])',
    ],
    api=r"Tensor\.(unsqueeze|sub|__sub__)",
    module="embedder",
    module_only="embedder",
)
def gap_of_the_chains_is_lost(fold):
    """Residues are counted through, as if there were one chain."""

    class InputEmbedder(fold.InputEmbedder):
        def offsets(self, residue_index):
            number = torch.arange(len(residue_index))  # here
            away = number.unsqueeze(1) - number.unsqueeze(0)  # here
            away = away.clamp(-fold.MAX_OFFSET, fold.MAX_OFFSET) + fold.MAX_OFFSET
            letters = F.one_hot(away, 2 * fold.MAX_OFFSET + 1)
            return self.offset(letters.to(self.offset.weight.dtype))

    fold.InputEmbedder = InputEmbedder


@fault(
    "fold",
    line="return self.out(torch.sigmoid(self.gate(m)) * mixed)",
    # The product is missing; what is projected is the first that lacks it.
    api=r"Module\.blocks\.0\.row\.out\..*|Functional\.linear|Torch\.linear|Tensor\.(mul|__mul__)",
    module=r"blocks\.0\.row(\.out)?",
    module_only=r"blocks\.0\.row(\.out)?",
)
def gate_behind_the_projection(fold):
    """The gate is applied to what is projected, not to what is mixed."""

    class RowAttention(fold.RowAttention):
        def forward(self, m, z, present):
            m = self.norm(m)
            shape = 3, fold.HEADS, fold.PER_HEAD
            q, k, v = self.qkv(m).unflatten(-1, shape).unbind(dim=2)
            added = self.bias(self.norm_z(z)).permute(2, 0, 1) - fold.FAR * (1 - present)
            mixed = self.attend(q, k, v, added).flatten(-2)
            return torch.sigmoid(self.gate(m)) * self.out(mixed)  # here

    fold.RowAttention = RowAttention


@fault(
    "fold",
    line='outer = torch.einsum("sic,sjd->ijcd", self.a(m), self.b(m)) / m.shape[0]',
)
def mean_over_residues(fold):
    """The sum over sequences is divided by the number of residues."""

    class OuterProductMean(fold.OuterProductMean):
        def forward(self, m):
            m = self.norm(m)
            outer = torch.einsum("sic,sjd->ijcd", self.a(m), self.b(m)) / m.shape[1]  # here
            return self.out(outer.flatten(-2))

    fold.OuterProductMean = OuterProductMean


@fault(
    "fold",
    line='return torch.einsum("ikc,jkc->ijc", a, b)',
    module=r"blocks\.0\.triangle_out",
    module_only=r"blocks\.0\.triangle_out",
    api=r"Torch\.einsum|Functional\.einsum",
)
def both_triangles_come_in(fold):
    """The edges that go out are summed like those that come in: one line was copied."""

    class TriangleUpdate(fold.TriangleUpdate):
        def combine(self, a, b):
            return torch.einsum("kic,kjc->ijc", a, b)  # here

    fold.TriangleUpdate = TriangleUpdate


@fault(
    "fold",
    # The forward pass is the same; the first gradient that differs is of what is recycled.
    line=[
        'm = torch.cat([m[:1] + self.norm_m(before["m"]), m[1:]], dim=0)',
        'return m, z + self.norm_z(before["z"]) + self.distance(bins_of(before["places"]))',
        "before = self.once(protein, before)",
        "return self.once(protein, before)",
    ],
    api=r"Module\.recycling\..*|Functional\.layer_norm|Torch\.layer_norm",
    module=r"recycling(\.norm_[mz])?",
    module_only=r"recycling(\.norm_[mz])?",
)
def all_passes_learn(fold):
    """What is recycled is not detached: gradients flow through the pass before."""

    class Folder(fold.Folder):
        def forward(self, protein):
            before = None
            for _ in range(fold.PASSES - 1):
                before = self.once(protein, before)  # here
            return self.once(protein, before)  # here

    fold.Folder = Folder


@fault(
    "fold",
    line="weight = F.softplus(self.head_weight) * (2 / (9 * POINTS)) ** 0.5",
    api=r"Functional\.softplus|Tensor\.(mul|__mul__|__rmul__)|Torch\.mul",
    module=r"structure\.attention",
    module_only=r"structure\.attention",
)
def weights_of_heads_as_they_are(fold):
    """The weights of distances may become negative: no softplus makes them positive."""

    class PointAttention(fold.PointAttention):
        def scores(self, q, k, at_q, at_k, z):
            near = (at_q.unsqueeze(1) - at_k.unsqueeze(0)).square().sum(dim=(-1, -2))
            weight = self.head_weight * (2 / (9 * fold.POINTS)) ** 0.5  # here
            alike = torch.einsum("ihc,jhc->ijh", q, k) * fold.PER_HEAD**-0.5
            return (alike + self.bias(z) - 0.5 * weight * near) * (1 / 3) ** 0.5

    fold.PointAttention = PointAttention


@fault(
    "fold",
    line='return torch.einsum("ixy,inx->iny", rotation, points - translation.unsqueeze(1))',
)
def turned_twice(fold):
    """What a frame sees is turned by the frame, not back."""

    def to_local(rotation, translation, points):
        moved = points - translation.unsqueeze(1)
        return torch.einsum("ixy,iny->inx", rotation, moved)  # here

    fold.to_local = to_local


@fault(
    "fold",
    line=[
        "losses = F.cross_entropy(logits.flatten(0, 1)",
        'return mean_over(losses, protein["hidden"].flatten().to(losses.dtype))',
        "return (values * mask).sum() / mask.sum()",
    ],
)
def letters_that_are_seen_count(fold):
    """The loss is the mean over all letters, also those that the model sees."""

    def msa_loss(logits, protein):
        letters = protein["letters"].flatten()
        return F.cross_entropy(logits.flatten(0, 1), letters)  # here

    fold.msa_loss = msa_loss


@fault(
    "fold",
    # The first number that differs is a gradient that is not clipped before it is added.
    line=[
        "        clip(parameters)",
        "nn.utils.clip_grad_norm_(parameters, MAX_NORM)",
        "torch._foreach_add_(total, [p.grad for p in parameters])",
    ],
)
def clipped_after_the_sum(fold):
    """The sum over proteins is clipped, not the gradient of each of them."""

    def accumulate(model, proteins):
        parameters = list(model.parameters())
        total = [torch.zeros_like(p) for p in parameters]
        for protein in proteins:
            model.zero_grad()
            fold.loss_of(model, protein).backward()
            torch._foreach_add_(total, [p.grad for p in parameters])  # here
        for p, gradient in zip(parameters, total, strict=True):
            p.grad = gradient / len(proteins)
        fold.clip(parameters)  # here

    fold.accumulate = accumulate


@fault("fold", line=["slow.lerp_(mine, 1 - EMA_DECAY)", "    update_slow(model)"])
def slow_weights_a_step_late(fold):
    """The slow weights are updated before the weights are."""

    def step(model, optimizer, batch):
        fold.accumulate(model, batch)
        fold.update_slow(model)  # here
        optimizer.step()
        model.warmup.step()

    fold.step = step


@harmless("fused", "fold")
def attention_by_pytorch(fold):
    """The attention within a sequence is one call."""

    class RowAttention(fold.RowAttention):
        def attend(self, q, k, v, added):
            q, k, v = (each.transpose(1, 2) for each in (q, k, v))
            mixed = F.scaled_dot_product_attention(q, k, v, added.expand(len(q), -1, -1, -1))
            return mixed.transpose(1, 2)

    fold.RowAttention = RowAttention


@harmless("split", "fold")
def triangles_by_products(fold):
    """The sums over third residues are products of matrices, one for each channel."""

    class TriangleUpdate(fold.TriangleUpdate):
        def combine(self, a, b):
            a, b = a.permute(2, 0, 1), b.permute(2, 0, 1)
            made = torch.bmm(a, b.mT) if self.outgoing else torch.bmm(a.mT, b)
            return made.permute(1, 2, 0)

    fold.TriangleUpdate = TriangleUpdate


@harmless("inserted", "fold")
def offsets_looked_up(fold):
    """What offsets mean is read from a table: the columns of the weight."""

    class InputEmbedder(fold.InputEmbedder):
        def offsets(self, residue_index):
            most = fold.MAX_OFFSET
            away = (residue_index[:, None] - residue_index).clamp(-most, most) + most
            return F.embedding(away, self.offset.weight.T) + self.offset.bias

    fold.InputEmbedder = InputEmbedder


@harmless("loss", "fold")
def letters_by_log_chances(fold):
    """The loss of letters takes the logarithms of chances, of hidden letters alone."""

    def msa_loss(logits, protein):
        hidden = protein["hidden"]
        chances = logits[hidden].log_softmax(dim=-1)
        return -chances.gather(1, protein["letters"][hidden].unsqueeze(1)).mean()

    fold.msa_loss = msa_loss


@harmless("reordered", "fold")
def letters_before_frames(fold):
    """The losses of letters and of pairs are computed before those of frames."""

    def loss_of(model, protein):
        found = model(protein)
        loss = fold.MSA_WEIGHT * fold.msa_loss(model.msa_head(found["msa"]), protein)
        z = found["z"] + found["z"].transpose(0, 1)
        loss = loss + fold.PAIR_WEIGHT * fold.pair_loss(model.pair_head(z), protein)
        right = fold.frames_of(protein["atoms"])
        errors = [fold.fape(each, right, protein["resolved"]) for each in found["frames"]]
        return loss + torch.stack(errors).mean()

    fold.loss_of = loss_of


@harmless("rows", "fold", group="whole step")
def proteins_in_another_order(fold):
    """The proteins are in another order."""
    accumulate = fold.accumulate
    fold.accumulate = lambda model, proteins: accumulate(model, [proteins[i] for i in (2, 0, 1)])


@harmless("rows", "fold", group="whole step")
def sequences_in_another_order(fold):
    """The sequences below the first one are in another order."""
    loss_of = fold.loss_of

    def shuffled(model, protein):
        rows = {name: protein[name][[0, 2, 3, 1]] for name in ("letters", "hidden", "msa")}
        return loss_of(model, protein | rows)

    fold.loss_of = shuffled


@harmless("padding", "fold", group="whole step")
def all_proteins_of_one_length(fold):
    """Proteins are padded to the length of the longest."""
    loss_of = fold.loss_of

    def longer(model, protein):
        missing = max(fold.LENGTHS) - len(protein["present"])
        padded = {name: F.pad(value, (0, missing)) for name, value in protein.items()}
        padded["atoms"] = F.pad(protein["atoms"], (0, 0, 0, 0, 0, missing))
        padded["atoms"][len(protein["atoms"]) :] = torch.eye(3)
        return loss_of(model, padded)

    fold.loss_of = longer


@harmless("scaled", "fold", group="whole step")
def loss_is_scaled(fold):
    """The loss is scaled, and gradients are unscaled before they are clipped."""
    loss_of, clip = fold.loss_of, fold.clip

    def unscaled(parameters):
        torch._foreach_mul_([p.grad for p in parameters], 1 / 512)
        clip(parameters)

    fold.loss_of = lambda model, protein: 512 * loss_of(model, protein)
    fold.clip = unscaled


@harmless("recomputed", "fold", group="whole step")
def blocks_computed_again(fold):
    """The blocks are computed again in the backward pass."""

    class Block(fold.Block):
        def forward(self, m, z, present):
            return checkpoint(super().forward, m, z, present, use_reentrant=False)

    fold.Block = Block

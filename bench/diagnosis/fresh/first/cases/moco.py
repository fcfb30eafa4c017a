"""Cases of contrastive learning."""

import torch
from case import fault, harmless
from torch.nn import functional as F


@fault("moco", line=["k = F.normalize(k, dim=1)", "return k[torch.argsort(order)]"])
def keys_not_normalised(moco):
    """The keys are not normalised."""

    class MoCo(moco.MoCo):
        @torch.no_grad()
        def keys_of(self, x, order):
            k = self.key(x[order])
            return k[torch.argsort(order)]  # here

    moco.MoCo = MoCo


@fault("moco", line=["return k[torch.argsort(order)]"])
def keys_not_put_back(moco):
    """The shuffled keys stay in their order: each query meets the key of another picture."""

    class MoCo(moco.MoCo):
        @torch.no_grad()
        def keys_of(self, x, order):
            return F.normalize(self.key(x[order]), dim=1)  # here

        def logits(self, q, k):
            positive = torch.einsum("nc,nc->n", q, k).unsqueeze(-1)  # here
            negative = torch.einsum("nc,ck->nk", q, self.queue.clone().detach())
            logits = torch.cat([positive, negative], dim=1)
            return logits / moco.TEMPERATURE

    moco.MoCo = MoCo


@fault("moco", line=['negative = torch.einsum("nc,ck->nk"', "self.queue[:, start : start"])
def queued_before_the_logits(moco):
    """The keys of this step are among the negatives: the queue is filled first."""

    class MoCo(moco.MoCo):
        def forward(self, left, right, order):
            q = F.normalize(self.query(left), dim=1)
            self.follow()
            k = self.keys_of(right, order)
            self.enqueue(k)  # here
            return self.logits(q, k)

    moco.MoCo = MoCo


@fault("moco", steps=3, line=["self.queue[:, start : start"])
def keys_viewed_for_transposed(moco):
    """Keys are written into the queue as they lie in memory, not transposed."""

    class MoCo(moco.MoCo):
        @torch.no_grad()
        def enqueue(self, keys):
            start = int(self.pointer)
            self.queue[:, start : start + len(keys)] = keys.reshape(moco.WIDTH, -1)  # here
            self.pointer[0] = (start + len(keys)) % moco.KEYS

    moco.MoCo = MoCo


@fault("moco", steps=3, line=["self.queue[:, start : start", "self.pointer[0] = (start"])
def pointer_moves_by_one(moco):
    """The pointer of the queue moves by one: the next step overwrites new keys."""

    class MoCo(moco.MoCo):
        @torch.no_grad()
        def enqueue(self, keys):
            start = int(self.pointer)
            self.queue[:, start : start + len(keys)] = keys.T  # here
            self.pointer[0] = (start + 1) % moco.KEYS  # here

    moco.MoCo = MoCo


@fault("moco", line=["logits = torch.cat([positive, negative]"])
def positive_stands_last(moco):
    """The positive logit stands last, the labels are zero."""

    class MoCo(moco.MoCo):
        def logits(self, q, k):
            positive = torch.einsum("nc,nc->n", q, k).unsqueeze(-1)
            negative = torch.einsum("nc,ck->nk", q, self.queue.clone().detach())
            logits = torch.cat([negative, positive], dim=1)  # here
            return logits / moco.TEMPERATURE

    moco.MoCo = MoCo


@fault("moco", steps=3, line=["slow.mul_(MOMENTUM)"], api=r"Tensor.(mul_|add_)")
def copy_follows_only_matrices(moco):
    """The slow copy follows in tensors of two or more dimensions alone: biases and norms stay."""

    class MoCo(moco.MoCo):
        @torch.no_grad()
        def follow(self):
            for slow, fast in zip(self.key.parameters(), self.query.parameters(), strict=True):
                if slow.dim() > 1:  # here
                    slow.mul_(moco.MOMENTUM).add_(fast, alpha=1 - moco.MOMENTUM)  # here

    moco.MoCo = MoCo


@fault("moco", module="key.backbone.bn1", api="Functional.batch_norm", line="x = F.relu(self.bn1")
def copy_in_eval_mode(moco):
    """The slow copy's norms use their running statistics."""

    class MoCo(moco.MoCo):
        @torch.no_grad()
        def keys_of(self, x, order):
            self.key.eval()
            return super().keys_of(x, order)

    moco.MoCo = MoCo


@harmless("fused", "moco")
def products_and_sums(moco):
    """Positives by a product and a sum, negatives by a matrix product."""

    class MoCo(moco.MoCo):
        def logits(self, q, k):
            positive = (q * k).sum(-1, keepdim=True)
            return torch.cat([positive, q @ self.queue.clone()], dim=1) / moco.TEMPERATURE

    moco.MoCo = MoCo


@harmless("scaled", "moco")
def queries_divided(moco):
    """Queries are divided by the temperature instead of logits."""

    class MoCo(moco.MoCo):
        def logits(self, q, k):
            q = q / moco.TEMPERATURE
            positive = torch.einsum("nc,nc->n", q, k).unsqueeze(-1)
            negative = torch.einsum("nc,ck->nk", q, self.queue.clone().detach())
            return torch.cat([positive, negative], dim=1)

    moco.MoCo = MoCo


@harmless("fused", "moco")
def follows_by_foreach(moco):
    """The slow copy follows by one fused interpolation."""

    class MoCo(moco.MoCo):
        @torch.no_grad()
        def follow(self):
            slow, fast = list(self.key.parameters()), list(self.query.parameters())
            torch._foreach_lerp_(slow, fast, 1 - moco.MOMENTUM)

    moco.MoCo = MoCo


@harmless("inserted", "moco")
def queue_as_rows(moco):
    """The queue holds keys in rows."""

    class MoCo(moco.MoCo):
        def __init__(self):
            super().__init__()
            self.queue = self.queue.T.contiguous()

        @torch.no_grad()
        def enqueue(self, keys):
            start = int(self.pointer)
            self.queue[start : start + len(keys)].copy_(keys)
            self.pointer[0] = (start + len(keys)) % moco.KEYS

        def logits(self, q, k):
            positive = torch.einsum("nc,nc->n", q, k).unsqueeze(-1)
            negative = F.linear(q, self.queue.clone().detach())
            return torch.cat([positive, negative], dim=1) / moco.TEMPERATURE

    moco.MoCo = MoCo


@harmless("rows", "moco", group="whole step")
def pairs_turned(moco):
    """Pairs of pictures are in another order, and so are the keys in the queue."""
    step, turn = moco.step, torch.tensor([3, 0, 2, 1])

    def turned(model, optimizer, batch):
        left, right, order = batch
        step(model, optimizer, (left[turn], right[turn], torch.argsort(turn)[order]))

    moco.step = turned


@harmless("loss", "moco")
def loss_of_logsumexp(moco):
    """The loss as logsumexp less the positive logit."""
    moco.contrastive_loss = lambda logits: (logits.logsumexp(1) - logits[:, 0]).mean()

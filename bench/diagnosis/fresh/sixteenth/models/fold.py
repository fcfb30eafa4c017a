"""How proteins fold: pairs of residues, recycling and attention between frames, as in AlphaFold."""

import copy

import torch
import torch.nn.functional as F
from torch import nn

LENGTHS, SEQUENCES, TOKENS, HIDDEN_TOKEN = (9, 12, 7), 4, 22, 21
C_M, C_Z, C_S, HEADS, PER_HEAD, POINTS = 16, 12, 16, 2, 8, 3
MAX_OFFSET, BLOCKS, PASSES, ROUNDS = 4, 2, 2, 2
FIRST_EDGE, LAST_EDGE, BINS = 4.0, 22.0, 8
CLAMP, UNIT, EPS, FAR = 10.0, 10.0, 1e-4, 1e4
MSA_WEIGHT, PAIR_WEIGHT = 0.5, 0.3
LR, ADAM_EPS, MAX_NORM, EMA_DECAY, WARMUP = 5e-3, 1e-6, 0.3, 0.8, 3


class InputEmbedder(nn.Module):
    def __init__(self):
        super().__init__()
        self.msa = nn.Linear(TOKENS, C_M)
        self.target = nn.Linear(TOKENS, C_M)
        self.left = nn.Linear(TOKENS, C_Z)
        self.right = nn.Linear(TOKENS, C_Z)
        self.offset = nn.Linear(2 * MAX_OFFSET + 1, C_Z)

    def offsets(self, residue_index):
        """Far residues are all the same; each chain has a gap before it."""
        away = residue_index.unsqueeze(1) - residue_index.unsqueeze(0)
        away = away.clamp(-MAX_OFFSET, MAX_OFFSET) + MAX_OFFSET
        return self.offset(F.one_hot(away, 2 * MAX_OFFSET + 1).to(self.offset.weight.dtype))

    def forward(self, msa, residue_index):
        letters = F.one_hot(msa, TOKENS).to(self.msa.weight.dtype)
        m = self.msa(letters) + self.target(letters[0])
        z = self.left(letters[0]).unsqueeze(1) + self.right(letters[0]).unsqueeze(0)
        return m, z + self.offsets(residue_index)


class RowAttention(nn.Module):
    """Residues of a sequence see each other; pairs say how much."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(C_M)
        self.norm_z = nn.LayerNorm(C_Z)
        self.bias = nn.Linear(C_Z, HEADS, bias=False)
        self.qkv = nn.Linear(C_M, 3 * HEADS * PER_HEAD, bias=False)
        self.gate = nn.Linear(C_M, HEADS * PER_HEAD)
        self.out = nn.Linear(HEADS * PER_HEAD, C_M)

    def attend(self, q, k, v, added):
        scores = torch.einsum("sihc,sjhc->shij", q, k) * PER_HEAD**-0.5
        weights = torch.softmax(scores + added, dim=-1)
        return torch.einsum("shij,sjhc->sihc", weights, v)

    def forward(self, m, z, present):
        m = self.norm(m)
        q, k, v = self.qkv(m).unflatten(-1, (3, HEADS, PER_HEAD)).unbind(dim=2)
        added = self.bias(self.norm_z(z)).permute(2, 0, 1) - FAR * (1 - present)
        mixed = self.attend(q, k, v, added).flatten(-2)
        return self.out(torch.sigmoid(self.gate(m)) * mixed)


class OuterProductMean(nn.Module):
    """What sequences say together about two residues."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(C_M)
        self.a = nn.Linear(C_M, 4)
        self.b = nn.Linear(C_M, 4)
        self.out = nn.Linear(16, C_Z)

    def forward(self, m):
        m = self.norm(m)
        outer = torch.einsum("sic,sjd->ijcd", self.a(m), self.b(m)) / m.shape[0]
        return self.out(outer.flatten(-2))


class TriangleUpdate(nn.Module):
    """The edge between i and j hears of the two edges to each third residue k."""

    def __init__(self, outgoing):
        super().__init__()
        self.outgoing = outgoing
        self.norm = nn.LayerNorm(C_Z)
        self.value = nn.Linear(C_Z, 2 * C_Z)
        self.opening = nn.Linear(C_Z, 2 * C_Z)
        self.norm_out = nn.LayerNorm(C_Z)
        self.gate = nn.Linear(C_Z, C_Z)
        self.out = nn.Linear(C_Z, C_Z)

    def combine(self, a, b):
        if self.outgoing:
            return torch.einsum("ikc,jkc->ijc", a, b)
        return torch.einsum("kic,kjc->ijc", a, b)

    def forward(self, z, present):
        z = self.norm(z)
        pairs = (present.unsqueeze(1) * present).unsqueeze(2)
        a, b = (pairs * torch.sigmoid(self.opening(z)) * self.value(z)).chunk(2, dim=-1)
        return torch.sigmoid(self.gate(z)) * self.out(self.norm_out(self.combine(a, b)))


class Transition(nn.Sequential):
    def __init__(self, width):
        wide = nn.Linear(width, 2 * width)
        super().__init__(nn.LayerNorm(width), wide, nn.ReLU(), nn.Linear(2 * width, width))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.row = RowAttention()
        self.transition_m = Transition(C_M)
        self.outer = OuterProductMean()
        self.triangle_out = TriangleUpdate(outgoing=True)
        self.triangle_in = TriangleUpdate(outgoing=False)
        self.transition_z = Transition(C_Z)

    def forward(self, m, z, present):
        m = m + self.row(m, z, present)
        m = m + self.transition_m(m)
        z = z + self.outer(m)
        z = z + self.triangle_out(z, present)
        z = z + self.triangle_in(z, present)
        return m, z + self.transition_z(z)


def bins_of(places):
    """One bin more than there are edges."""
    away = (places.unsqueeze(1) - places.unsqueeze(0)).square().sum(dim=-1)
    edges = torch.linspace(FIRST_EDGE, LAST_EDGE, BINS - 1, dtype=places.dtype)
    return (away.unsqueeze(-1) > edges.square()).sum(dim=-1)


class Recycling(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm_m = nn.LayerNorm(C_M)
        self.norm_z = nn.LayerNorm(C_Z)
        self.distance = nn.Embedding(BINS, C_Z)

    def forward(self, m, z, before):
        if before is None:
            return m, z
        m = torch.cat([m[:1] + self.norm_m(before["m"]), m[1:]], dim=0)
        return m, z + self.norm_z(before["z"]) + self.distance(bins_of(before["places"]))


def to_local(rotation, translation, points):
    """Points (residues, n, 3) as the frame of each residue sees them."""
    return torch.einsum("ixy,inx->iny", rotation, points - translation.unsqueeze(1))


def to_global(rotation, translation, points):
    return torch.einsum("ixy,iny->inx", rotation, points) + translation.unsqueeze(1)


class PointAttention(nn.Module):
    """Residues are close if what they look for and what they show is close in space."""

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(C_S, 3 * HEADS * PER_HEAD)
        self.points = nn.Linear(C_S, 3 * HEADS * POINTS * 3)
        self.bias = nn.Linear(C_Z, HEADS)
        self.head_weight = nn.Parameter(torch.full((HEADS,), 0.5))
        self.out = nn.Linear(HEADS * (PER_HEAD + C_Z + 3 * POINTS), C_S)

    def scores(self, q, k, at_q, at_k, z):
        near = (at_q.unsqueeze(1) - at_k.unsqueeze(0)).square().sum(dim=(-1, -2))
        weight = F.softplus(self.head_weight) * (2 / (9 * POINTS)) ** 0.5
        alike = torch.einsum("ihc,jhc->ijh", q, k) * PER_HEAD**-0.5
        return (alike + self.bias(z) - 0.5 * weight * near) * (1 / 3) ** 0.5

    def forward(self, s, z, frames, present):
        count = len(s)
        q, k, v = self.qkv(s).view(count, 3, HEADS, PER_HEAD).unbind(dim=1)
        points = to_global(*frames, self.points(s).view(count, -1, 3))
        at_q, at_k, at_v = points.view(count, 3, HEADS, POINTS, 3).unbind(dim=1)
        scores = self.scores(q, k, at_q, at_k, z) - FAR * (1 - present).view(1, -1, 1)
        weights = torch.softmax(scores, dim=1)
        values = torch.einsum("ijh,jhc->ihc", weights, v)
        pairs = torch.einsum("ijh,ijc->ihc", weights, z)
        seen = torch.einsum("ijh,jhpx->ihpx", weights, at_v).flatten(1, 2)
        seen = to_local(*frames, seen)
        return self.out(torch.cat([each.flatten(1) for each in (values, pairs, seen)], dim=1))


def small_rotation(b, c, d):
    """The rotation of the quaternion (1, b, c, d)."""
    a, b, c, d = F.normalize(torch.stack([torch.ones_like(b), b, c, d]), dim=0).unbind()
    entries = [
        *(a * a + b * b - c * c - d * d, 2 * (b * c - a * d), 2 * (b * d + a * c)),
        *(2 * (b * c + a * d), a * a - b * b + c * c - d * d, 2 * (c * d - a * b)),
        *(2 * (b * d - a * c), 2 * (c * d + a * b), a * a - b * b - c * c + d * d),
    ]
    return torch.stack(entries, dim=-1).unflatten(-1, (3, 3))


class Structure(nn.Module):
    """All residues begin at one place; each round moves and turns them a little."""

    def __init__(self):
        super().__init__()
        self.start = nn.Sequential(nn.LayerNorm(C_M), nn.Linear(C_M, C_S))
        self.norm_z = nn.LayerNorm(C_Z)
        self.attention = PointAttention()
        self.norm = nn.LayerNorm(C_S)
        self.transition = Transition(C_S)
        self.move = nn.Linear(C_S, 6)

    def moved(self, s, frames):
        rotation, translation = frames
        b, c, d, *by = self.move(s).unbind(dim=-1)
        by = UNIT * torch.stack(by, dim=-1)
        translation = translation + torch.einsum("ixy,iy->ix", rotation, by)
        return rotation @ small_rotation(b, c, d), translation

    def forward(self, m, z, present):
        s, z = self.start(m), self.norm_z(z)
        frames = torch.eye(3, dtype=s.dtype).repeat(len(s), 1, 1), s.new_zeros(len(s), 3)
        found = []
        for _ in range(ROUNDS):
            s = self.norm(s + self.attention(s, z, frames, present))
            s = s + self.transition(s)
            frames = self.moved(s, frames)
            found.append(frames)
        return found


class Folder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedder = InputEmbedder()
        self.recycling = Recycling()
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.structure = Structure()
        self.msa_head = nn.Linear(C_M, TOKENS)
        self.pair_head = nn.Linear(C_Z, BINS)

    def once(self, protein, before):
        m, z = self.embedder(protein["msa"], protein["residue_index"])
        m, z = self.recycling(m, z, before)
        for block in self.blocks:
            m, z = block(m, z, protein["present"])
        found = self.structure(m[0], z, protein["present"])
        return {"msa": m, "m": m[:1], "z": z, "places": found[-1][1], "frames": found}

    def forward(self, protein):
        """Only the last pass learns; it begins with what the one before it has found."""
        before = None
        with torch.no_grad():
            for _ in range(PASSES - 1):
                before = self.once(protein, before)
        return self.once(protein, before)


def frames_of(atoms):
    """From N, CA and C: the first axis points to C, the second is in their plane."""
    n, ca, c = atoms.unbind(dim=1)
    first = F.normalize(c - ca, dim=-1)
    second = n - ca
    second = F.normalize(second - (first * second).sum(dim=-1, keepdim=True) * first, dim=-1)
    third = torch.linalg.cross(first, second)
    return torch.stack([first, second, third], dim=-1), ca


def mean_over(values, mask):
    return (values * mask).sum() / mask.sum()


def fape(frames, true_frames, resolved):
    """How far each residue is from its place, seen by each residue: at most ten."""
    pairs = resolved.unsqueeze(1) * resolved
    mine, right = (
        to_local(*each, each[1].unsqueeze(0).expand(len(each[1]), -1, -1))
        for each in (frames, true_frames)
    )
    away = ((mine - right).square().sum(dim=-1) + EPS).sqrt()
    return mean_over(away.clamp(max=CLAMP) / UNIT, pairs)


def msa_loss(logits, protein):
    """Hidden letters have to be guessed."""
    losses = F.cross_entropy(logits.flatten(0, 1), protein["letters"].flatten(), reduction="none")
    return mean_over(losses, protein["hidden"].flatten().to(losses.dtype))


def pair_loss(logits, protein):
    resolved, places = protein["resolved"], protein["atoms"][:, 1]
    losses = F.cross_entropy(logits.permute(2, 0, 1)[None], bins_of(places)[None], reduction="none")
    return mean_over(losses[0], resolved.unsqueeze(1) * resolved)


def loss_of(model, protein):
    found = model(protein)
    true_frames = frames_of(protein["atoms"])
    loss = 0.0
    for frames in found["frames"]:
        loss = loss + fape(frames, true_frames, protein["resolved"]) / ROUNDS
    z = found["z"] + found["z"].transpose(0, 1)
    loss = loss + PAIR_WEIGHT * pair_loss(model.pair_head(z), protein)
    return loss + MSA_WEIGHT * msa_loss(model.msa_head(found["msa"]), protein)


def clip(parameters):
    nn.utils.clip_grad_norm_(parameters, MAX_NORM)


def accumulate(model, proteins):
    """The gradient of each protein is clipped, before they are added."""
    parameters = list(model.parameters())
    total = [torch.zeros_like(p) for p in parameters]
    for protein in proteins:
        model.zero_grad()
        loss_of(model, protein).backward()
        clip(parameters)
        torch._foreach_add_(total, [p.grad for p in parameters])
    for p, gradient in zip(parameters, total, strict=True):
        p.grad = gradient / len(proteins)


@torch.no_grad()
def update_slow(model):
    for mine, slow in zip(model.parameters(), model.slow, strict=True):
        slow.lerp_(mine, 1 - EMA_DECAY)


def build():
    model = Folder().train()
    model.slow = [copy.deepcopy(p.data) for p in model.parameters()]
    for number, slow in enumerate(model.slow):
        model.register_buffer(f"slow_{number}", slow)
    return model


def optimizer(model, **more):
    adam = torch.optim.Adam(model.parameters(), lr=LR, eps=ADAM_EPS, **more)
    model.warmup = torch.optim.lr_scheduler.LambdaLR(adam, lambda n: min(1.0, (n + 1) / WARMUP))
    return adam


def make_protein(length, generator):
    """A chain that walks in space, and then a second one."""
    steps = F.normalize(torch.randn(length, 3, generator=generator), dim=-1)
    ca = 3.8 * steps.cumsum(dim=0)
    around = torch.randn(length, 2, 3, generator=generator)
    letters = torch.randint(0, 20, (SEQUENCES, length), generator=generator)
    hidden = torch.rand(SEQUENCES, length, generator=generator) < 0.3
    residue_index = torch.arange(length)
    residue_index[length // 2 :] += 20
    return {
        "letters": letters,
        "hidden": hidden,
        "msa": torch.where(hidden, HIDDEN_TOKEN, letters),
        "residue_index": residue_index,
        "atoms": torch.stack([ca + around[:, 0], ca, ca + around[:, 1]], dim=1),
        "resolved": (torch.rand(length, generator=generator) < 0.85).to(ca.dtype),
        "present": torch.ones(length),
    }


def batch(generator):
    return [make_protein(length, generator) for length in LENGTHS]


def step(model, optimizer, batch):
    accumulate(model, batch)
    optimizer.step()
    model.warmup.step()
    update_slow(model)

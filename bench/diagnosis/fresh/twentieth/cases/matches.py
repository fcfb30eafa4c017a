"""Cases of the points that match."""

import torch
from case import fault, harmless
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


@fault(
    "matches",
    line=[
        "return self.across(a, b, seen_b), self.across(b, a, seen_a)",
        "mask = seen[:, None, None, :]",
        "return F.scaled_dot_product_attention(query, key, value, attn_mask=mask)",
    ],
    api=r"(Functional|Torch)\.scaled_dot_product_attention",
    module=r"rounds\.0\.across\.attention",
    module_only=r"rounds\.0(\.across(\.attention)?)?",
)
def masks_exchanged(matches):
    """What a point may look at in the other picture is told by the mask of its own picture."""

    class Round(matches.Round):
        def forward(self, a, b, seen_a, seen_b):
            a, b = self.inner(a, a, seen_a), self.inner(b, b, seen_b)
            return self.across(a, b, seen_a), self.across(b, a, seen_b)  # here

    matches.Round = Round


@fault(
    "matches",
    # The points of the first picture have moved: what makes keys of them is the first to read it.
    line=[
        "return self.across(a, b, seen_b), self.across(b, a, seen_a)",
        "query, key, value = self.query(x), self.key(source), self.value(source)",
    ],
    api=r"(Functional|Torch)\.linear|Module\.rounds\.0\.across\.attention\.key\..*",
    module=r"rounds\.0\.across\.attention(\.key)?",
    module_only=r"rounds\.0(\.across(\.attention(\.key)?)?)?",
)
def second_picture_sees_the_answer(matches):
    """The second picture looks at points of the first one that have already looked at it."""

    class Round(matches.Round):
        def forward(self, a, b, seen_a, seen_b):
            a, b = self.inner(a, a, seen_a), self.inner(b, b, seen_b)
            a = self.across(a, b, seen_b)
            b = self.across(b, a, seen_a)  # here
            return a, b

    matches.Round = Round


@fault("matches", line="v = of_b - torch.logsumexp(scores + u.unsqueeze(2), dim=1)")
def columns_use_old_rows(matches):
    """Columns get their shares with what the rows had in the iteration before."""

    def sinkhorn(scores, of_a, of_b):
        u, v = torch.zeros_like(of_a), torch.zeros_like(of_b)
        for _ in range(matches.ITERATIONS):
            before = u
            u = of_a - torch.logsumexp(scores + v.unsqueeze(1), dim=2)
            v = of_b - torch.logsumexp(scores + before.unsqueeze(2), dim=1)  # here
        return scores + u.unsqueeze(2) + v.unsqueeze(1)

    matches.sinkhorn = sinkhorn


@fault(
    "matches",
    line=[
        "of_a = torch.cat([torch.where(seen_a, each, NEVER), many_b.log() + each], dim=1)",
        "of_b = torch.cat([torch.where(seen_b, each, NEVER), many_a.log() + each], dim=1)",
    ],
    api=r"(Tensor|Torch)\.log",
)
def bins_take_their_own(matches):
    """A bin may take as many points as its own picture has, not as the other one."""

    def shares(seen_a, seen_b):
        many_a, many_b = (seen.sum(dim=1, keepdim=True) for seen in (seen_a, seen_b))
        each = -(many_a + many_b).to(torch.get_default_dtype()).log()
        of_a = torch.where(seen_a, each, matches.NEVER)
        of_b = torch.where(seen_b, each, matches.NEVER)
        of_a = torch.cat([of_a, many_a.log() + each], dim=1)  # here
        return of_a, torch.cat([of_b, many_b.log() + each], dim=1), each  # here

    matches.shares = shares


@fault(
    "matches",
    line="found = torch.cat([points, ones], dim=2) @ projection.mT",
    api=r"Tensor\.(matmul|__matmul__)|Torch\.matmul",
)
def projection_is_transposed(matches):
    """Points are multiplied by the columns of the projection, not by its rows."""

    def projected(points, projection):
        ones = torch.ones_like(points[..., :1])
        found = torch.cat([points, ones], dim=2) @ projection  # here
        return found[..., :2] / found[..., 2:]

    matches.projected = projected


@fault(
    "matches",
    # What matches is no float: what is picked for it is the first float that differs.
    line=[
        'right = mutual & (least_a < NEAR) & one["seen"]',
        "wanted_a = torch.where(right, of_a, wanted_a)",
        "wanted_b[pair, of_a[pair, row]] = row",
        "right = wanted_a >= 0",
        "found = chances[:, :-1].gather(2, wanted_a.clamp(min=0).unsqueeze(2)).squeeze(2)",
        "positive = -(found * right).sum(dim=1) / right.sum(dim=1).clamp(min=1)",
    ],
)
def far_points_match(matches):
    """Points that are nearest to each other match, however far they are."""

    def matched(one, other, projection):
        moved = matches.projected(one["points"], projection)
        far = torch.cdist(moved, other["points"])
        least_a, of_a = matches.nearest(far, other["seen"])
        least_b, of_b = matches.nearest(far.mT, one["seen"])
        mutual = of_b.gather(1, of_a) == torch.arange(of_a.shape[1])
        right = mutual & one["seen"]  # here
        none, unknown = matches.UNMATCHED, matches.IGNORE
        wanted_a = torch.where(least_a > matches.FAR, none, unknown)
        wanted_a = torch.where(right, of_a, wanted_a).masked_fill(~one["seen"], unknown)  # here
        wanted_b = torch.where(least_b > matches.FAR, none, unknown)
        wanted_b = wanted_b.masked_fill(~other["seen"], unknown)
        pair, row = right.nonzero(as_tuple=True)
        wanted_b[pair, of_a[pair, row]] = row  # here
        return wanted_a, wanted_b

    matches.matched = matched


@fault("matches", line="return (points - 0.5 * size.unsqueeze(1)) / (0.7 * longer)")
def middle_of_the_turned_picture(matches):
    """The middle is half the height in the wide direction, and the other way round."""

    def centred(points, size):
        longer = size.max(dim=1).values.view(-1, 1, 1)
        return (points - 0.5 * size.flip(1).unsqueeze(1)) / (0.7 * longer)  # here

    matches.centred = centred


@fault(
    "matches",
    settings={"float32": True},
    line=[
        "scores = with_bins(likeness.float(), bin, seen_a, seen_b)",
        "return sinkhorn(scores, of_a, of_b) - each.unsqueeze(2)",
    ],
    api=r"Tensor\.(bfloat16|to)",
)
def sinkhorn_in_bfloat16(matches):
    """Rows and columns get their shares in the type of autocast."""

    def chances(likeness, bin, seen_a, seen_b):
        of_a, of_b, each = matches.shares(seen_a, seen_b)
        scores = matches.with_bins(likeness.float(), bin, seen_a, seen_b).bfloat16()  # here
        found = matches.sinkhorn(scores, of_a.bfloat16(), of_b.bfloat16())  # here
        return found.float() - each.unsqueeze(2)

    matches.chances = chances


@fault(
    "matches",
    line="return (self.project(a) / WIDTH**0.5) @ self.project(b).mT",
    api=r"(Tensor|Torch)\.(div|__truediv__)",
)
def likeness_divided_by_width(matches):
    """Products are divided by the width, not by its root."""

    class Matcher(matches.Matcher):
        def likeness(self, a, b):
            return (self.project(a) / matches.WIDTH) @ self.project(b).mT  # here

    matches.Matcher = Matcher


@fault("matches", api=r"Optimizer\.AdamW?\.step", update=True)
def decay_apart_from_the_gradient(matches):
    """The decay is not a part of the gradient."""

    def optimizer(model, **more):
        rate, decay = matches.LR, matches.DECAY
        adam = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=decay, **more)
        model.schedule = torch.optim.lr_scheduler.ExponentialLR(adam, matches.GAMMA)
        return adam

    matches.optimizer = optimizer


@harmless("fused", "matches")
def attention_by_products(matches):
    """The attention is two products and a softmax."""

    class Attention(matches.Attention):
        def attend(self, query, key, value, seen):
            scores = query @ key.mT / query.shape[-1] ** 0.5
            scores = scores.masked_fill(~seen[:, None, None, :], -torch.inf)
            return scores.softmax(dim=3).to(value.dtype) @ value

    matches.Attention = Attention


@harmless("split", "matches")
def keys_and_values_joined(matches):
    """Keys and values come from one product."""

    class Attention(matches.Attention):
        def forward(self, x, source, seen):
            weight = torch.cat([self.key.weight, self.value.weight])
            both = F.linear(source, weight, torch.cat([self.key.bias, self.value.bias]))
            key, value = (self.heads(part) for part in both.chunk(2, dim=2))
            found = self.attend(self.heads(self.query(x)), key, value, seen)
            return self.out(found.transpose(1, 2).flatten(2))

    matches.Attention = Attention


@harmless("split", "matches")
def mixed_by_two_products(matches):
    """Points and messages have products of their own, which are added."""

    class Block(matches.Block):
        def mixed(self, x, message):
            of_x, of_message = self.wide.weight.chunk(2, dim=1)
            return F.linear(x, of_x) + F.linear(message, of_message, self.wide.bias)

    matches.Block = Block


@harmless("inserted", "matches")
def shares_taken_from_scores(matches):
    """Scores themselves are changed in each iteration, not what is added to them."""

    def sinkhorn(scores, of_a, of_b):
        of_a, of_b = of_a.unsqueeze(2), of_b.unsqueeze(1)
        for _ in range(matches.ITERATIONS):
            scores = scores - scores.logsumexp(dim=2, keepdim=True) + of_a
            scores = scores - scores.logsumexp(dim=1, keepdim=True) + of_b
        return scores

    matches.sinkhorn = sinkhorn


@harmless("loss", "matches")
def losses_by_a_table(matches):
    """All that is wanted stands in one table with a weight for each chance."""

    def match_losses(chances, wanted_a, wanted_b):
        none, size = matches.UNMATCHED, chances.shape[2]
        right = F.one_hot(wanted_a.clamp(min=0), size) * (wanted_a >= 0).unsqueeze(2)
        right = F.pad(right, (0, 0, 0, 1)).to(chances.dtype)
        alone = torch.zeros_like(chances)
        alone[:, :-1, -1] = (wanted_a == none).to(chances.dtype)
        alone[:, -1, :-1] = (wanted_b == none).to(chances.dtype)
        parts = zip((matches.POSITIVE, 1 - matches.POSITIVE), (right, alone), strict=True)
        weights = [share * t / t.sum(dim=(1, 2), keepdim=True).clamp(min=1) for share, t in parts]
        return -torch.einsum("prc,prc->p", sum(weights), chances)

    matches.match_losses = match_losses


PARTS = ("points", "descriptors", "strength", "seen")


@harmless("rows", "matches", group="whole step")
def points_in_another_order(matches):
    """The points of the second pictures are in another order."""
    backward = matches.backward
    order = [(4 * k + 2) % matches.POINTS for k in range(matches.POINTS)]

    def shuffled(model, inputs):
        other = inputs["other"]
        moved = {name: other[name][:, order] for name in PARTS}
        backward(model, inputs | {"other": other | moved})

    matches.backward = shuffled


@harmless("padding", "matches", group="whole step")
def more_padding(matches):
    """Both pictures have three more points of padding."""
    backward = matches.backward

    def filled(picture):
        more = {name: F.pad(picture[name], (0, 0, 0, 3)) for name in PARTS[:3]}
        return picture | more | {"seen": F.pad(picture["seen"], (0, 3))}

    def padded(model, inputs):
        pictures = {name: filled(inputs[name]) for name in ("one", "other")}
        backward(model, inputs | pictures)

    matches.backward = padded


def _of(inputs, k):
    pictures = {
        name: {each: value[k : k + 1] for each, value in inputs[name].items()}
        for name in ("one", "other")
    }
    return pictures | {"projection": inputs["projection"][k : k + 1]}


@harmless("micro batches", "matches", group="whole step")
def one_pair_at_a_time(matches):
    """Each pair of pictures goes backward alone."""

    def backward(model, inputs):
        pairs, points = len(inputs["projection"]), matches.points_of(inputs)
        for k in range(pairs):
            matches.loss_of(model, _of(inputs, k), pairs, points).backward()

    matches.backward = backward


@harmless("recomputed", "matches", group="whole step")
def rounds_computed_again(matches):
    """The rounds are computed again in the backward pass."""

    class Round(matches.Round):
        def forward(self, *given):
            return checkpoint(super().forward, *given, use_reentrant=False)

    matches.Round = Round


@harmless("precision", "matches", group="whole step")
def casts_of_the_likeness(matches):
    """The casts of the last product are written out, where autocast made them."""

    class Matcher(matches.Matcher):
        def likeness(self, a, b):
            with torch.autocast("cpu", enabled=False):
                weight, bias = self.project.weight.bfloat16(), self.project.bias.bfloat16()
                a, b = (F.linear(x.bfloat16(), weight, bias) for x in (a, b))
                return (a / matches.WIDTH**0.5) @ b.mT

    matches.Matcher = Matcher

"""A second recorded step in three dtypes, of other kinds of calls than those of planted_step.py."""

import torch
import torch.nn.functional as F


class MoreStep(torch.nn.Module):
    """Selections, pooling, resampling, losses, attention, rare functions, linear algebra."""

    def __init__(self, dtype):
        super().__init__()
        self.dtype = dtype
        generator = torch.Generator().manual_seed(17)

        def make(*shape, scale=1.0):
            made = torch.randn(*shape, generator=generator) * scale
            return torch.nn.Parameter(made.to(dtype))

        self.query, self.key, self.value = (
            make(2, 4, 12, 16),
            make(2, 4, 12, 16),
            make(2, 4, 12, 16),
        )
        self.rows, self.square, self.column = make(30, 24), make(24, 24, scale=0.2), make(24)
        self.slope, self.bag = make(6, scale=0.1), make(40, 12)
        self.cube = make(4, 2, 3, 3, 3, scale=0.2)
        self.depth, self.depth_bias = make(6, 1, 5, scale=0.3), make(6)
        self.norm = make(24, scale=0.2)

    def forward(self, image, ids, labels):
        total = self.images(image) + self.choices(ids) + self.attention()
        return total + self.points() + self.sums() + self.losses(labels) + self.algebra()

    def images(self, image):
        big = F.interpolate(image, size=(17, 19), mode="bicubic", align_corners=False)
        near = F.interpolate(image, size=(17, 19), mode="nearest")
        pooled = F.adaptive_avg_pool2d(big, (5, 6)).mean() + F.adaptive_max_pool2d(near, 4).mean()
        pooled = pooled + F.avg_pool2d(image, 3, 2, 1).square().mean()
        pooled = pooled + F.max_pool2d(image, 3, 1, 1).square().mean()
        grid = torch.stack([image[:, 0], image[:, 1]], -1).tanh()
        sampled = F.grid_sample(image, grid, align_corners=False)
        line = F.conv1d(image.flatten(2), self.depth, self.depth_bias, groups=6)
        padded = F.pad(line, (2, 3), mode="reflect").square().mean()
        cube = F.conv3d(image.reshape(2, 2, 3, 12, 12), self.cube, padding=1)
        cube = F.avg_pool2d(cube.flatten(0, 1), (2, 3), ceil_mode=True)
        folded = F.fold(F.unfold(image, 3, padding=1), (12, 12), 3, padding=1)
        slopes = F.prelu(image, self.slope)
        return (
            pooled + sampled.mean() + padded + cube.square().mean() + folded.std() + slopes.mean()
        )

    def choices(self, ids):
        x = self.rows
        a = torch.zeros_like(x).scatter_add(0, (ids[:30, None] % 7).expand(-1, 24), x)
        b = torch.zeros_like(x).scatter_reduce(
            0, (ids[:30, None] % 5).expand(-1, 24), x, "mean", include_self=False
        )
        c = x.index_select(0, ids % 30) * 0.5
        d = torch.take_along_dim(x, x.argsort(0), 0) + torch.roll(x, 3, 0)
        e = x.masked_fill(x > 1, 0.25).kthvalue(3, -1).values
        f = F.embedding_bag(ids.view(4, -1) % 40, self.bag, mode="mean")
        return a.square().mean() + b.mean() + c.mean() + d.mean() + e.mean() + f.square().mean()

    def attention(self):
        q, k, v = self.query, self.key, self.value
        mask = torch.linspace(-2, 0, 144).view(12, 12).to(self.dtype)
        a = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        a = a + F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.2)
        b = torch.baddbmm(v[0], torch.softmax(q[0] @ k[0].mT, -1), v[1], beta=0.5, alpha=2)
        return a.square().mean() + b.square().mean()

    def points(self):
        x = self.rows
        p = x.abs() + 0.05
        y = F.selu(x) + F.celu(x, 1.3) + F.hardsigmoid(x) + F.hardtanh(x, -0.7, 0.9)
        y = y + F.softshrink(x, 0.3) + F.logsigmoid(x * 3) + F.relu6(x * 4) + F.silu(x)
        y = y + torch.atan2(x, p) + torch.exp2(x) + torch.log2(p) + torch.log10(p)
        y = y + torch.sinh(x) + torch.cosh(x) + torch.asinh(x * 4) + torch.atan(x) + torch.erfc(x)
        y = y + torch.lgamma(p) + torch.digamma(p + 1) + torch.hypot(x, p) + torch.remainder(x, p)
        y = y + torch.expm1(x * 0.01) + torch.log1p(x * 0.01) + torch.logaddexp(x, p) + x.frac()
        y = y + torch.special.xlog1py(x, p) + torch.tan(x * 0.5) + x.clamp(-0.4, 0.8) + x.sign() * p
        return y.mean()

    def sums(self):
        x = self.rows
        y = torch.cumprod(1 + x * 0.1, 1).mean() + torch.logcumsumexp(x, 1).mean()
        y = y + (1 + x * 0.1).prod(1).mean() + x.std(0).mean() + x.amin(1).mean() + x.amax(0).mean()
        y = y + torch.linalg.vector_norm(x, 3, -1).mean() + torch.linalg.vector_norm(x, 1, 0).mean()
        y = y + x.nansum(-1).mean() + x.diff(dim=0).abs().mean() + torch.trace(self.square)
        y = y + F.rms_norm(x * 0.02, (24,), self.norm + 1, 1e-5).square().mean()
        y = y + F.layer_norm(x, (24,), self.norm + 1, self.column).square().mean()
        y = y + F.softmax(x * 2, 0).square().mean() + F.log_softmax(x, 0).mean()
        return y + F.group_norm(x[:, :, None], 4, self.norm + 1, self.column).square().mean()

    def losses(self, labels):
        x = self.rows
        chance = torch.sigmoid(x)
        target = (labels[:, None] == torch.arange(24)).to(x.dtype)
        y = F.binary_cross_entropy(chance, target) + F.smooth_l1_loss(x, target, beta=0.4)
        y = y + F.huber_loss(x, target, delta=0.6) + F.kl_div(F.log_softmax(x, -1), chance)
        y = y + F.poisson_nll_loss(x, target) + F.gaussian_nll_loss(x, target, chance + 0.1)
        y = y + F.nll_loss(F.log_softmax(x, -1), labels, self.norm.detach().abs() + 0.5)
        y = y + F.cross_entropy(x, labels, label_smoothing=0.1) + F.l1_loss(x, target)
        y = y + F.triplet_margin_loss(x, x.roll(1, 0), x.roll(2, 1))
        y = y + F.cosine_embedding_loss(x, x.roll(1, 0), labels % 2 * 2 - 1)
        return y + F.hinge_embedding_loss(x, target * 2 - 1) + F.soft_margin_loss(x, target * 2 - 1)

    def algebra(self):
        x, square = self.rows, self.square
        y = (
            torch.addmv(self.column, square, x[0], beta=0.7)
            + torch.linalg.cross(x[:, :3], x[:, 3:6]).sum()
        )
        y = (
            y
            + torch.einsum("ij,kj->ik", x, square).mean(0)
            + torch.kron(x[:2, :3], x[:2, :4]).sum()
        )
        y = y + F.bilinear(x, x, square[None].expand(3, -1, -1) * 1.0).mean()
        if self.dtype == torch.float32:
            whole = square @ square.mT + torch.eye(24)
            y = y + torch.linalg.solve(whole, self.column) + torch.linalg.inv(whole).mean()
            y = y + torch.linalg.cholesky(whole).mean()
            logs = F.log_softmax(x[:, None, :].expand(-1, 2, -1), -1)
            ids = torch.tensor([[1, 2, 3], [4, 4, 5]])
            y = y + F.ctc_loss(logs, ids, torch.tensor([30, 28]), torch.tensor([3, 3]))
        return y.square().mean()


DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def record(folder, task):
    from msprobe.pytorch import PrecisionDebugger

    debugger = PrecisionDebugger(dump_path=str(folder), level="L1", task=task)
    debugger.start()
    for dtype in DTYPES:
        model = MoreStep(dtype)
        generator = torch.Generator().manual_seed(29)
        image = torch.randn(2, 6, 12, 12, generator=generator).to(dtype).requires_grad_()
        ids = torch.randint(1000, (48,), generator=generator)
        labels = torch.randint(24, (30,), generator=generator)
        model(image, ids, labels).backward()
    debugger.stop()

"""A recorded step of about 300 calls in three dtypes, under which operators are planted wrong."""

import torch
import torch.nn.functional as F


class Step(torch.nn.Module):
    """The same calls in one dtype: products, norms, activations, losses, sums and selections."""

    def __init__(self, dtype):
        super().__init__()
        self.dtype = dtype
        generator = torch.Generator().manual_seed(7)

        def make(*shape, scale=1.0):
            made = torch.randn(*shape, generator=generator) * scale
            return torch.nn.Parameter(made.to(dtype))

        self.embed, self.proj = make(50, 64), make(192, 64, scale=0.2)
        self.up, self.up_bias = make(128, 64, scale=0.2), make(128, scale=0.1)
        self.down = make(64, 128, scale=0.1)
        self.scale, self.shift = make(64, scale=0.2), make(64, scale=0.2)
        self.kernel, self.kernel_bias = make(8, 3, 3, 3, scale=0.3), make(8, scale=0.1)
        self.deconv = make(8, 4, 2, 2, scale=0.3)
        self.line = make(6, 4, 5, scale=0.3)
        self.channel, self.channel_shift = make(8, scale=0.3), make(8, scale=0.2)

    def forward(self, ids, image, target):
        x = self.block(ids)
        c = self.images(image)
        return self.sums(x) + self.points(x) + self.losses(x, target) + c

    def block(self, ids):
        x = F.embedding(ids, self.embed)
        h = F.layer_norm(x, (64,), self.scale + 1, self.shift, eps=1e-5)
        q, k, v = F.linear(h, self.proj).view(8, 16, 3, 4, 16).permute(2, 0, 3, 1, 4).unbind(0)
        scores = torch.matmul(q, k.transpose(-1, -2)) * 0.25
        masked = scores.masked_fill(torch.ones(16, 16).triu(1).bool(), -1e4)
        mixed = torch.matmul(F.softmax(masked, dim=-1), v)
        again = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + (mixed + again).transpose(1, 2).reshape(8, 16, 64) * 0.5
        h = F.rms_norm(x, (64,), self.scale, 1e-6)
        wide = F.gelu(F.linear(h, self.up, self.up_bias))
        gate, value = F.linear(h, self.up).chunk(2, -1)
        x = x + F.linear(wide, self.down) + F.silu(gate) * value
        flat = x.reshape(-1, 64)
        x = x + torch.addmm(self.shift, flat, self.proj[:64].t()).view_as(x) * 0.1
        x = x + torch.bmm(torch.bmm(x, x.transpose(1, 2)) * 0.01, x)
        return x + torch.einsum("bsd,ed->bse", x, self.down[:, :64]) * 0.1

    def images(self, image):
        y = F.conv2d(image, self.kernel, self.kernel_bias, padding=1)
        zero, one = y.new_zeros(8), y.new_ones(8)
        y = F.relu(F.batch_norm(y, zero, one, self.channel, self.channel_shift, training=True))
        y = F.group_norm(y, 2, self.channel + 1, self.channel_shift)
        y = F.leaky_relu(y, 0.1) + F.hardswish(y) + F.elu(y)
        small = F.max_pool2d(y, 2) + F.avg_pool2d(y, 2)
        big = F.conv_transpose2d(small, self.deconv, stride=2)
        big = F.interpolate(big, scale_factor=2, mode="bilinear", align_corners=False)
        rows = F.conv1d(big.flatten(2)[:, :, :200], self.line)
        pooled = F.adaptive_avg_pool2d(big, 4)
        normal = F.instance_norm(pooled)
        return rows.mean() + normal.square().mean() + F.pad(pooled, (1, 1)).sum() * 0.001

    def sums(self, x):
        a = x.sum(-1) + x.mean(-1) + x.var(-1) + x.std(-1) + torch.linalg.vector_norm(x, dim=-1)
        a = a + torch.logsumexp(x, -1) + x.amax(-1) + x.pow(2).mean(-1).sqrt()
        b = x.cumsum(1) + x.flip(1).cumsum(-1)
        c = F.normalize(x, dim=-1) + F.cosine_similarity(x, x.roll(1, -1), dim=-1)[..., None]
        d = torch.cdist(x[:2].float(), x[2:4].float()).to(x.dtype)
        e = x.norm() + x.abs().sum() + (x.clamp(0.5, 1.5)[:, :2, :4]).prod(-1).sum()
        f = F.log_softmax(x, -1).mean() + x.flatten().dot(x.flatten() * 0.01)
        g = torch.zeros_like(x).index_add(1, torch.arange(16) % 4, x).sum(0)
        h = torch.mv(x[0], self.scale) + torch.outer(self.shift, self.scale)[:16, 0]
        return a.mean() + b.mean() + c.mean() + d.mean() + e * 0.01 + f + g.mean() + h.mean()

    def points(self, x):
        p = x.abs() + 0.1
        y = torch.exp(x.clamp(max=4)) + torch.log(p) + torch.sqrt(p) + torch.rsqrt(p)
        y = y + torch.tanh(x) + torch.sigmoid(x) + torch.erf(x) + torch.sin(x) + torch.cos(x)
        y = y + torch.pow(p, 1.5) + torch.log1p(p) + torch.expm1(x.clamp(max=3)) + x / p
        y = y + F.softplus(x) + F.mish(x) + torch.reciprocal(p) + torch.atan(x) + x.square()
        y = y + torch.addcmul(x, x, p, value=0.5) + torch.addcdiv(x, x, p) + torch.lerp(x, p, 0.3)
        y = y + F.logsigmoid(x) + F.gelu(x, approximate="tanh") + torch.maximum(x, p)
        y = y + torch.where(x > 0, x, x * 0.3) + F.glu(torch.cat([x, p], -1), -1)
        top, places = x.topk(4, -1)
        chosen = torch.gather(x, -1, places) + top + x.sort(-1).values[..., :4]
        large = (x.reshape(-1).repeat(13)[:100000] * 1.5 - 0.25).neg()
        return y.mean() + chosen.mean() + large.mean() + large.tanh().mean()

    def losses(self, x, target):
        flat = x.reshape(-1, 64)
        one = F.cross_entropy(flat, target) + F.mse_loss(flat, flat.roll(1, 0).detach())
        one = one + F.smooth_l1_loss(flat, flat.detach() * 0.7) + F.l1_loss(flat, flat * 0.5)
        one = one + F.binary_cross_entropy_with_logits(flat[:, 0], (target % 2).to(x.dtype))
        logs = F.log_softmax(flat, -1)
        one = one + F.kl_div(logs, F.softmax(flat.detach() * 0.5, -1), reduction="batchmean")
        one = one + F.nll_loss(logs, target) + F.huber_loss(flat, flat.detach() + 0.3)
        return one


DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def step():
    """Runs the calls of all three dtypes, forward and backward."""
    for dtype in DTYPES:
        model = Step(dtype)
        generator = torch.Generator().manual_seed(3)
        ids = torch.randint(50, (8, 16), generator=generator)
        image = torch.randn(4, 3, 12, 12, generator=generator).to(dtype).requires_grad_()
        target = torch.randint(64, (128,), generator=generator)
        yield model, (ids, image, target)


def record(folder, task):
    from msprobe.pytorch import PrecisionDebugger

    debugger = PrecisionDebugger(dump_path=str(folder), level="L1", task=task)
    debugger.start()
    for model, inputs in step():
        model(*inputs).backward()
    debugger.stop()

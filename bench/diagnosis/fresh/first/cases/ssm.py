"""Cases of the state spaces."""

import torch
from case import fault, harmless
from torch.nn import functional as F

MIXER = r"layers.0.mixer"


@fault("ssm", module=MIXER, line="y = self.conv(u.transpose(1, 2))[..., :length]")
def convolution_sees_the_future(ssm):
    """The padded convolution is cut at the wrong end: outputs see later tokens."""

    class Mixer(ssm.Mixer):
        def convolve(self, u):
            length = u.shape[1]
            y = self.conv(u.transpose(1, 2))[..., -length:]  # here
            return F.silu(y).transpose(1, 2)  # here

    ssm.Mixer = Mixer


@fault(
    "ssm",
    module=r"layers.[01].mixer",
    line=["y, state = scan(parts[0]", "state = decay * state + driven"],
)
def state_detached_between_chunks(ssm):
    """The state is detached between chunks: outputs are right, gradients end at the chunk."""

    def chunked_scan(u, dt, A, B, C):
        state = u.new_zeros(u.shape[0], ssm.INNER, ssm.STATE)
        outputs = []
        for parts in zip(*(x.split(ssm.CHUNK, dim=1) for x in (u, dt, B, C)), strict=True):
            y, state = ssm.scan(parts[0], parts[1], A, parts[2], parts[3], state)  # here
            state = state.detach()  # here
            outputs.append(y)
        return torch.cat(outputs, dim=1)

    ssm.chunked_scan = chunked_scan


@fault("ssm", module=MIXER, line=["y, state = scan(parts[0]", "state = decay * state + driven"])
def state_forgotten_between_chunks(ssm):
    """Each chunk begins with a state of zeros."""

    def chunked_scan(u, dt, A, B, C):
        outputs = []
        for parts in zip(*(x.split(ssm.CHUNK, dim=1) for x in (u, dt, B, C)), strict=True):
            state = u.new_zeros(u.shape[0], ssm.INNER, ssm.STATE)  # here
            outputs.append(ssm.scan(parts[0], parts[1], A, parts[2], parts[3], state)[0])  # here
        return torch.cat(outputs, dim=1)

    ssm.chunked_scan = chunked_scan


@fault("ssm", module=MIXER, line="return F.softplus(dt + self.dt_bias), B, C")
def bias_behind_the_softplus(ssm):
    """The bias of the time steps is added behind the softplus."""

    class Mixer(ssm.Mixer):
        def parameters_of(self, u):
            dt, B, C = self.select(u).split([ssm.INNER, ssm.STATE, ssm.STATE], dim=-1)
            return F.softplus(dt) + self.dt_bias.exp(), B, C  # here

    ssm.Mixer = Mixer


@fault(
    "ssm",
    module=MIXER,
    line=["driven = (dt[:, t] * u[:, t])", "outputs.append((state * C[:, t", "for parts in zip("],
)
def input_and_output_matrix_exchanged(ssm):
    """B and C are split in the other order."""

    class Mixer(ssm.Mixer):
        def parameters_of(self, u):
            dt, C, B = self.select(u).split([ssm.INNER, ssm.STATE, ssm.STATE], dim=-1)  # here
            return F.softplus(dt + self.dt_bias), B, C

    ssm.Mixer = Mixer


@fault("ssm", module=MIXER, line="y = y + u * self.D")
def skip_of_the_value_before_the_convolution(ssm):
    """The skip connection takes the value before the convolution."""

    class Mixer(ssm.Mixer):
        def forward(self, x):
            before, gate = self.inside(x).chunk(2, dim=-1)
            u = self.convolve(before)
            dt, B, C = self.parameters_of(u)
            A = -torch.exp(self.A_log)
            y = ssm.chunked_scan(u, dt, A, B, C)
            y = y + before * self.D  # here
            return self.outside(y * F.silu(gate))

    ssm.Mixer = Mixer


@fault("ssm", api="Optimizer.AdamW.step", update=True)
def decay_rates_decayed(ssm):
    """A_log is among the decayed weights, as its two dimensions say."""
    ssm.undecayed = lambda name, parameter: parameter.dim() < 2


@harmless("time steps", "ssm")
def one_chunk(ssm):
    """The whole text is one chunk."""
    ssm.CHUNK = ssm.LENGTH


@harmless("time steps", "ssm")
def chunks_by_a_matrix(ssm):
    """Each chunk in parallel: decays by a cumulated sum, outputs by a masked product."""

    def scan(u, dt, A, B, C, state):
        log_decay = torch.cumsum(dt[..., None] * A, dim=1)
        apart = log_decay[:, :, None] - log_decay[:, None]
        length = u.shape[1]
        past = torch.ones(length, length, dtype=torch.bool).tril()
        weight = apart.masked_fill(~past[None, :, :, None, None], float("-inf")).exp()
        driven = (dt * u)[..., None] * B[:, :, None, :]
        states = torch.einsum("btsdn,bsdn->btdn", weight, driven)
        states = states + log_decay.exp() * state[:, None]
        return torch.einsum("btdn,btn->btd", states, C), states[:, -1]

    ssm.scan = scan


@harmless("fused", "ssm")
def convolution_written_out(ssm):
    """The causal convolution as a sum of shifted products."""

    class Mixer(ssm.Mixer):
        def convolve(self, u):
            padded = F.pad(u, (0, 0, ssm.KERNEL - 1, 0))
            length = u.shape[1]
            y = self.conv.bias + sum(
                padded[:, k : k + length] * self.conv.weight[:, 0, k] for k in range(ssm.KERNEL)
            )
            return F.silu(y)

    ssm.Mixer = Mixer


@harmless("micro batches", "ssm", group="whole step")
def two_micro_batches(ssm):
    """Two micro-batches, divided by the labels of both."""

    def backward(model, tokens, labels):
        count = (labels != ssm.IGNORED).sum()
        for part, own in zip(tokens.split(2), labels.split(2), strict=True):
            logits = model(part).flatten(0, 1)
            loss = F.cross_entropy(logits, own.flatten(), ignore_index=ssm.IGNORED, reduction="sum")
            (loss / count).backward()

    ssm.backward = backward


@harmless("padding", "ssm", group="whole step")
def padded_to_a_whole_number_of_chunks(ssm):
    """Texts have three more tokens at the end, which are no labels."""
    backward = ssm.backward

    def padded(model, tokens, labels):
        backward(model, F.pad(tokens, (0, 3)), F.pad(labels, (0, 3), value=ssm.IGNORED))

    ssm.backward = padded


@harmless("recomputed", "ssm", group="whole step")
def chunks_computed_again(ssm):
    """Each chunk is scanned again in the backward pass."""
    from torch.utils.checkpoint import checkpoint

    scan = ssm.scan
    ssm.scan = lambda *args: checkpoint(scan, *args, use_reentrant=False)

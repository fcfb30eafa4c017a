"""A Wav2Vec2 of transformers with CTC: a frozen extractor, masked frames, a mixture of layers."""

import torch
from torch import nn
from torch.nn import functional as F
from transformers import Wav2Vec2Config, Wav2Vec2Model

LETTERS, WIDTH, LAYERS, SAMPLES, BATCH, LONGEST = 9, 16, 2, 64, 4, 4
KERNELS, STRIDES = (4, 3), (2, 2)
EVEN, LARGEST, RATE, RATE_BELOW = 0.1, 1.0, 6e-3, 1e-3


def config(**changes):
    return Wav2Vec2Config(
        vocab_size=LETTERS,
        hidden_size=WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=2,
        intermediate_size=24,
        conv_dim=(6, 8),
        conv_kernel=KERNELS,
        conv_stride=STRIDES,
        conv_bias=True,
        feat_extract_norm="layer",
        num_feat_extract_layers=2,
        num_conv_pos_embeddings=4,
        num_conv_pos_embedding_groups=2,
        hidden_dropout=0.0,
        activation_dropout=0.0,
        attention_dropout=0.0,
        feat_proj_dropout=0.0,
        layerdrop=0.0,
        **{"layer_norm_eps": 1e-5} | changes,
    )


class Model(nn.Module):
    """Letters from a learned mixture of what all layers say."""

    def __init__(self):
        super().__init__()
        self.net = Wav2Vec2Model(config())
        for weight in self.net.parameters():
            if weight.dim() == 2:
                nn.init.normal_(weight, std=0.3)
        freeze(self.net)
        self.shares = nn.Parameter(torch.linspace(-0.5, 0.5, LAYERS + 1))
        self.letters = nn.Linear(WIDTH, LETTERS)

    def mixture(self, states):
        return torch.einsum("l,lbtw->btw", self.shares.softmax(dim=0), torch.stack(states))

    def forward(self, waves, known, masked):
        made = self.net(
            waves, attention_mask=known, mask_time_indices=masked, output_hidden_states=True
        )
        return self.letters(self.mixture(list(made.hidden_states)))


def freeze(net):
    net.freeze_feature_encoder()


def frames_of(samples):
    """How many frames the extractor makes of so many samples."""
    for kernel, stride in zip(KERNELS, STRIDES, strict=True):
        samples = torch.div(samples - kernel, stride, rounding_mode="floor") + 1
    return samples


def normalised(waves, known):
    """Each wave has mean 0 and variance 1 over its samples; what lies behind is 0."""
    count = known.sum(dim=1, keepdim=True)
    mean = (waves * known).sum(dim=1, keepdim=True) / count
    apart = (waves - mean) * known
    return apart / (apart.square().sum(dim=1, keepdim=True) / count + 1e-7).sqrt()


def ctc_loss(log_p, letters, frames, counts):
    """For each letter; rows count alike."""
    each = F.ctc_loss(log_p.transpose(0, 1), letters, frames, counts, reduction="none")
    return (each / counts).mean()


def even_loss(log_p, frames):
    """The distance from even probabilities, for each frame that is no padding."""
    known = torch.arange(log_p.shape[1]) < frames[:, None]
    return -(log_p.mean(dim=-1) * known).sum() / frames.sum()


def log_p_of(model, data):
    known = (torch.arange(data["waves"].shape[1]) < data["samples"][:, None]).long()
    logits = model(normalised(data["waves"], known), known, data["masked"])
    return logits.log_softmax(dim=-1)


def losses_of(model, data):
    log_p, frames = log_p_of(model, data), frames_of(data["samples"])
    ctc = ctc_loss(log_p, data["letters"], frames, data["counts"])
    return ctc, EVEN * even_loss(log_p, frames)


def backward(model, data):
    sum(losses_of(model, data)).backward()


def above(name):
    return not name.startswith("net.")


def groups_of(model):
    named = [(n, w) for n, w in model.named_parameters() if w.requires_grad]
    return [
        {"params": [w for n, w in named if above(n)], "lr": RATE},
        {"params": [w for n, w in named if not above(n)], "lr": RATE_BELOW},
    ]


def build():
    return Model().train()


def optimizer(model, **more):
    return torch.optim.AdamW(groups_of(model), weight_decay=0.02, **more)


def batch(generator):
    """Waves, their lengths, masked frames, letters from 1 on, and how many there are."""
    samples = torch.tensor([64, 48, 56, 60])
    waves = torch.randn(BATCH, SAMPLES, generator=generator).cumsum(dim=1)
    longest = int(frames_of(torch.tensor(SAMPLES)))
    begins = torch.randint(0, 6, (BATCH, 1), generator=generator)
    places = torch.arange(longest)
    return {
        "waves": waves * (torch.arange(SAMPLES) < samples[:, None]),
        "samples": samples,
        "masked": (places >= begins) & (places < begins + 3),
        "letters": torch.randint(1, LETTERS, (BATCH, LONGEST), generator=generator),
        "counts": torch.tensor([4, 2, 3, 3]),
    }


def step(model, optimizer, batch):
    optimizer.zero_grad()
    backward(model, batch)
    nn.utils.clip_grad_norm_(model.parameters(), LARGEST)
    optimizer.step()

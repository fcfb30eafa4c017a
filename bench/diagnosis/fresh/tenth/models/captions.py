"""A CLIP that is tuned on pictures, their captions and captions that are almost right."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from transformers import CLIPConfig, CLIPModel

PICTURES, IMAGE_SIZE, PATCH_SIZE, LENGTH, VOCAB_SIZE, WIDTH = 6, 16, 8, 9, 40, 16
PAD, BOS, EOS, FIRST_WORD = 0, 1, 3, 4
MEAN, STD = (0.4815, 0.4578, 0.4082), (0.2686, 0.2613, 0.2758)
GROUPS = (0, 1, 2, 1, 3, 4)  # pictures of one group show the same thing
WORDS = (5, 3, 6, 3, 4, 2)
SMOOTHING, LR, WEIGHT_DECAY, MAX_GRAD_NORM, TOTAL_STEPS = 0.1, 3e-3, 0.1, 1.0, 12
MAX_LOGIT_SCALE = math.log(100)


def make_model(**changes):
    tower = {
        "hidden_size": WIDTH,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
    }
    text = {"vocab_size": VOCAB_SIZE, "max_position_embeddings": 16}
    tokens = {"pad_token_id": PAD, "bos_token_id": BOS, "eos_token_id": EOS}
    vision = {"image_size": IMAGE_SIZE, "patch_size": PATCH_SIZE}
    config = CLIPConfig(
        text_config=tower | text | tokens | changes,
        vision_config=tower | vision | changes,
        projection_dim=12,
        initializer_factor=4.0,
    )
    return CLIPModel(config)


def preprocess(pixels):
    """Bytes to numbers around zero."""
    mean, std = torch.tensor(MEAN), torch.tensor(STD)
    return (pixels.float() / 255 - mean[:, None, None]) / std[:, None, None]


def normalize(features):
    return F.normalize(features, dim=-1)


def encode_images(model, pixels):
    return normalize(model.get_image_features(pixel_values=preprocess(pixels)).pooler_output)


def encode_texts(model, ids, mask):
    features = model.get_text_features(input_ids=ids, attention_mask=mask).pooler_output
    return normalize(features)


def encode_captions(model, batch):
    """Right captions, and behind them those that are almost right."""
    ids = torch.cat([batch["captions"], batch["negatives"]])
    return encode_texts(model, ids, torch.cat([batch["mask"], batch["mask"]]))


def encode(model, batch):
    return encode_images(model, batch["pixels"]), encode_captions(model, batch)


def similarity(model, images, texts):
    scale = model.logit_scale.exp()
    return scale * images @ texts.t()


def targets_of(group):
    """Pictures of the same thing share their captions."""
    same = (group[:, None] == group).to(torch.get_default_dtype())
    return same / same.sum(dim=1, keepdim=True)


def cross_entropy(logits, targets):
    return F.cross_entropy(logits, targets, label_smoothing=SMOOTHING)


def contrastive_loss(logits, group):
    """Each picture chooses among all captions, each right caption among all pictures."""
    count = len(group)
    targets = targets_of(group)
    image_loss = cross_entropy(logits, F.pad(targets, (0, count)))
    text_loss = cross_entropy(logits[:, :count].t(), targets)
    return (image_loss + text_loss) / 2


def train(model, batch):
    images, texts = encode(model, batch)
    contrastive_loss(similarity(model, images, texts), batch["group"]).backward()


def clip_gradients(model):
    nn.utils.clip_grad_norm_(model.parameters(), MAX_GRAD_NORM)


@torch.no_grad()
def limit_scale(model):
    model.logit_scale.clamp_(0, MAX_LOGIT_SCALE)


def decays(name, parameter):
    """Matrices do; gains, biases and the temperature do not."""
    return parameter.ndim > 1


def build():
    return make_model().train()


def optimizer(model, **more):
    named = list(model.named_parameters())
    groups = [
        {"params": [p for n, p in named if decays(n, p)], "weight_decay": WEIGHT_DECAY},
        {"params": [p for n, p in named if not decays(n, p)], "weight_decay": 0.0},
    ]
    made = torch.optim.AdamW(groups, lr=LR, betas=(0.9, 0.98), eps=1e-6, **more)
    model.scheduler = torch.optim.lr_scheduler.OneCycleLR(made, LR, TOTAL_STEPS, pct_start=0.3)
    return made


def write(words, length):
    """A caption, filled up to the length."""
    return [BOS, *words, EOS] + [PAD] * (length - len(words) - 2)


def batch(generator):
    captions, negatives = [], []
    for count in WORDS:
        words = torch.randint(FIRST_WORD, VOCAB_SIZE, (count,), generator=generator)
        other = words.clone()
        other[count // 2] = torch.randint(FIRST_WORD, VOCAB_SIZE, (), generator=generator)
        captions.append(write(words.tolist(), LENGTH))
        negatives.append(write(other.tolist(), LENGTH))
    ids = torch.tensor(captions)
    shape = (PICTURES, 3, IMAGE_SIZE, IMAGE_SIZE)
    return {
        "pixels": torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator),
        "captions": ids,
        "negatives": torch.tensor(negatives),
        "mask": (ids != PAD).long(),
        "group": torch.tensor(GROUPS),
    }


def step(model, optimizer, batch):
    optimizer.zero_grad()
    train(model, batch)
    clip_gradients(model)
    optimizer.step()
    model.scheduler.step()
    limit_scale(model)

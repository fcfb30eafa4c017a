"""A Qwen2-VL of transformers: questions about pictures of several sizes, noise, rates by depth."""

import torch
from torch import nn
from torch.nn import functional as F
from transformers import Qwen2VLConfig, Qwen2VLForConditionalGeneration

PATCH, FRAMES, MERGE, DIM, VOCABULARY, LENGTH = 2, 2, 2, 16, 40, 16
PAD, FIRST_WORD, BEGIN, END, IMAGE, IGNORED = 0, 4, 1, 2, 3, -100
MEAN, DEVIATION = (0.48, 0.45, 0.40), (0.27, 0.26, 0.28)
LR, TOWER_LR, DECAY, ACCUMULATION, NOISE, Z_WEIGHT, MAX_NORM = 4e-3, 5e-4, 0.1, 2, 4.0, 0.05, 2.0
# Of each question: pictures (height and width in patches), words before them, behind, and answered.
QUESTIONS = (
    ([(4, 4)], 1, 2, 4),
    ([(2, 4), (4, 2)], 0, 1, 2),
    ([(2, 6)], 2, 1, 5),
    ([(4, 2)], 1, 1, 3),
)


def make_config(**changes):
    vision = {
        "depth": 2,
        "embed_dim": DIM,
        "hidden_size": DIM,
        "mlp_ratio": 2,
        "num_heads": 2,
        "patch_size": PATCH,
        "spatial_merge_size": MERGE,
        "temporal_patch_size": FRAMES,
        "initializer_range": 0.2,
    }
    text = {
        "vocab_size": VOCABULARY,
        "hidden_size": DIM,
        "intermediate_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "max_position_embeddings": 64,
        "initializer_range": 0.2,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 100.0,
            "mrope_section": [2, 1, 1],
        },
        "pad_token_id": PAD,
        "bos_token_id": None,
        "eos_token_id": None,
    }
    tokens = {"image_token_id": IMAGE, "vision_start_token_id": BEGIN, "vision_end_token_id": END}
    more = {"video_token_id": VOCABULARY - 1}
    return Qwen2VLConfig(vision_config=vision, text_config=text, **tokens, **more, **changes)


def normalized(picture):
    mean, deviation = torch.tensor(MEAN), torch.tensor(DEVIATION)
    return (picture - mean[:, None, None]) / deviation[:, None, None]


def patches_of(picture):
    """Rows of pixels; the patches that are merged follow one another."""
    rows, columns = picture.shape[1] // PATCH, picture.shape[2] // PATCH
    x = normalized(picture).expand(FRAMES, -1, -1, -1)
    x = x.reshape(FRAMES, 3, rows // MERGE, MERGE, PATCH, columns // MERGE, MERGE, PATCH)
    return x.permute(2, 5, 3, 6, 1, 0, 4, 7).reshape(rows * columns, -1)


def grid_of(picture):
    return [1, picture.shape[1] // PATCH, picture.shape[2] // PATCH]


def embedded(net, ids, mask, noise):
    """Words with noise, less in a longer text."""
    words = net.get_input_embeddings()(ids)
    scale = NOISE / (mask.sum(dim=1) * DIM).sqrt()
    return words + scale[:, None, None] * noise * mask[:, :, None]


def labels_of(data):
    """Only answers are learned."""
    return data["ids"].masked_fill(~data["answer"], IGNORED)


def kinds_of(ids):
    """1 for what stands in the place of a picture."""
    return (ids == IMAGE).int()


def states_of(net, data):
    pictures = [each for several in data["pictures"] for each in several]
    mask = data["mask"].long()
    outputs = net.model(
        input_ids=data["ids"],
        inputs_embeds=embedded(net, data["ids"], data["mask"], data["noise"]),
        attention_mask=mask,
        pixel_values=torch.cat([patches_of(each) for each in pictures]),
        image_grid_thw=torch.tensor([grid_of(each) for each in pictures]),
        mm_token_type_ids=kinds_of(data["ids"]),
        use_cache=False,
    )
    return outputs.last_hidden_state


def following(states, labels):
    """Each state is to say the next word."""
    return states[:, :-1], labels[:, 1:]


def answer_sum(logits, labels):
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum")


def size_sum(logits, labels):
    """Keeps the sums of exponentials near one."""
    sizes = logits.logsumexp(dim=-1).square()
    return (sizes * (labels != IGNORED)).sum()


def losses(net, data):
    states, labels = following(states_of(net, data), labels_of(data))
    logits = net.lm_head(states)
    return answer_sum(logits, labels), size_sum(logits, labels)


def words_in(parts):
    """The number of words that are learned in all micro-batches."""
    return sum((following(part["ids"], labels_of(part))[1] != IGNORED).sum() for part in parts)


def total_loss(answers, sizes, words):
    return (answers + Z_WEIGHT * sizes) / words


def micro_batches(data):
    size = len(data["ids"]) // ACCUMULATION
    for first in range(0, len(data["ids"]), size):
        yield {name: value[first : first + size] for name, value in data.items()}


def backward(net, data):
    words = words_in(micro_batches(data))
    for part in micro_batches(data):
        total_loss(*losses(net, part), words).backward()


def clip(net):
    nn.utils.clip_grad_norm_(net.parameters(), MAX_NORM)


def is_tower(name):
    """The tower of pictures, without the layers that merge its patches for the text."""
    return name.startswith("model.visual.") and ".merger." not in name


def param_groups(net):
    """Slow ones of the tower, the others; neither norms nor biases decay."""
    groups = []
    for tower, lr in ((True, TOWER_LR), (False, LR)):
        own = [p for name, p in net.named_parameters() if is_tower(name) == tower]
        own = [p for p in own if p.requires_grad]
        groups.append({"params": [p for p in own if p.dim() > 1], "lr": lr})
        groups.append({"params": [p for p in own if p.dim() < 2], "lr": lr, "weight_decay": 0.0})
    return groups


def build():
    net = Qwen2VLForConditionalGeneration(make_config()).train()
    net.model.visual.patch_embed.requires_grad_(False)
    return net


def optimizer(net, **more):
    return torch.optim.AdamW(param_groups(net), betas=(0.9, 0.95), weight_decay=DECAY, **more)


def words(count, generator):
    return torch.randint(FIRST_WORD, VOCABULARY - 1, (count,), generator=generator).tolist()


def question(sizes, before, behind, answered, generator):
    """The numbers of a text, padded on the left, and which of them are answers."""
    ids = words(before, generator)
    for rows, columns in sizes:
        ids += [BEGIN, *[IMAGE] * (rows * columns // MERGE**2), END]
    ids += words(behind + answered, generator)
    gap = LENGTH - len(ids)
    return [PAD] * gap + ids, torch.arange(LENGTH) >= LENGTH - answered


def batch(generator):
    made = [question(*each, generator) for each in QUESTIONS]
    ids = torch.tensor([each for each, _ in made])
    return {
        "ids": ids,
        "mask": ids != PAD,
        "answer": torch.stack([answer for _, answer in made]),
        "noise": 2 * torch.rand(*ids.shape, DIM, generator=generator) - 1,
        "pictures": [
            [torch.rand(3, PATCH * h, PATCH * w, generator=generator) for h, w in sizes]
            for sizes, *_ in QUESTIONS
        ],
    }


def step(net, optimizer, batch):
    optimizer.zero_grad()
    backward(net, batch)
    clip(net)
    optimizer.step()

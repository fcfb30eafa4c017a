"""Clean changes: of a program, two ways to compute it that differ by rounding alone."""

import dataclasses
import random

from programs import Spec, Ways

HALVES = ("bfloat16", "float16")
# The classes of pairs; each draws what the target does differently.
REWRITES = {
    "matrix product": lambda pick, spec: {
        "linear": pick.choice(["addmm", "einsum", "split", "matmul"])
    },
    "activation": lambda pick, spec: {"activation": "formula"},
    "normalisation": lambda pick, spec: {"norm": "by hand"} if spec.norm != "none" else None,
    "loss": lambda pick, spec: {"loss": "by hand"},
    "convolution": lambda pick, spec: {"convolution": "unfold"} if spec.family == "image" else None,
}
CLASSES = {
    "threads": lambda pick, spec: {"threads": 2},
    "oneDNN": lambda pick, spec: {"onednn": False},
    "attention": lambda pick, spec: (
        {"attention": pick.choice(["flash", "by hand"])} if spec.family == "attention" else None
    ),
    "channels_last": lambda pick, spec: (
        {"memory": "channels_last"} if spec.family == "image" else None
    ),
    "optimizer": lambda pick, spec: {"optimizer": pick.choice(["loop", "fused"])},
    "order of the batch": lambda pick, spec: {"rows": "in another order"},
    "micro-batches": lambda pick, spec: (
        {"micro_batches": pick.choice([2, 4])} if spec.norm != "batch" else None
    ),
    "fold of a norm": lambda pick, spec: {"fold": True} if spec.family == "image" else None,
    "rewrite": lambda pick, spec: pick.choice(list(REWRITES.values()))(pick, spec),
    "bfloat16 against float32": lambda pick, spec: {"autocast": "bfloat16"},
    "float16 against float32": lambda pick, spec: {"autocast": "float16"},
}
BOTH = ("both in bfloat16", "both in float16", "two changes")


def names() -> list[str]:
    return [*CLASSES, *BOTH]


def _calm(spec: Spec) -> Spec:
    """The program at scales at which a dtype of 16 bits does not overflow."""
    return dataclasses.replace(spec, weight_scale=1.0, input_scale=1.0, loss_scale=1.0)


def pair(name: str, spec: Spec) -> tuple[Spec, Ways, Ways] | None:
    """The program, and how golden and target compute it; None: the change does not fit it."""
    pick = random.Random(f"{name} {spec.seed}")
    golden, kinds = Ways(), [name]
    if name in BOTH:
        local = [kind for kind in CLASSES if "against" not in kind]
        kinds = pick.sample(local, 2 if name == "two changes" else 1)
        golden.autocast = "" if name == "two changes" else name.removeprefix("both in ")
    if "float16" in name:  # bfloat16, too
        spec = _calm(spec)
    if "threads" in kinds:  # which small tensors do not use
        big = dataclasses.replace(spec, batch=64, width=max(spec.width, 48))
        spec = big if pick.random() < 1 / 4 else spec
    changed = {}
    for kind in kinds:
        change = CLASSES[kind](pick, spec)
        if change is None:
            return None
        changed |= change
    if changed.get("micro_batches", 1) > 1 and "convolution" in changed:
        return None
    target = dataclasses.replace(golden, **changed)
    # Either side may be the golden.
    return (spec, golden, target) if pick.random() < 1 / 2 else (spec, target, golden)

"""Kernels of PyTorch that are replaced by wrong ones under a recorded step: `run_ut` finds them by
its verdict in roundings, with tensors and with statistics, and blames no right call. Wrong
operators of other kinds: test_wrong_operators.py; many more: bench/accuracy/planted.py.
"""

import json
import sys

import pytest
import torch
import torch.nn.functional as F
from recording import forked, run_forked

from msprobe.pytorch import PrecisionDebugger
from msprobe.pytorch.replay import Recorded

# Of planted_named.py: which cause the table has; "": any.
KINDS = {
    "gelu by tanh, forward": "another formula",
    "gelu by tanh, backward": "another formula",
    "one wrong element of many": "",
    "rsqrt of an estimate, one Newton step": "another formula",
    "products of inputs cut to ten bits": "",
    "layer norm with eps 1e-3": "another formula",
    "products truncated to bfloat16": "truncated",
    "sum in half precision": "lost upcast",
    "softmax in half precision": "lost upcast",
    "sum without its last term": "",
}


def step(dtype):
    generator = torch.Generator().manual_seed(5)

    def make(*shape):
        return torch.randn(*shape, generator=generator).to(dtype).requires_grad_()

    x, weight, scale, shift = make(24, 64), make(64, 64), make(64), make(64)
    y = F.layer_norm(x * 0.05, (64,), scale, shift)
    y = F.gelu(torch.mm(y, weight) * 0.2) * scale
    y = y + F.softmax(torch.neg(x), -1) + torch.rsqrt(x.abs() + 0.1)
    return y.sum(-1).square().mean()


def record(folder, task):
    debugger = PrecisionDebugger(dump_path=str(folder), level="L1", task=task)
    debugger.start()
    for dtype in (torch.float32, torch.bfloat16):
        step(dtype).backward()
    debugger.stop()


@pytest.mark.parametrize("task", ["tensor", "statistics"])
@forked
def test_planted_kernels_are_found(task, tmp_path, root):
    sys.path.insert(0, str(root / "bench" / "accuracy"))
    import planted
    from planted_named import NAMED

    run_forked(record, tmp_path, task)
    path = tmp_path / "step0" / "rank"
    worker = planted.worker_of(path)
    kernels = planted.kernels_of_calls(path)
    assert planted.blamed(worker)[1] == [], "right calls are blamed"
    missed = {}
    for kind, cause in KINDS.items():
        operator = NAMED[kind]
        library = torch.library.Library("aten", "IMPL")
        try:
            ran = planted.plant(library, *operator)
            chosen = {i for i, names in enumerate(kernels) if operator[0] in names}
            _, found, causes = planted.blamed(planted.worker_of(path), chosen, ran)
        finally:
            library._destroy()
        if not found or (cause and cause not in causes):
            missed[kind] = sum(ran.values()), found, dict(causes)
    assert missed == {}, json.dumps(missed, indent=1)
    assert planted.blamed(worker)[1] == [], "the right kernels are back"


@pytest.mark.parametrize("task", ["tensor", "statistics"])
@forked
def test_right_calls_of_other_kinds_are_not_blamed(task, tmp_path, root):
    sys.path.insert(0, str(root / "bench" / "accuracy"))
    import planted
    import planted_more_step

    run_forked(planted_more_step.record, tmp_path, task)
    count, _, blamed = planted.right_calls(tmp_path / "step0" / "rank")
    assert count > 900 and blamed == []


# Of planted_more.py, one for what was mended with it: a kernel that gives several tensors, a target
# that moves out of what the kernel takes, sums and roundings inside of halves.
OTHER_KINDS = [
    "grid sample, corners aligned",
    "binary cross entropy with eps 1e-3",
    "max pool backward, places seen once",
    "embedding bag divides by n + 1",
    "cross product with a wrong sign",
    "bicubic, clamped to the image",
]


@forked
def test_wrong_kernels_of_other_kinds_are_found(tmp_path, root):
    sys.path.insert(0, str(root / "bench" / "accuracy"))
    import planted
    import planted_more_step
    from planted_more import MORE

    run_forked(planted_more_step.record, tmp_path, "tensor")
    path = tmp_path / "step0" / "rank"
    kernels = planted.kernels_of_calls(path)
    found = {}
    for kind in OTHER_KINDS:
        library = torch.library.Library("aten", "IMPL")
        try:
            ran = planted.plant(library, *MORE[kind])
            chosen = {i for i, names in enumerate(kernels) if MORE[kind][0] in names}
            found[kind] = planted.blamed(planted.worker_of(path), chosen, ran)[1]
        finally:
            library._destroy()
    assert all(found.values()), found


def test_a_function_of_linalg_is_replayed_as_that(tmp_path):
    def record():
        debugger = PrecisionDebugger(dump_path=str(tmp_path), level="L1", task="tensor")
        debugger.start()
        torch.linalg.solve(torch.eye(3) * 2, torch.ones(3))  # torch.solve raises
        debugger.stop()

    run_forked(record)
    recorded = Recorded(tmp_path / "step0" / "rank", torch.device("cpu"))
    names = [name for name, _ in recorded.calls()]
    results, _ = recorded.call(names.index("Torch.solve.0")).run(torch.device("cpu"), None)
    assert torch.equal(results[0], torch.full((3,), 0.5))


def record_composed(folder):
    """Losses that PyTorch composes of other kernels: halves are rounded between the steps."""
    debugger = PrecisionDebugger(dump_path=str(folder), level="L1", task="tensor")
    debugger.start()
    for seed in range(12):
        generator = torch.Generator().manual_seed(seed)
        for dtype in (torch.float16, torch.bfloat16):
            x = (torch.randn(128, generator=generator) * 3).to(dtype).requires_grad_()
            target = torch.randint(2, (128,), generator=generator).to(dtype)
            size = (torch.rand(128, generator=generator) + 0.5).to(dtype)
            loss = F.binary_cross_entropy_with_logits(x, target)
            loss = loss + F.binary_cross_entropy_with_logits(
                x, target, size, reduction="sum", pos_weight=size * 2
            )
            single = F.binary_cross_entropy_with_logits(x, target, reduction="none")
            (loss + single.mean() + F.soft_margin_loss(x, target * 2 - 1)).backward()
    debugger.stop()


@forked
def test_kernels_that_are_composed_of_others_are_not_blamed(tmp_path, root):
    sys.path.insert(0, str(root / "bench" / "accuracy"))
    import planted

    run_forked(record_composed, tmp_path)
    worker = planted.worker_of(tmp_path / "step0" / "rank")
    assert planted.blamed(worker)[1] == []
    names = [name for name, _ in worker.calls]
    assert sum("binary_cross_entropy_with_logits" in name for name in names) == 72
    assert sum("soft_margin_loss" in name for name in names) == 24


def record_images(folder):
    """The gradient of a convolution's bias: one sum over the batch and all places."""
    from msprobe.pytorch import PrecisionDebugger

    torch.manual_seed(1)
    up = torch.nn.ConvTranspose2d(16, 8, 4, 2, 1)
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 16, 3, padding=1), torch.nn.GELU(), up)
    debugger = PrecisionDebugger(dump_path=str(folder), level="L1", task="tensor")
    debugger.start()
    ((model(torch.randn(8, 3, 32, 32)) - 0.3) ** 2).mean().backward()
    debugger.stop()


@forked
def test_the_long_sum_of_a_bias_is_not_blamed(tmp_path, root):
    sys.path.insert(0, str(root / "bench" / "accuracy"))
    import planted

    run_forked(record_images, tmp_path)
    worker = planted.worker_of(tmp_path / "step0" / "rank")
    assert planted.blamed(worker)[1] == []
    assert "Functional.conv_transpose2d.0" in [name for name, _ in worker.calls]

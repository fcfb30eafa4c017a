"""Features of the installed PyTorch; tests that need a missing feature are skipped and say so.

torch_needs.txt lists the features that tests need; conftest.py skips the tests.
"""

import inspect
import re
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
import torch.distributed

LIST = Path(__file__).resolve().parent / "torch_needs.txt"
torch_module = torch.nn.modules.module

# Feature -> whether it exists; the tests run with PyTorch 1.13.1 or newer.
FEATURES = {
    "torch.compile": hasattr(torch, "compile"),
    "torch.func": hasattr(torch, "func"),
    "untyped storages": hasattr(torch.Tensor, "untyped_storage"),
    "float8": hasattr(torch, "float8_e4m3fn"),
    "uint16, uint32, uint64": hasattr(torch, "uint64"),
    "jagged tensors": hasattr(torch, "jagged"),
    "coalescing of collectives": hasattr(torch.distributed.distributed_c10d, "_CoalescingManager"),
    "group_src": "group_src" in inspect.signature(torch.distributed.broadcast).parameters,
    "DTensor": find_spec("torch.distributed.device_mesh") is not None,
    "module registration hooks": hasattr(torch_module, "_global_module_registration_hooks"),
    "backward pre-hooks of modules": hasattr(torch.nn.Module, "register_full_backward_pre_hook"),
    "optimizer step hooks": hasattr(torch.optim.Optimizer, "register_step_post_hook"),
    "layer_norm under autocast of the CPU": hasattr(torch, "compile"),
    "torch.library.custom_op": hasattr(torch.library, "custom_op"),
    "PyTorch's headers": (Path(torch.__file__).parent / "include/ATen/record_function.h").exists(),
    "checkpoints of DTensors": find_spec("torch.distributed.checkpoint") is not None,
    "what torch.save writes now": hasattr(torch._utils, "_rebuild_tensor_v3"),
    "halves on the CPU": hasattr(torch, "compile"),
    "an LSTM whose gradients are the same each time": hasattr(torch, "compile"),  # oneDNN's
    "torchrun in Python 3.11": sys.version_info < (3, 11) or hasattr(torch, "compile"),
    "rms_norm and grouped attention": hasattr(torch.nn.functional, "rms_norm"),
    "scikit-learn": find_spec("sklearn") is not None,
}


@cache
def needs() -> list:
    """[(pattern of test ids, feature)] for the missing features."""
    found = []
    for line in LIST.read_text(encoding="utf-8").splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        tests, _, feature = line.partition("  ")
        if not FEATURES[feature.strip()]:
            pattern = ".*".join(re.escape(part) for part in tests.split("*"))
            found.append((re.compile(pattern), feature.strip()))
    return found


def missing(test: str):
    """The reason why a test ("test_x.py" or "test_x.py::test_y[z]") cannot run, or None."""
    for pattern, feature in needs():
        if pattern.fullmatch(test):
            return f"needs {feature}: PyTorch is {torch.__version__}"
    return None


def skip_missing(items, folder):
    """Marks the tests in `folder` that cannot run."""
    for item in items:
        why = missing(f"{item.path.name}::{item.name}") if item.path.parent == folder else None
        if why:
            item.add_marker(pytest.mark.skip(reason=why))


class SkippedFile(pytest.Module):
    """A test file that cannot be imported with this PyTorch."""

    def collect(self):
        pytest.skip(missing(self.path.name), allow_module_level=True)

"""What PyTorch has here: a test that needs more than the oldest one says so and is skipped.

@needs("DTensor")
def test_sharded_parameters(): ...

require("float8")  # at the top of a file: all of its tests
"""

from importlib.util import find_spec

import pytest
import torch

# name -> whether it is here; the oldest PyTorch that the tests run under is 1.13.
FEATURES = {
    "torch.compile": lambda: hasattr(torch, "compile"),
    "torch.func": lambda: hasattr(torch, "func"),
    "float8": lambda: hasattr(torch, "float8_e4m3fn"),
    "float4": lambda: hasattr(torch, "float4_e2m1fn_x2"),
    "uint16": lambda: hasattr(torch, "uint16"),
    "DTensor": lambda: has_module("torch.distributed.tensor.DTensor"),
    "FSDP2": lambda: has_module("torch.distributed.fsdp.fully_shard"),
    "functional collectives": lambda: has_module("torch.distributed._functional_collectives"),
    "distributed checkpoint": lambda: has_module("torch.distributed.checkpoint.state_dict"),
    "torch.load(mmap)": lambda: has("mmap", torch.load),
    "SDPA": lambda: hasattr(torch.nn.functional, "scaled_dot_product_attention"),
}


def has(parameter, function):
    return parameter in function.__code__.co_varnames


def has_module(path):
    """Whether there is a module of this path, or a module that has its last part."""
    owner, _, name = path.rpartition(".")
    if find_spec(owner) is None:
        return False
    module = __import__(owner, fromlist=[name])
    return hasattr(module, name) or find_spec(path) is not None


def reason(feature):
    return f"needs {feature}: PyTorch is {torch.__version__}"


def needs(feature):
    """A mark: skipped where PyTorch lacks it."""
    return pytest.mark.skipif(not FEATURES[feature](), reason=reason(feature))


def require(feature):
    """Skips the rest of the file, or of the test, where PyTorch lacks it."""
    if not FEATURES[feature]():
        pytest.skip(reason(feature), allow_module_level=True)

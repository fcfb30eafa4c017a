"""The names of `torch_npu.hooks`, in the module that had them."""

from msprobe.compat.torch_npu_hooks import *  # noqa: F403
from msprobe.compat.torch_npu_hooks import __all__ as __all__

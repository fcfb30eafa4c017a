"""The names of `torch_npu.hooks`, where they stood."""

from msprobe.compat.torch_npu_hooks import *  # noqa: F403
from msprobe.compat.torch_npu_hooks import __all__ as __all__

"""The import name of the oldest generation; its functions are `msprobe.compat.torch_npu_hooks`."""

from msprobe.compat.torch_npu_hooks import *  # noqa: F403
from msprobe.compat.torch_npu_hooks import __all__ as __all__

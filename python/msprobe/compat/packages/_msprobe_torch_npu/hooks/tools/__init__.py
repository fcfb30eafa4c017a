"""`compare`; `python -m torch_npu.hooks.tools` compares two files."""

from msprobe.compat.hooks_compare import compare

__all__ = ["compare"]

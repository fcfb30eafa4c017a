"""Collection for PyTorch: ``from msprobe.pytorch import PrecisionDebugger``; ``compare``."""

from msprobe.pytorch.callbacks import MsprobeCallback
from msprobe.pytorch.compare import compare, compare_distributed
from msprobe.pytorch.debugger import PrecisionDebugger, module_dump, module_dump_end
from msprobe.pytorch.reproducibility import random_save, seed_all

__all__ = [
    "MsprobeCallback",
    "PrecisionDebugger",
    "compare",
    "compare_distributed",
    "module_dump",
    "module_dump_end",
    "random_save",
    "seed_all",
]

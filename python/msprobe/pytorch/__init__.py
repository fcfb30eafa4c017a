"""Collection for PyTorch: ``from msprobe.pytorch import PrecisionDebugger``."""

from msprobe.pytorch.debugger import PrecisionDebugger, module_dump, module_dump_end
from msprobe.pytorch.reproducibility import random_save, seed_all

__all__ = ["PrecisionDebugger", "module_dump", "module_dump_end", "random_save", "seed_all"]

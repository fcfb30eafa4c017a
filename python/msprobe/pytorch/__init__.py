"""Collection for PyTorch: ``from msprobe.pytorch import PrecisionDebugger``."""

from msprobe.pytorch.debugger import PrecisionDebugger
from msprobe.pytorch.reproducibility import random_save, seed_all

__all__ = ["PrecisionDebugger", "random_save", "seed_all"]

"""Collection for PyTorch: ``from msprobe.pytorch import PrecisionDebugger``."""

from msprobe.pytorch.debugger import PrecisionDebugger

__all__ = ["PrecisionDebugger"]

"""Precision debugger for deep-learning training: record, compare, find the first wrong number."""

from msprobe._engine import (
    ConfigError,
    DivergenceError,
    DumpError,
    FileError,
    InternalError,
    MsprobeError,
    UnsupportedError,
    UsageError,
    __version__,
    load,
)
from msprobe.core.grad_probe.grad_compare import GradComparator
from msprobe.core.notebook import Comparison, compare

__all__ = [
    "Comparison",
    "ConfigError",
    "DivergenceError",
    "DumpError",
    "FileError",
    "GradComparator",
    "InternalError",
    "MsprobeError",
    "UnsupportedError",
    "UsageError",
    "__version__",
    "compare",
    "load",
]

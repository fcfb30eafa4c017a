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

__all__ = [
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
    "load",
]

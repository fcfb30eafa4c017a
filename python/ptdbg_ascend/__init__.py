"""The import name of the older generation; everything is in `msprobe.compat`."""

__version__ = "0.1"

from msprobe.compat.errors import CompareException, DumpException

__all__ = ["CompareException", "DumpException"]

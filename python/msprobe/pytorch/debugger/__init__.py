"""``PrecisionDebugger``, under the module path of msprobe 1.0 to 8."""

from msprobe.pytorch.debugger.precision_debugger import (
    PrecisionDebugger,
    module_dump,
    module_dump_end,
)

__all__ = ["PrecisionDebugger", "module_dump", "module_dump_end"]

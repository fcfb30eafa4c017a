"""``PrecisionDebugger``, under the module path of msprobe 26."""

from msprobe.pytorch.debugger import PrecisionDebugger, module_dump, module_dump_end

__all__ = ["PrecisionDebugger", "module_dump", "module_dump_end"]

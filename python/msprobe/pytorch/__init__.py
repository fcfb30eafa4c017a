"""Collection for PyTorch: ``from msprobe.pytorch import PrecisionDebugger``; ``compare``."""

from msprobe.pytorch.callbacks import MsprobeCallback
from msprobe.pytorch.compare import compare, compare_distributed
from msprobe.pytorch.debugger import PrecisionDebugger, module_dump, module_dump_end
from msprobe.pytorch.graphs import AclGraphDumper, acl_save, set_fx_dump_config, set_ge_dump_config
from msprobe.pytorch.monitor.module_hook import TrainerMon
from msprobe.pytorch.reproducibility import random_save, seed_all

__all__ = [
    "AclGraphDumper",
    "MsprobeCallback",
    "PrecisionDebugger",
    "TrainerMon",
    "acl_save",
    "compare",
    "compare_distributed",
    "module_dump",
    "module_dump_end",
    "random_save",
    "seed_all",
    "set_fx_dump_config",
    "set_ge_dump_config",
]

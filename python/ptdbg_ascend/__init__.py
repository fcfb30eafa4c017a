"""An import name of the older tools; everything is in `msprobe.compat`.

Importing it seeds Python, NumPy and PyTorch with 1234, as it always has: scripts count on it. With
PTDBG_SEED_ON_IMPORT=0 in the environment it does not.
"""

import os as _os

__version__ = "0.1"

try:
    from msprobe.compat.compare import compare, compare_distributed
    from msprobe.compat.errors import CompareException, DumpException
    from msprobe.compat.parse import parse
    from msprobe.compat.ptdbg import (
        acc_cmp_dump,
        overflow_check,
        register_hook,
        seed_all,
        set_backward_input,
        set_dump_path,
        set_dump_switch,
        set_overflow_check_switch,
    )
    from msprobe.compat.ptdbg_debugger import PrecisionDebugger, module_dump, module_dump_end

    __all__ = [
        "CompareException",
        "DumpException",
        "PrecisionDebugger",
        "acc_cmp_dump",
        "compare",
        "compare_distributed",
        "module_dump",
        "module_dump_end",
        "overflow_check",
        "parse",
        "register_hook",
        "seed_all",
        "set_backward_input",
        "set_dump_path",
        "set_dump_switch",
        "set_overflow_check_switch",
    ]
    if _os.environ.get("PTDBG_SEED_ON_IMPORT") != "0":
        seed_all()
except ModuleNotFoundError as error:
    if error.name not in ("msprobe", "msprobe._engine", "msprobe.compat"):
        raise
    _missing = str(error)

    def __getattr__(name):
        """A clone in which nothing is built, or another msprobe: only the version is known."""
        if name.startswith("__") and name != "__all__":
            raise AttributeError(name)
        raise ImportError(
            f"ptdbg_ascend in {__path__[0]} has no {name} without its engine, mindstudio-probe 27 "
            f"or newer ({_missing}); type `pip install .` in the clone, and take its folder from "
            "the PYTHONPATH"
        )

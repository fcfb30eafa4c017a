"""Collection for MindSpore: ``from msprobe.mindspore import PrecisionDebugger``."""

from msprobe.mindspore import versions

versions.check()

from msprobe.mindspore.callbacks import MsprobeInitStep, MsprobeStep  # noqa: E402
from msprobe.mindspore.debugger import PrecisionDebugger  # noqa: E402
from msprobe.mindspore.reproducibility import seed_all  # noqa: E402
from msprobe.mindspore.saving import save, save_grad, step  # noqa: E402

__all__ = [
    "MsprobeInitStep",
    "MsprobeStep",
    "PrecisionDebugger",
    "save",
    "save_grad",
    "seed_all",
    "step",
]

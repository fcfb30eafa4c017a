"""Collection for MindSpore: ``from msprobe.mindspore import PrecisionDebugger``."""

from msprobe.mindspore import versions

versions.check()

from msprobe.mindspore.callbacks import MsprobeInitStep, MsprobeStep  # noqa: E402
from msprobe.mindspore.debugger import PrecisionDebugger  # noqa: E402
from msprobe.mindspore.reproducibility import seed_all  # noqa: E402

__all__ = ["MsprobeInitStep", "MsprobeStep", "PrecisionDebugger", "seed_all"]

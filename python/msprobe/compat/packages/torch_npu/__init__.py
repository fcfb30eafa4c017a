"""The parent of torch_npu.hooks where there is no torch_npu: it leaves as soon as it has served.

Python needs a parent until the hooks are loaded and set on it; whoever looks for an NPU afterwards
finds no torch_npu.
"""

import sys
import types

from _msprobe_names import leave

import msprobe.compat.torch_npu_hooks  # noqa: F401  what fails, fails before there is a parent


class _Absent(types.ModuleType):
    def __setattr__(self, name, value):
        super().__setattr__(name, value)
        if name == "hooks":
            leave()

    def __getattribute__(self, name):
        value = super().__getattribute__(name)
        if name == "hooks":
            leave()
        return value

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        raise AttributeError(
            f"torch_npu.{name}: torch_npu is not installed; only torch_npu.hooks is, by msprobe"
        )


if "torch_npu.hooks" in sys.modules:
    hooks = sys.modules["torch_npu.hooks"]
sys.modules[__name__].__class__ = _Absent

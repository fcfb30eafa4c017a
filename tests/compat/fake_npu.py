"""A fake NPU with the flag that overflow checks read, because we have no such device."""

import sys
import types

import torch


class Npu:
    """Sets `sys.modules["torch_npu"]` and `torch.npu`; use it only in a child process."""

    def __init__(self):
        self.flag, self.asked, self.cleared = False, 0, 0
        module = types.ModuleType("torch_npu")
        module._C = types.SimpleNamespace(
            _check_overflow_npu=self._check, _clear_overflow_npu=self._clear
        )
        torch.npu = types.SimpleNamespace(is_available=lambda: True, manual_seed_all=lambda _: None)
        sys.modules["torch_npu"] = module

    def _check(self):
        self.asked += 1
        return self.flag

    def _clear(self):
        self.cleared += 1
        self.flag = False

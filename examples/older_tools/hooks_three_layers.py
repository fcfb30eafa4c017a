"""Guide of torch_npu.hooks: a small net, dumped twice and compared.

Corrected: `model_cpu`, which the guide does not define, is `module`; the second run, on an NPU in
the guide, is on the same device.
"""

import torch
import torch.nn as nn
from torch_npu.hooks import register_hook, seed_all, set_dump_path, wrap_acc_cmp_hook
from torch_npu.hooks.tools import compare


class ModuleOP(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear_1 = nn.Linear(in_features=2, out_features=2)
        self.linear_2 = nn.Linear(in_features=2, out_features=1)
        self.relu = nn.ReLU()

    def forward(self, x):
        x1 = self.linear_1(x)
        x2 = self.linear_2(x1)
        r1 = self.relu(x2)
        return r1


module = ModuleOP()
register_hook(module, wrap_acc_cmp_hook)
seed_all()
x = torch.randn(2, 2)

set_dump_path("./cpu_module_op.pkl")
out = module(x)
loss = out.sum()
loss.backward()

set_dump_path("./npu_module_op.pkl")
out = module(x)
loss = out.sum()
loss.backward()

compare("./npu_module_op.pkl", "./cpu_module_op.pkl", "./module_result.csv")

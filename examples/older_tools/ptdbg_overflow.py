"""Guide of ptdbg_ascend 0.1, scenario 3: calls that overflow.

Corrected: `model` is defined, and overflows three times. On an NPU the second overflow ends the
program; elsewhere the program continues, and two overflows are recorded.
"""

import torch

from ptdbg_ascend import *  # noqa: F403

seed_all()  # noqa: F405
model = torch.nn.Linear(4, 2)

register_hook(model, overflow_check, overflow_nums=2)  # noqa: F405

for _ in range(3):
    torch.exp(model(torch.ones(2, 4)) + 1000)
print("the end")

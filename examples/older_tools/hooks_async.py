"""Guide of torch_npu.hooks: arrays are written by a thread while training continues.

Corrected: `module` is defined, its steps run, and the loaded array is one that they wrote.
"""

import numpy
import torch
from torch_npu.hooks import register_hook, schedule, step_schedule, wrap_async_datadump_hook

module = torch.nn.Sequential(torch.nn.Linear(3, 1), torch.nn.ReLU())

# register wrap_async_datadump_hook and add datadump path
register_hook(module, wrap_async_datadump_hook, path="./output", schedule=schedule(1, 2))

for step in range(4):
    module(torch.full((2, 3), float(step))).sum().backward()
    step_schedule.step()

# load datadump data by numpy
print(
    numpy.load(
        "./output/3_Functional_relu_forward_input0_shape[2,1]_stride[1,1]_offset[0]_format[2].npy"
    )
)

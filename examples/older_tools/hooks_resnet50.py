"""Guide of torch_npu.hooks: two copies of a ResNet-50, compared; and how to read a line.

Corrected: the model is from examples/models, with a smaller picture; the second run, on an NPU in
the guide, is on the same device; the label is never negative.
"""

import copy
import json

import torch
import torch.nn as nn
from torch_npu.hooks import register_hook, seed_all, set_dump_path, wrap_acc_cmp_hook
from torch_npu.hooks.tools import compare

from models import resnet

model_cpu, _ = resnet.build50()
model_cpu.eval()
model_npu = copy.deepcopy(model_cpu)
model_npu.eval()

seed_all()
register_hook(model_cpu, wrap_acc_cmp_hook)
register_hook(model_npu, wrap_acc_cmp_hook)

inputs = torch.randn(1, 3, 64, 64)
labels = torch.randn(1).abs().long()
criterion = nn.CrossEntropyLoss()

# cpu
set_dump_path("./cpu_resnet50_op.pkl")
output = model_cpu(inputs)
loss = criterion(output, labels)
loss.backward()

# npu
set_dump_path("./npu_resnet50_op.pkl")
output = model_npu(inputs)
loss = criterion(output, labels)
loss.backward()

compare("./npu_resnet50_op.pkl", "./cpu_resnet50_op.pkl", "./resnet50_result.csv")

with open("./cpu_resnet50_op.pkl") as pkl_file:
    tensor_line = pkl_file.readline()
tensor_data = json.loads(tensor_line)

print(tensor_data[0])  # name of the operation
print(tensor_data[1])  # its data
print(tensor_data[2])  # dtype
print(tensor_data[3])  # shape

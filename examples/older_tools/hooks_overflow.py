"""Guide of torch_npu.hooks: the first overflow ends the program and is named.

Corrected: `model_npu`, which the guide does not define, is `model` from examples/models; its
picture is smaller, and NPU calls are left out. The model itself does not overflow, so one weight
is set too large.
"""

import torch
import torch.nn as nn

# the functions that look for overflows
from torch_npu.hooks import register_hook, wrap_checkoverflow_hook

from models import resnet

# the model to be looked at
model, _ = resnet.build50()
model.eval()
with torch.no_grad():
    model.blocks[2].conv2.weight[0] = 1e38

register_hook(model, wrap_checkoverflow_hook)

inputs = torch.randn(1, 3, 64, 64)
labels = torch.randn(1).abs().long()
criterion = nn.CrossEntropyLoss()

output = model(inputs)
loss = criterion(output, labels)
loss.backward()

"""Guide of torch_npu.hooks: some steps of each epoch.

Corrected: `model`, `dataloader` and `num_train_epochs` are defined, and a path is set.
"""

import torch
from torch_npu.hooks import (
    register_hook,
    schedule,
    set_dump_path,
    step_schedule,
    wrap_acc_cmp_hook,
)

model = torch.nn.Linear(4, 2)
dataloader = [torch.full((2, 4), float(step)) for step in range(12)]
num_train_epochs = 2

# add step schedule, begin=4 end=10 stride=2
register_hook(model, wrap_acc_cmp_hook, schedule=schedule(4, 10, 2))
set_dump_path("./steps.pkl")

for _epoch in range(num_train_epochs):
    # init step_num as 0
    step_schedule.reset_step()
    for _step, inputs in enumerate(dataloader):
        output = model(inputs)
        loss = output.sum()
        loss.backward()
        # step_num increase 1
        step_schedule.step()

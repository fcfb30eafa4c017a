"""Guide of ptdbg_ascend 0.1, scenarios 1 and 2: samples of the net, then a range in full.

Corrected: `model` and `train` are defined; both runs are on this device, one with another weight;
the names of calls are those of this net; data folders, whose names end in a time, are searched.
"""

import glob
import os

import torch

from models import resnet
from ptdbg_ascend import *  # noqa: F403


def train(model, batch):
    resnet.loss(model, batch).backward()


def folder_of(path):
    """The newest data folder of a .pkl file."""
    return sorted(glob.glob(path.removesuffix(".pkl") + "_2*"))[-1]


# step 1: the whole net, every second element
seed_all()  # noqa: F405
set_dump_path("./npu_dump.pkl")  # noqa: F405
model, batch = resnet.build(batch=2)
register_hook(model, acc_cmp_dump, dump_step=2)  # noqa: F405
set_dump_switch("ON")  # noqa: F405
train(model, batch)
set_dump_switch("OFF")  # noqa: F405

set_dump_path("./gpu_dump.pkl")  # noqa: F405
model, batch = resnet.build(batch=2)
with torch.no_grad():
    model.blocks[2].conv1.weight[0] *= 1.5
set_dump_switch("ON")  # noqa: F405
train(model, batch)
set_dump_switch("OFF")  # noqa: F405

os.makedirs("./output", exist_ok=True)
dump_result_param = {
    "npu_pkl_path": "./npu_dump.pkl",
    "bench_pkl_path": "./gpu_dump.pkl",
    "npu_dump_data_dir": folder_of("./npu_dump.pkl"),
    "bench_dump_data_dir": folder_of("./gpu_dump.pkl"),
}
compare(dump_result_param, "./output", True)  # noqa: F405

# step 2: all elements, in the range where the difference begins
set_dump_path("./npu_dump_scope.pkl")  # noqa: F405
register_hook(model, acc_cmp_dump, dump_step=1)  # noqa: F405
set_dump_switch("ON", mode=2, scope=["3_Functional_relu", "7_Functional_relu"])  # noqa: F405
train(model, batch)
set_dump_switch("OFF")  # noqa: F405

set_dump_path("./npu_dump_range.pkl")  # noqa: F405
set_dump_switch("ON", mode=3, scope=["3_Functional_relu", "7_Functional_relu_forward"])  # noqa: F405
train(model, batch)
set_dump_switch("OFF")  # noqa: F405

# only the call stacks
set_dump_path("./npu_dump_stack.pkl")  # noqa: F405
set_dump_switch("ON", mode=4, scope=["3_Functional_relu", "7_Functional_relu_forward"])  # noqa: F405
train(model, batch)
set_dump_switch("OFF")  # noqa: F405

# scenario 2: one call of the range
parse("./npu_dump_range.pkl", "6_Functional_batch_norm")  # noqa: F405

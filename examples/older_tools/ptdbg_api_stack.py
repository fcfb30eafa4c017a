"""FAQ of ptdbg_ascend: two dumps with call stacks are compared, and the table has the stacks.

Corrected: the script makes both dumps, on one device; the version in their paths is that of the
installed package.
"""

import os

import torch

from ptdbg_ascend import *  # noqa: F403
from ptdbg_ascend import __version__

model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU())

for side in ("npu", "gpu"):
    set_dump_path(f"./{side}_dump")  # noqa: F405
    register_hook(model, acc_cmp_dump)  # noqa: F405
    set_dump_switch("ON", mode="api_stack")  # noqa: F405
    model(torch.ones(2, 4)).sum().backward()
    set_dump_switch("OFF", mode="api_stack")  # noqa: F405

rank = f"ptdbg_dump_v{__version__}/rank0"
dump_result_param = {
    "npu_pkl_path": f"./npu_dump/{rank}/api_stack_dump.pkl",
    "bench_pkl_path": f"./gpu_dump/{rank}/api_stack_dump.pkl",
    "npu_dump_data_dir": f"./npu_dump/{rank}/api_stack_dump",
    "bench_dump_data_dir": f"./gpu_dump/{rank}/api_stack_dump",
    "is_print_compare_log": True,
}
os.makedirs("./output", exist_ok=True)
compare(dump_result_param, "./output", stack_mode=True)  # noqa: F405

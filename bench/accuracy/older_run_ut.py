"""Runs run_ut of msprobe 8 with the CPU as the device under test.

    .cache/peer-8/bin/python bench/accuracy/older_run_ut.py -api_info dump.json -o out

That tool knows only NPUs and GPUs: its names for the device are replaced before it starts.
"""

import torch
from msprobe.pytorch.api_accuracy_checker.run_ut import run_ut, run_ut_utils
from msprobe.pytorch.api_accuracy_checker.run_ut.run_ut import _run_ut as main

from msprobe.pytorch.common import utils

if __name__ == "__main__":
    torch.cuda.set_device = lambda device: None
    torch.cuda.empty_cache = lambda: None
    for module in (run_ut, run_ut_utils, utils):
        module.is_gpu = True
        module.current_device = "cpu"
    main()

"""Which process of a run this is, and which files are ours."""

import os

import torch

from msprobe.core.debugger import PACKAGE  # noqa: F401


def rank():
    """The rank in torch.distributed, or the one that a launcher such as torchrun has given to this
    process (RANK, where WORLD_SIZE is set too); None in a run that is not distributed."""
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank()
    given = os.environ.get("RANK", "")
    return int(given) if given.isdecimal() and "WORLD_SIZE" in os.environ else None

"""Seeds random generators: ``seed_all``."""

import os
import random

import numpy

import mindspore
from mindspore import nn
from msprobe import UsageError
from msprobe._engine import message


def seed_all(seed=1234, mode=False, rm_dropout=False):
    """Seed Python, NumPy and MindSpore.

    Args:
        seed: 0 to 2**32 - 1.
        mode: True: only deterministic algorithms (``mindspore.set_deterministic``). False leaves
            that setting as it is.
        rm_dropout: True: from now on the Cells ``Dropout``, ``Dropout1d``, ``Dropout2d`` and
            ``Dropout3d`` return their input unchanged.
    Raises:
        msprobe.UsageError: an argument of a wrong type or value; nothing is seeded then.
    """
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**32:
        raise UsageError(
            message(
                "seed_all: seed; expected a whole number from 0 to {}, found {}",
                2**32 - 1,
                repr(seed),
            )
        )
    for name, value in (("mode", mode), ("rm_dropout", rm_dropout)):
        if not isinstance(value, bool):
            raise UsageError(
                message("seed_all: {}; expected True or False, found {}", name, repr(value))
            )
    random.seed(seed)
    os.environ["PYTHONHASHSEED"] = str(seed)
    numpy.random.seed(seed)
    mindspore.set_seed(seed)
    if mode:
        mindspore.set_deterministic(True)
        os.environ["HCCL_DETERMINISTIC"] = "true"
    if rm_dropout:
        for cell in (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d):
            cell.construct = _same


def _same(self, x):
    return x

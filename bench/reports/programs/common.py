"""What the programs share: which variant runs, the debugger, a digest of the training."""

import hashlib
import os
import sys

import torch

BUG, ALT, OFF = (os.environ.get(name) == "1" for name in ("BUG", "ALT", "OFF"))


class NoDebugger:
    def start(self, model):
        pass

    def stop(self):
        pass

    def step(self):
        pass


def debugger():
    """The debugger of a user: `python program.py FOLDER LEVEL`; none with OFF=1."""
    if OFF:
        return NoDebugger()
    from msprobe.pytorch import PrecisionDebugger

    return PrecisionDebugger(dump_path=sys.argv[1], level=sys.argv[2])


def digest(losses, *modules):
    """Prints what training made: each bit of losses, weights and the state of the generator."""
    made = hashlib.sha256(torch.get_rng_state().numpy().tobytes())
    for module in modules:
        for name, value in module.state_dict().items():
            made.update(name.encode())
            made.update(value.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    made.update(" ".join(float(loss).hex() for loss in losses).encode())
    print("losses", [round(float(loss), 6) for loss in losses], "bits", made.hexdigest()[:16])
    return made.hexdigest()

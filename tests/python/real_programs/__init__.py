"""What real programs do, one small program each: PROGRAMS, name -> Program (see watch.py)."""

from real_programs import (
    autograd,
    checkpoints,
    compiled_calls,
    compilers,
    hooks,
    models,
    modules,
    observers,
    optimizers,
    processes,
    tensors,
    transforms,
)
from real_programs.watch import gather

PROGRAMS = gather(
    autograd,
    checkpoints,
    compiled_calls,
    compilers,
    hooks,
    models,
    modules,
    observers,
    optimizers,
    processes,
    tensors,
    transforms,
)

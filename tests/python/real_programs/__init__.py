"""Small programs, each with one feature of real programs: PROGRAMS, name -> Program (watch.py)."""

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

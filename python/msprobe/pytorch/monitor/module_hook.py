"""``TrainerMon``, a name of the older tools that programs import."""

from msprobe._engine import message
from msprobe.core.missing import missing

TrainerMon = missing(
    "TrainerMon",
    message(
        'task "grad_probe" and debugger.monitor(model) summarise gradients at each optimizer step'
    ),
)

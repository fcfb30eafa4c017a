"""``TrainerMonitorV2``, a name of the older tools that programs import."""

from msprobe._engine import message
from msprobe.core.missing import missing

TrainerMonitorV2 = missing(
    "TrainerMonitorV2",
    message(
        'task "grad_probe" and debugger.monitor(model) summarise gradients at each optimizer step'
    ),
)

"""``TrainerMonitorV2``, a name of the older tools that programs import."""

from msprobe.core.missing import missing

TrainerMonitorV2 = missing(
    "TrainerMonitorV2",
    'task "grad_probe" and debugger.monitor(model) summarise gradients at each optimizer step',
)

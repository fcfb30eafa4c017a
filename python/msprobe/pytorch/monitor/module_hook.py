"""``TrainerMon``, a name of the older tools that programs import."""

from msprobe.core.missing import missing

TrainerMon = missing(
    "TrainerMon",
    'task "grad_probe" and debugger.monitor(model) summarise gradients at each optimizer step',
)

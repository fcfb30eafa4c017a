"""``csv2tensorboard_by_step``, a name of the older tools that programs import."""

from msprobe._engine import message
from msprobe.core.missing import missing

csv2tensorboard_by_step = missing(
    "csv2tensorboard_by_step", message("msprobe grad_compare --html draws gradients over the steps")
)

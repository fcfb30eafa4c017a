"""``AnomalyScanner``, a name of the older tools that programs import."""

from msprobe._engine import message
from msprobe.core.missing import missing

AnomalyScanner = missing(
    "AnomalyScanner",
    message("msprobe grad_compare names the step and the parameter where two runs part"),
)

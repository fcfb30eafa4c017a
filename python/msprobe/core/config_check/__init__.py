"""``ConfigChecker``, a name of the older tools that programs import."""

from msprobe._engine import message
from msprobe.core.missing import missing

ConfigChecker = missing(
    "ConfigChecker",
    message(
        "each dump holds the versions and settings of its run, and msprobe compare shows what "
        "differs"
    ),
)

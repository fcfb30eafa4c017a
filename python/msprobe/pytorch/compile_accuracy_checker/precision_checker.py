"""``PrecisionChecker``, a name of the older tools that programs import."""

from msprobe._engine import message
from msprobe.core.missing import missing

PrecisionChecker = missing(
    "PrecisionChecker",
    message(
        "record the eager and the compiled run at level L0, then msprobe compare the two dumps"
    ),
)

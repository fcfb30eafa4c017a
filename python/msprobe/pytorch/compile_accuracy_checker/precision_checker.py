"""``PrecisionChecker``, a name of the older tools that programs import."""

from msprobe.core.missing import missing

PrecisionChecker = missing(
    "PrecisionChecker",
    "record the eager and the compiled run at level L0, then msprobe compare the two dumps",
)

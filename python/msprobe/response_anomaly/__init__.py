"""``analyze_output_anomaly``, a name of the older tools that programs import."""

from msprobe._engine import message
from msprobe.core.missing import missing

analyze_output_anomaly = missing(
    "analyze_output_anomaly",
    message("record the answers' forward passes and compare them with good ones"),
)

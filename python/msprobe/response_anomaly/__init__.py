"""``analyze_output_anomaly``, a name of the older tools that programs import."""

from msprobe.core.missing import missing

analyze_output_anomaly = missing(
    "analyze_output_anomaly", "record the answers' forward passes and compare them with good ones"
)

"""Names of the older tools' pictures of parallel models, which programs import."""

from msprobe._engine import message
from msprobe.core.missing import missing

_INSTEAD = message(
    "the layout of a parallel model is not drawn; dump.json names the group of a collective"
)
ParallelConfig = missing("ParallelConfig", _INSTEAD)
plot_model_parallelism = missing("plot_model_parallelism", _INSTEAD)

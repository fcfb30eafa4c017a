"""Names that record graphs on an NPU, which serving frameworks import."""

from msprobe._engine import message
from msprobe.core.missing import missing

AclGraphDumper = missing(
    "AclGraphDumper",
    message(
        "graphs of an NPU cannot be recorded; run eagerly (vLLM: enforce_eager=True), which "
        "PrecisionDebugger records"
    ),
)
acl_save = missing(
    "acl_save",
    message(
        "graphs of an NPU cannot be recorded; run eagerly, and PrecisionDebugger.save records a "
        "tensor"
    ),
)
_TORCHAIR = message(
    "torchair's graphs cannot be recorded; run eagerly, which PrecisionDebugger records"
)
set_ge_dump_config = missing("set_ge_dump_config", _TORCHAIR)
set_fx_dump_config = missing("set_fx_dump_config", _TORCHAIR)

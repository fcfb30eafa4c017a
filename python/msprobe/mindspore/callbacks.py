"""Recording in ``mindspore.train.Model``, which owns the loop."""

from mindspore.train.callback import Callback

from msprobe import UsageError
from msprobe._engine import message
from msprobe.mindspore.debugger import PrecisionDebugger


class MsprobeStep(Callback):
    """Records each step of ``model.train``: starts before it, stops and counts it after it.

    Example::

        debugger = PrecisionDebugger(dump_path="run_a", level="mix")
        model.train(1, dataset, callbacks=[MsprobeStep(debugger)], dataset_sink_mode=False)
    """

    def __init__(self, debugger):
        super().__init__()
        if not isinstance(debugger, PrecisionDebugger):
            raise UsageError(
                message(
                    "MsprobeStep; expected a PrecisionDebugger, found {}", type(debugger).__name__
                )
            )
        self._debugger = debugger

    def on_train_step_begin(self, run_context):
        """Called by ``model.train``."""
        self._debugger.start(run_context.original_args().train_network)

    def on_train_step_end(self, run_context):
        """Called by ``model.train``."""
        self._debugger.stop()
        self._debugger.step()

    def on_train_end(self, run_context):
        """Called by ``model.train``."""
        self._debugger.stop()


class MsprobeInitStep(Callback):
    """Numbers the steps of a resumed ``model.train`` from where it goes on."""

    def on_train_begin(self, run_context):
        """Called by ``model.train``."""
        done = run_context.original_args().cur_step_num
        if done:
            PrecisionDebugger.set_init_step(int(done))

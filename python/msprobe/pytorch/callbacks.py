"""Recording in trainers that own the loop: the Trainer of Transformers, and Lightning."""

import sys

from msprobe import UsageError
from msprobe._engine import message
from msprobe.pytorch.debugger import PrecisionDebugger


class MsprobeCallback:
    """Records each step of a training whose loop is in Transformers or Lightning.

    A step of the recording is one step of the optimizer: with gradient accumulation it has the
    forward and backward passes of all micro batches. What runs between steps (evaluation, saving)
    is not recorded. A training that was resumed numbers its steps from where it goes on.

    Example::

        from msprobe.pytorch import MsprobeCallback, PrecisionDebugger

        PrecisionDebugger(dump_path="run_a", level="mix", step=[0, 10])
        transformers.Trainer(..., callbacks=[MsprobeCallback()]).train()
        lightning.Trainer(..., callbacks=[MsprobeCallback()]).fit(model)

    Raises:
        UsageError: neither library is imported, or the training begins without a debugger.
    """

    def __new__(cls):
        # The base classes are there when a trainer is: this module imports neither library.
        bases = [
            getattr(sys.modules[library], name)
            for library, name in _BASES.items()
            if sys.modules.get(library) is not None
        ]
        if not bases:
            raise UsageError(
                message(
                    "MsprobeCallback is for transformers.Trainer and lightning.Trainer: expected "
                    "`import transformers` or `import lightning` before it, found neither"
                )
            )
        return object.__new__(type(cls.__name__, (_Steps, *bases), {"__reduce__": _reduce}))


_BASES = {
    "transformers": "TrainerCallback",
    "lightning.pytorch": "Callback",
    "pytorch_lightning": "Callback",
}


def _reduce(callback):
    return MsprobeCallback, ()


class _Steps:
    """What the trainers call, by the names of both libraries."""

    def on_train_begin(self, args, state, control, **kwargs):
        self._begin_training(state.global_step)

    def on_step_begin(self, args, state, control, model=None, **kwargs):
        PrecisionDebugger.start(model)

    def on_step_end(self, args, state, control, **kwargs):
        PrecisionDebugger.stop()
        PrecisionDebugger.step()

    def on_train_start(self, trainer, pl_module):
        self._begin_training(trainer.global_step)

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        PrecisionDebugger.start(pl_module)

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        PrecisionDebugger.stop()
        # Gradients are accumulated until the batch in which the optimizer takes its step.
        if trainer.global_step != self._steps:
            self._steps = trainer.global_step
            PrecisionDebugger.step()

    def on_exception(self, trainer, pl_module, exception):
        PrecisionDebugger.stop()

    def on_train_end(self, *args, **kwargs):  # of both libraries
        PrecisionDebugger.stop()

    def _begin_training(self, steps_before):
        if PrecisionDebugger.instance is None:
            raise UsageError(
                message(
                    "the callback records with the PrecisionDebugger of this process; add "
                    "`PrecisionDebugger(dump_path=..., level=...)` before the training"
                )
            )
        self._steps = steps_before
        if steps_before > 0:
            PrecisionDebugger.set_init_step(steps_before)

"""Recording in trainers that own the loop: callbacks for the Trainer of Transformers and Lightning.

Example::

    from msprobe.pytorch.callbacks import TransformersCallback

    PrecisionDebugger(dump_path="run_a", level="mix")
    Trainer(model, args, train_dataset=data, callbacks=[TransformersCallback()]).train()

Neither library is imported before its callback is asked for.

With both, a step of the recording is one step of the optimizer: with gradient accumulation it has
the forward and backward passes of all micro batches. What runs between steps (evaluation, saving)
is not recorded. A training that was resumed numbers its steps from where it goes on.
"""

import importlib

from msprobe import UsageError
from msprobe.pytorch.debugger import PrecisionDebugger


def _begin_training(steps_before):
    if PrecisionDebugger.instance is None:
        raise UsageError(
            "the callback records with the PrecisionDebugger of this process; add "
            "`PrecisionDebugger(dump_path=..., level=...)` before the training"
        )
    if steps_before > 0:
        PrecisionDebugger.set_init_step(steps_before)


def _transformers_callback():
    from transformers import TrainerCallback

    class TransformersCallback(TrainerCallback):
        """For ``transformers.Trainer(..., callbacks=[TransformersCallback()])``."""

        def on_train_begin(self, args, state, control, **kwargs):
            _begin_training(state.global_step)

        def on_step_begin(self, args, state, control, model=None, **kwargs):
            PrecisionDebugger.start(model)

        def on_step_end(self, args, state, control, **kwargs):
            PrecisionDebugger.stop()
            PrecisionDebugger.step()

        def on_train_end(self, args, state, control, **kwargs):
            PrecisionDebugger.stop()

    return TransformersCallback


def _lightning_callback():
    lightning = _import_first("lightning.pytorch", "pytorch_lightning")

    class LightningCallback(lightning.Callback):
        """For ``lightning.Trainer(callbacks=[LightningCallback()])``."""

        def on_train_start(self, trainer, pl_module):
            self._steps = trainer.global_step
            _begin_training(self._steps)

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

        def on_train_end(self, trainer, pl_module):
            PrecisionDebugger.stop()

    return LightningCallback


def _import_first(*names):
    for name in names[:-1]:
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if not f"{name}.".startswith(f"{error.name}."):
                raise  # the library is there, and something that it needs is not
    return importlib.import_module(names[-1])


_MAKERS = {
    "TransformersCallback": _transformers_callback,
    "LightningCallback": _lightning_callback,
}


def __getattr__(name):
    if name not in _MAKERS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    made = _MAKERS[name]()
    made.__module__, made.__qualname__ = __name__, name
    globals()[name] = made
    return made


def __dir__():
    return [*globals(), *_MAKERS]

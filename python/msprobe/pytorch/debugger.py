"""The class that training scripts use."""

import atexit

from msprobe import UsageError, _engine
from msprobe.pytorch import hooks
from msprobe.pytorch.process import PACKAGE


class PrecisionDebugger:
    """Records what every API and module computed between :meth:`start` and :meth:`stop`.

    One per process: a later construction returns the first object. Methods may be called on the
    class.

    Args:
        config_path: ``config.json`` (docs/config.md); keyword arguments win over it.
        task: ``"statistics"``, ``"tensor"`` or ``"structure"``.
        dump_path: folder that receives ``step<N>/rank<id>/``.
        level: ``"L0"`` modules, ``"L1"`` APIs, ``"mix"`` both.
        model: the module whose descendants are recorded under L0 and mix; :meth:`start` takes it
            as well.
        step: wanted steps, ``3``, ``"5-7"`` or ``[2, "5-7"]``; all when empty.
    Raises:
        msprobe.ConfigError: an unknown key or value; the message names the line and what is
            allowed.
        msprobe.UsageError: an argument of the wrong type or value.

    Example::

        debugger = PrecisionDebugger(dump_path="run_a", level="mix")
        for batch in loader:
            debugger.start(model)
            loss = model(batch).sum()
            loss.backward()
            debugger.stop()
            debugger.step()
    """

    _instance = None
    _model = None

    def __new__(
        cls, config_path=None, task=None, dump_path=None, level=None, model=None, step=None
    ):
        if cls._instance is not None:
            return cls._instance
        _engine.configure(config_path, task, dump_path, level, step, PACKAGE)
        cls._instance = super().__new__(cls)
        cls._model = model
        atexit.register(cls.stop)
        return cls._instance

    @classmethod
    def start(cls, model=None, *, scheduled_tokens=None):
        """Begin collecting this step, if it is wanted; again without :meth:`stop`: no effect.

        Args:
            model: a ``torch.nn.Module`` or a list of them; required once for L0 and mix.
            scheduled_tokens: ``{request id: number of tokens}`` of this step, in the order in which
                they lie in dimension 0; with ``request_id`` in the configuration only the tokens of
                that request are recorded.
        """
        cls._require_instance()
        if model is not None:
            cls._model = model
        if _engine.modules_wanted() and cls._model is None:
            raise UsageError(
                "level L0 and mix record modules: expected start(model) or "
                "PrecisionDebugger(model=...), found no model"
            )
        _engine.schedule_tokens(scheduled_tokens)
        hooks.begin(cls._model)

    @classmethod
    def stop(cls):
        """Stop collecting and complete the files; :meth:`start` may follow in the same step."""
        cls._require_instance()
        hooks.end()

    @classmethod
    def forward_backward_dump_end(cls):
        """Record no further forward call; gradients of those recorded still come, until stop."""
        cls._require_instance()
        _engine.stop_calls()

    @classmethod
    def step(cls):
        """The step is over: call numbers begin at 0 again, in the next ``step<N>``."""
        cls.stop()
        _engine.step()

    @classmethod
    def _require_instance(cls):
        if cls._instance is None:
            raise UsageError(
                "expected PrecisionDebugger(...) to be constructed first; add "
                "`debugger = PrecisionDebugger()` before the loop"
            )

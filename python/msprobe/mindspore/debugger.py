"""The class that training scripts use."""

from msprobe import UsageError, _engine
from msprobe._engine import message
from msprobe.core.debugger import Debugger, check_start, method, seed_as_configured
from msprobe.mindspore import compiled, gradients, hooks, optimizers
from msprobe.mindspore.reproducibility import seed_all
from msprobe.mindspore.versions import rank


class PrecisionDebugger(Debugger):
    """Records what every API and Cell computed between :meth:`start` and :meth:`stop`.

    A process has one debugger: a later construction returns the first object, and gives a warning
    that names its arguments if they differ. Methods may be called on the class. Of compiled code
    (graph mode, ``mindspore.jit``) level L0 records the Cells, on a CPU.

    Args:
        config_path: ``config.json`` (docs/reference/config.md); keyword arguments take
            precedence over it.
        task: ``"statistics"``, ``"tensor"``, ``"structure"`` or ``"overflow_check"``, or
            ``"grad_probe"``, which has :meth:`monitor`.
        dump_path: the folder for ``step<N>/rank<id>/``.
        level: ``"L0"`` Cells, ``"L1"`` APIs, ``"mix"`` both, ``"debug"`` what :meth:`save` gets.
        model: a Cell, or a list of Cells; the Cells inside are recorded under L0 and mix. It can be
            given to :meth:`start` instead. The fifth positional argument may also be ``step``.
        step: wanted steps, ``3``, ``"5-7"`` or ``[2, "5-7"]``; all when empty.
        baseline: the ``dump_path`` of a trusted run: each call is compared with it while it is
            recorded, and the first difference is logged at once
            (docs/howto/compare-while-it-trains.md).
        baseline_action: what follows: ``"go_on"`` (the default), ``"stop"`` recording, or
            ``"raise"`` ``msprobe.DivergenceError`` in the program.
    Raises:
        msprobe.ConfigError: an unknown key or value; the message names the line and what is
            allowed.
        msprobe.UnsupportedError: what cannot be recorded of MindSpore.
        msprobe.UsageError: an argument of the wrong type or value.
        msprobe.FileError: ``dump_path`` cannot be created or written.

    Example::

        debugger = PrecisionDebugger(dump_path="run_a", level="mix")
        for data, label in dataset:
            debugger.start(net)
            loss, gradients = step(data, label)
            debugger.stop()
            optimizer(gradients)
            debugger.step()
    """

    framework = "mindspore"
    _rank = staticmethod(rank)
    _check_model = staticmethod(hooks.check_model)

    @classmethod
    def _constructed(cls):
        seed_as_configured(seed_all)

    @method
    def start(cls, model=None, token_range=None, rank_id=None):
        """Begin to record, if the configuration selects this step.

        A second call without :meth:`stop` has no effect.

        Args:
            model: a ``mindspore.nn.Cell`` or a list of them; required once for L0 and mix, and for
                ``token_range``. Under L1 its Primitives are recorded as well.
            token_range: ``[first, last]``: record only these forward passes of the model (of the
                first model of a list) until :meth:`stop`. They count from 0; both are included.
            rank_id: names the folder ``rank<id>``.
        """
        check_start(token_range, rank_id)
        cls._take_model(model)
        cls._refresh()
        if not _engine.step_is_wanted():
            hooks.prepare(cls._model)
            return
        cls._require_model(token_range)
        if compiled.is_graph_mode():
            compiled.check(token_range)
        hooks.begin(cls._model, token_range, rank_id)

    @method
    def stop(cls):
        """Stop collecting and complete the files; :meth:`start` may follow in the same step."""
        cls._end()

    @method
    def _end(cls):
        hooks.end()
        cls._refresh()

    @classmethod
    def _refresh(cls):
        if _engine.refresh(cls._model is not None, rank()):
            hooks.end()

    @classmethod
    def _end_step(cls):
        super()._end_step()
        optimizers.forget()

    @method
    def step(cls, model=None):
        """End the step: the next calls go to the next ``step<N>``, with call numbers from 0.

        As a block, ``with debugger.step(net):``, it is :meth:`start` before the block, and
        :meth:`stop` and ``step()`` after it, also if the block raises: the block is one step.

        Args:
            model: as for :meth:`start`, for the block.
        """
        cls._take_model(model)
        cls._end_step()
        return cls._block()

    @method
    def monitor(cls, optimizer):
        """Task ``"grad_probe"``: summarise the gradients at each call of this optimizer.

        Call it once, before the loop; :meth:`start`, :meth:`stop` and :meth:`step` have no effect
        then. The hook on the optimizer is removed after the last wanted step.

        Args:
            optimizer: one of ``mindspore.nn``, ``mindspore.mint`` or ``mindspore.experimental``.
        """
        gradients.monitor(optimizer)

    @method
    def save(cls, variable, name, save_backward=True):
        """Level ``"debug"``: record one value, at once, as ``<name>.<n>.debug`` in debug.json.

        Needs neither :meth:`start` nor :meth:`stop`; PyNative mode.

        Args:
            variable: a tensor, a number, text, or lists and dictionaries of them; anything else
                gives a warning.
            name: ``n`` counts the values of this name in the step.
            save_backward: record the gradients of its tensors too, as ``<name>_grad.<n>.debug``.
        """
        if compiled.is_graph_mode():
            raise UsageError(
                message(
                    "save; expected PyNative mode, found graph mode; type "
                    "mindspore.set_context(mode=mindspore.PYNATIVE_MODE)"
                )
            )
        _engine.save(variable, name, bool(save_backward), rank())

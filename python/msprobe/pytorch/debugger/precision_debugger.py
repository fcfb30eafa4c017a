"""The class that training scripts use."""

from msprobe import _engine
from msprobe.core.debugger import Debugger, check_start, method, seed_as_configured
from msprobe.pytorch import custom_apis, dataloader, hooks, regions
from msprobe.pytorch.process import rank
from msprobe.pytorch.reproducibility import seed_all


class PrecisionDebugger(Debugger):
    """Records what every API and module computed between :meth:`start` and :meth:`stop`.

    A process has one debugger: a later construction returns the first object, and gives a warning
    that names its arguments if they differ. Methods may be called on the class.

    Args:
        config_path: ``config.json`` (docs/reference/config.md); keyword arguments take
            precedence over it.
        task: ``"statistics"``, ``"tensor"``, ``"structure"``, ``"nan_check"``,
            ``"overflow_check"`` or ``"free_benchmark"``, or ``"grad_probe"``, which has
            :meth:`monitor`.
        dump_path: the folder for ``step<N>/rank<id>/``.
        level: ``"L0"`` modules, ``"L1"`` APIs, ``"mix"`` both.
        model: a module, or a list of modules; the modules inside are recorded under L0 and mix.
            It can be given to :meth:`start` instead. The fifth positional argument may also be
            ``step``.
        step: wanted steps, ``3``, ``"5-7"`` or ``[2, "5-7"]``; all when empty.
        baseline: the ``dump_path`` of a trusted run: each call is compared with it while it is
            recorded, and the first difference is logged at once
            (docs/howto/compare-while-it-trains.md).
        baseline_action: what follows: ``"go_on"`` (the default), ``"stop"`` recording, or
            ``"raise"`` ``msprobe.DivergenceError`` in the program.
    Raises:
        msprobe.ConfigError: an unknown key or value; the message names the line and what is
            allowed.
        msprobe.UsageError: an argument of the wrong type or value.
        msprobe.FileError: ``dump_path`` cannot be created or written.

    Example::

        debugger = PrecisionDebugger(dump_path="run_a", level="mix")
        for batch in loader:
            debugger.start(model)
            loss = model(batch).sum()
            loss.backward()
            debugger.stop()
            debugger.step()

    The same, with the block as the step::

        for batch in loader:
            with debugger.step(model):
                loss = model(batch).sum()
                loss.backward()
    """

    framework = "pytorch"
    _rank = staticmethod(rank)
    _check_model = staticmethod(hooks.check_model)

    @classmethod
    def _constructed(cls):
        seed_as_configured(seed_all)
        cls._follow_batches()

    @method
    def start(cls, model=None, token_range=None, rank_id=None, scheduled_tokens=None):
        """Begin to record, if the configuration selects this step.

        A second call without :meth:`stop` has no effect.

        Args:
            model: a ``torch.nn.Module`` or a list of them; required once for ``token_range``.
                Without it the model is the first called module that has parameters and modules
                inside.
            token_range: ``[first, last]``: record only these forward passes of the model (of the
                first model of a list) until :meth:`stop`. They count from 0; both are included.
            rank_id: names the folder ``rank<id>`` instead of the rank in ``torch.distributed``.
            scheduled_tokens: ``{request id: number of tokens}`` of this step, in the order in which
                they lie in dimension 0; with ``request_id`` in the configuration only the tokens of
                that request are recorded.
        """
        check_start(token_range, rank_id)
        cls._take_model(model)
        if not dataloader.warns("start"):
            cls._begin(token_range, rank_id, scheduled_tokens)

    @method
    def _begin(cls, token_range=None, rank_id=None, scheduled_tokens=None):
        cls._refresh()
        if not _engine.step_is_wanted():
            return
        cls._require_model(token_range)
        _engine.schedule_tokens(scheduled_tokens)
        regions.begin(cls._model, token_range)
        hooks.begin(cls._model, rank_id)

    @method
    def stop(cls):
        """Stop collecting and complete the files; :meth:`start` may follow in the same step."""
        if not dataloader.warns("stop"):
            cls._end()

    @method
    def _end(cls):
        regions.end()
        hooks.end()
        cls._refresh()

    @classmethod
    def _can_find_model(cls):
        return True

    @classmethod
    def _refresh(cls):
        if hooks.refresh():
            cls._follow_batches()

    @classmethod
    def _follow_batches(cls):
        asked = _engine.each_batch_is_a_step()
        dataloader.observe(cls._begin, cls._end_step) if asked else dataloader.observe()

    @method
    def step(cls, model=None, dump=True):
        """End the step: the next calls go to the next ``step<N>``, with call numbers from 0.

        As a block, ``with debugger.step(model):``, it is :meth:`start` before the block, and
        :meth:`stop` and ``step()`` after it, also if the block raises: the block is one step.

        Args:
            model: as for :meth:`start`, for the block.
            dump: False: the step does not count, as a run without data does not. The next
                ``start()`` records a step of the same number, in its place.
        """
        cls._take_model(model)
        if not dataloader.warns("step"):
            cls._end_step() if dump else cls._repeat_step()
        return cls._block()

    @method
    def monitor(cls, model):
        """Task ``"grad_probe"``: summarise the model's gradients at each step of an optimizer.

        Call it once, before the loop; :meth:`start`, :meth:`stop` and :meth:`step` have no effect
        then.
        """
        hooks.monitor(model)

    @method
    def save(cls, variable, name, save_backward=True):
        """Level ``"debug"``: record one value, at once, as ``<name>.<n>.debug`` in debug.json.

        Needs neither :meth:`start` nor :meth:`stop`.

        Args:
            variable: a tensor, a number, text, or lists and dictionaries of them; anything else
                gives a warning.
            name: ``n`` counts the values of this name in the step.
            save_backward: record the gradients of its tensors too, as ``<name>_grad.<n>.debug``.
        """
        _engine.save(variable, name, bool(save_backward), rank())

    @method
    def module_dump(cls, module, dump_name):
        """Until :meth:`module_dump_end`, record this module's own calls and nothing else.

        Call it between :meth:`start` and :meth:`stop`. Entries are called
        ``Module.<dump_name>.<Class>...``.
        """
        hooks.begin_module_dump(module, dump_name)

    @method
    def module_dump_end(cls):
        """Record everything that the level records again."""
        hooks.end_module_dump()

    @method
    def register_custom_api(cls, module, api, api_prefix=None):
        """Record calls of ``module.api`` too, as ``<prefix>.<api>.<n>.forward``.

        Args:
            module: a module or class.
            api: the name of one of its functions.
            api_prefix: by default the module's ``__name__``, or ``Custom`` if it has no name.
        """
        custom_apis.register(module, api, api_prefix)

    @method
    def restore_custom_api(cls, module, api):
        """Undo :meth:`register_custom_api`."""
        custom_apis.restore(module, api)


module_dump = PrecisionDebugger.module_dump
module_dump_end = PrecisionDebugger.module_dump_end

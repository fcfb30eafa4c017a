"""The class of ``ptdbg_ascend`` 3.2 to 6.0."""

import os

from msprobe import UsageError, _engine
from msprobe._engine import message
from msprobe.compat import acl, arguments, ptdbg, recorder
from msprobe.compat.errors import RegistrationError
from msprobe.pytorch import dataloader, hooks


class ExitAfterIteration(Exception):
    """Ends the program when all wanted steps are on the disk, as ptdbg_ascend does."""


class PrecisionDebugger:
    """Dumps all API calls of the wanted steps, or the calls that overflow.

    Args:
        dump_path: a folder, created when missing.
        hook_name: ``"dump"`` or ``"overflow_check"``.
        rank: only this rank is dumped.
        step: the wanted steps, from 0 on; all when empty.
        enable_dataloader: each batch of a DataLoader is a step; :meth:`start`, :meth:`stop` and
            :meth:`step` are not called then.
        model: accepted, without effect.
    Raises:
        RegistrationError: an argument is not allowed.

    Example::

        debugger = PrecisionDebugger(dump_path="./dump", hook_name="dump", step=[0, 2])
        for batch in loader:
            debugger.start()
            model(batch).sum().backward()
            debugger.stop()
            debugger.step()
    """

    _instance = None
    _iteration = 0

    def __init__(
        self,
        dump_path=None,
        hook_name=None,
        rank=None,
        step=(),
        enable_dataloader=False,
        model=None,
        **kwargs,
    ):
        recorder.warn_no_effect("PrecisionDebugger", kwargs)
        if hook_name is None:
            raise RegistrationError(
                message('hook_name; expected "dump" or "overflow_check", found None')
            )
        if hook_name not in ("dump", "overflow_check"):
            raise RegistrationError(
                message('hook_name; expected "dump" or "overflow_check", found {}', repr(hook_name))
            )
        arguments.check_rank(rank)
        steps = _steps(step)
        arguments.is_true("enable_dataloader", enable_dataloader)
        if dump_path is not None or hook_name == "dump":
            ptdbg.set_dump_path(dump_path)
        self.path, self.tag = ptdbg.Setup.path, ptdbg.Setup.tag
        self.checks_overflow = hook_name == "overflow_check"
        self.rank, self.steps, self.model = rank, steps, model
        self.overflow_nums, self.filter_overflow = 1, False
        self.acl_config = None
        self.goes_on = False
        PrecisionDebugger._instance = self
        PrecisionDebugger._iteration = 0
        if not self.checks_overflow:
            self.configure_hook()
        dataloader.observe(self._begin, self._end_step) if enable_dataloader else (
            dataloader.observe()
        )

    def configure_hook(self, mode=None, **kwargs):
        """Set what is dumped, or how overflows are found.

        Args:
            mode: ``"api_stack"`` or another mode of ``set_dump_switch``.
            **kwargs: ``scope``, ``api_list``, ``filter_switch``, ``input_output_mode``,
                ``summary_only``, ``summary_mode`` ("all", "summary", "md5"), ``acl_config``,
                ``backward_input``; for overflow_check: ``overflow_nums``, ``filter_switch``.
        """
        if self.checks_overflow:
            if mode not in (None, "api"):
                raise RegistrationError(
                    message('mode of overflow_check; expected "api", found {}', repr(mode))
                )
            self.overflow_nums = kwargs.pop("overflow_nums", 1)
            arguments.check_overflow_nums(self.overflow_nums)
            self.filter_overflow = arguments.is_on(
                "filter_switch", kwargs.pop("filter_switch", "OFF")
            )
        else:
            self._configure_dump(mode, kwargs)
        self.goes_on = False
        recorder.warn_no_effect("configure_hook", kwargs)

    def _configure_dump(self, mode, kwargs):
        word = arguments.mode_word("api_stack" if mode is None else mode)
        scope = arguments.names_of("scope", kwargs.pop("scope", None))
        parts = arguments.names_of("api_list", kwargs.pop("api_list", None))
        arguments.check_scope(word, scope, parts)
        if word == "acl":
            acl.check()
        self.acl_config = kwargs.pop("acl_config", None)
        if kwargs.pop("backward_input", None):
            acl.set_backward_input(None)
        summary = kwargs.pop("summary_mode", "all")
        if summary not in ("all", "summary", "md5"):
            raise RegistrationError(
                message(
                    'summary_mode; expected "all", "summary" or "md5", found {}', repr(summary)
                ),
                code=RegistrationError.INVALID_SUMMARY_MODE,
            )
        only = arguments.is_true("summary_only", kwargs.pop("summary_only", False))
        self.selection = {
            "mode": word,
            "stem": "dump" if word == "all" else f"{word}_dump",
            "scope": scope,
            "api_list": parts,
            "plain_values": not arguments.is_on(
                "filter_switch", kwargs.pop("filter_switch", "OFF")
            ),
            "parts": arguments.parts_of("input_output_mode", kwargs.pop("input_output_mode", None)),
            "data": "none" if only or summary != "all" else "npy",
            "checksums": summary == "md5",
        }

    @classmethod
    def start(cls):
        """Dump this step if it is wanted; after the last wanted step end the program."""
        if not dataloader.warns("start"):
            cls._begin(cls._debugger())

    @classmethod
    def stop(cls):
        """Stop dumping; the files on the disk are complete."""
        if not dataloader.warns("stop"):
            cls._debugger()
            acl.end()
            recorder.end()

    @classmethod
    def step(cls):
        """The step is over: call numbers begin at 0 again."""
        if not dataloader.warns("step"):
            cls._end_step(cls._debugger())

    @classmethod
    def _debugger(cls):
        if cls._instance is None:
            raise UsageError(
                message("expected PrecisionDebugger(...) to be constructed first; found none")
            )
        return cls._instance

    def _end_step(self):
        acl.end()
        recorder.step()
        PrecisionDebugger._iteration += 1

    def _begin(self):
        iteration = PrecisionDebugger._iteration
        if self.steps and iteration > self.steps[-1]:
            self._leave()
        elif (not self.steps or iteration in self.steps) and not recorder.recording():
            # Call numbers begin anew: a second step in the same folder would overwrite arrays.
            self._record(f"step{iteration}" if self.steps or iteration else "")

    def _leave(self):
        """All wanted steps are dumped: complete the files, and end the program."""
        recorder.end()
        text = f"ptdbg: exit after iteration {self.steps}"
        wish = os.environ.get("PTDBG_AFTER_LAST_STEP", "raise")
        if wish == "exit":
            _engine.log(text)
            raise SystemExit(0)
        if wish != "continue":
            raise ExitAfterIteration(text)

    def _record(self, step_folder):
        from msprobe.pytorch.process import rank as rank_of_process

        here = rank_of_process()
        if self.rank is not None and here is not None and here != self.rank:
            return
        if self.checks_overflow:
            options = ptdbg.overflow_options(self)
            recorder.begin(
                {**options, "step_folder": step_folder}, self.model, goes_on=self.goes_on
            )
            _engine.set_overflow_flag(recorder.npu_overflow_flag())
        elif self.selection["mode"] == "acl":
            acl.begin(self.acl_config)
        else:
            options = {**self.selection, "step_folder": step_folder}
            recorder.begin(
                {**options, "tag_folder": ptdbg.tag_folder(self.path, self.tag)},
                self.model,
                goes_on=self.goes_on,
            )
        self.goes_on = True


def _steps(step):
    step = () if step is None else step
    if not isinstance(step, (list, tuple)) or not all(
        isinstance(each, int) and not isinstance(each, bool) and each >= 0 for each in step
    ):
        raise RegistrationError(
            message("step; expected a list of numbers of 0 or more, found {}", repr(step))
        )
    return sorted(step)


def module_dump(module, name):
    """Until :func:`module_dump_end`, dump this module's own calls, as ``<name>_<k>_forward``."""
    try:
        hooks.begin_module_dump(module, name)
    except UsageError as error:
        raise RegistrationError(str(error)) from None


def module_dump_end():
    """Dump everything again."""
    hooks.end_module_dump()

"""The functions of ``ptdbg_ascend``, 0.1 to 6.0.

Example::

    from ptdbg_ascend import *

    set_dump_path("./dump")
    register_hook(model, acc_cmp_dump)
    set_dump_switch("ON", mode="api_stack")
    model(x).sum().backward()
    set_dump_switch("OFF")
"""

import os
import time

from msprobe import UsageError, _engine
from msprobe._engine import message
from msprobe.compat import acl, arguments, recorder
from msprobe.compat.errors import DumpException, RegistrationError
from msprobe.pytorch.reproducibility import seed_all as _seed_all


class Setup:
    """The settings that the calls of this process have made."""

    path = tag = None  # path: a folder, which gets the tag, or a .pkl file
    hook = model = rank = None
    dump_step = 1
    overflow_nums = 1
    level = "L1"
    acl_config = None
    switch = "OFF"
    overflow_switch = "ON"
    overflow_goes_on = False
    filter_overflow = False
    selection = None  # arguments of set_dump_switch, in the form that the engine takes
    numbered = True  # modes were given as numbers, as in 0.1


def seed_all(seed=1234, mode=False, **kwargs):
    """Seed Python, NumPy, PyTorch and its devices; `mode`: only deterministic algorithms."""
    recorder.warn_no_effect("seed_all", kwargs)
    try:
        _seed_all(seed, mode)
    except UsageError as error:
        raise RegistrationError(str(error)) from None


def set_dump_path(fpath=None, dump_tag="ptdbg_dump", **kwargs):
    """Set the path of the dumps.

    Args:
        fpath: a ``.pkl`` file, as in 0.1; or a folder, created when missing, in which
            ``<dump_tag>_v<version>/rank<r>/`` is made. None: ``$ASCEND_WORK_PATH/dump_data``.
    Raises:
        DumpException: code 1: the path cannot be used.
    """
    recorder.warn_no_effect("set_dump_path", kwargs)
    if fpath is None and os.environ.get("ASCEND_WORK_PATH"):
        fpath = os.path.join(os.environ["ASCEND_WORK_PATH"], "dump_data")
    if not isinstance(fpath, (str, os.PathLike)) or not os.fspath(fpath):
        raise _PathError(
            message("set_dump_path: expected a folder or a .pkl file, found {}", repr(fpath))
        )
    path = os.path.abspath(os.fspath(fpath))
    if path.endswith(".pkl"):
        reason = recorder.why_no_file(path)
        if reason:
            raise _PathError(message("set_dump_path: {}", reason))
    else:
        _check_tag(dump_tag)
        _make_folder(path)
        if recorder.recording() and Setup.hook is acc_cmp_dump:
            raise RegistrationError(
                message(
                    'set_dump_path: a dump is being written; type set_dump_switch("OFF") before it'
                )
            )
    if Setup.path not in (None, path) and Setup.switch == "OFF":
        _engine.log(message("dumps go to {} from now on, no longer to {}", path, Setup.path))
    recorder.end()
    if path.endswith(".pkl"):
        recorder.remove_earlier_dump(path)
    Setup.path, Setup.tag = path, dump_tag
    _follow()


def _check_tag(tag):
    if not isinstance(tag, str) or not tag or set("/\0") & set(tag) or tag in (".", ".."):
        raise RegistrationError(message("dump_tag; expected a name, found {}", repr(tag)))


def _make_folder(path):
    try:
        os.makedirs(path, mode=0o750, exist_ok=True)
        writable = os.access(path, os.W_OK | os.X_OK)
        reason = None if writable else message("nothing can be written to it")
    except (OSError, ValueError) as error:
        reason = message("it cannot be created: {}", getattr(error, "strerror", error))
    if reason:
        raise _PathError(message("set_dump_path: {}: {}; name another folder", repr(path), reason))


class _PathError(DumpException, RuntimeError):
    def __init__(self, message):
        super().__init__(DumpException.INVALID_PATH_ERROR, message)


def set_dump_switch(
    switch,
    mode=None,
    scope=None,
    api_list=None,
    filter_switch="OFF",
    dump_mode=None,
    summary_only=False,
    **kwargs,
):
    """Begin to dump, or end it.

    Args:
        switch: ``"ON"`` or ``"OFF"``.
        mode: ``"all"`` (1), ``"list"`` (2), ``"range"`` (3), ``"stack"`` (4), ``"acl"`` (5),
            ``"api_list"`` (6) or ``"api_stack"``.
        scope: names of calls, as in a dump. For list: at least one; for range: the first and the
            last; for stack: none, one or two. In 0.1 also numbers of calls.
        api_list: for api_list: parts of names.
        filter_switch: ``"ON"``: leave out numbers, and tensors of integers or without dimensions.
        dump_mode: which of forward, backward, input and output to dump; default: all.
        summary_only: dump statistics only, no elements.
    Raises:
        RegistrationError (a CompareException, AssertionError and ValueError): an argument is
            wrong; nothing has changed then.
        DumpException (a RuntimeError): no path is set.
    """
    recorder.warn_no_effect("set_dump_switch", kwargs)
    if switch not in ("ON", "OFF"):
        raise RegistrationError(
            message('set_dump_switch: expected "ON" or "OFF", found {}', repr(switch))
        )
    word = arguments.mode_word(mode)
    scope = arguments.names_of("scope", scope)
    selection = {
        "mode": word,
        "scope": scope,
        "api_list": arguments.names_of("api_list", api_list),
        "plain_values": arguments.is_on("filter_switch", filter_switch) is False,
        "parts": arguments.parts_of("dump_mode", dump_mode),
        "data": "none" if arguments.is_true("summary_only", summary_only) else "npy",
    }
    numbered = not isinstance(mode, str)
    if switch == "ON":
        arguments.check_scope(word, scope, selection["api_list"])
        if numbered and (Setup.path or "").endswith(".pkl"):
            arguments.check_numbers(word, scope)
    if word == "acl":
        acl.check()
    elif switch == "ON" and Setup.path is None:
        raise _PathError(
            message("set_dump_switch: expected set_dump_path(folder) before it, found none")
        )
    acl.end()
    recorder.end()
    was_on, Setup.switch = Setup.switch == "ON", switch
    Setup.selection, Setup.numbered = selection, numbered
    _follow()
    if switch == "OFF":
        _engine.log(
            message("Dump switch is turned off")
            if was_on
            else message("Dump switch is off already")
        )


def acc_cmp_dump(*_args, **_kwargs):
    """For :func:`register_hook`: dump inputs, outputs and gradients of calls."""
    raise RegistrationError(message("do not call acc_cmp_dump; pass it to register_hook"))


def overflow_check(*_args, **_kwargs):
    """For :func:`register_hook`: dump calls whose results hold NaN or infinity."""
    raise RegistrationError(message("do not call overflow_check; pass it to register_hook"))


def register_hook(model, hook, **kwargs):
    """Observe the calls of this process, of all its models.

    Args:
        model: any ``torch.nn.Module``, or None.
        hook: ``acc_cmp_dump`` or ``overflow_check``.
        **kwargs: ``dump_step`` (1 to 100; in the format of 0.1 each dump_step-th element is kept),
            ``overflow_nums`` (a program on an NPU ends after so many overflows; -1: never),
            ``rank`` (names the rank's folder), ``dump_mode`` ("api"; "model": modules and not
            APIs; "acl"), ``dump_config`` (for acl: a .json file).
    Raises:
        RegistrationError (a CompareException and AssertionError): the model is not a module, the
            hook is unknown, or a number is not allowed (code 11; dump_step: 12).
    """
    recorder.check_model(model, none_is_one=True)
    name = getattr(hook, "__name__", None)
    if name not in ("acc_cmp_dump", "overflow_check"):
        raise RegistrationError(
            message("register_hook: expected acc_cmp_dump or overflow_check, found {}", repr(hook))
        )
    dump_step = kwargs.pop("dump_step", 1)
    if type(dump_step) is not int or not 1 <= dump_step <= 100:
        raise RegistrationError(
            message(
                "register_hook: dump_step; expected a number from 1 to 100, found {}",
                repr(dump_step),
            ),
            code=RegistrationError.INVALID_DUMP_RATIO,
        )
    overflow_nums = kwargs.pop("overflow_nums", 1)
    arguments.check_overflow_nums(overflow_nums)
    rank = kwargs.pop("rank", None)
    arguments.check_rank(rank)
    dump_mode = kwargs.pop("dump_mode", "api")
    if dump_mode not in ("api", "acl", "model"):
        raise RegistrationError(
            message(
                'register_hook: dump_mode; expected "api", "model" or "acl", found {}',
                repr(dump_mode),
            )
        )
    if dump_mode == "model" and model is None:
        raise RegistrationError(
            message('register_hook: dump_mode "model" expects a model, found None')
        )
    config = kwargs.pop("dump_config", None)
    if dump_mode == "acl":
        acl.check()
    recorder.warn_no_effect("register_hook", kwargs)
    recorder.end()
    Setup.hook = acc_cmp_dump if name == "acc_cmp_dump" else overflow_check
    Setup.model, Setup.rank, Setup.dump_step = model, rank, dump_step
    Setup.overflow_nums, Setup.acl_config = overflow_nums, config
    Setup.overflow_goes_on = False
    Setup.level = "L0" if dump_mode == "model" else "L1"
    if Setup.hook is acc_cmp_dump and not recorder.recording():
        recorder.warn_at_exit(message('nothing was dumped: set_dump_switch("ON") was not called'))
    _follow()


def set_overflow_check_switch(switch, filter_switch="OFF", **kwargs):
    """Look for overflows between "ON" and "OFF" only."""
    recorder.warn_no_effect("set_overflow_check_switch", kwargs)
    on = arguments.is_on("set_overflow_check_switch", switch)
    filters = arguments.is_on("filter_switch", filter_switch)
    recorder.end()
    Setup.filter_overflow, Setup.overflow_switch = filters, "ON" if on else "OFF"
    _follow()


def set_backward_input(backward_input):
    """Set the files of incoming gradients, for acl dumps of backward calls."""
    acl.set_backward_input(backward_input)


def _follow():
    """Begin to record if path, hook and switch ask for it."""
    if Setup.hook is overflow_check and Setup.overflow_switch == "ON":
        goes_on, Setup.overflow_goes_on = Setup.overflow_goes_on, True
        recorder.begin(overflow_options(Setup), Setup.model, Setup.rank, goes_on)
        _engine.set_overflow_flag(recorder.npu_overflow_flag())
    elif Setup.hook is acc_cmp_dump and Setup.switch == "ON":
        if Setup.selection["mode"] == "acl":
            acl.begin(Setup.acl_config)
        elif Setup.path is not None:
            recorder.begin(_dump_options(), Setup.model, Setup.rank)


def overflow_options(setup):
    flag = recorder.npu_overflow_flag()
    options = {
        "checks_overflow": True,
        "overflow_nums": setup.overflow_nums,
        "raises": flag is not None,
        "plain_values": not setup.filter_overflow,
    }
    if setup.path is None or setup.path.endswith(".pkl"):
        return {**options, "dialect": "numbered", "file": os.getcwd()}
    return {**options, "tag_folder": tag_folder(setup.path, setup.tag)}


def tag_folder(path, tag):
    from ptdbg_ascend import __version__

    return os.path.join(path, f"{tag}_v{__version__}")


def _dump_options():
    options = {**Setup.selection, "level": Setup.level}
    body, extension = os.path.splitext(Setup.path)
    if extension != ".pkl":
        mode = options["mode"]
        options.update(stem="dump" if mode == "all" else f"{mode}_dump")
        options.update(tag_folder=tag_folder(Setup.path, Setup.tag))
    elif not Setup.numbered:  # 1.0 to 2.3
        folder, name = os.path.split(body)
        stacks = options["mode"] == "api_stack"
        options.update(stem=f"api_stack_{name}" if stacks else name)
        options.update(tag_folder=tag_folder(folder, Setup.tag))
    else:
        options.update(dialect="numbered", sample_step=Setup.dump_step, plain_values=False)
        options.update(file=Setup.path, stem=body, data_folder=_new_data_folder(body))
    return options


def _new_data_folder(body):
    """A new folder, for each time that the switch is turned on: its name ends with the time."""
    seconds = time.time()
    while True:
        folder = f"{body}_{time.strftime('%Y%m%d_%H%M%S', time.gmtime(seconds))}"
        if not os.path.exists(folder):
            return folder
        seconds += 1

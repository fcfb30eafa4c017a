"""Seeds random generators and logs their calls: ``seed_all`` and ``random_save``."""

import functools
import importlib.util
import os
import random
import sys

import torch

from msprobe import UsageError, _engine
from msprobe._engine import message
from msprobe.pytorch.process import PACKAGE, rank

_LISTS = os.path.join(os.path.dirname(__file__), "hook_module", "random_apis.yaml")

_state = None  # under is_enhanced: the generators' state before each call of a random function
_saving = False
_wrapped = False


def _require_bool(name, value):
    if not isinstance(value, bool):
        raise UsageError(
            message("seed_all: {}; expected True or False, found {}", name, repr(value))
        )


def _device_modules():
    """torch.cuda and torch.npu, where such a device can be used."""
    names = [name for name in ("cuda", "npu") if hasattr(torch, name)]
    return {name: getattr(torch, name) for name in names if getattr(torch, name).is_available()}


def _numpy_random():
    if importlib.util.find_spec("numpy") is None:
        return None
    import numpy

    return numpy.random


def seed_all(seed=1234, mode=False, rm_dropout=False, is_enhanced=False):
    """Seed Python, NumPy, PyTorch and its devices.

    Args:
        seed: 0 to 2**32 - 1.
        mode: True: only deterministic algorithms (``torch.use_deterministic_algorithms``). False
            leaves that setting as it is.
        rm_dropout: True: from now on ``F.dropout``, the other dropout functions, and the modules
            return their input unchanged.
        is_enhanced: True: from now on every random function of ``random``, ``numpy.random`` and
            PyTorch draws from the state that this call leaves, even after other calls have drawn.
    Raises:
        msprobe.UsageError: an argument of a wrong type or value; nothing is seeded then.
    """
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**32:
        raise UsageError(
            message(
                "seed_all: seed; expected a whole number from 0 to {}, found {}",
                2**32 - 1,
                repr(seed),
            )
        )
    for name, value in (("mode", mode), ("rm_dropout", rm_dropout), ("is_enhanced", is_enhanced)):
        _require_bool(name, value)
    random.seed(seed)
    os.environ["PYTHONHASHSEED"] = str(seed)
    if _numpy_random() is not None:
        _numpy_random().seed(seed)
    torch.manual_seed(seed)
    if mode:
        torch.use_deterministic_algorithms(True)
    _seed_devices(seed)
    if rm_dropout:
        _remove_dropout()
    if is_enhanced:
        _fix_state()


def _seed_devices(seed):
    devices = _device_modules()
    for device in devices.values():
        device.manual_seed_all(seed)
    if "cuda" in devices:
        torch.backends.cudnn.deterministic = True
        torch.backends.cudnn.benchmark = False
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    if "npu" in devices:
        os.environ.update(
            HCCL_DETERMINISTIC="True",
            LCCL_DETERMINISTIC="1",
            CLOSE_MATMUL_K_SHIFT="1",
            ATB_LLM_LCOC_ENABLE="0",
        )


def _dropout(input: torch.Tensor, p: float, train: bool) -> torch.Tensor:
    return torch.dropout(input, 0.0, train)


def _dropout_(input: torch.Tensor, p: float, train: bool) -> torch.Tensor:
    return torch.dropout_(input, 0.0, train)


def _feature_dropout(input: torch.Tensor, p: float, train: bool) -> torch.Tensor:
    return torch.feature_dropout(input, 0.0, train)


def _feature_dropout_(input: torch.Tensor, p: float, train: bool) -> torch.Tensor:
    return torch.feature_dropout_(input, 0.0, train)


def _remove_dropout():
    # F.dropout and the like stay the same objects: the functions that they call are replaced.
    for function in (_dropout, _dropout_, _feature_dropout, _feature_dropout_):
        setattr(torch._VF, function.__name__[1:], function)


def _owners():
    return {
        "python_random": random,
        "numpy_random": _numpy_random(),
        "torch_random": torch,
        "tensor_random": torch.Tensor,
        # What F.dropout and the modules call: they stay the same objects.
        "torch_vf_random": torch._VF,
    }


def _get_state():
    numpy_random = _numpy_random()
    return (
        random.getstate(),
        numpy_random and numpy_random.get_state(),
        torch.get_rng_state(),
        {name: device.get_rng_state_all() for name, device in _device_modules().items()},
    )


def _restore_state():
    python, numpy_state, cpu, devices = _state
    random.setstate(python)
    if numpy_state is not None:
        sys.modules["numpy"].random.set_state(numpy_state)
    torch.set_rng_state(cpu)
    for name, state in devices.items():
        getattr(torch, name).set_rng_state_all(state)


def _wrapper(api, function):
    @functools.wraps(function)
    def random_function(*args, **kwargs):
        if _state is not None:
            _restore_state()
        result = function(*args, **kwargs)
        if _state is not None:
            _restore_state()
        if _saving:
            _engine.note_random(api, rank())
        return result

    return random_function


def _wrap():
    """Replace every listed function by a wrapper, once."""
    global _wrapped
    if _wrapped:
        return
    _wrapped = True
    owners = _owners()
    for category, names in _engine.read_name_lists(_LISTS):
        owner = owners.get(category)
        for name in names:
            if owner is not None and hasattr(owner, name):
                setattr(owner, name, _wrapper(f"{category}.{name}", getattr(owner, name)))


def _fix_state():
    global _state
    _state = _get_state()
    _wrap()


def random_save(output_path="./output"):
    """Write each later call of a random function, and its stack, as a row of a CSV file.

    The file is ``random_rank<R>_<time>.csv``, or ``random_proc<pid>_<time>.csv`` if there is no
    rank.

    Args:
        output_path: the folder; created when missing.
    Raises:
        msprobe.UsageError: `output_path` is not a path.
        msprobe.FileError: the file cannot be created.
    """
    global _saving
    if not isinstance(output_path, (str, os.PathLike)):
        raise UsageError(
            message("random_save: output_path; expected a folder, found {}", repr(output_path))
        )
    _engine.open_random_log(os.fspath(output_path), rank(), PACKAGE)
    _saving = True
    _wrap()

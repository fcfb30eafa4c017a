"""Single tensors in files of their own: ``save``, ``save_grad``, ``step``."""

import itertools
import os

import numpy as np

import mindspore
from msprobe import UsageError, _engine
from msprobe._engine import message
from msprobe.mindspore.versions import rank

_step = 0
_numbers = itertools.count()  # of the files of this process
_failed = False
_leaf_hooks = []  # a hook on a leaf would stay for later steps: step() removes it


def _check(function, save_dir, name):
    if not isinstance(save_dir, (str, os.PathLike)) or not os.fspath(save_dir):
        raise UsageError(
            message("{}: save_dir; expected a folder, found {}", function, repr(save_dir))
        )
    if not isinstance(name, str) or not name or "/" in name or "\0" in name:
        raise UsageError(
            message(
                "{}: name; expected the beginning of a file name, without '/', found {}",
                function,
                repr(name),
            )
        )
    if mindspore.get_context("mode") != mindspore.PYNATIVE_MODE:
        raise UsageError(
            message(
                "{}: expected PyNative mode, found graph mode; type "
                "mindspore.set_context(mode=mindspore.PYNATIVE_MODE)",
                function,
            )
        )


def _write(save_dir, name, tensor):
    """Write one file. An error is said once, and the training goes on."""
    global _failed
    array = tensor.asnumpy()
    dtype = str(tensor.dtype).lower()
    if dtype == "bfloat16":
        array = array.astype("float32")
    folder = os.path.join(save_dir, f"step{_step}", f"rank{rank() or 0}")
    path = os.path.join(folder, f"{name}_{dtype}_{next(_numbers)}.npy")
    try:
        os.makedirs(folder, exist_ok=True)
        try:
            with open(path + ".part", "wb") as file:
                np.save(file, array)
            os.replace(path + ".part", path)
        except OSError:
            if os.path.exists(path + ".part"):
                os.remove(path + ".part")
            raise
    except OSError as error:
        if not _failed:
            _engine.log(
                message("save: {}: {}; the run goes on", path, error.strerror), warning=True
            )
        _failed = True


def _tensors(name, data):
    """(name, tensor) of all tensors in lists, tuples and dictionaries."""
    if isinstance(data, mindspore.Tensor):
        yield name, data
    elif isinstance(data, dict):
        for key, value in data.items():
            yield from _tensors(f"{name}.{key}".replace("/", "_"), value)
    elif isinstance(data, (list, tuple)):
        for index, value in enumerate(data):
            yield from _tensors(f"{name}.{index}", value)
    else:
        raise UsageError(
            message(
                "save({}): expected a mindspore.Tensor, or lists, tuples and dictionaries of "
                "them, found {}",
                repr(name),
                type(data).__name__,
            )
        )


def save(save_dir, name, data):
    """Write a tensor to ``<save_dir>/step<N>/rank<R>/<name>_<dtype>_<number>.npy``, at once.

    Args:
        save_dir: the folder.
        name: the beginning of the file's name. Tensors in ``data`` are ``<name>.<key or index>``.
        data: a ``mindspore.Tensor``, or lists, tuples and dictionaries of tensors. bfloat16 is
            widened to float32.
    Raises:
        msprobe.UsageError: an argument of the wrong type; graph mode.

    Example::

        save("saved", "logits", logits)   # saved/step0/rank0/logits_float32_0.npy
        step()                            # the next files go to saved/step1/
    """
    _check("save", save_dir, name)
    for part, tensor in list(_tensors(name, data)):
        _write(save_dir, part, tensor)


def save_grad(save_dir, name, data):
    """Write the gradient of a tensor when it is computed, as ``<name>_grad_<dtype>_<number>.npy``.

    Use the result in place of the tensor: ``x = save_grad("saved", "x", x)``.

    Args:
        save_dir: the folder, as for :func:`save`.
        name: the beginning of the file's name.
        data: a ``mindspore.Tensor``.
    Returns:
        The tensor.
    """
    _check("save_grad", save_dir, name)
    if not isinstance(data, mindspore.Tensor):
        raise UsageError(
            message(
                "save_grad({}): expected a mindspore.Tensor, found {}",
                repr(name),
                type(data).__name__,
            )
        )

    def write(gradient):
        if gradient is not None:
            _write(save_dir, f"{name}_grad", gradient)

    if getattr(data, "_requires_grad", False):
        handle = data.register_hook(write)
        if getattr(data, "_is_leaf", False):
            _leaf_hooks.append(handle)
    return data


def step():
    """End the step: the next files go to ``step<N + 1>``."""
    global _step
    _step += 1
    for handle in _leaf_hooks:
        handle.remove()
    _leaf_hooks.clear()

"""``SingleSave``: values of a training by name, under the module path of msprobe 26."""

import json
import os
import sys

from msprobe import _engine
from msprobe._engine import message


class SingleSave:
    """Saves tensors by name, step by step, in the layout of msprobe 26.

    A process has one object. Each tensor goes to
    ``<dump_path>/data/<key>/step<N>/rank<R>/micro_step<M>/<key>.npy`` as float32, its statistics to
    ``<key>.json`` beside it; ``M`` counts the saves of a key in the step.

    Args:
        dump_path: the folder.
        fmk: ``"pytorch"`` or ``"mindspore"``.

    Example::

        saver = SingleSave("run_a")
        saver.save({"log_prob": log_prob, "losses": [loss_a, loss_b]})
        saver.step()
    """

    _instance = None

    def __new__(cls, dump_path, fmk="pytorch"):
        if cls._instance is None:
            if fmk not in ("pytorch", "mindspore"):
                raise _engine.UsageError(
                    message(
                        'SingleSave: fmk; expected "pytorch" or "mindspore", found {}', repr(fmk)
                    )
                )
            cls._instance = super().__new__(cls)
            cls._instance.fmk = fmk
            cls._instance.writer = _engine.KeyDataWriter(os.fspath(dump_path))
        return cls._instance

    dump_path = property(lambda self: self.writer.dump_path)
    step_count = property(lambda self: self.writer.step_count)

    @property
    def rank(self):
        return _rank(self.fmk)

    @classmethod
    def save(cls, data):
        """Save each value of ``{key: value}``; the next save of a key is its next micro step."""
        for key, value in cls._items(data):
            cls._save(key, value, cls._made().writer.next_micro_step(str(key)))

    @classmethod
    def save_ex(cls, data, micro_batch=None):
        """Save each value of ``{key: value}``.

        Args:
            data: values are tensors, or lists, tuples or dictionaries of tensors. Anything else is
                left out, with a warning.
            micro_batch: the number of the folder ``micro_step<M>``; None: there is none.
        """
        for key, value in cls._items(data):
            cls._save(key, value, micro_batch)

    @classmethod
    def step(cls):
        """End the step: the next values go to the next ``step<N>``."""
        cls._made().writer.step()

    @classmethod
    def save_config(cls, data):
        """Write the settings of the run, as JSON, to ``<dump_path>/configurations.json``."""
        path = os.path.join(cls._made().dump_path, "configurations.json")
        _engine.write_text(path, json.dumps(data, indent=4, default=str))

    @classmethod
    def _made(cls):
        if cls._instance is None:
            raise _engine.UsageError(
                message(
                    "expected SingleSave(...) to be constructed first; add "
                    '`SingleSave("dump_path")` before the loop'
                )
            )
        return cls._instance

    @staticmethod
    def _items(data):
        if isinstance(data, dict):
            return data.items()
        _engine.log(
            message(
                "SingleSave: expected a dictionary of names and tensors, found {}; nothing "
                "is saved",
                type(data).__name__,
            ),
            warning=True,
        )
        return ()

    @classmethod
    def _save(cls, key, value, micro_step):
        made = cls._made()
        form, parts = _parts(value)
        tensor = _tensor_type(made.fmk)
        if isinstance(key, str) and all(isinstance(part, tensor) for _, part in parts):
            made.writer.save(key, form, parts, made.rank, micro_step)
            return
        _engine.log(
            message(
                "SingleSave: {}: expected a text as name, and a tensor or a list or "
                "dictionary of tensors, found {}; it is not saved",
                key,
                type(value).__name__,
            ),
            warning=True,
        )


def _parts(value):
    """(form, [(name, tensor), ...]) of a saved value."""
    if isinstance(value, dict):
        return "dict", [(str(name), part) for name, part in value.items()]
    if isinstance(value, (list, tuple)):
        return "list", [(str(index), part) for index, part in enumerate(value)]
    return "tensor", [("", value)]


def _tensor_type(fmk):
    """The class of tensors; no object is of one whose framework the program has not imported."""
    framework = sys.modules.get("torch" if fmk == "pytorch" else "mindspore")
    return framework.Tensor if framework else ()


def _rank(fmk):
    """The rank of this process; 0 in a run that is not distributed."""
    if fmk == "pytorch":
        from msprobe.pytorch.process import rank
    else:
        from msprobe.mindspore.versions import rank
    return rank() or 0

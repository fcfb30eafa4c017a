"""Values of every kind that a call can have as argument: VALUES, name -> (make, expectation).

`make()` runs in the child that records. An expectation is the value in the record (None for null),
or a function that checks this value.
"""

import collections
import dataclasses
import enum
import fractions
import math
import threading

import numpy as np
import pytest
import torch


@dataclasses.dataclass
class Batch:
    inputs: torch.Tensor
    name: str
    extra: object = None


@dataclasses.dataclass
class Empty:
    pass


Point = collections.namedtuple("Point", ["x", "label"])


class Color(enum.Enum):
    RED = 1


class Number(enum.IntEnum):
    TWO = 2


class Mode(str, enum.Enum):
    FAST = "fast"


class Half(float):
    pass


class Names(list):
    pass


class Hostile:
    """Every access raises."""

    def __getattr__(self, name):
        raise RuntimeError(f"asked for {name}")

    def __str__(self):
        raise RuntimeError("str")

    __repr__ = __str__

    def __eq__(self, other):
        raise RuntimeError("eq")

    def __bool__(self):
        raise RuntimeError("bool")

    def __len__(self):
        raise RuntimeError("len")

    def __iter__(self):
        raise RuntimeError("iter")

    __hash__ = None


class HostileKey:
    def __str__(self):
        raise RuntimeError("str")


class Lying(tuple):
    """Looks like a namedtuple, but a field is missing."""

    _fields = ("there", "missing")
    there = 1


def itself():
    """A list that contains itself."""
    loop = [1]
    loop.append(loop)
    return loop


def nested(depth):
    value = 1
    for _ in range(depth):
        value = [value]
    return value


def one(kind, value):
    return {"type": kind, "value": value}


def tensor(**fields):
    """Checks that the recorded object is a tensor with these fields."""

    def check(found):
        assert found["type"] in ("torch.Tensor", NESTED)
        for key, value in fields.items():
            if isinstance(value, float) and not isinstance(found[key], bool):
                value = pytest.approx(value, rel=2**-24)
            assert found[key] == value, key

    return check


def array(dtype, shape, **fields):
    """Checks a recorded NumPy array; if no fields are given, its statistics must be null."""

    def check(found):
        assert (found["type"], found["dtype"], found["shape"]) == ("numpy.ndarray", dtype, shape)
        assert "requires_grad" not in found
        for key in ("Max", "Min", "Mean", "Norm"):
            value = fields.get(key)
            assert found[key] == (None if value is None else pytest.approx(value, rel=2**-24)), key
        assert found.get("fp") != "" and ("fp" in found) == bool(fields)

    return check


def deep(found):
    """Checks that nested lists are recorded more than 200 levels deep, and end."""
    levels = 0
    while isinstance(found, list):
        found, levels = found[-1] if found else None, levels + 1
    assert levels > 200


def one_int_under_some_key(found):
    assert list(found.values()) == [INT]


NESTED = "torch.nested._internal.nested_tensor.NestedTensor"
COMPLEX = torch.tensor([1 + 2j, 3 - 4j])
LARGE = 2**64 - 1
UNREAD = {"Max": None, "Min": None, "Mean": None, "Norm": None}


INT = one("int", 1)
TEXT = 'a "quoted"\nline \\ \u00e9 \U0001f600'


def batch(found):
    tensor(Max=1.0)(found["inputs"])
    assert (found["name"], found["extra"]) == (one("str", "b"), None)


ONES = {"Max": 1, "Min": 1, "Mean": 1, "Norm": math.sqrt(6)}
SCALAR = {"Max": 2, "Min": 2, "Mean": 2, "Norm": 2}
# name: (function that makes the argument in the child, expected value in the record)
VALUES = {
    "None": (lambda: None, None),
    "bool": (lambda: True, one("bool", True)),
    "int": (lambda: -3, one("int", -3)),
    "huge int": (lambda: 10**40, one("int", 10**40)),
    "float": (lambda: 0.1, one("float", 0.1)),
    "inf": (lambda: float("-inf"), one("float", float("-inf"))),
    "str": (lambda: TEXT, one("str", TEXT)),
    "str with a zero": (lambda: "a\0b", one("str", "a\0b")),
    "empty str": (lambda: "", one("str", "")),
    "complex": (lambda: 1 + 2j, one("complex", "(1+2j)")),
    "bytes": (lambda: b"ab", None),
    "bytearray": (lambda: bytearray(2), None),
    "set": (lambda: {1}, None),
    "range": (lambda: range(3), None),
    "generator": (lambda: (x for x in [1]), None),
    "iterator": (lambda: iter([1]), None),
    "random generator": (torch.Generator, None),
    "fraction": (lambda: fractions.Fraction(1, 2), None),
    "function": (lambda: print, None),
    "class": (lambda: Batch, None),
    "module": (lambda: torch.nn.Linear(1, 1), None),
    "thread": (threading.current_thread, None),
    "object": (object, None),
    "hostile object": (Hostile, None),
    "ellipsis": (lambda: ..., one("ellipsis", "...")),
    "slice": (lambda: slice(1, None, 2), one("slice", [1, None, 2])),
    "slice of tensors": (lambda: slice(torch.tensor(1), "a"), one("slice", [1, None, None])),
    "torch.Size": (lambda: torch.Size([2, 3]), one("torch.Size", [2, 3])),
    "empty torch.Size": (lambda: torch.Size([]), one("torch.Size", [])),
    "dtype": (lambda: torch.float16, one("torch.dtype", "torch.float16")),
    "device": (lambda: torch.device("cuda:1"), one("torch.device", "cuda:1")),
    "memory format": (
        lambda: torch.channels_last,
        {"type": "torch.memory_format", "format": "channels_last"},
    ),
    "layout": (lambda: torch.strided, None),
    "empty list": (list, []),
    "empty tuple": (tuple, []),
    "empty dict": (dict, {}),
    "nested": (lambda: [1, (1, [1, None])], [INT, [INT, [INT, None]]]),
    "list subclass": (lambda: Names([1]), [INT]),
    "dict": (lambda: {"a b": 1, "": None}, {"a b": INT, "": None}),
    "dict of other keys": (lambda: {1: 1, (2, "x"): 1}, {"1": INT, "(2, 'x')": INT}),
    "dict of a hostile key": (lambda: {HostileKey(): 1}, one_int_under_some_key),
    "ordered dict": (lambda: collections.OrderedDict(a=1), {"a": INT}),
    "default dict": (lambda: collections.defaultdict(int, a=1), {"a": INT}),
    "dict of tensors": (lambda: {"t": torch.ones(2)}, lambda found: tensor(Max=1.0)(found["t"])),
    "namedtuple": (lambda: Point(1, "p"), {"x": INT, "label": one("str", "p")}),
    "lying namedtuple": (lambda: Lying([1, 2]), {"there": INT, "missing": None}),
    "dataclass": (lambda: Batch(torch.ones(2), "b"), batch),
    "dataclass without fields": (Empty, {}),
    "enum": (lambda: Color.RED, None),
    "int enum": (lambda: Number.TWO, one("Number", 2)),
    "str enum": (lambda: Mode.FAST, one("Mode", "fast")),
    "float subclass": (lambda: Half(0.5), one("Half", 0.5)),
    "numpy float": (lambda: np.float32(1.5), one("float32", 1.5)),
    "numpy double": (lambda: np.float64(1.5), one("float64", 1.5)),
    "numpy int": (lambda: np.int8(-3), one("int8", -3)),
    "numpy bool": (lambda: np.bool_(True), one(np.bool_.__name__, True)),
    "numpy array": (lambda: np.ones((2, 3)), array("float64", [2, 3], **ONES)),
    "numpy array with strides": (
        lambda: np.arange(12, dtype=np.int16).reshape(2, 6)[::-1, ::2],
        array("int16", [2, 3], Max=10, Min=0, Mean=5, Norm=math.sqrt(220)),
    ),
    "numpy array off its alignment": (
        lambda: np.frombuffer(b"\0" + np.float32([1, 3]).tobytes(), np.float32, offset=1),
        array("float32", [2], Max=3, Min=1, Mean=2, Norm=math.sqrt(10)),
    ),
    "field of numpy records": (
        lambda: np.array([(1, 2.5), (2, 3.5)], dtype=[("a", "i1"), ("b", "f4")])["b"],
        array("float32", [2], Max=3.5, Min=2.5, Mean=3, Norm=math.sqrt(18.5)),
    ),
    "numpy scalar array": (lambda: np.array(2.0), array("float64", [], **SCALAR)),
    "read-only numpy array": (
        lambda: np.broadcast_to(np.float16(1), (2, 3)),
        array("float16", [2, 3], **ONES),
    ),
    "foreign byte order": (lambda: np.ones(2, ">f4"), array(">f4", [2])),
    "numpy long double": (lambda: np.ones(2, np.longdouble), array("float128", [2])),
    "empty numpy array": (lambda: np.ones(0), array("float64", [0], zero=None)),
    "numpy text": (lambda: np.array(["a"]), array("<U1", [1])),
    "numpy dates": (lambda: np.array(["2026-01-01"], "M8[D]"), array("datetime64[D]", [1])),
    "numpy objects": (lambda: np.array([None, {}], dtype=object), array("object", [2])),
    "numpy time": (lambda: np.datetime64("2026-01-01"), None),
    "depth 300": (lambda: nested(300), deep),
    "depth 2000": (lambda: nested(2000), deep),
    "a list in itself": (itself, deep),
    "sparse tensor": (lambda: torch.eye(2).to_sparse(), tensor(**UNREAD)),
    "meta tensor": (lambda: torch.ones(2, device="meta"), tensor(**UNREAD)),
    "quantized tensor": (
        lambda: torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8),
        tensor(**UNREAD),
    ),
    "nested tensor": (
        lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged),
        tensor(**UNREAD),
    ),
    "conjugated tensor": (COMPLEX.conj, tensor(Max=5.0, Norm=30**0.5)),
    "negated tensor": (lambda: COMPLEX.conj().imag, tensor(Max=4.0, Min=-2.0)),
    "negated contiguous tensor": (
        lambda: torch._neg_view(torch.tensor([1.0, -3.0])),
        tensor(Max=3.0, Min=-1.0),
    ),
    "uint64 tensor": (lambda: torch.tensor(LARGE, dtype=torch.uint64), tensor(Max=LARGE)),
    "bool tensor": (lambda: torch.tensor([True, False]), tensor(Max=True, Min=False, Mean=0.5)),
    "fp8 tensor": (lambda: torch.ones(2).to(torch.float8_e4m3fn), tensor(Max=1.0, Norm=2**0.5)),
    "0-d tensor": (lambda: torch.tensor(7), tensor(Max=7, shape=[])),
    "empty tensor": (lambda: torch.ones(0, 3), tensor(Max=None, shape=[0, 3])),
    "expanded tensor": (lambda: torch.ones(1).expand(5), tensor(Mean=1.0, shape=[5])),
}  # fmt: skip

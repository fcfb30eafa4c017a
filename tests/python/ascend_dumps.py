"""Dump files of CANN and the layouts of an Ascend device, as NumPy defines them.

Written from the public definition of the file and of the layouts, without a look at the engine.
"""

import struct

import numpy as np

DTYPES = {"float32": 1, "float16": 2, "int8": 3, "uint8": 4, "int16": 5, "int32": 7, "int64": 8}
DTYPES |= {"float64": 12, "complex128": 17}
FORMATS = {"NCHW": 0, "NHWC": 1, "ND": 2, "NC1HWC0": 3, "FRACTAL_Z": 4, "HWCN": 16}
FORMATS |= {"FRACTAL_NZ": 29, "NCDHW": 30, "NDC1HWC0": 32}


def varint(value):
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def number(field, value):
    return varint(field << 3) + varint(value)


def message(field, content):
    return varint(field << 3 | 2) + varint(len(content)) + content


def shape_of(extents):
    return message(1, b"".join(map(varint, extents)))


def described(array, layout, original, is_input, original_layout=None):
    size, shape = (5, 6) if is_input else (6, 7)
    text = number(1, DTYPES[array.dtype.name]) + number(2, FORMATS[layout])
    text += message(3, shape_of(array.shape)) + number(size, array.nbytes)
    if original_layout:
        text += message(4, number(4, FORMATS[original_layout]))
    return text + (message(shape, shape_of(original)) if original else b"")


def write_dump(path, inputs, outputs):
    """``inputs`` and ``outputs``: lists of ``(array, layout, original shape or None)``."""
    header = message(1, b"2.0") + number(2, 1697617551412398)
    header += b"".join(message(4, described(*each, True)) for each in inputs)
    header += b"".join(message(3, described(*each[:3], False, *each[3:])) for each in outputs)
    data = b"".join(np.ascontiguousarray(each[0]).tobytes() for each in [*inputs, *outputs])
    path.write_bytes(struct.pack("<Q", len(header)) + header + data)


def padded(x, *multiples):
    return np.pad(x, [(0, -n % m) for n, m in zip(x.shape, multiples, strict=True)])


def to_nchw(x, layout):
    order = {"NCHW": "NCHW", "NHWC": "NHWC", "HWCN": "HWCN", "NCDHW": "NCDHW", "ND": None}[layout]
    if order is None:
        return x
    return x.transpose([order.index(axis) for axis in ("NCDHW" if "D" in order else "NCHW")])


def from_nchw(x, layout):
    axes = "NCDHW" if x.ndim == 5 else "NCHW"
    return x.transpose([axes.index(axis) for axis in layout])


def stored(x, layout, c0):
    """``x`` (NCHW, NCDHW, or any matrices for FRACTAL_NZ) as the device keeps it."""
    if layout == "NC1HWC0":
        p = padded(x, 1, c0, 1, 1)
        n, c, h, w = p.shape
        return p.reshape(n, c // c0, c0, h, w).transpose(0, 1, 3, 4, 2)
    if layout == "NDC1HWC0":
        p = padded(x, 1, c0, 1, 1, 1)
        n, c, d, h, w = p.shape
        return p.reshape(n, c // c0, c0, d, h, w).transpose(0, 3, 1, 4, 5, 2)
    if layout == "FRACTAL_Z":
        p = padded(x, 16, c0, 1, 1)
        n, c, h, w = p.shape
        blocks = p.reshape(n // 16, 16, c // c0, c0, h, w).transpose(2, 4, 5, 0, 1, 3)
        return blocks.reshape(c // c0 * h * w, n // 16, 16, c0)
    if layout == "FRACTAL_NZ":
        *batch, h, w = x.shape
        p = padded(x.reshape(-1, h, w), 1, 16, c0)
        b, h, w = p.shape
        blocks = p.reshape(b, h // 16, 16, w // c0, c0).transpose(0, 3, 1, 2, 4)
        return blocks.reshape(*batch, *blocks.shape[1:])
    return from_nchw(x, layout)

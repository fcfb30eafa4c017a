"""Reads the elements of tensors of every dtype with NumPy and PyTorch, for the oracles."""

import numpy as np
import torch

FP4 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
FP4 += [-x for x in FP4]

# The dtypes that this PyTorch has.
DTYPES = [getattr(torch, name) for name in (
    "float64", "float32", "float16", "bfloat16",
    "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu",
    "float4_e2m1fn_x2",
    "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool",
    "complex32", "complex64", "complex128",
) if hasattr(torch, name)]  # fmt: skip
FLOAT4 = getattr(torch, "float4_e2m1fn_x2", None)
FLOAT8_E8M0 = getattr(torch, "float8_e8m0fnu", None)


def short(dtype):
    return str(dtype).removeprefix("torch.")


def numbers(tensor):
    """The elements as a flat array of float64 or complex128; integers keep their dtype."""
    if tensor.dtype == FLOAT4:
        raw = tensor.view(torch.uint8).contiguous().numpy().ravel()
        return np.array(FP4)[np.stack([raw & 15, raw >> 4], axis=1).ravel()]
    if tensor.dtype.is_complex:
        return tensor.to(torch.complex128).contiguous().numpy().ravel()
    if tensor.dtype.is_floating_point:
        return tensor.to(torch.float64).contiguous().numpy().ravel()
    return tensor.contiguous().numpy().ravel()

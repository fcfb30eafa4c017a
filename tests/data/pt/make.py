"""Writes the .pt and .npy files of this folder and its neighbour, and expected.txt.

    python tests/data/pt/make.py        (torch 2.13.0, NumPy 2.4)

expected.txt is what torch and NumPy read in them, one line a tensor: file, path inside the file,
dtype, shape, requires_grad, is_parameter, and the CRC-32 of the elements in logical order.
"""

import pathlib
import warnings
import zipfile
import zlib
from collections import OrderedDict

import numpy as np
import torch

warnings.filterwarnings("ignore")
HERE = pathlib.Path(__file__).resolve().parent
NPY = HERE.parent / "npy"

DTYPES = [
    "float64",
    "float32",
    "float16",
    "bfloat16",
    "float8_e4m3fn",
    "float8_e5m2",
    "float8_e4m3fnuz",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
    "float4_e2m1fn_x2",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "int8",
    "int16",
    "int32",
    "int64",
    "bool",
    "complex64",
    "complex128",
    "complex32",
]


def raw(tensor):
    """The elements in logical order, as bytes."""
    tensor = tensor.detach().resolve_conj().resolve_neg().contiguous()
    return bytes(tensor.reshape(-1).view(torch.uint8).numpy()) if tensor.numel() else b""


def random_of(dtype, shape, generator):
    kind = getattr(torch, dtype)
    count = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
    octets = torch.randint(
        0, 2 if dtype == "bool" else 256, (count,), dtype=torch.uint8, generator=generator
    )
    return octets.view(kind).reshape(shape)


def cases():
    g = torch.Generator().manual_seed(20240229)
    base = torch.randn(4, 6, generator=g)
    for dtype in DTYPES:
        yield f"dtype_{dtype}", random_of(dtype, (2, 3), g)
    yield "scalar", torch.tensor(3.5)
    yield "empty", torch.empty(0)
    yield "empty_2d", torch.empty(3, 0, 2, dtype=torch.int64)
    yield "transposed", base.t()
    yield "sliced", base[1:, ::2]
    yield "expanded", base[:1].expand(5, 6)
    yield "offset", base.reshape(-1)[7:19]
    yield "overlapping", torch.arange(10.0).as_strided((4, 4), (2, 1))
    yield "special", torch.tensor([float("nan"), float("inf"), -float("inf"), -0.0, 1e-45])
    yield "parameter", torch.nn.Parameter(torch.randn(3, generator=g))
    yield (
        "parameter_frozen",
        torch.nn.Parameter(torch.randn(3, generator=g).bfloat16(), requires_grad=False),
    )
    yield "requires_grad", torch.randn(3, generator=g, requires_grad=True)
    yield "conj", torch.randn(3, generator=g, dtype=torch.complex64).conj()
    yield "neg", torch.randn(3, generator=g, dtype=torch.complex64).conj().imag
    both = torch._neg_view(torch.randn(3, generator=g, dtype=torch.complex64).conj())
    assert both.is_conj() and both.is_neg()
    yield "conj_neg", both
    attribute = torch.randn(2, generator=g)
    attribute.note = "kept by torch, ignored here"
    yield "attribute", attribute
    parameter = torch.nn.Parameter(torch.randn(2, generator=g))
    parameter.note = 1
    yield "parameter_attribute", parameter
    yield "buffer", torch.nn.Buffer(torch.randn(2, generator=g))
    shared = torch.randn(4, generator=g)
    yield (
        "tree",
        {
            "list": [
                shared,
                (shared[1:], None, True, -3, 1 << 40, 1 << 70, 2.5, "text \u00e9", b"bytes"),
            ],
            "again": shared,
            7: OrderedDict(
                size=torch.Size([2, 3]), dtype=torch.float16, device=torch.device("cpu"), c=1j
            ),
            "set": {1, 2},
            "empty": [[], (), {}],
        },
    )
    torch.manual_seed(5)
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    yield "state_dict", model.state_dict()
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(4, 3, generator=g)).sum().backward()
    optimizer.step()
    yield "optimizer", optimizer.state_dict()


def tensors_in(value, path=""):
    if isinstance(value, torch.Tensor):
        yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from tensors_in(item, f"{path}[{key!r}]")
    elif isinstance(value, (list, tuple)) and not isinstance(value, torch.Size):
        for index, item in enumerate(value):
            yield from tensors_in(item, f"{path}[{index}]")


def deflated(source, target):
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as new:
        for info in old.infolist():
            new.writestr(info.filename, old.read(info))


def main():
    lines = []
    values = dict(cases())
    for name, value in values.items():
        torch.save(value, HERE / f"{name}.pt")
    torch.save(values["tree"], HERE / "tree_protocol5.pt", pickle_protocol=5)
    deflated(HERE / "transposed.pt", HERE / "deflated.pt")
    torch.serialization.set_crc32_options(False)
    torch.save(values["sliced"], HERE / "no_checksums.pt")
    torch.serialization.set_crc32_options(True)
    values |= {
        "tree_protocol5": values["tree"],
        "deflated": values["transposed"],
        "no_checksums": values["sliced"],
    }
    for name, value in sorted(values.items()):
        for path, tensor in tensors_in(value):
            flags = f"{int(tensor.requires_grad)} {int(isinstance(tensor, torch.nn.Parameter))}"
            lines.append(
                f"{name}.pt\t{path}\t{str(tensor.dtype)[6:]}\t{list(tensor.shape)}\t{flags}\t"
                f"{zlib.crc32(raw(tensor)):08x}"
            )

    refused = HERE / "refused"
    refused.mkdir(exist_ok=True)
    torch.save(torch.randn(2), refused / "before_1_6.pt", _use_new_zipfile_serialization=False)
    torch.save(torch.eye(2).to_sparse(), refused / "sparse.pt")
    torch.save(
        torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8), refused / "quantized.pt"
    )
    torch.save(torch.empty(2, device="meta"), refused / "meta.pt")
    torch.save(torch.nn.Linear(2, 2), refused / "module.pt")
    torch.save(np.ones(2), refused / "numpy.pt")
    torch.save(torch.ones(2).untyped_storage(), refused / "storage.pt")
    torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), str(refused / "torchscript.pt"))

    arrays = {
        "f4_c": np.arange(6, dtype="<f4").reshape(2, 3),
        "f4_fortran": np.asfortranarray(np.arange(6, dtype="<f4").reshape(2, 3)),
        "f8_big": np.arange(6, dtype=">f8").reshape(2, 3) + 0.25,
        "c8_big": (np.arange(4, dtype=">f4") + 1j).astype(">c8"),
        "scalar": np.array(2.5, dtype="<f8"),
        "empty": np.zeros((0, 3), dtype="<i4"),
        "bool": np.array([True, False, True]),
    }
    for code in ["f2", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "c8", "c16"]:
        arrays[f"type_{code}"] = np.arange(4).astype(np.dtype(code).newbyteorder("<"))
    for name, array in sorted(arrays.items()):
        np.save(NPY / f"{name}.npy", array)
    for version in [(2, 0), (3, 0)]:
        with open(NPY / f"version_{version[0]}.npy", "wb") as file:
            np.lib.format.write_array(file, arrays["f4_c"], version=version)
        arrays[f"version_{version[0]}"] = arrays["f4_c"]
    for name, array in sorted(arrays.items()):
        little = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("<")))
        lines.append(
            f"{name}.npy\t\t{array.dtype.newbyteorder('=').name}\t{list(array.shape)}\t0 0\t"
            f"{zlib.crc32(little.tobytes()):08x}"
        )
    refused = NPY / "refused"
    refused.mkdir(exist_ok=True)
    np.save(refused / "object.npy", np.array([{}], dtype=object), allow_pickle=True)
    np.save(refused / "text.npy", np.array(["a"]))
    np.save(refused / "date.npy", np.array(["2024-01-01"], dtype="M8[D]"))
    np.save(refused / "structured.npy", np.zeros(2, dtype=[("a", "<f4")]))
    np.save(refused / "raw.npy", np.zeros(2, dtype="V2"))
    np.save(refused / "longdouble.npy", np.zeros(2, dtype=np.longdouble))
    (HERE.parent / "pt" / "expected.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()

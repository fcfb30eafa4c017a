"""The names of parameters: of Python functions, of PyTorch's own, and of those without names."""

from pathlib import Path

import pytest
import torch

import msprobe.pytorch
from msprobe import _engine
from msprobe.pytorch.signatures import parameter_names

F = torch.nn.functional
T = torch.Tensor
WRAPPED = "hook_module/support_wrap_ops.yaml"
SPARSE = ("dsmm", "hsmm", "saddmm", "spmm")


@pytest.mark.parametrize(
    ("api", "functions", "names"),
    [
        ("Functional.dropout", [F.dropout], [["input", "p", "training", "inplace"]]),
        ("Functional.linear", [F.linear], [["input", "weight", "bias"]]),
        ("Torch.matmul", [torch.matmul], [["input", "other"]]),
        ("Torch.where", [torch.where], [["condition", "input", "other"]]),
        ("Tensor.transpose", [T.transpose], [["self", "dim0", "dim1"]]),
        # Python's operators, some of which have no schema.
        ("Tensor.__iand__", [T.__iand__], [["self", "other"]]),
        ("Tensor.__rmul__", [T.__rmul__], [["self", "other"]]),
        ("Tensor.__getitem__", [T.__getitem__], [["self", "indices"]]),
        ("Tensor.__bool__", [T.__bool__], [["self"]]),
        # aten::eq also compares numbers and lists, which have other names.
        ("Torch.eq", [torch.eq], [["input", "other"]]),
        # torch.max(x, 1) and torch.max(x, y): the second has two names.
        (
            "Torch.max",
            [torch.max],
            [["input: Tensor", "other: Tensor"], ["input: Tensor", "dim: int", "keepdim: bool"]],
        ),
        # x.permute(0, 1) and torch.rand(2, 3) pass single numbers.
        ("Tensor.permute", [T.permute], [["self", "dims..."]]),
        ("Torch.rand", [torch.rand], [["size..."]]),
        ("Torch.full", [torch.full], [["size", "fill_value"]]),
        # aten::polygamma(int n, Tensor self)
        ("Tensor.polygamma", [T.polygamma], [["self", "n"]]),
        # By the documentation: no schema has these names.
        ("Torch.einsum", [torch.einsum], [["equation", "operands..."]]),
        ("Tensor.map_", [T.map_], [["self", "tensor", "callable"]]),
        ("Tensor.bfloat16", [T.bfloat16], [["self", "memory_format"]]),
        ("Aten.mm", [torch.ops.aten.mm], [["self", "mat2"]]),
        ("Triton.kernel", [], []),
        ("Own.object", [object()], []),
    ],
)
def test_names(api, functions, names):
    found = parameter_names(api, functions)
    assert [each[: len(other)] for each, other in zip(found, names)] == names  # noqa: B905
    assert len(found) == len(names)


def test_two_functions_of_one_name():
    norms = parameter_names("Torch.norm", [torch.norm, torch.linalg.norm])
    assert {each[0].partition(":")[0] for each in norms} == {"input"}
    assert {each[1].partition(":")[0] for each in norms} == {"p", "ord"}


def test_nearly_every_observed_function_has_names():
    lists = _engine.read_name_lists(str(Path(msprobe.pytorch.__file__).parent / WRAPPED))
    owners = {"functional": ("Functional", F), "tensor": ("Tensor", T), "torch": ("Torch", torch)}
    missing = []
    for category, names in lists:
        prefix, owner = owners.get(category, ("", None))
        for name in names if owner else ():
            function = owner
            for part in name.split("."):
                function = getattr(function, part, None)
            api = f"{prefix}.{name.rpartition('.')[2]}"
            if function is not None and not parameter_names(api, [function]):
                missing.append(api)
    # Neither a schema nor a documentation says their names. Of those of lists several schemas do,
    # which have other names.
    missing = [api for api in missing if not api.startswith("Torch._foreach_")]
    assert set(missing) <= {f"Torch.{each}" for each in SPARSE}, missing

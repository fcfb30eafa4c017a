"""The names of parameters: of Python functions, of PyTorch's own, and of those without names."""

import pytest
import torch

from msprobe.pytorch.signatures import parameter_names

F = torch.nn.functional
T = torch.Tensor


@pytest.mark.parametrize(
    ("api", "functions", "names"),
    [
        ("Functional.dropout", [F.dropout], ["input", "p", "training", "inplace"]),
        ("Functional.linear", [F.linear], ["input", "weight", "bias"]),
        ("Functional.max_pool2d", [F.max_pool2d], ["input", "kernel_size", "stride"]),
        ("Torch.matmul", [torch.matmul], ["input", "other"]),
        ("Torch.where", [torch.where], ["condition", "input", "other"]),
        ("Tensor.transpose", [T.transpose], ["self", "dim0", "dim1"]),
        ("Tensor.__add__", [T.__add__], ["self", "other"]),
        # torch.max(x, 1) and torch.max(x, y): the second has two names.
        ("Torch.max", [torch.max], ["input", "", "keepdim"]),
        # x.permute(0, 1) passes single numbers.
        ("Tensor.permute", [T.permute], ["self"]),
        ("Tensor.view", [T.view], ["self"]),
        ("Torch.einsum", [torch.einsum], []),
        ("Tensor.__getitem__", [T.__getitem__], []),
        ("Triton.kernel", [], []),
        ("Own.object", [object()], []),
    ],
)
def test_names(api, functions, names):
    found = parameter_names(api, functions)
    assert found[: len(names)] == names
    assert found or not names
    if len(names) < 2:
        assert found == names


def test_two_functions_of_one_name():
    norm = parameter_names("Torch.norm", [torch.norm, torch.linalg.norm])
    assert norm[0] == "input" and norm[1] == ""

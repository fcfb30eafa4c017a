"""Operators that only some devices have: functions that compute their golden results."""

import json
import os
import subprocess

import pytest
import torch
from recording import wait_for_new_names
from torch.nn import functional as F

from msprobe.pytorch import references

TABLE = references.load()


def reference(name):
    return TABLE[f"NPU.{name}"]


def test_elementwise_operators_are_those_of_pytorch():
    x = torch.randn(4, 6, dtype=torch.float64)
    exact = x / (1 + torch.exp(-1.702 * x.abs())) * torch.exp(0.851 * (x - x.abs()))
    assert torch.allclose(reference("npu_fast_gelu")(x), exact)
    assert torch.equal(reference("npu_mish")(x), F.mish(x))
    assert torch.allclose(reference("npu_swiglu")(x), F.silu(x[:, :3]) * x[:, 3:])
    assert torch.equal(reference("npu_sort_v2")(x, -1, True), x.sort(-1, True)[0])
    turned = reference("npu_confusion_transpose")
    assert torch.equal(turned(x, [1, 0], [3, 8], True), x.t().reshape(3, 8))
    assert torch.equal(turned(x, [1, 0], [3, 8], False), x.view(3, 8).t())


def test_norms_are_those_of_pytorch():
    x, weight = torch.randn(2, 6, 5, dtype=torch.float64), torch.rand(5, dtype=torch.float64)
    normed, inverse = reference("npu_rms_norm")(x, weight, 1e-5)
    assert torch.allclose(normed, F.rms_norm(x, (5,), weight, 1e-5))
    assert inverse.shape == (2, 6, 1)
    image, scale = torch.randn(2, 6, 3, 3, dtype=torch.float64), torch.rand(6, dtype=torch.float64)
    result, mean, _ = reference("npu_group_norm_silu")(image, scale, scale, 2)
    assert torch.allclose(result, F.silu(F.group_norm(image, 2, scale, scale)))
    assert torch.allclose(mean[0, 0], image[0, :3].mean())


def test_softmax_and_experts():
    x = torch.randn(2, 1, 4, 4, dtype=torch.float64)
    mask = torch.ones(4, 4, dtype=torch.bool).triu(1)
    softmax = reference("npu_scaled_masked_softmax")
    wanted = torch.softmax((2 * x).masked_fill(mask, -torch.inf), -1)
    assert torch.allclose(softmax(x, mask, 2.0), wanted)
    assert torch.allclose(softmax(x, None, 2.0, True), wanted)
    values, experts, rows = reference("npu_moe_gating_top_k_softmax")(x[0, 0], None, 2)
    assert torch.equal(values, torch.softmax(x[0, 0], -1).topk(2)[0])
    assert experts.dtype == torch.int32 and rows.tolist() == [[0, 4], [1, 5], [2, 6], [3, 7]]


def test_rotary_positions():
    x, angle = torch.randn(1, 3, 2, 4, dtype=torch.float64), torch.rand(1, 3, 1, 2).double()
    for mode, complex_of, spread in (
        ("half", lambda t: torch.complex(*t.chunk(2, -1)), lambda a: a.repeat(1, 1, 1, 2)),
        (
            "interleave",
            lambda t: torch.view_as_complex(t.unflatten(-1, (-1, 2))),
            lambda a: a.repeat_interleave(2, -1),
        ),
    ):
        turned = reference("npu_rotary_mul")(x, spread(angle).cos(), spread(angle).sin(), mode)
        wanted = complex_of(x) * torch.polar(torch.ones_like(angle), angle)
        assert torch.allclose(complex_of(turned), wanted), mode


@pytest.mark.parametrize("layout", ["BSH", "SBH", "BSND", "BNSD"])
@pytest.mark.parametrize("mode", ["none", "mask", "causal", "lower right", "band"])
def test_attention_is_that_of_pytorch(layout, mode):
    torch.manual_seed(0)
    batch, heads, key_heads, rows, columns, size = 2, 4, 2, 3, 5, 8
    query = torch.randn(batch, heads, rows, size, dtype=torch.float64)
    key, value = torch.randn(2, batch, key_heads, columns, size, dtype=torch.float64)
    shift = columns - rows
    place = torch.arange(columns) - torch.arange(rows)[:, None]
    options, seen = {
        "none": ({}, torch.ones(rows, columns, dtype=torch.bool)),
        "mask": ({"atten_mask": place > 1}, place <= 1),
        "causal": ({"sparse_mode": 2}, place <= 0),
        "lower right": ({"sparse_mode": 3}, place <= shift),
        "band": (
            {"sparse_mode": 4, "pre_tockens": 1, "next_tockens": 0},
            (place <= shift) & (place >= shift - 1),
        ),
    }[mode]

    def of(tensor):
        if layout == "BNSD":
            return tensor
        tensor = tensor.transpose(1, 2)
        if layout == "BSND":
            return tensor
        tensor = tensor.flatten(2)
        return tensor if layout == "BSH" else tensor.transpose(0, 1)

    made = reference("npu_fusion_attention")(
        of(query), of(key), of(value), heads, layout, scale=0.3, **options
    )
    wanted = F.scaled_dot_product_attention(
        query, key, value, attn_mask=seen, scale=0.3, enable_gqa=True
    )
    assert torch.allclose(made, of(wanted))


def test_sequences_of_different_lengths():
    query, key, value = torch.randn(3, 7, 2, 4, dtype=torch.float64)
    made = reference("npu_fusion_attention")(
        query, key, value, 2, "TND", sparse_mode=2, actual_seq_qlen=[3, 7], actual_seq_kvlen=[3, 7]
    )
    for part in (slice(0, 3), slice(3, 7)):
        heads = [each[part].transpose(0, 1) for each in (query, key, value)]
        wanted = F.scaled_dot_product_attention(*heads, is_causal=True, scale=1.0)
        assert torch.allclose(made[part], wanted.transpose(0, 1))


# A module with the operators of an NPU. They have no float64, as on the device. This machine has no
# such device: the first import, which asks for it, fails, and the operators run on the CPU.
FUSED = """
import builtins
if not hasattr(builtins, "asked"):
    builtins.asked = True
    raise ImportError("no device")
import torch
from torch.nn import functional as F
def npu_swiglu(x, dim=-1):
    assert x.dtype != torch.float64
    return F.silu(x.chunk(2, dim)[0]) * x.chunk(2, dim)[1] * FACTOR
def npu_doubled(x):
    assert x.dtype != torch.float64
    return x * 2
def npu_unknown(x):
    assert x.dtype != torch.float64
    return x * 2
"""


def tensor(shape, requires_grad=False):
    return {
        "type": "torch.Tensor",
        "dtype": "torch.float32",
        "shape": shape,
        "Max": 2.0,
        "Min": -2.0,
        "Mean": 0.1,
        "Norm": 4.0,
        "requires_grad": requires_grad,
    }


def write_dump(folder):
    def call(name, output):
        forward = {"input_args": [tensor([4, 8], True)], "input_kwargs": {}, "output": [output]}
        backward = {"input": [tensor(output["shape"])], "output": [tensor([4, 8])]}
        return {f"{name}.0.forward": forward, f"{name}.0.backward": backward}

    data = call("NPU.npu_swiglu", tensor([4, 4], True))
    data |= call("NPU.npu_doubled", tensor([4, 8], True))
    data |= call("NPU.npu_unknown", tensor([4, 8], True))
    folder.mkdir()
    (folder / "dump.json").write_text(
        json.dumps({"task": "statistics", "level": "L1", "dump_data_dir": None, "data": data})
    )
    return folder


@pytest.fixture
def run_ut(forking_msprobe, tmp_path):
    dump = write_dump(tmp_path / "dump")
    site = tmp_path / "site"
    site.mkdir()

    def run(*flags, factor="1", npu=True, code=0):
        (site / "torch_npu.py").unlink(missing_ok=True)
        if npu:
            (site / "torch_npu.py").write_text(FUSED.replace("FACTOR", factor))
        wait_for_new_names(tmp_path)
        command = [forking_msprobe, "run_ut", "-api_info", dump, "-o", tmp_path]
        done = subprocess.run(
            [*command, "--format", "json", *flags],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": str(site)},
        )
        assert done.returncode == code, done.stderr
        return json.loads(done.stdout) if code == 0 else done.stderr

    return run


def test_a_fused_operator_is_judged_against_its_reference(run_ut):
    assert run_ut()["pass"] == 1  # npu_swiglu; the others have no reference, and are skipped
    wrong = run_ut(factor="1.05")
    assert [call["name"] for call in wrong["worst"]] == ["NPU.npu_swiglu.0"]
    assert wrong["worst"][0]["backward"] == "error"


def test_a_table_of_ones_own(run_ut, tmp_path):
    table = tmp_path / "own.yaml"
    table.write_text("NPU.npu_doubled: own.py:twice\n")
    (tmp_path / "own.py").write_text("def twice(x):\n    return x + x\n")
    report = run_ut("--references", str(table))
    assert report["pass"] == 2 and report["skip"] == 1
    # Of another size: Python would not see another file of the same second.
    (tmp_path / "own.py").write_text("def twice(x):\n    return x + 1.0\n")
    assert [c["name"] for c in run_ut("--references", str(table))["worst"]] == ["NPU.npu_doubled.0"]


def test_without_the_device_the_reference_stands_for_the_operator(run_ut):
    report = run_ut(npu=False)
    assert report["pass"] == 1 and report["error"] == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- a\n", "a line `API: file.py:function`"),
        ("swiglu: own.py:f\n", "the name of an API"),
        ("NPU.a: own.py\n", "file.py:function after"),
        ("NPU.a: ../own.py:f\n", "a file in the folder of this table"),
        ("NPU.a: other.py:f\n", "a file that is there"),
        ("NPU.a: own.py:f()\n", "file.py:function after"),
        ("NPU.a: own.py:f\nNPU.a: own.py:f\n", "each API once"),
        ("NPU.a: own.py:g\n", "expected a function g"),
    ],
)
def test_a_wrong_table_is_one_line(run_ut, tmp_path, text, message):
    table = tmp_path / "own.yaml"
    table.write_text(text)
    (tmp_path / "own.py").write_text("f = abs\n")
    error = run_ut("--references", str(table), code=2)
    assert message in error

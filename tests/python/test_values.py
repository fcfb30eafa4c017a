"""Recording of tensors: checksums, slices, the tokens of one request."""

import functools
import json
import operator
import subprocess

import numpy as np
import pytest
import torch
from recording import read_dump, run_forked


def record(folder, config, call, **keywords):
    """`call()` between start and stop, under a config (a dict)."""
    from msprobe.pytorch import PrecisionDebugger

    (folder / "config.json").write_text(json.dumps(config))
    debugger = PrecisionDebugger(str(folder / "config.json"), dump_path=str(folder / "out"))
    debugger.start(**keywords)
    call()
    debugger.stop()


def section(task="statistics", **keys):
    return {"task": task, task: keys}


def inputs_of(dump, api="Tensor.add"):
    return [record["input_args"][0] for name, record in dump.data.items() if name.startswith(api)]


DTYPES = [
    torch.float32,
    torch.bfloat16,
    torch.float8_e5m2,
    torch.int64,
    torch.bool,
    torch.complex64,
]


def tensors():
    torch.manual_seed(0)
    for dtype in DTYPES:
        whole = (torch.randn(5, 7, 3) * 3).to(dtype)
        yield from (whole, whole.transpose(0, 2)[1:], whole[0, 0, 0])


def show_all():
    for tensor in tensors():
        torch.clone(tensor)


def xor_of(tensor):
    data = tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes()
    words = np.frombuffer(data + bytes(-len(data) % 8), "<u8")
    return f"0x{functools.reduce(operator.xor, words.tolist(), 0):016x}"


@pytest.mark.parametrize("mode", ["xor", ["xor"]])
def test_xor(mode, tmp_path):
    """The exclusive or of the bytes, without statistics; also for a tensor with one element."""
    run_forked(record, tmp_path, section(summary_mode=mode), show_all)
    found = inputs_of(read_dump(tmp_path / "out"), "Torch.clone")
    assert [tensor["md5"] for tensor in found] == [xor_of(tensor) for tensor in tensors()]
    keys = ["type", "dtype", "shape", "md5", "requires_grad", "fp"]
    assert all([key for key in tensor if key != "stride"] == keys for tensor in found)


@pytest.mark.parametrize(
    ("mode", "md5"),
    [
        (["max", "nan count"], None),
        (["statistics", "xor"], 18),
        (["md5"], 8),
        (["hash"], 8),
        (["md5", "xor"], 8),
    ],
)
def test_summary_mode_lists(mode, md5, tmp_path):
    """With a list, everything that any word names is recorded; of two checksums, the CRC-32."""
    run_forked(record, tmp_path, section(summary_mode=mode), show_all)
    for tensor in inputs_of(read_dump(tmp_path / "out"), "Torch.clone"):
        assert ("md5" in tensor) == (md5 is not None)
        assert md5 is None or len(tensor["md5"]) == md5
        assert "Max" in tensor


def test_dumps_of_xor_are_compared(tmp_path, msprobe_bin):
    """Compared by their checksums, as in the older tool."""
    for run, factor in (("a", 1.0), ("b", 1.0), ("c", 2.0)):
        (tmp_path / run).mkdir()
        call = functools.partial(torch.mul, torch.arange(4.0), factor)
        run_forked(record, tmp_path / run, section(summary_mode="xor"), call)
    for other, code in (("b", 0), ("c", 1)):
        command = [msprobe_bin, "compare", "--exit-code", "-o", tmp_path / f"a{other}"]
        command += [
            "-tp",
            tmp_path / other / "out/step0/rank",
            "-gp",
            tmp_path / "a/out/step0/rank",
        ]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == code, done.stdout + done.stderr


RULES = [{"dim": 0, "end": 3}, {"dim": 1, "size": 6, "begin": -2}, {"dim": 5, "begin": 1}]


def add_some():
    base = torch.arange(48.0).reshape(8, 6)
    base.add(1)
    base.t().add(1)  # no dimension 1 of extent 6: only the first rule
    base[0].add(1)
    torch.tensor(7.0).add(1)
    weight = torch.ones(8, 6, requires_grad=True)
    (weight * base).sum().backward()


@pytest.mark.parametrize("task", ["statistics", "tensor"])
def test_slice(task, tmp_path):
    """Shape, statistics, checksum and file are those of the slice."""
    config = section(task, slice=RULES, summary_mode="md5")
    run_forked(record, tmp_path, config, add_some)
    dump = read_dump(tmp_path / "out")
    found = inputs_of(dump)
    base = torch.arange(48.0).reshape(8, 6)
    parts = [base[:3, -2:], base.t()[:3], base[0][:3], torch.tensor(7.0)]
    assert [tensor["shape"] for tensor in found] == [list(part.shape) for part in parts]
    assert [tensor["Max"] for tensor in found] == [part.max().item() for part in parts]
    assert [tensor["Norm"] for tensor in found] == [
        pytest.approx(part.double().norm().item(), rel=2**-24) for part in parts
    ]
    gradient = dump.data["Tensor.__mul__.0.backward"]["output"][0]
    assert (gradient["shape"], gradient["Max"]) == ([3, 2], base[:3, -2:].max().item())
    if task == "tensor":
        path = dump.folder / "dump_tensor_data/Tensor.add.0.forward.input.0.pt"
        assert torch.equal(torch.load(path), parts[0])
        assert path.stat().st_size < 1500  # 24 bytes of elements, not the 192 of the whole
        assert torch.load(path).untyped_storage().nbytes() == parts[0].numel() * 4


def add_tokens():
    torch.arange(22.0).reshape(11, 2).add(1)
    torch.arange(4.0).add(1)  # not a tensor of tokens


TOKENS = {"req-a": 5, "req-b": 2, "req-c": 4}


def shapes_of(folder, tokens, request="req-b"):
    config = section(request_id=request)
    run_forked(record, folder, config, add_tokens, scheduled_tokens=tokens)
    if not (folder / "out").exists():
        return None
    return [(tensor["shape"], tensor["Min"]) for tensor in inputs_of(read_dump(folder / "out"))]


def test_tokens_of_a_request(tmp_path):
    assert shapes_of(tmp_path, TOKENS) == [([2, 2], 10.0), ([4], 0.0)]


def test_a_step_without_the_request_is_not_collected(tmp_path, capfd):
    assert shapes_of(tmp_path, TOKENS, "req-x") is None
    assert 'request "req-x" has no tokens' in capfd.readouterr().err


@pytest.mark.parametrize("tokens", [7, ["req-b"], {"req-b": "2"}, {"req-b": -1}, {3: 4}])
def test_a_malformed_schedule_only_warns(tokens, tmp_path, capfd):
    assert shapes_of(tmp_path, tokens) == [([11, 2], 0.0), ([4], 0.0)]
    assert "scheduled_tokens: expected {request id: number of tokens}" in capfd.readouterr().err


def test_a_schedule_without_a_request_warns(tmp_path, capfd):
    assert shapes_of(tmp_path, TOKENS, "")[0] == ([11, 2], 0.0)
    assert "scheduled_tokens has no effect" in capfd.readouterr().err

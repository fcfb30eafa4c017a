"""Memory that nobody has written is another in each run: a dump says which values show it."""

import json
import re
import subprocess

import pytest
import torch
from recording import run_program

# `junk` stands for what earlier tensors left in the memory that torch.empty returns.
HEAD = """
import sys, ctypes, torch
from msprobe.pytorch import PrecisionDebugger

folder, junk, task = sys.argv[1], float(sys.argv[2]), sys.argv[3]
torch.manual_seed(0)
x = torch.randn(4, 3)

def empty(*shape):
    buffer = torch.empty(*shape)
    values = (ctypes.c_float * buffer.numel()).from_address(buffer.data_ptr())
    for i in range(buffer.numel()):
        values[i] = junk * (i + 1)
    return buffer

debugger = PrecisionDebugger(dump_path=folder, level="L1", task=task)
debugger.start()
"""
TAIL = """
debugger.stop()
debugger.step()
"""


def record(tmp_path, body: str, task: str) -> None:
    for side, junk in (("target", "1e30"), ("golden", "-3")):
        done = run_program(HEAD + body + TAIL, tmp_path / side, junk, task)
        assert done.returncode == 0, done.stderr


def compare(tmp_path, msprobe_bin) -> dict:
    command = [msprobe_bin, "compare", "-tp", tmp_path / "target", "-gp", tmp_path / "golden"]
    command += ["-o", tmp_path / "out", "--format", "json"]
    return json.loads(subprocess.run(command, capture_output=True, text=True).stdout)


# Each program writes all of a buffer that it reads, part by part.
WRITTEN = {
    "two halves": "b = empty(4, 3); b[:2].copy_(x[:2]); b[2:].copy_(x[2:]); b.sum()",
    "rows": "b = empty(4, 3)\nfor i in range(4): b[i] = x[i]\nb.sum()",
    "columns": "b = empty(4, 3)\nfor i in range(3): b[:, i] = x[:, i]\nb.sum()",
    "fill, then add": "b = empty(4, 3); b.fill_(0); b += x; b.sum()",
    "view": "b = empty(12); b.view(4, 3).copy_(x); b.sum()",
    "cat into halves": "b = empty(4, 3); torch.cat([x[:2]], out=b[:2]); b[2:] = x[2:]; b.sum()",
    "padded, read where written": "b = empty(8, 3); b[:4] = x; b[:4].sum(); b[1:3].relu()",
    "read through a copy": "b = empty(8, 3); b[:4] = x; c = b.clone(); c[:4].sum()",
}


@pytest.mark.parametrize("task", ["statistics", "tensor"])
def test_buffers_that_are_written_before_they_are_read(tmp_path, msprobe_bin, task):
    record(tmp_path, "\n".join(WRITTEN.values()), task)
    answer = compare(tmp_path, msprobe_bin)
    assert (answer["verdict"], answer["rows"]["differs"]) == ("equal", 0), answer


@pytest.mark.parametrize(
    "body", ["b = empty(8, 3); b[:4] = x; b.sum()", "b = empty(4, 3); torch.exp(b)"]
)
def test_reading_what_nobody_wrote_is_named(tmp_path, msprobe_bin, body):
    record(tmp_path, body, "statistics")
    answer = compare(tmp_path, msprobe_bin)
    assert answer["verdict"] == "differs"
    first = answer["first_divergence"]
    assert first["target_name"].split(".")[1] in ("sum", "exp")
    assert re.search("it reads memory that nobody wrote: (self|input),", first["why"])
    assert "allocated by torch.empty" in first["why"]


def test_memory_that_is_used_again_is_not_taken_for_the_old_buffer(tmp_path):
    body = "del empty\nfor _ in range(50):\n    b = torch.empty(4, 3); del b\n    (x + 1).relu()"
    record(tmp_path, body, "statistics")
    for dump in tmp_path.glob("target/step0/rank*/dump.json"):
        for name, entry in json.loads(dump.read_text())["data"].items():
            assert "unwritten" not in json.dumps(entry), name


def test_what_is_written_while_nothing_is_recorded_counts_as_written(tmp_path, msprobe_bin):
    body = "b = empty(4, 3)\ndebugger.stop()\nb.copy_(x)\ndebugger.start()\nb.relu()"
    record(tmp_path, body, "statistics")
    answer = compare(tmp_path, msprobe_bin)
    assert (answer["verdict"], answer["rows"]["differs"]) == ("equal", 0), answer
    assert "unwritten" not in next(tmp_path.glob("target/step0/rank*/dump.json")).read_text()


def test_a_new_buffer_in_the_middle_of_a_freed_one(tmp_path):
    # One address range, used as one large buffer and then as two small ones.
    body = "b = torch.empty(1 << 20); del b\n"
    body += "a = torch.empty(1 << 18); b = torch.empty(1 << 18)\na.sum(); b[:9].sum()"
    record(tmp_path, body, "statistics")
    data = json.loads(next(tmp_path.glob("target/step0/rank*/dump.json")).read_text())["data"]
    for i in range(2):
        tag = data[f"Tensor.sum.{i}.forward"]["input_args"][0].get("unwritten", "")
        assert tag.startswith("torch.empty") == hasattr(torch.Tensor, "untyped_storage")


def test_a_view_has_the_name_of_its_buffer(tmp_path):
    record(tmp_path, "b = empty(8, 3); b[:4] = x; b[2:6].relu(); b[:3].relu()", "statistics")
    dump = next(tmp_path.glob("target/step0/rank*/dump.json"))
    data = json.loads(dump.read_text())["data"]
    tags = [data[f"Tensor.relu.{i}.forward"]["input_args"][0].get("unwritten") for i in range(2)]
    if not hasattr(torch.Tensor, "untyped_storage"):
        assert tags == [None, None]
    else:
        assert tags[0].startswith("torch.empty") and tags[1] is None

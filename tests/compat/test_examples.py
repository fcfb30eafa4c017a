"""The scripts of the guides run and write the files that the guide describes."""

import csv
import os
from pathlib import Path

import pytest
from older_scripts import RANK0, names, read
from recording import run_program

PROGRAMS = "examples/older_tools"


@pytest.fixture
def run(root, tmp_path):
    """Runs a script in an empty folder; returns stdout and stderr."""

    def work(name, status=0):
        done = run_program(root / PROGRAMS / f"{name}.py", cwd=tmp_path)
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout, done.stderr

    return work


def table(path):
    with open(path) as file:
        return list(csv.DictReader(file))


def test_R_B21_three_layers(run, tmp_path):
    run("hooks_three_layers")
    cpu, npu = names(tmp_path / "cpu_module_op.pkl"), names(tmp_path / "npu_module_op.pkl")
    assert cpu == npu and "0_Functional_linear_forward_input.0" in cpu
    rows = table(tmp_path / "module_result.csv")
    assert sorted(row["NPU Name"] for row in rows) == sorted(cpu)
    assert {row["Cosine"] for row in rows} <= {"1.0", "1", "nan", "1.000000"}


def test_R_B22_two_copies_of_a_resnet50(run, tmp_path):
    printed, _ = run("hooks_resnet50")
    cpu = read(tmp_path / "cpu_resnet50_op.pkl")
    assert cpu == read(tmp_path / "npu_resnet50_op.pkl")
    assert len([line for line in cpu if "conv2d_forward_output" in line[0]]) == 53
    assert "0_Functional_conv2d_forward_input.0" in printed and "[1, 3, 64, 64]" in printed
    assert len(table(tmp_path / "resnet50_result.csv")) == len(cpu)


def test_R_B26_steps_of_each_epoch(run, tmp_path):
    run("hooks_schedule")
    found = names(tmp_path / "steps.pkl")
    assert len([name for name in found if "linear_forward_output" in name]) == 2 * 4


def test_R_B30_arrays_of_two_steps(run, tmp_path):
    printed, _ = run("hooks_async")
    found = os.listdir(tmp_path / "output")
    assert len([name for name in found if "relu_forward_input0" in name]) == 2
    assert printed.startswith("[[") and printed.count("\n") == 2


def test_R_B33_the_overflow_of_a_resnet50(run, tmp_path):
    _, said = run("hooks_overflow", status=1)
    (path,) = tmp_path.glob("Overflow_info_*.pkl")
    assert said.splitlines()[-1].startswith("ValueError: [overflow 1 times]: Functional_conv2d_9")
    assert str(path) in said.splitlines()[-1]
    assert any("conv2d_forward_output" in name for name in names(path))


def test_R_A23_two_steps(run, tmp_path):
    printed, _ = run("ptdbg_two_steps")
    (result,) = tmp_path.glob("output/compare_result_*.csv")
    assert any(row["NPU Name"].startswith("3_Functional_relu") for row in table(result))
    scope = [name for name in names(tmp_path / "npu_dump_scope.pkl") if "output" in name]
    assert scope == ["3_Functional_relu_forward_output", "7_Functional_relu_forward_output"]
    in_range = names(tmp_path / "npu_dump_range.pkl")
    assert {int(name.split("_")[0]) for name in in_range} <= {3, 4, 5, 6, 7}
    assert names(tmp_path / "npu_dump_stack.pkl") == []
    assert names(tmp_path / "npu_dump_stack.pkl", stacks=True)
    assert "Trace back(" in printed and "Statistic Info:" in printed


def test_R_A41_overflows(run, tmp_path):
    printed, _ = run("ptdbg_overflow")
    assert "the end" in printed and len([*tmp_path.glob("Overflow_info_*.pkl")]) == 2


def test_R_C_E9_call_stacks_are_compared(run, tmp_path):
    run("ptdbg_api_stack")
    assert (tmp_path / "npu_dump" / RANK0 / "api_stack_dump.pkl").is_file()
    (result,) = tmp_path.glob("output/compare_result_*.csv")
    stacks = [row["NPU_Stack_Info"] for row in table(result)]
    assert any("ptdbg_api_stack.py" in stack for stack in stacks)


def test_every_script_is_run(root):
    tested = Path(__file__).read_text()
    scripts = [path.stem for path in (root / PROGRAMS).glob("*.py")]
    assert len(scripts) == 8 and [name for name in scripts if f'run("{name}"' not in tested] == []

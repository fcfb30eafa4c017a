"""Overflow checks. The names of tests contain the ids of requirements.

The overflow flag is a fake, because we have no NPU. Without a flag, values are checked.
"""

import json
import re
import subprocess

import numpy as np
import pytest
import torch
from fake_npu import Npu
from older_scripts import X, arrays, error_of, files, names, net, read, run_in, train
from recording import run_forked

import ptdbg_ascend as ptdbg
from msprobe.pytorch import PrecisionDebugger

NUMBERED = re.compile(r"Overflow_info_\d{8}_\d{6}(_\d+)?\.pkl")
INF = torch.tensor([1e38, 2.0])


def overflow(times=1):
    """`times` calls with an infinite result, and other calls between them."""
    for _ in range(times):
        torch.relu(torch.mul(INF, 1e30))  # relu passes it on
        torch.mul(INF, 0.5)


def found(folder):
    return sorted(folder.glob("Overflow_info_*.pkl"))


def test_R_A29_each_overflow_has_a_file_of_its_own_in_the_working_directory(tmp_path):
    def program():
        ptdbg.register_hook(net(), ptdbg.overflow_check, overflow_nums=-1)
        overflow(2)

    run_in(tmp_path, program)
    paths = found(tmp_path)
    assert len(paths) == 4 and all(NUMBERED.fullmatch(path.name) for path in paths)
    kinds = sorted(names(path)[0] for path in paths)
    assert kinds == ["Torch_mul_forward_input.0"] * 2 + ["Torch_relu_forward_input.0"] * 2
    for path in paths:
        tensors = [line for line in read(path) if not line[0].endswith("_stack_info")]
        assert {len(line) for line in tensors} == {5} and {line[1] for line in tensors} == {101}
        assert tensors[-1][2:] == [[], "torch.float32", [2]]


def test_R_A30_the_folder_beside_it_has_the_whole_tensors(tmp_path):
    def program():
        ptdbg.register_hook(net(), ptdbg.overflow_check)
        torch.mul(torch.full((40, 50), 3e38), 10)

    run_in(tmp_path, program)
    (path,) = found(tmp_path)
    kept = arrays(path.with_suffix(""))
    assert sorted(kept) == ["Torch_mul_forward_input.0", "Torch_mul_forward_output"]
    assert kept["Torch_mul_forward_output"].size == 2000
    assert np.isinf(kept["Torch_mul_forward_output"]).all()


def test_R_A41_the_run_ends_at_the_second_overflow_of_an_npu(tmp_path):
    """With the fake flag."""

    def program():
        npu = Npu()
        ptdbg.register_hook(net(), ptdbg.overflow_check, overflow_nums=2)
        reached = []

        def calls():
            for step in range(4):
                npu.flag = step in (1, 2)
                torch.add(X, step)
                reached.append(step)

        return error_of(calls), reached, npu.cleared

    (error, reached, cleared), _ = run_in(tmp_path, program)
    types, _, text = error
    assert "ValueError" in types and "[overflow 2 times]" in text
    assert reached == [0, 1] and cleared == 2
    assert [names(path)[0] for path in found(tmp_path)] == ["Torch_add_forward_input.0"] * 2


def test_R_A41_without_an_npu_it_is_said_and_the_run_goes_on(tmp_path):
    """On a CPU the tool warns and continues."""

    def program():
        ptdbg.register_hook(net(), ptdbg.overflow_check, overflow_nums=2)
        overflow(3)
        return "the end"

    result, said = run_in(tmp_path, program)
    assert result == "the end" and len(found(tmp_path)) == 2
    assert "0_Torch_mul_forward makes Inf (1 of 2)" in said
    assert "2 calls that overflow are recorded" in said


@pytest.mark.parametrize("number", [0, -2, 1.0, "1", None, True])
def test_R_A41_a_number_of_overflows_that_cannot_be_is_refused(number, tmp_path):
    (types, code, text), _ = run_in(
        tmp_path,
        lambda: error_of(ptdbg.register_hook, net(), ptdbg.overflow_check, overflow_nums=number),
    )
    assert "CompareException" in types and code == 11 and repr(number) in text


def test_R_B31_the_first_overflow_ends_the_run_and_names_its_api_and_file(tmp_path):
    """On a CPU the tool checks values."""

    def program():
        from torch_npu.hooks import register_hook, wrap_checkoverflow_hook

        register_hook(net(), wrap_checkoverflow_hook)
        reached = []

        def calls():
            torch.mul(INF, 0.5)
            reached.append("small")
            torch.mul(INF, 1e30)
            reached.append("large")

        return error_of(calls), reached

    (error, reached), _ = run_in(tmp_path, program)
    types, _, text = error
    (path,) = found(tmp_path)
    assert "ValueError" in types and reached == ["small"]
    assert "mul" in text and str(path) in text
    assert any("mul_forward_output" in line[0] for line in read(path))


def test_R_B31_backward_is_checked_too(tmp_path):
    def program():
        from torch_npu.hooks import register_hook, wrap_checkoverflow_hook

        register_hook(net(), wrap_checkoverflow_hook)
        x = torch.zeros(3, requires_grad=True)
        return error_of(lambda: torch.sqrt(x).sum().backward())  # the gradient is infinite

    error, _ = run_in(tmp_path, program)
    (path,) = found(tmp_path)
    assert "ValueError" in error[0] and "sqrt" in error[2] and str(path) in error[2]
    assert any("sqrt_backward" in line[0] for line in read(path))


def test_R_B32_it_needs_no_other_argument(tmp_path):
    def program():
        from torch_npu.hooks import register_hook, wrap_checkoverflow_hook

        model = net()
        result = register_hook(model, wrap_checkoverflow_hook)
        train(model)
        return result

    assert run_in(tmp_path, program)[0] is None and files(tmp_path) == []


def test_R_C_E4_registering_asks_no_device(tmp_path):
    """With the fake flag: it is read after the first call, not before set_device."""

    def program():
        npu = Npu()
        ptdbg.register_hook(net(), ptdbg.overflow_check)
        ptdbg.set_dump_path("dump")
        before = npu.asked, npu.cleared
        torch.add(X, 1)
        return before, npu.asked

    assert run_in(tmp_path, program)[0] == ((0, 0), 1)


def test_overflows_between_on_and_off_only(tmp_path):
    def program():
        ptdbg.set_dump_path("dump")
        ptdbg.register_hook(net(), ptdbg.overflow_check, overflow_nums=-1)
        ptdbg.set_overflow_check_switch("OFF")
        torch.mul(INF, 1e30)
        ptdbg.set_overflow_check_switch("ON")
        torch.mul(INF, 1e31)
        ptdbg.set_overflow_check_switch("OFF")
        torch.mul(INF, 1e32)
        return error_of(ptdbg.set_overflow_check_switch, "on")

    error, _ = run_in(tmp_path, program)
    assert "ValueError" in error[0] and '"ON" or "OFF"' in error[2]
    paths = [name for name in files(tmp_path) if name.endswith(".pkl")]
    assert len(paths) == 1


def test_the_debugger_looks_for_overflows_in_its_steps(tmp_path):
    def program():
        debugger = ptdbg.PrecisionDebugger("dump", hook_name="overflow_check", step=[1])
        debugger.configure_hook(overflow_nums=-1)
        for _ in range(2):
            debugger.start()
            overflow()
            debugger.stop()
            debugger.step()

    run_in(tmp_path, program)
    paths = [name for name in files(tmp_path) if name.endswith(".pkl")]
    assert len(paths) == 2 and all("/step1/rank0/" in name for name in paths)
    assert len(read(tmp_path / paths[0])[0]) in (2, 6)


def test_overflows_of_all_steps_are_counted_together(tmp_path):
    """After the last wanted overflow, values are not checked any more."""

    def program():
        debugger = ptdbg.PrecisionDebugger("dump", hook_name="overflow_check")
        debugger.configure_hook(overflow_nums=3)
        for _ in range(5):
            debugger.start()
            torch.mul(INF, 1e30)
            debugger.stop()
            debugger.step()

    _, said = run_in(tmp_path, program)
    assert len([name for name in files(tmp_path) if name.endswith(".pkl")]) == 3
    assert said.count("makes Inf") == 3 and "(3 of 3)" in said


def test_overflows_are_counted_over_windows_and_anew_after_a_registration(tmp_path):
    def program():
        for _ in range(2):
            ptdbg.register_hook(net(), ptdbg.overflow_check, overflow_nums=2)
            for _ in range(3):
                torch.mul(INF, 1e30)
                ptdbg.set_overflow_check_switch("OFF")
                ptdbg.set_overflow_check_switch("ON")

    run_in(tmp_path, program)
    assert len(found(tmp_path)) == 2 * 2


def test_R_D_O1_the_first_anomaly_over_ranks(tmp_path, msprobe_bin):
    """Command, folders and file as the documentation of msprobe 8 and 26 has them."""

    def leaf(value):
        numbers = dict.fromkeys(("Max", "Min", "Mean", "Norm"), value)
        return {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [4], **numbers}

    def entry(given, made, **more):
        return {"input_args": [leaf(given)], "input_kwargs": more, "output": [leaf(made)]}

    nan, model = float("nan"), "Module.layers.4.mlp.Mlp.forward.0"
    frames = ["File model.py, line 88, in forward, \n return linear(x)"]
    calls = {
        "rank2": {"Functional.linear.7.forward": entry(1.0, 1.0)},
        "rank3": {"Functional.linear.7.forward": entry(1.0, nan)},
    }
    group = {"group": {"type": "torch.ProcessGroup", "group_ranks": [2, 3]}}
    for rank, data in calls.items():
        given = nan if rank == "rank3" else 1.0
        data["Distributed.all_reduce.0.forward"] = entry(given, nan, **group)
        data["Functional.gelu.0.forward"] = entry(nan, nan)
        folder = tmp_path / "step0" / rank
        folder.mkdir(parents=True)
        dump = {"task": "statistics", "level": "L1", "framework": "pytorch", "data": data}
        (folder / "dump.json").write_text(json.dumps({**dump, "dump_data_dir": None}))
        (folder / "stack.json").write_text(json.dumps({"0": [[*data], frames]}))
        (folder / "construct.json").write_text(json.dumps(dict.fromkeys(data, model)))
    for verb in (["-f", "pytorch", "nan_analyze"], ["overflow_check"]):
        done = subprocess.run(
            [msprobe_bin, *verb, "-i", "./step0"], cwd=tmp_path, capture_output=True, text=True
        )
        assert done.returncode == 0 and "rank 3 sent NaN to rank 2" in done.stdout, done.stderr
    first, second = (tmp_path / "output").glob("anomaly_analyze_*.json")
    assert len(first.stem) == len("anomaly_analyze_") + 19
    assert first.read_text() == second.read_text()
    found = json.loads(first.read_text())
    [node] = found["rank_3"]
    assert [*found] == ["rank_3"] and node["op_name"] == "Functional.linear.7.forward"
    assert [*node["data_info"]] == ["input_args", "input_kwargs", "output"]
    assert (node["construct_info"], node["stack_info"]) == ([model], frames)


def overflow_twice():
    torch.exp(torch.tensor([1000.0]))  # no float32 holds it
    torch.dist(INF, -INF)  # it fits; its square does not


def test_R_D_O2_is_an_overflow_normal(tmp_path, forking_msprobe):
    """From the recording with task overflow_check to the words of the log."""
    config = {"task": "overflow_check", "level": "L1", "dump_path": str(tmp_path)}
    (tmp_path / "config.json").write_text(
        json.dumps({**config, "overflow_check": {"overflow_nums": -1}})
    )

    def record():
        debugger = PrecisionDebugger(str(tmp_path / "config.json"))
        debugger.start()
        overflow_twice()
        debugger.stop()

    run_forked(record)
    command = [forking_msprobe, "-f", "pytorch", "run_overflow_check", "-j", "-d", "0"]
    command += ["-api_info", tmp_path / "step0" / "rank" / "dump.json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Torch.exp.0.forward: normal overflow" in done.stdout
    assert "Torch.dist.0.forward: abnormal overflow" in done.stdout
    assert len(list(tmp_path.glob("overflow_check_*.csv"))) == 1

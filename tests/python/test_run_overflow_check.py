"""`msprobe run_overflow_check`: is the overflow of a recorded call normal?"""

import csv
import json
import os
import re
import subprocess

import pytest
import torch
from recording import run_forked

from msprobe.pytorch import PrecisionDebugger, replay


def record(folder, program, task, **keys):
    (folder / "config.json").write_text(
        json.dumps({"task": task, "level": "L1", "dump_path": str(folder), task: keys})
    )
    debugger = PrecisionDebugger(str(folder / "config.json"))
    debugger.start()
    program()
    debugger.stop()


@pytest.fixture
def checked(forking_msprobe, tmp_path):
    """Records a program and checks its dump: the report, the rows of the table, what is printed."""

    def run(program, *flags, task="tensor", patch="", code=0, **keys):
        run_forked(record, tmp_path, program, task, **keys)
        environment = dict(os.environ)
        if patch:
            (tmp_path / "sitecustomize.py").write_text(f"import os, torch\n{patch}")
            environment["PYTHONPATH"] = str(tmp_path)
        command = [forking_msprobe, "-f", "pytorch", "run_overflow_check"]
        command += ["-api_info", tmp_path / "step0" / "rank" / "dump.json", "-o", tmp_path / "out"]
        answers = []
        for form in ("json", "table"):
            done = subprocess.run(
                [*command, "--format", form, *flags],
                capture_output=True,
                text=True,
                env=environment,
            )
            assert done.returncode == code, done.stdout + done.stderr
            answers.append(done.stdout)
        report = json.loads(answers[0])
        with open(report["csv"], encoding="utf-8-sig", newline="") as file:
            return report, list(csv.DictReader(file)), answers[1]

    return run


BIG = torch.tensor([3.0, 1e30, -2.0, 1e30])


def four_kinds():
    torch.exp(BIG * 0 + 1000)  # normal: no float32 holds e^1000
    torch.dist(BIG, BIG * 0)  # abnormal: 1.4e30 fits, its square does not
    torch.log(torch.tensor([-1.0]))  # undefined: no real number, and nothing overflows
    torch.rsqrt(torch.tensor([-1.0, 0.0]))  # undefined, and infinite
    torch.mul(torch.tensor([float("inf")]), 2.0)  # its input is not finite
    torch.sin(BIG)


def test_each_kind_of_overflow_is_told(checked):
    report, rows, text = checked(four_kinds)
    found = {call["name"]: call["verdict"] for call in report["calls"]}
    assert found == {
        "Torch.exp.0": "normal",
        "Torch.dist.0": "abnormal",
        "Torch.log.0": "undefined",
        "Torch.rsqrt.0": "undefined",
        "Torch.mul.0": "inputs not finite",
    }
    assert [report[key] for key in ("normal", "undefined", "abnormal")] == [1, 2, 1]
    assert report["inputs_not_finite"] == 1
    by_name = {row["API"]: row for row in rows}
    assert [*rows[0]] == [
        *("API", "Direction", "Inputs Clean", "Device Overflow", "Reference Overflow"),
        *("Verdict", "Message", "Source Line"),
    ]
    wrong = by_name["Torch.dist.0"]
    assert (wrong["Device Overflow"], wrong["Reference Overflow"]) == ("Inf", "finite")
    assert "output.0: Inf on the device, finite in the reference" in wrong["Message"]
    assert "# abnormal" in wrong["Source Line"] and wrong["Inputs Clean"] == "yes"
    assert by_name["Torch.log.0"]["Device Overflow"] == "NaN"
    assert by_name["Torch.mul.0"]["Inputs Clean"] == "no"
    assert "Torch.exp.0.forward: normal overflow\n" in text
    assert "Torch.log.0.forward: NaN, undefined for these inputs\n" in text
    both = "Torch.rsqrt.0.forward: NaN and infinity, undefined for some of these inputs\n"
    assert both in text
    assert "Torch.dist.0.forward: abnormal overflow; output.0" in text and "# abnormal" in text
    assert "1 entry got NaN or infinity as input: not judged" in text


def test_the_exit_code_is_that_of_abnormal_overflows(checked):
    checked(four_kinds, "--exit-code", code=1)


def test_normal_overflows_exit_with_0(checked):
    checked(lambda: torch.exp(BIG), "--exit-code")


def backward():
    x = torch.tensor([0.0, 4.0], requires_grad=True)
    torch.sqrt(x).sum().backward()  # the gradient at 0 is infinite, also in float64


def test_a_backward_pass(checked):
    report, rows, text = checked(backward)
    [call] = report["calls"]
    assert (call["name"], call["direction"], call["verdict"]) == (
        "Torch.sqrt.0",
        "backward",
        "normal",
    )
    assert "Torch.sqrt.0.backward: normal overflow" in text
    assert "torch.sqrt(x)" in rows[0]["Source Line"]


HALF = torch.full((4, 4), 300.0, dtype=torch.float16)


def too_large_for_half():
    torch.mul(HALF, HALF)  # 90000: more than float16 holds


def test_a_value_that_is_too_large_for_its_dtype_is_normal(checked):
    report, _, _ = checked(too_large_for_half)
    assert [call["verdict"] for call in report["calls"]] == ["normal"]


def test_a_dump_of_task_overflow_check(checked):
    report, _, _ = checked(four_kinds, task="overflow_check", overflow_nums=-1)
    assert (report["normal"], report["undefined"], report["abnormal"]) == (1, 2, 1)


def test_statistics_are_enough_for_some(checked):
    """Elements are made from statistics: some overflows are not seen again."""

    def program():
        torch.exp(torch.full((8,), 900.0))
        torch.div(torch.arange(4.0) + 1, torch.tensor([1.0, 2.0, -2.0, 0.0]))

    report, _, _ = checked(program, task="statistics")
    found = {call["name"]: call for call in report["calls"]}
    assert found["Torch.exp.0"]["verdict"] == "normal"
    assert found["Torch.div.0"]["verdict"] in ("normal", "not reproduced")

    def finite_again():
        torch.cosh(torch.full((8,), 900.0))

    report, _, _ = checked(finite_again, task="statistics", patch="torch.cosh = torch.tanh")
    [call] = report["calls"]
    assert call["verdict"] == "not reproduced"
    assert "made from statistics" in call["message"]
    assert (call["device"], call["reference"]) == ("finite", "finite")


def test_calls_that_cannot_be_executed_are_named(checked):
    def program():
        torch.exp(torch.full((8,), 900.0))
        torch.cosh(torch.full((8,), 900.0))
        torch.normal(torch.zeros(3), 1.0).div(0.0)
        torch.randn(4).exp_().mul_(3e38)

    patch = "del torch.exp\ntorch.cosh = lambda x: os._exit(7)"
    report, rows, text = checked(program, patch=patch)
    found = {call["name"]: call for call in report["calls"]}
    assert found["Torch.exp.0"]["verdict"] == "not executed"
    assert "no Torch.exp" in found["Torch.exp.0"]["message"]
    assert found["Torch.cosh.0"]["verdict"] == "not executed"
    assert "7" in found["Torch.cosh.0"]["message"]
    assert "Torch.exp.0.forward: not executed; this PyTorch" in text
    assert len(rows) == len(found)


def test_nothing_overflowed(checked):
    report, rows, text = checked(lambda: torch.sin(BIG))
    assert rows == [] and report["calls"] == []
    assert re.search(r"\d+ calls?: none of them has a NaN or an infinity as a result", text)


def test_a_dump_without_calls_is_one_clear_line(forking_msprobe, tmp_path):
    dump = {"task": "statistics", "level": "L0", "framework": "pytorch", "dump_data_dir": None}
    (tmp_path / "dump.json").write_text(json.dumps({**dump, "data": {}}))
    for path in (tmp_path / "dump.json", tmp_path / "nothing.json"):
        command = [forking_msprobe, "run_overflow_check", "-api_info", path, "-o", tmp_path / "out"]
        done = subprocess.run(command, capture_output=True, text=True)
        errors = [line for line in done.stderr.splitlines() if not line.startswith("hint:")]
        assert done.returncode == 2 and len(errors) == 1 and errors[0].startswith("error: ")
    assert not (tmp_path / "out").exists()


def references(folder):
    """Of torch.dist: the reference for an accelerator, for the CPU, and without the dtype there."""
    dump = replay.Recorded(folder / "step0" / "rank", torch.device("cpu"))
    call = dump.call([name for name, _ in dump.calls()].index("Torch.dist.0"))

    def of(kind):
        return replay.reference_of(call, torch.device(kind))[0][0].item()

    found = [of("cuda"), of("cpu")]
    right = torch.dist

    def without_float32(x, *rest):
        if x.dtype == torch.float32:
            raise RuntimeError("\"dist\" not implemented for 'Float'")
        return right(x, *rest)

    torch.dist = without_float32
    return [*found, of("cuda")]


def test_the_reference_of_an_accelerator_is_the_cpu_in_the_recorded_dtype(tmp_path):
    run_forked(record, tmp_path, lambda: torch.dist(BIG, -BIG), "tensor")
    as_recorded, of_the_cpu, without = run_forked(references, tmp_path)
    assert as_recorded == float("inf")
    assert of_the_cpu == without == pytest.approx(2.8284271e30)

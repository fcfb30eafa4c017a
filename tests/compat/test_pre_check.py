"""The accuracy pre-check of msprobe 1.0, by its guide: command line, files, verdicts."""

import csv
import subprocess

import pytest
import torch
from recording import run_forked

from msprobe.pytorch import PrecisionDebugger


def train(folder):
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    debugger = PrecisionDebugger(dump_path=str(folder), level="L1", task="statistics")
    debugger.start(model)
    torch.nn.functional.mse_loss(model(torch.randn(4, 6)), torch.zeros(4, 2)).backward()
    debugger.stop()


@pytest.fixture(scope="module")
def dump(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dump")
    run_forked(train, folder)
    return folder / "step0" / "rank" / "dump.json"


def files_of(forking_msprobe, verb, dump, folder, *flags):
    """Rows of the result file and of the details file."""
    command = [forking_msprobe, "-f", "pytorch", verb, "-api_info", dump, "-o", folder, *flags]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    found = []
    for kind in ("result", "details"):
        (path,) = folder.glob(f"accuracy_checking_{kind}_*.csv")
        with path.open(newline="", encoding="utf-8-sig") as file:
            found.append(list(csv.reader(file)))
    return found


def test_R_D_P1_every_api_is_executed_and_judged(dump, forking_msprobe, tmp_path):
    result, details = files_of(forking_msprobe, "run_ut", dump, tmp_path)
    assert [row[:3] for row in result[1:]] == [
        ["Functional.linear.0", "pass", "pass"],
        ["Functional.relu.0", "pass", "pass"],
        ["Functional.linear.1", "pass", "pass"],
        ["Functional.mse_loss.0", "pass", "pass"],
    ]
    assert details[1][0] == "Functional.linear.0.forward.output.0"


def test_R_D_P2_several_processes(dump, forking_msprobe, tmp_path):
    one = files_of(forking_msprobe, "run_ut", dump, tmp_path / "one")
    many = files_of(forking_msprobe, "multi_run_ut", dump, tmp_path / "many", "-n", "2", "-d", "0")
    assert [sorted(rows) for rows in one] == [sorted(rows) for rows in many]


def test_R_D_P3_two_devices_are_compared(dump, forking_msprobe, tmp_path):
    details = []
    for device in ("npu", "gpu"):
        files_of(forking_msprobe, "run_ut", dump, tmp_path / device)
        details += (tmp_path / device).glob("accuracy_checking_details_*.csv")
    command = [forking_msprobe, "-f", "pytorch", "api_precision_compare", "-o", tmp_path / "out"]
    command += ["-npu", details[0], "-gpu", details[1]]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "4 calls: 4 pass" in done.stdout
    assert list((tmp_path / "out").glob("api_precision_compare_result_*.csv"))

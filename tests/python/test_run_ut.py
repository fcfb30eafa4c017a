"""`msprobe run_ut` and `multi_run_ut`: recorded calls are executed again and judged."""

import csv
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import time

import pytest
import torch
from recording import run_forked, wait_for_new_names
from test_replay import recorded

from msprobe.pytorch import PrecisionDebugger


@pytest.fixture(scope="module")
def dump(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dump")
    run_forked(recorded, folder, "statistics")
    return folder / "step0" / "rank"


@pytest.fixture
def run_ut(forking_msprobe, dump, tmp_path):
    def run(*flags, verb="run_ut", code=0, patch="", path=None):
        """The JSON report. patch: code that runs in the workers after `import torch`."""
        environment = dict(os.environ)
        if patch:
            site = tmp_path / "site"
            site.mkdir(exist_ok=True)
            (site / "sitecustomize.py").write_text(f"import torch, os, time, signal\n{patch}")
            environment["PYTHONPATH"] = str(site)
        command = [forking_msprobe, "-f", "pytorch", verb, "-api_info", path or dump]
        command += ["-o", tmp_path / "out", "--format", "json", *map(str, flags)]
        wait_for_new_names(tmp_path / "out")
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        assert done.returncode == code, done.stdout + done.stderr
        return json.loads(done.stdout) if code < 2 else done.stderr

    return run


def rows(path):
    with open(path, encoding="utf-8-sig", newline="") as file:
        return list(csv.reader(file))


def test_right_operations_pass(run_ut, dump):
    report = run_ut()
    assert report["error"] == report["warning"] == report["lost"] == 0
    assert report["pass"] > 25
    result, details = rows(report["result_csv"]), rows(report["details_csv"])
    assert result[0][:4] == ["API name", "Forward Test Success", "Backward Test Success", "Message"]
    assert result[0][4:] == ["Forward Rounding Verdict", "Backward Rounding Verdict"]
    assert len(details[0]) == 29 and details[0][4] == "余弦相似度"
    assert report["beyond_rounding"] == 0
    assert {row[23] for row in details[1:]} == {"pass", "no bound", " "}
    assert pathlib.Path(report["result_csv"]).read_bytes().startswith(b"\xef\xbb\xbf")
    names = [row[0] for row in result[1:]]
    recorded_names = [
        name.rpartition(".")[0]
        for name in json.loads((dump / "dump.json").read_text())["data"]
        if name.endswith(".forward")
    ]
    assert sorted(names) == sorted(recorded_names)
    outputs = {row[0] for row in details[1:]}
    assert "Functional.linear.0.forward.output.0" in outputs
    assert "Functional.linear.0.backward.output.1" in outputs


def test_standard_older_has_the_older_columns(run_ut):
    both, older, as_26 = run_ut(), run_ut("--standard", "older"), run_ut("--as", "26")
    for key, width in (("result_csv", 4), ("details_csv", 23)):
        mine, table = rows(both[key]), rows(older[key])
        assert table == rows(as_26[key])
        assert table[0] == mine[0][:width] and {len(row) for row in mine} == {len(mine[0])}
        assert {row[0] for row in table} <= {row[0] for row in mine} and len(table) > 25
    assert "expected the columns of the verdict" in run_ut("-csv_path", older["result_csv"], code=2)
    assert run_ut("--standard", "older", "-csv_path", older["result_csv"])["pass"] > 25


BROKEN = """
right = torch.nn.functional.{name}
def wrong(*args, **kwargs):
    wanted = args[0].dtype == torch.float32
    {before}
    result = right(*args, **kwargs)
    {after}
    return result
torch.nn.functional.{name} = wrong
"""


def test_a_wrong_operation_is_named_with_its_line(run_ut):
    patch = BROKEN.format(
        name="linear", before="", after="result = result * 1.02 if wanted else result"
    )
    report = run_ut("--exit-code", code=1, patch=patch)
    assert [call["name"] for call in report["worst"]] == ["Functional.linear.0"]
    assert "test_replay.py" in report["worst"][0]["source_line"]
    assert report["worst"][0]["forward"] == "error"


def test_what_the_standards_do_not_see_is_named(run_ut):
    after = "result = result * (1 + 2e-5) if wanted else result"
    report = run_ut(
        "--exit-code", code=1, patch=BROKEN.format(name="linear", before="", after=after)
    )
    assert report["error"] == report["warning"] == 0 and report["beyond_rounding"] == 1
    (worst,) = report["worst"]
    assert worst["name"] == "Functional.linear.0" and worst["forward"] == "pass"
    assert worst["forward_rounding"] == "error" and worst["backward_rounding"] == "error"
    (row,) = [
        row for row in rows(report["details_csv"]) if row[0] == f"{worst['name']}.forward.output.0"
    ]
    assert row[21] == "pass" and row[23] == "error" and "terms" in row[27]
    assert row[28] == "another formula" and float(row[25]) > 100 > float(row[26])


def test_a_crash_a_hang_and_a_raise_cost_one_call(run_ut):
    for before, message in (
        ("wanted and os.kill(os.getpid(), signal.SIGSEGV)", "was ended by signal 11"),
        ("wanted and time.sleep(100)", "did not end in 8 s"),
        ("wanted and 1 / 0", "ZeroDivisionError"),
    ):
        patch = BROKEN.format(name="linear", before=before, after="")
        report = run_ut("--timeout", 8, patch=patch)
        assert [call["name"] for call in report["worst"]] == ["Functional.linear.0"], message
        assert message in report["worst"][0]["message"]
        assert report["pass"] > 25


def test_several_processes_write_the_same_rows(run_ut):
    one, many = run_ut(), run_ut("-n", 3, verb="multi_run_ut")
    for key in ("result_csv", "details_csv"):
        assert sorted(rows(one[key])) == sorted(rows(many[key]))


def killed_after(seconds, command):
    """Ends the program, and at times its workers with it, at this moment; whether it still ran."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)
    try:
        process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        if random.random() < 0.5:
            process.kill()
        else:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return True
    return False


@pytest.mark.parametrize("moments", [3, pytest.param(100, marks=pytest.mark.campaign)])
def test_a_killed_run_goes_on(run_ut, forking_msprobe, dump, tmp_path, moments):
    begin = time.monotonic()
    whole = run_ut()
    seconds = time.monotonic() - begin
    random.seed(moments)
    killed = resumed = 0
    for moment in range(moments):
        verb = ["run_ut"] if moment % 2 == 0 else ["multi_run_ut", "-n", "2"]
        folder = tmp_path / f"killed{moment}"
        command = [forking_msprobe, *verb, "-api_info", dump, "-o", folder]
        began = time.monotonic()
        if killed_after(random.uniform(0, seconds), command):
            killed += 1
        else:  # the machine was slower when the whole run was timed
            seconds = min(seconds, time.monotonic() - began)
        results = list(folder.glob("accuracy_checking_result_*.csv"))
        if not results:
            continue  # before the first file
        with results[0].open("a") as file:
            file.write(random.choice(["", "Functional.half_a_row"]))
        again = run_ut(*verb[1:], "-csv_path", results[0], verb=verb[0])
        resumed += 1
        assert again["result_csv"] == str(results[0])
        for key in ("result_csv", "details_csv"):
            assert sorted(rows(whole[key])) == sorted(rows(again[key])), moment
    assert killed >= moments / 3 and resumed >= moments / 3


def test_a_full_disk_is_one_line_and_loses_nothing(small_disk, run_ut, forking_msprobe, dump):
    whole = run_ut()
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes((64 - 12) << 10))  # 12 KiB are left: the files begin and do not end
    command = [forking_msprobe, "run_ut", "-api_info", dump, "-o", small_disk / "out"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert "No space left on device" in done.stderr and len(done.stderr.splitlines()) < 8
    ballast.unlink()
    (result,) = (small_disk / "out").glob("accuracy_checking_result_*.csv")
    again = run_ut("-csv_path", result)
    for key in ("result_csv", "details_csv"):
        assert sorted(rows(whole[key])) == sorted(rows(again[key]))


def test_a_dump_that_cannot_be_written_to_is_read(
    small_disk, run_ut, forking_msprobe, dump, tmp_path
):
    shutil.copy(dump / "dump.json", small_disk)
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    assert run_ut(path=small_disk)["error"] == 0
    command = [forking_msprobe, "run_ut", "-api_info", small_disk, "-o", small_disk / "out"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2 and "Read-only file system" in done.stderr
    assert not (small_disk / "out").exists()


def test_names_are_chosen(run_ut, tmp_path):
    config = tmp_path / "config.json"
    config.write_text(
        json.dumps({"run_ut": {"white_list": ["linear", "add"], "black_list": ["add"]}})
    )
    report = run_ut("-config", config)
    assert {row[0].split(".")[1] for row in rows(report["result_csv"])[1:]} == {"linear"}
    fewer = run_ut("-f")
    assert 0 < fewer["calls"] <= run_ut()["calls"]


def test_what_fails_is_kept(run_ut, tmp_path):
    patch = BROKEN.format(
        name="linear", before="", after="result = result + 1 if wanted else result"
    )
    run_ut("-save_error_data", patch=patch)
    (folder,) = (tmp_path / "out").glob("ut_error_data*")
    names = {path.name for path in folder.iterdir()}
    assert {f"Functional.linear.0.forward.input.{i}.pt" for i in range(3)} <= names
    device = torch.load(folder / "Functional.linear.0.forward.output.device.0.pt")
    bench = torch.load(folder / "Functional.linear.0.forward.output.bench.0.pt")
    assert torch.allclose(device.double(), bench + 1)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["-csv_path", "other.csv"], "expected accuracy_checking_result_"),
        (["-d", "0", "0"], "different device numbers"),
        (["-d", "x"], "different device numbers"),
        (["-config", "missing.json"], "missing.json"),
        (["--memory", "lots"], "lots"),
        (["--seed", "-1"], "expected 0 or more"),
        (["--timeout", "0"], "expected a number of 1 or more"),
        (["-n", "65"], "expected 1 to 64"),
        (["--references", "missing.yaml"], "missing.yaml"),
    ],
)
def test_bad_flags_write_nothing(run_ut, tmp_path, flags, message):
    assert message in run_ut(*flags, verb="multi_run_ut", code=2)
    assert not list(tmp_path.rglob("*.csv"))


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"white_list": "linear"}, 'a list as "white_list"'),
        ({"black_list": [3]}, 'names of APIs in "black_list"'),
        ({"error_data_path": 3}, 'a folder as "error_data_path"'),
        ({"precision": 21}, "0 to 20 decimals"),
        ({"is_online": True}, '"is_online" to be false'),
        ({"whitelist": []}, "white_list, black_list"),
        ([], "an object"),
    ],
)
def test_a_wrong_config_is_one_line(run_ut, tmp_path, section, message):
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"acc_check": section}))
    error = run_ut("-config", config, code=2)
    assert message in error and "config.json:1" in error


def test_one_process_uses_one_device(forking_msprobe, dump, tmp_path):
    done = subprocess.run(
        [forking_msprobe, "run_ut", "-api_info", dump, "-o", tmp_path, "-d", "0", "1"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0 and done.stderr == "warning: one process uses one device: 0\n"


def test_decimals_are_those_of_the_config(run_ut, tmp_path):
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"run_ut": {"precision": 3}}))
    cosine = rows(run_ut("-config", config)["details_csv"])[1][4]
    assert cosine == "1.000"


def test_a_run_that_goes_on_remembers(run_ut):
    patch = BROKEN.format(
        name="linear", before="", after="result = result + 1 if wanted else result"
    )
    first = run_ut("--exit-code", code=1, patch=patch)
    again = run_ut("--exit-code", "-csv_path", first["result_csv"], code=1)
    for key in ("pass", "warning", "error", "skip", "worst"):
        assert first[key] == again[key]


def test_what_a_lost_process_printed_is_kept(run_ut, tmp_path):
    before = "wanted and (print('before the end'), os.kill(os.getpid(), signal.SIGKILL))"
    run_ut(patch=BROKEN.format(name="linear", before=before, after=""))
    (log,) = (tmp_path / "out").glob("*.log")
    assert "before the end" in log.read_text()


def test_memory_that_is_not_there_is_not_an_error_of_the_operation(run_ut):
    before = "if wanted: raise RuntimeError('NPU out of memory. Tried to allocate 20 GiB')"
    report = run_ut(patch=BROKEN.format(name="linear", before=before, after=""))
    assert report["error"] == 0
    (row,) = [r for r in rows(report["result_csv"]) if r[0] == "Functional.linear.0"]
    assert row[1] == "SKIP" and "not enough memory" in row[3]


def packed_sequence(folder):
    debugger = PrecisionDebugger(dump_path=str(folder), task="statistics", level="L1")
    debugger.start()
    lengths = torch.tensor([5, 3, 2])
    packed = torch.nn.utils.rnn.pack_padded_sequence(torch.randn(5, 3, 4), lengths)
    torch.nn.GRU(4, 4)(packed)[0].data.sum().backward()
    debugger.stop()


def test_a_call_that_statistics_cannot_make_again_is_named(forking_msprobe, tmp_path):
    run_forked(packed_sequence, tmp_path / "dump")
    command = [forking_msprobe, "run_ut", "-api_info", tmp_path / "dump", "-o", tmp_path / "out"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stdout.splitlines() if "SKIP    1" in line]
    assert line.endswith("do not fit each other, record it with task tensor (Torch.gru.0)")


def test_data_that_cannot_be_saved_costs_a_message(run_ut):
    after = "result = result + 1 if wanted else result"
    patch = BROKEN.format(name="linear", before="", after=after)
    patch += "\ndef full(*a): raise OSError(28, 'No space left on device')\ntorch.save = full"
    report = run_ut("-save_error_data", patch=patch)
    assert report["lost"] == 0
    assert "cannot save its data" in report["worst"][0]["message"]


def test_a_stopped_run_says_how_to_go_on(forking_msprobe, dump, tmp_path):
    process = subprocess.Popen(
        [forking_msprobe, "run_ut", "-api_info", dump, "-o", tmp_path],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not list(tmp_path.glob("*.log")):
        time.sleep(0.005)
    process.send_signal(signal.SIGTERM)  # a background job ignores Ctrl-C
    _, error = process.communicate(timeout=60)
    (result,) = tmp_path.glob("accuracy_checking_result_*.csv")
    assert f"go on with -csv_path {result}" in error
    assert process.returncode == -signal.SIGTERM


def test_a_dump_that_was_cut_is_checked_and_is_no_success(run_ut, forking_msprobe, dump, tmp_path):
    text = (dump / "dump.json").read_bytes()
    (tmp_path / "cut").mkdir()
    (tmp_path / "cut/dump.json").write_bytes(text[: len(text) // 3])
    for verb in ("run_ut", "run_overflow_check"):
        command = [forking_msprobe, verb, "-api_info", tmp_path / "cut", "-o", tmp_path / "out"]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 2, verb
        assert "no closing braces" in done.stderr and len(done.stderr.splitlines()) == 1
    (result,) = (tmp_path / "out").glob("accuracy_checking_result_*.csv")
    assert 5 < len(rows(result)) < 25


def test_data_that_cannot_be_read_are_no_success(forking_msprobe, tmp_path):
    run_forked(recorded, tmp_path / "dump", "tensor")
    step = tmp_path / "dump/step0/rank"
    data = step / "dump_tensor_data"
    (data / "Functional.linear.0.forward.input.0.pt").unlink()
    (data / "Functional.linear.0.forward.input.1.pt").write_bytes(b"PK\3\4")
    command = [forking_msprobe, "run_ut", "-api_info", step, "-o", tmp_path / "out"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert "1 call was not checked, the first: its data cannot be read: " in done.stdout
    assert "Functional.linear.0.forward.input.0.pt: does not exist" in done.stdout


def test_a_device_that_is_not_there(run_ut, tmp_path):
    said = run_ut("-d", 99, code=2)
    assert said.startswith("error: -d 99: this machine has no")
    assert not list((tmp_path / "out").iterdir())


def test_bad_dumps(run_ut, tmp_path):
    assert "nowhere" in run_ut(path=tmp_path / "nowhere", code=2)
    (tmp_path / "dump.json").write_text('{"task": "statistics", "level": "L0", "data": {}}')
    assert "calls of APIs" in run_ut(path=tmp_path / "dump.json", code=2)
    (tmp_path / "dump.json").write_text(
        '{"task": "statistics", "data": {"Torch.add.0.forward": {"inp'
    )
    run_ut(path=tmp_path / "dump.json", code=2)

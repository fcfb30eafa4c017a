"""msprobe api_precision_compare: flags, files, exit codes, and what is printed."""

import csv
import json
import subprocess

import pytest

FILES = ("npu_details.csv", "gpu_details.csv")


@pytest.fixture
def details(root):
    return [root / "tests/data/accuracy" / name for name in FILES]


def run(msprobe_bin, details, out, *more, before=()):
    command = [
        msprobe_bin,
        *before,
        "api_precision_compare",
        "-npu",
        details[0],
        "-gpu",
        details[1],
    ]
    return subprocess.run([*command, "-o", out, *more], capture_output=True, text=True)


def rows(out, kind):
    (path,) = out.glob(f"api_precision_compare_{kind}_*.csv")
    assert path.read_bytes().startswith(b"\xef\xbb\xbf")
    with path.open(encoding="utf-8-sig", newline="") as file:
        return list(csv.reader(file))


def test_the_command_of_the_older_tools(msprobe_bin, details, tmp_path):
    done = run(msprobe_bin, details, tmp_path, before=("-f", "pytorch"))
    assert done.returncode == 0, done.stderr
    assert "15 error" in done.stdout and "Functional.gelu.0.backward.output.0" in done.stdout
    names = [row[0] for row in rows(tmp_path, "details")]
    with details[0].open(encoding="utf-8-sig", newline="") as file:
        wanted = [row[0] for row in csv.reader(file)]
    assert names == [*wanted, "Torch.only_gpu.0.forward.output.0"]


def test_exit_code(msprobe_bin, details, tmp_path):
    assert run(msprobe_bin, details, tmp_path, "--exit-code").returncode == 1
    same = [details[1], details[1]]
    ok = run(msprobe_bin, same, tmp_path / "same", "--as", "1.0")
    assert ok.returncode == 0, ok.stderr


def test_json(msprobe_bin, details, tmp_path):
    found = json.loads(run(msprobe_bin, details, tmp_path, "--format", "json").stdout)
    verdicts = {output["name"]: output for output in found["outputs"]}
    add = verdicts["Tensor.add.0.backward.output.0"]
    assert (add["verdict"], add["standard"]) == ("error", "absolute")
    assert found["pass"] + found["warning"] + found["error"] + found["skip"] == found["calls"]
    assert found["result_csv"].startswith(str(tmp_path))


@pytest.mark.parametrize("rules, count", [("1.0", 13), ("8", 12), ("26", 11)])
def test_as(msprobe_bin, details, tmp_path, rules, count):
    found = json.loads(
        run(msprobe_bin, details, tmp_path, "--as", rules, "--format", "json").stdout
    )
    assert len(rows(tmp_path, "result")) == found["calls"] + 1
    assert found["error"] == count


def test_own_standards(msprobe_bin, root, details, tmp_path):
    text = (root / "engine/accuracy/standards.yaml").read_text()
    own = tmp_path / "own.yaml"
    own.write_text(text.replace('"relu", ', ""))
    done = run(msprobe_bin, details, tmp_path, "--standards", own, "--format", "json")
    outputs = {output["name"]: output for output in json.loads(done.stdout)["outputs"]}
    assert outputs["Functional.relu.0.forward.output.0"]["standard"] != "binary"
    own.write_text(text.replace("cosine: 0.99", "cosine: high"))
    wrong = run(msprobe_bin, details, tmp_path / "none", "--standards", own)
    assert wrong.returncode == 2 and "after cosine" in wrong.stderr


@pytest.mark.parametrize(
    "change, said",
    [
        (lambda text: text + text.split("\r\n", 1)[1], "again in row"),
        (lambda text: text[: text.rindex("torch.float64")], "the file may be cut"),
        (lambda text: text.replace("API Name", "Name"), "a column API Name"),
        (lambda text: "", "found no row"),
    ],
)
def test_bad_files_leave_nothing(msprobe_bin, details, tmp_path, change, said):
    bad = tmp_path / "bad.csv"
    bad.write_text(change(details[1].read_bytes().decode("utf-8-sig")), newline="")
    out = tmp_path / "out"
    done = run(msprobe_bin, [details[0], bad], out)
    assert done.returncode == 2
    assert said in done.stderr and done.stderr.count("error:") == 1
    assert not out.exists()

"""Hostile dumps: the command omits a part that is damaged or not a regular file, says so in one
line, and compares the rest; no text of a dump becomes a formula.
"""

import csv
import io
import json
import os
import re
import socket
import subprocess
import zipfile

import numpy as np
import pytest

FORMULA = re.compile(r"^[=+\-@\t\r]")
NUMBER = re.compile(r"^[+-]?(\d+\.?\d*([eE][+-]?\d+)?%?|inf)$")
COMMANDS = {
    "26": ["compare", "-tp", "target", "-gp", "golden"],
    "8": ["compare", "-tp", "target", "-gp", "golden", "--table-format", "8"],
    "1.0": ["compare", "-tp", "target", "-gp", "golden", "--table-format", "1.0"],
}


def run(binary, folder, *words):
    return subprocess.run([binary, *words], cwd=folder, capture_output=True, text=True, timeout=60)


def tensor(**members):
    return {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [4], "Max": 3.0, "Min": 0.0,
            "Mean": 1.5, "Norm": 3.7, "requires_grad": False, **members}  # fmt: skip


def write(folder, calls, **header):
    folder.mkdir(parents=True, exist_ok=True)
    data = {f"{name}.0.forward": {"input_args": inputs, "input_kwargs": {}, "output": outputs}
            for name, (inputs, outputs) in calls.items()}  # fmt: skip
    text = {"task": "statistics", "level": "L1", "framework": "pytorch", **header, "data": data}
    (folder / "dump.json").write_text(json.dumps(text))


def a_link(path):
    path.symlink_to("fine.npy")


def a_link_outside(path):
    path.symlink_to("/etc/passwd")


def a_link_to_a_device(path):
    path.symlink_to("/dev/zero")


def a_socket(path):
    with socket.socket(socket.AF_UNIX) as made:
        here = os.getcwd()
        os.chdir(path.parent)  # a socket's path is short
        made.bind(path.name)
        os.chdir(here)


def a_cut_file(path):
    path.write_bytes(path.with_name("fine.npy").read_bytes()[:-5])


def a_changed_header(path):
    path.write_bytes(path.with_name("fine.npy").read_bytes().replace(b"<f4", b"<f9"))


def nothing(path):
    pass


PARTS = {
    a_link: "a symbolic link",
    a_link_outside: "a symbolic link",
    a_link_to_a_device: "a symbolic link",
    os.mkfifo: "a device, pipe or socket",
    a_socket: "a device, pipe or socket",
    os.mkdir: "a folder",
    a_cut_file: "cannot be read",
    a_changed_header: "cannot be read",
    nothing: "a tensor file is missing",
}


def names_of_parts():
    return [make.__name__ for make in PARTS]


@pytest.fixture
def damaged(tmp_path):
    """Target and golden: a call for each kind of damage in the target, and an undamaged call."""
    names = ["fine", *names_of_parts()]
    for side in ("target", "golden"):
        calls = {f"Torch.{n}": ([], [tensor(data_name=f"{n}.npy")]) for n in names}
        write(tmp_path / side, calls, task="tensor")
        files = tmp_path / side / "dump_tensor_data"
        files.mkdir()
        for name in names if side == "golden" else ["fine"]:
            np.save(files / f"{name}.npy", np.arange(4, dtype=np.float32))
    for make in PARTS:
        make(tmp_path / "target" / "dump_tensor_data" / f"{make.__name__}.npy")
    return tmp_path


def test_a_file_that_is_none_costs_its_own_row(damaged, msprobe_bin):
    done = run(msprobe_bin, damaged, *COMMANDS["26"], "--format", "csv")
    assert (done.returncode, done.stderr) == (0, "")
    rows = {row["NPU Name"]: row for row in csv.DictReader(io.StringIO(done.stdout))}
    assert list(rows) == ["fine", *names_of_parts()]
    assert rows["fine"]["Verdict"] == "equal" and rows["fine"]["Cosine"] == "1.0"
    for make, reason in PARTS.items():
        row = rows[make.__name__]
        assert (row["Verdict"], row["Result"]) == ("unknown", "unknown"), make.__name__
        assert row["Cosine"] == "unsupported" and reason in row["Reason"], row["Reason"]
        assert "\n" not in row["Reason"]


@pytest.mark.parametrize("make", [os.mkfifo, a_link_to_a_device, a_socket, os.mkdir])
def test_no_dump(damaged, msprobe_bin, make):
    """If dump.json itself is bad: one line, exit code 2, no output files."""
    dump = damaged / "target" / "dump.json"
    dump.unlink()
    make(dump)
    done = run(msprobe_bin, damaged, *COMMANDS["26"], "-o", "out")
    assert done.returncode == 2
    assert done.stderr.startswith("error: target"), done.stderr
    assert not (damaged / "out").exists()


@pytest.mark.parametrize("make", [os.mkfifo, a_link_outside, a_socket])
@pytest.mark.parametrize("name", ["stack.json", "construct.json"])
def test_a_side_file_that_is_none_is_left_out(damaged, msprobe_bin, make, name):
    make(damaged / "target" / name)
    done = run(msprobe_bin, damaged, *COMMANDS["26"], "-o", "out")
    assert done.returncode == 0, done.stderr
    assert name in done.stdout + done.stderr


def test_partial_results_are_kept_and_marked(tmp_path, msprobe_bin):
    """Of five ranks one is damaged, one is a link, one is no file; the others get their tables."""
    for side in ("target", "golden"):
        for rank in range(5):
            write(tmp_path / side / f"rank{rank}", {"Torch.add": ([tensor()], [tensor()])})
    (tmp_path / "target/rank1/dump.json").write_text('{"task": "statistics", "data": {"a": 5 oops')
    (tmp_path / "target/rank2/dump.json").unlink()
    os.mkfifo(tmp_path / "target/rank2/dump.json")
    (tmp_path / "target/rank4/dump.json").unlink()
    (tmp_path / "target/rank4/dump.json").symlink_to("../rank0/dump.json")
    done = run(msprobe_bin, tmp_path, *COMMANDS["26"], "-o", "out")
    assert done.returncode == 2
    written = sorted(re.findall(r"rank\d", " ".join(p.name for p in (tmp_path / "out").iterdir())))
    assert written == ["rank0", "rank3"], done.stdout + done.stderr
    assert "rank1" in done.stderr and "FAILED" in done.stdout
    assert "rank4/dump.json is a symbolic link" in done.stderr
    (summary,) = (tmp_path / "out").glob("compare_summary*.csv")
    text = summary.read_text()
    assert "rank1" in text or re.search(r"^.*\b1\b.*oops.*$", text, re.M), text


def hostile():
    """A dump in which every text begins like a formula."""
    calls = {}
    for start in "=+-@\t\r":
        evil = f"{start}HYPERLINK('x')"
        part = tensor(dtype=evil, data_name=evil, Max=evil, Min=evil, Mean=evil,
                      Norm=evil, md5=evil, type="torch.Tensor")  # fmt: skip
        calls[f"{evil}.f"] = ([part, {"type": "str", "value": evil}], [part])
    return calls


@pytest.fixture
def formulas(tmp_path):
    for side in ("target", "golden"):
        write(tmp_path / side, hostile())
        evil = "=HYPERLINK('x')"
        frames = [
            [[f"{name}.0.forward" for name in hostile()], [f"{evil}, line 1, in a, \n {evil}"]]
        ]
        (tmp_path / side / "stack.json").write_text(json.dumps({"0": frames[0]}))
    return tmp_path


def is_safe(cell):
    return not FORMULA.match(cell) or NUMBER.match(cell)


@pytest.mark.parametrize("generation", COMMANDS)
def test_no_cell_of_csv_is_a_formula(formulas, msprobe_bin, generation):
    done = run(msprobe_bin, formulas, *COMMANDS[generation], "--format", "csv")
    assert done.returncode == 0, done.stderr
    rows = list(csv.reader(io.StringIO(done.stdout, newline="")))
    assert len(rows) > 18 and all(len(row) == len(rows[0]) for row in rows)
    found = [cell for row in rows for cell in row]
    assert [cell for cell in found if not is_safe(cell)] == []
    assert any(cell.startswith("'=HYPERLINK") for cell in found), "the names are there"


@pytest.mark.parametrize("generation", COMMANDS)
def test_no_cell_of_xlsx_is_a_formula(formulas, msprobe_bin, generation):
    done = run(msprobe_bin, formulas, *COMMANDS[generation], "--xlsx", "-o", "out")
    assert done.returncode == 0, done.stderr
    (book,) = (formulas / "out").glob("*.xlsx")
    with zipfile.ZipFile(book) as file:
        sheets = [file.read(n).decode() for n in file.namelist() if "sheet" in n and ".xml" in n]
    assert any("=HYPERLINK" in sheet for sheet in sheets)
    for sheet in sheets:
        assert "<f>" not in sheet and "<f " not in sheet
        for kind, value in re.findall(r'<c [^>]*?(?:t="(\w+)")?[^>]*><v>([^<]*)</v>', sheet):
            assert kind in ("s", "b") or NUMBER.match(value), value


def test_no_cell_of_merged_tables_is_a_formula(tmp_path, msprobe_bin):
    for side in ("target", "golden"):
        for rank in range(2):
            write(tmp_path / side / f"rank{rank}", hostile())
    done = run(msprobe_bin, tmp_path, *COMMANDS["26"], "-o", "out")
    assert done.returncode == 0, done.stderr
    (tmp_path / "merge.yaml").write_text("api: ['f']\ncompare_index: ['NPU Dtype', 'Max diff']\n")
    done = run(
        msprobe_bin, tmp_path, "merge_result", "-i", "out", "-o", "merged", "-config", "merge.yaml"
    )
    assert done.returncode == 0, done.stderr
    (book,) = (tmp_path / "merged").glob("*.xlsx")
    with zipfile.ZipFile(book) as file:
        for name in file.namelist():
            assert b"<f>" not in file.read(name)

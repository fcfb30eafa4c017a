"""`msprobe compare --memory`: the memory of a comparison stays below the limit."""

import argparse
import csv
import json
import os
import re
import subprocess
import sys

import numpy
import pytest

MEGA = 1 << 20
# A child's ru_maxrss starts at the memory of its parent, so a small program starts the child.
STARTER = (
    "import os, sys; pid = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ); "
    "_, status, usage = os.wait4(pid, 0); "
    "print('peak', usage.ru_maxrss); sys.exit(os.waitstatus_to_exitcode(status))"
)
LEAF = (
    '{"type": "torch.Tensor", "dtype": "torch.float32", "shape": [8, 128], "Max": 1.5023456789, '
    '"Min": -2.257891234, "Mean": 0.1254567891, "Norm": 3.545678912, "requires_grad": true}'
)


@pytest.fixture
def compare(msprobe_bin):
    return lambda folder, *flags: run_compare(msprobe_bin, folder, *flags)


def run_compare(program, folder, *flags, name=""):
    """Exit code, the output, and the peak of resident memory in bytes."""
    command = [program, "compare", "-tp", folder / "target" / name, "-gp", folder / "golden" / name]
    command += ["-o", folder / "out", *flags]
    done = subprocess.run(
        [sys.executable, "-I", "-c", STARTER, *map(str, command)],
        capture_output=True,
        text=True,
        env=os.environ | {"MSPROBE_THREADS": "2"},  # each thread needs memory
    )
    *lines, peak = done.stdout.splitlines()
    return done.returncode, "\n".join([*lines, done.stderr]), int(peak.split()[1]) * 1024


def write_statistics(folder, calls, indent="\n"):
    values = ", ".join([LEAF] * 5)
    entry = f'{{"input_args": [{values}], "input_kwargs": {{}}, "output": [{LEAF}]}}'
    lines = f",{indent}".join(f'"Torch.mul.{i}.forward": {entry}' for i in range(calls))
    head = '{"task": "statistics", "level": "L1", "framework": "pytorch", "data": {'
    (folder / "target").mkdir(parents=True), (folder / "golden").mkdir()
    (folder / "target/dump.json").write_text(head + indent + lines + "}}")
    os.link(folder / "target/dump.json", folder / "golden/dump.json")


@pytest.mark.parametrize("indent", ["\n", " "], ids=["lines", "one line"])
def test_dumps_that_do_not_fit_say_what_they_need(compare, indent, tmp_path):
    write_statistics(tmp_path, 50_000, indent)  # files large enough to be read in pieces
    code, text, peak = compare(tmp_path, "--memory", "128MB")
    assert code == 2 and peak < 128 * MEGA
    assert re.search(r"dump.json: comparing it needs about \d+ MB of memory, but may use 128", text)
    hint = re.search(r"hint:  --memory (\d+)MB", text)[1]
    for flags in ([], ["--xlsx"], ["--format", "json"]):
        code, text, peak = compare(tmp_path, "--memory", hint + "MB", *flags)
        assert code == 0, text
        assert 128 * MEGA < peak < int(hint) * MEGA  # otherwise the first half proves nothing


def test_what_fits_is_not_refused(compare, tmp_path):
    write_statistics(tmp_path, 100_000)
    limit = 3 * (tmp_path / "target/dump.json").stat().st_size
    code, text, peak = compare(tmp_path, "--memory", f"{limit}")
    assert code == 0 and peak < limit, text


def test_ranks_are_compared_one_after_another_within_the_limit(compare, tmp_path):
    write_statistics(tmp_path / "one", 15_000)
    for side in ("target", "golden"):
        for rank in range(6):
            place = tmp_path / side / f"rank{rank}"
            place.mkdir(parents=True)
            os.link(tmp_path / "one/target/dump.json", place / "dump.json")
    code, text, peak = compare(tmp_path, "--memory", "128MB")
    assert code == 0 and peak < 128 * MEGA, text


def write_dumps(folder, sizes):
    """Writes dumps of task tensor with values of these sizes."""
    for side in ("target", "golden"):
        tensors = folder / side / "dump_tensor_data"
        tensors.mkdir(parents=True)
        data = {}
        for i, size in enumerate(sizes):
            name = f"Torch.mul.{i}.forward"
            numpy.save(tensors / f"{name}.output.0.npy", numpy.ones(size // 4, numpy.float32))
            leaf = json.loads(LEAF) | {"shape": [size // 4]}
            leaf["data_name"] = f"{name}.output.0.npy"
            data[name] = {"input_args": [], "input_kwargs": {}, "output": [leaf]}
        head = {"task": "tensor", "level": "L1", "framework": "pytorch"}
        (folder / side / "dump.json").write_text(json.dumps(head | {"data": data}))


def write_big_endian(folder, sizes):
    """Writes elements in big-endian order, which must be converted before the comparison."""
    for side in ("target", "golden"):
        (folder / side).mkdir()
        for i, size in enumerate(sizes):
            numpy.save(folder / side / f"{i}.npy", numpy.ones(size // 4, ">f4"))


def write_folders(folder, sizes):
    """Writes a folder with a file of several tensors and a file of one tensor; not a checkpoint."""
    torch = pytest.importorskip("torch")
    for side in ("target", "golden"):
        (folder / side).mkdir()
        values = {str(i): torch.ones(size // 4) for i, size in enumerate(sizes)}
        torch.save(values, folder / side / "all.pt")
        numpy.save(folder / side / "single.npy", numpy.ones(3))


def write_checkpoints(folder, sizes):
    torch = pytest.importorskip("torch")
    for side in ("target", "golden"):
        (folder / side).mkdir()
        values = {str(i): torch.ones(size // 4) for i, size in enumerate(sizes)}
        torch.save(values, folder / side / "model.pt")


def write_shares(folder, sizes):
    """Writes a checkpoint of two tensor-parallel ranks, whose tensors are joined in memory."""
    torch = pytest.importorskip("torch")
    for side in ("target", "golden"):
        for rank in range(2):
            place = folder / side / f"iter_0000001/mp_rank_{rank:02}"
            place.mkdir(parents=True)
            values = {
                f"decoder.layers.{i}.mlp.linear_fc1.weight": torch.ones(size // 2048, 256)
                for i, size in enumerate(sizes)
            }
            arguments = argparse.Namespace(
                tensor_model_parallel_size=2, pipeline_model_parallel_size=1
            )
            saved = {"args": arguments, "iteration": 1, "model": values}
            torch.save(saved, place / "model_optim_rng.pt")
        (folder / side / "latest_checkpointed_iteration.txt").write_text("1")


@pytest.mark.parametrize(
    ("write", "needed"),
    [
        (write_dumps, "181 MB"),
        (write_big_endian, "181 MB"),
        (write_folders, "180 MB"),
        (write_checkpoints, "180 MB"),
        (write_shares, "270 MB"),  # the joined tensor and one shard
    ],
)
def test_a_tensor_that_does_not_fit_costs_its_own_row(compare, write, needed, tmp_path):
    sizes = [10 * MEGA] * 10 + [90 * MEGA, 6 * MEGA]
    write(tmp_path, sizes)
    code, text, peak = compare(tmp_path, "--memory", "128MB")
    assert code == 0 and peak < 128 * MEGA, text
    with open(next((tmp_path / "out").glob("*.csv"))) as table:
        rows = list(csv.DictReader(table))
    reasons = [row["Reason"] for row in rows if row["Verdict"] == "unknown"]
    assert len(reasons) == 1 and f"needs {needed} of memory, and " in reasons[0]
    assert sum(row["Verdict"] == "equal" for row in rows) >= len(sizes) - 1
    code, text, peak = compare(tmp_path, "--memory", "640MB")
    assert code == 0 and 128 * MEGA < peak < 640 * MEGA, text


@pytest.mark.parametrize(("amount", "words"), [("4 apples", "such as 4GB"), ("5MB", "at least")])
def test_an_invalid_amount_is_refused(compare, amount, words, tmp_path):
    write_statistics(tmp_path, 1)
    code, text, _ = compare(tmp_path, "--memory", amount)
    assert code == 2 and words in text

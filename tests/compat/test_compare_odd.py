"""Comparing and parsing dumps of the older tools: unusual files and folders, ranks, the shell."""

import re
import subprocess
import sys

import numpy as np
import pytest
from composed_dumps import (
    FRAMES,
    code_of,
    net,
    paths,
    ramp,
    result,
    statistics,
    write_first,
    write_later,
    write_lines,
)

from ptdbg_ascend import compare, compare_distributed, parse


def test_half_written_and_missing_tensors_cost_their_rows(tmp_path, out):
    npu, bench = (write_later(tmp_path / s / "dump.pkl", net()) for s in "ab")
    half = npu[1] / "Torch_mul_0_forward_output.npy"
    half.write_bytes(half.read_bytes()[:90])
    (npu[1] / "Functional_relu_0_forward_input.0.npy").unlink()
    compare(paths(npu, bench), str(out))
    rows = {r["NPU Name"]: r for r in result(out)[1]}
    for name in ("Torch_mul_0_forward_output", "Functional_relu_0_forward_input.0"):
        assert rows[name]["Accuracy Reached or Not"] == "Nan"
        assert "not found or read failed" in rows[name]["Err_message"]
    assert rows["Torch_mul_0_forward_input.0"]["Accuracy Reached or Not"] == "Yes"


def test_hostile_names_are_neither_formulas_nor_paths(tmp_path, out):
    outside = tmp_path / "secret.npy"
    np.save(outside, ramp(3))
    rest = [0, [], "torch.float32", [3], [1.0, 0.0, 0.5]]
    lines = [["=cmd|x_0_forward_output", *rest], ["../../secret_0_forward_output", *rest]]
    path = write_lines(tmp_path / "d" / "dump.pkl", lines)
    (tmp_path / "d" / "dump").mkdir()
    (tmp_path / "secret_0_forward_output.npy").write_bytes(outside.read_bytes())
    compare(paths((path, path.parent / "dump"), (path, path.parent / "dump")), str(out))
    formula, escape = result(out)[1]
    assert formula["NPU Name"].startswith("'=")
    assert escape["Cosine"] == "Nan" and escape["Accuracy Reached or Not"] == "Nan"


def test_tensor_folders_may_lie_elsewhere(tmp_path, out):
    npu, bench = (write_later(tmp_path / s / "dump.pkl", net()) for s in "ab")
    moved = (tmp_path / "elsewhere" / "npu", tmp_path / "elsewhere" / "bench")
    moved[0].parent.mkdir()
    npu[1].rename(moved[0])
    bench[1].rename(moved[1])
    compare(paths((npu[0], moved[0]), (bench[0], moved[1])), str(out))
    assert {r["Accuracy Reached or Not"] for r in result(out)[1]} == {"Yes"}
    summary = tmp_path / "summary"
    summary.mkdir()
    compare({k: v for k, v in paths(npu, bench).items() if "pkl" in k}, str(summary))
    assert "Max diff" in result(summary)[0]


def test_of_several_runs_in_a_file_the_folder_is_that_of_its_own(tmp_path):
    path, first = write_first(tmp_path / "d.pkl", net(), time="20230104_134530")
    lines = path.read_text()
    path, second = write_first(tmp_path / "d.pkl", net(3.0), time="20230104_134610")
    path.write_text(lines + path.read_text())
    for folder, with_data in ((first, slice(0, 7)), (second, slice(7, 14))):
        results = tmp_path / f"of_{folder.name}"
        results.mkdir()
        compare(paths((path, folder), (path, folder)), str(results))
        errors = [row["MaxAbsErr"] for row in result(results)[1]]
        assert len(errors) == 14 and errors[with_data] == ["0.000000"] * 7
        assert errors.count("NaN") == 7


def test_other_shapes_are_unmatched_with_and_without_tensors(tmp_path, out):
    npu, bench = (
        write_later(tmp_path / f"{n}.pkl", [("Torch_neg_forward", {"output": ramp(n, 3)})])
        for n in (2, 3)
    )
    compare(paths(npu, bench), str(out))
    (row,) = result(out)[1]
    assert row["Cosine"] == "shape unmatched" and row["Accuracy Reached or Not"] == "Unmatched"
    summary = tmp_path / "summary"
    summary.mkdir()
    compare({k: v for k, v in paths(npu, bench).items() if "pkl" in k}, str(summary))
    assert [row["Result"] for row in result(summary)[1]] == ["Unmatched"]


def test_another_version_in_the_tag_is_found_and_said(tmp_path, out, capfd):
    npu, bench = (
        write_later(tmp_path / s / "ptdbg_dump_v4.1" / "rank0" / "dump.pkl", net()) for s in "ab"
    )
    asked = {k: v.replace("_v4.1", "_v2.0") for k, v in paths(npu, bench).items()}
    compare(asked, str(out))
    assert len(result(out)[1]) == 7
    assert "ptdbg_dump_v4.1" in capfd.readouterr().err
    (tmp_path / "a" / "ptdbg_dump_v5.0").mkdir()  # two candidates: the tool must not guess
    assert code_of(compare, asked, str(out)) == 1


@pytest.mark.parametrize(("ranks", "golden"), [((0, 2, 10), (0, 2, 10)), ((71, 72), (81, 82))])
def test_ranks_are_paired_and_named(ranks, golden, tmp_path, out):
    for side, numbers in (("npu", ranks), ("bench", golden)):
        for rank in numbers:
            write_later(tmp_path / side / f"rank{rank}" / "dump.pkl", net())
    compare_distributed(str(tmp_path / "npu"), str(tmp_path / "bench"), str(out), stack_mode=False)
    names = sorted(re.sub("_20.*", "", path.name) for path in out.glob("compare_result_*"))
    assert names == sorted(
        f"compare_result_rank{a}-rank{b}" for a, b in zip(ranks, golden, strict=True)
    )
    assert len(list(out.glob("advisor_*"))) == len(ranks)
    assert code_of(compare_distributed, tmp_path / "npu", tmp_path / "bench", out, suffix="x") == 11
    write_later(tmp_path / "npu" / "rank99" / "dump.pkl", net())
    assert code_of(compare_distributed, tmp_path / "npu", tmp_path / "bench", out) == 1


@pytest.mark.parametrize(("digits", "other", "verdict"), [
    ("a" * 32, "a" * 32, "Pass"), ("a" * 8, "b" * 8, "Different"), ("a" * 32, "a" * 8, "Nan"),
])  # fmt: skip
def test_checksums_pass_differ_or_say_nothing(digits, other, verdict, tmp_path, out, capsys):
    files = [
        write_later(tmp_path / f"{i}.pkl", [("Torch_add_forward", {"output": ramp(2)})],
                    digest=lambda _, text=text: text)[0]
        for i, text in enumerate((digits, other))
    ]  # fmt: skip
    compare({"npu_pkl_path": str(files[0]), "bench_pkl_path": str(files[1])}, str(out))
    header, (row,) = result(out)
    assert header[6:9] == ["NPU MD5", "BENCH MD5", "Result"]
    assert row["Result"] == verdict
    capsys.readouterr()
    parse(str(files[0]), "Torch_add")
    assert f"[md5: {digits}]" in capsys.readouterr().out


def shell(lines, tmp_path, *flags):
    done = subprocess.run(
        [sys.executable, "-m", "ptdbg_ascend.parse", *flags], input="\n".join(lines), text=True,
        capture_output=True, cwd=tmp_path, timeout=60,
    )  # fmt: skip
    assert done.returncode == 2, "two commands fail"
    return done.stdout + done.stderr


def test_the_shell_shows_and_compares_tensors(tmp_path):
    a = ramp(3, 4)
    b = a.copy()
    b[1, 2] += 1
    np.save(tmp_path / "a.npy", a)
    np.save(tmp_path / "b.npy", b)
    write_lines(tmp_path / "d.pkl", [["Torch_add_0_forward_stack_info", FRAMES]])
    printed = shell(
        ["pt -n a.npy", "cn -m a.npy -g b.npy -p 1 -s", "pk -f d.pkl -n Torch", "pt -n no.npy",
         "echo run as a command", "vc -m a -g b -asc nowhere", "quit", "echo not reached"],
        tmp_path, "--allow-run",
    )  # fmt: skip
    top, low, mean = statistics(a)
    assert f"[Shape: (3, 4)] [Dtype: float32] [Max: {top}] [Min: {low}] [Mean: {mean}]" in printed
    cosine = float(a.ravel().astype(float) @ b.ravel()) / np.linalg.norm(a) / np.linalg.norm(b)
    found = re.search(r"NumCnt:12 AllClose:False CosSim:([\d.]+) ErrorPer:8.33%", printed)
    assert float(found[1]) == pytest.approx(cosine, rel=1e-6)
    assert printed.count("[1, 2]") == 2, "in the list of wrong ones and in that of the worst"
    assert np.allclose(np.loadtxt(tmp_path / "a.npy.txt"), a.ravel())
    assert "Trace back(Torch_add_0_forward_stack_info):" in printed
    assert "error: no.npy: does not exist" in printed
    assert "run as a command" in printed and "not reached" not in printed
    assert "nowhere is not used" in printed and "error: a: does not exist" in printed


def test_parse_is_a_function_whatever_was_imported(tmp_path):
    program = (
        "import ptdbg_ascend.parse as module\nfrom ptdbg_ascend import parse\n"
        "assert callable(module) and callable(parse)\nmodule('d.pkl', 'Torch')\n"
    )
    write_lines(tmp_path / "d.pkl", [["Torch_add_0_forward_stack_info", FRAMES]])
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path, timeout=60
    )
    assert "y = F.relu(x)" in done.stdout, done.stderr

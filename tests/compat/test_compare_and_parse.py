"""Comparing and parsing, as the guides of ptdbg_ascend 0.1 and torch_npu.hooks describe them."""

import json
import math
import re
import subprocess

import numpy as np
import pytest
from composed_dumps import (
    code_of,
    first_dumps,
    hooks_table,
    net,
    one_call,
    paths,
    ramp,
    read_table,
    result,
    statistics,
    write_first,
    write_hooks,
    write_later,
)

from msprobe.compat.hooks_compare import compare as compare_hooks
from msprobe.compat.hooks_compare import main as hooks_main
from ptdbg_ascend import compare, parse

HOOKS_COLUMNS = [
    "NPU Name", "Bench Name", "NPU Tensor Dtype", "Bench Tensor Dtype", "NPU Tensor Shape",
    "Bench Tensor Shape", "Cosine", "RMSE", "MAPE",
]  # fmt: skip


def test_R_A19_the_directory_is_the_second_argument(tmp_path, out):
    compare(paths(*first_dumps(tmp_path)), str(out))
    (table,) = out.glob("compare_result_*.csv")
    assert re.fullmatch(r"compare_result_20\d{12}\.csv", table.name)
    header, rows = read_table(table)
    assert header[6:11] == ["Cosine", "RMSE", "MAPE", "MaxAbsErr", "MaxRelativeErr"]
    assert [row["Cosine"] for row in rows] == ["1.000000"] * len(rows)


def test_R_A20_parse_prints_stack_and_statistics(tmp_path, capsys):
    path, _ = write_first(tmp_path / "d.pkl", net(), stacks=True)
    parse(str(path), "0_Functional")
    relu = net()[0][1]
    lines = [
        f"  [0_Functional_relu_forward_{part}][dtype: torch.float32][shape: [4, 5]]"
        "[max: {}][min: {}][mean: {}]".format(*statistics(array))
        for part, array in relu.items()
    ]
    assert capsys.readouterr().out == (
        "\nTrace back(0_Functional_relu_forward_stack_info):\n"
        '  File "/w/run.py", line 40, in <module>\n    main()\n'
        '  File "/w/net.py", line 18, in forward\n    y = F.relu(x)\n'
        "\nStatistic Info:\n" + "\n".join(lines) + "\n"
    )


def test_R_A31_other_dump_steps_are_resampled_and_named(tmp_path, out, capfd):
    x = ramp(520)
    calls = [("Torch_neg_forward", {"input.0": x, "output": -x})]
    npu = write_first(tmp_path / "a" / "d.pkl", calls, step=2)
    changed = -x.copy()
    changed[256 + 6] = 9  # this element is in both samples
    bench = write_first(
        tmp_path / "b" / "d.pkl", [("Torch_neg_forward", {"input.0": x, "output": changed})], step=3
    )
    assert np.load(npu[1] / "0_Torch_neg_forward_output.npy").size == 516
    compare(paths(npu, bench), str(out))
    printed = capfd.readouterr().out
    assert "dump_step 2" in printed and "dump_step 3" in printed
    same, differs = result(out)[1]
    assert same["Cosine"] == "1.000000" and same["MaxAbsErr"] == "0.000000"
    assert float(differs["MaxAbsErr"]) > 8


def test_R_A36_four_keys_an_existing_directory_and_true(tmp_path, out):
    dumps = paths(*first_dumps(tmp_path, stacks=True))
    assert code_of(compare, dumps, str(tmp_path / "missing"), True) == 1
    compare(dumps, str(out), True)
    assert len(result(out)[1]) == 7
    for third in (False, True):  # for later dumps it is stack_mode, which has no effect
        folder = tmp_path / f"later_{third}"
        folder.mkdir()
        later = [write_later(tmp_path / s / "dump.pkl", net(), stacks=True) for s in ("l", "m")]
        compare(paths(*later), str(folder), third)
        assert "NPU_Stack_Info" in result(folder)[0]


def test_R_A36_shape_flag_keeps_other_shapes_apart(tmp_path, out):
    npu = write_first(tmp_path / "a.pkl", [("Torch_neg_forward", {"output": ramp(2, 3)})])
    bench = write_first(tmp_path / "b.pkl", [("Torch_neg_forward", {"output": ramp(3, 3)})])
    compare(paths(npu, bench), str(out), True)
    assert [(r["NPU Name"], r["Bench Name"]) for r in result(out)[1]] == [
        ("Nan", "0_Torch_neg_forward_output"),
        ("0_Torch_neg_forward_output", "Nan"),
    ]
    second = tmp_path / "second"
    second.mkdir()
    compare(paths(npu, bench), str(second), shape_flag=False)
    (row,) = result(second)[1]
    assert row["Cosine"] == row["MaxRelativeErr"] == "cannot be calculated"


def test_R_A38_scoped_dumps_show_call_sites(tmp_path, out):
    compare(paths(*first_dumps(tmp_path, stacks=True)), str(out))
    rows = result(out)[1]
    assert len(rows) == 7
    assert rows[0]["Source Line"] == "/w/net.py:18 in forward: y = F.relu(x)"


def test_R_A39_a_call_can_be_made_again_from_what_was_kept(tmp_path, capsys):
    path, folder = write_first(tmp_path / "d.pkl", net(), stacks=True)
    kept = {part: np.load(folder / f"0_Functional_relu_forward_{part}.npy")
            for part in ("input.0", "output")}  # fmt: skip
    assert np.array_equal(np.maximum(kept["input.0"], 0), kept["output"])
    parse(path, "0_Functional_relu")
    assert "y = F.relu(x)" in capsys.readouterr().out


def test_R_A40_the_number_is_that_of_the_call_among_all(tmp_path, capsys):
    calls = [("Torch_batch_norm_forward", {"output": ramp(2)})] * 22
    path, _ = write_first(tmp_path / "d.pkl", calls)
    for prefix, names in (("2_", ["2"]), ("21_Torch_batch_norm", ["21"]), ("22_", [])):
        parse(str(path), prefix)
        assert re.findall(r"\[(\d+)_Torch", capsys.readouterr().out) == names


def test_R_B01_two_dumps_of_any_devices_are_compared(tmp_path):
    rows = hooks_table(tmp_path, one_call(ramp(6) ** 2), one_call(ramp(6)))
    assert float(rows[0]["Cosine"]) == 1
    assert float(rows[1]["Cosine"]) < 1


def test_R_B08_an_extra_operation_fails_nothing(tmp_path):
    bench = one_call(ramp(4))
    npu = [("Torch_exp_forward_input.0", ramp(7)), ("Torch_exp_forward_output", ramp(7)), *bench]
    rows = hooks_table(tmp_path, npu, bench)
    assert [(r["NPU Name"], r["Bench Name"]) for r in rows] == [
        ("0_Torch_exp_forward_input.0", "Nan"),
        ("1_Torch_exp_forward_output", "Nan"),
        ("2_Torch_add_forward_input.0", "0_Torch_add_forward_input.0"),
        ("3_Torch_add_forward_output", "1_Torch_add_forward_output"),
    ]


def test_R_B09_the_first_failing_operation_is_named(tmp_path, out):
    far = net()
    far[1][1]["output"] = -far[1][1]["output"] + 3
    npu = write_later(tmp_path / "npu" / "dump.pkl", far)
    bench = write_later(tmp_path / "bench" / "dump.pkl", net())
    compare(paths(npu, bench), str(out))
    rows = result(out)[1]
    line = next(i for i, row in enumerate(rows, 2) if row["Accuracy Reached or Not"] == "No")
    (advice,) = out.glob("advisor_*.txt")
    assert advice.read_text().splitlines()[:2] == [
        f"Line: {line}",
        "Suspect Nodes: Torch_mul_0_forward_output",
    ]


def test_R_B10_fused_operations_are_passed_until_aligned_again(tmp_path):
    def call(op, *shape):
        return [(f"Torch_{op}_forward_input.0", ramp(*shape)),
                (f"Torch_{op}_forward_output", ramp(*shape))]  # fmt: skip

    npu = call("op_0", 2) + call("op_1", 3) + call("op_2", 4) + call("op_3", 5)
    bench = call("op_0", 2) + call("op_k", 6) + call("op_3", 5)
    rows = hooks_table(tmp_path, npu, bench, shape_flag=True)
    pairs = [(r["NPU Name"], r["Bench Name"]) for r in rows]
    assert ("6_Torch_op_3_forward_input.0", "4_Torch_op_3_forward_input.0") in pairs
    assert [n for n, b in pairs if b == "Nan"] == [
        "2_Torch_op_1_forward_input.0", "3_Torch_op_1_forward_output",
        "4_Torch_op_2_forward_input.0", "5_Torch_op_2_forward_output",
    ]  # fmt: skip
    assert [b for n, b in pairs if n == "Nan"] == [
        "2_Torch_op_k_forward_input.0", "3_Torch_op_k_forward_output",
    ]  # fmt: skip


def test_R_B11_shapes_count_with_shape_flag_and_dtypes_never(tmp_path):
    npu, bench = one_call(ramp(2, 3)), one_call(ramp(3, 3))
    matched = hooks_table(tmp_path, npu, bench)
    assert [matched[1][c] for c in HOOKS_COLUMNS[6:]] == ["cannot be calculated"] * 3
    apart = hooks_table(tmp_path, npu, bench, shape_flag=True)
    assert len(apart) == 4 and all("Nan" in (r["NPU Name"], r["Bench Name"]) for r in apart)
    half = hooks_table(tmp_path, one_call(ramp(4, dtype=np.float16)), one_call(ramp(4)),
                       shape_flag=True)  # fmt: skip
    assert half[1]["NPU Tensor Dtype"] == "torch.float16"
    assert half[1]["Bench Tensor Dtype"] == "torch.float32"


def test_R_B12_nine_columns_and_the_bench_is_right(tmp_path):
    rows = hooks_table(tmp_path, one_call(ramp(4) * 2), one_call(ramp(4)))
    assert list(rows[0])[:9] == HOOKS_COLUMNS
    assert rows[1]["MAPE"] == "100.0000%"
    assert hooks_table(tmp_path, one_call(ramp(4)), one_call(ramp(4) * 2))[1]["MAPE"] == "50.0000%"


@pytest.mark.parametrize(("npu", "bench", "plain", "half"), [
    ([1, 2], [1, 2], 1.0, 1.0), ([1, 2], [-1, -2], -1.0, 0.0), ([1, 0], [0, 1], 0.0, 0.5),
    ([0, 0], [1, 2], math.nan, math.nan), ([0, 0], [0, 0], math.nan, math.nan),
])  # fmt: skip
def test_R_B13_cosine(npu, bench, plain, half, tmp_path):
    npu, bench = (one_call(np.array(v, np.float32)) for v in (npu, bench))
    for option, value in ((False, plain), (True, half)):
        (_, row) = hooks_table(tmp_path, npu, bench, half_cosine=option)
        assert float(row["Cosine"]) == pytest.approx(value, nan_ok=True)


def test_R_B14_rmse(tmp_path):
    npu, bench = one_call(np.zeros(2, np.float32)), one_call(np.array([3, 4], np.float32))
    assert float(hooks_table(tmp_path, npu, bench)[1]["RMSE"]) == pytest.approx(3.5355, abs=1e-4)


def test_R_B15_mape_of_zeros_is_no_number(tmp_path):
    some, zeros = one_call(np.ones(2, np.float32)), one_call(np.zeros(2, np.float32))
    assert hooks_table(tmp_path, some, zeros)[1]["MAPE"] == "inf"
    assert hooks_table(tmp_path, zeros, zeros)[1]["MAPE"] == "nan"
    quarter = one_call(np.array([1.25, 1], np.float32))
    assert hooks_table(tmp_path, quarter, some)[1]["MAPE"] == "12.5000%"


def test_R_B20_both_spellings_and_the_script(tmp_path, capsys, monkeypatch):
    a = write_hooks(tmp_path / "a.pkl", one_call(ramp(30)))
    monkeypatch.chdir(tmp_path)
    for keys in (("pkl_path1", "pkl_path2"), ("npu_pkl_path", "bench_pkl_path")):
        compare_hooks(**dict.fromkeys(keys, str(a)), output_path="r.csv")
        header, rows = read_table("r.csv")
        assert header[:9] == HOOKS_COLUMNS and rows[0]["Cosine"] == "1.0"
    assert hooks_main(["--npu_pkl", str(a), "--bench_pkl", str(a), "--out_path", "s.csv",
                       "--shape"]) == 0  # fmt: skip
    assert read_table("s.csv") == read_table("r.csv")
    assert hooks_main(["--npu_pkl", "no.pkl", "--bench_pkl", str(a), "--out_path", "t.csv"]) == 1
    assert "no.pkl" in capsys.readouterr().err


def test_R_B23_a_line_is_a_list_of_four(tmp_path, msprobe_bin):
    path = write_hooks(tmp_path / "a.pkl", one_call(ramp(2, 15)))
    name, data, dtype, size = json.loads(path.read_text().splitlines()[0])
    assert (name, len(data), dtype, size) == (
        "0_Torch_add_forward_input.0", 6, "torch.float32", [3],
    )  # fmt: skip
    shown = subprocess.run([msprobe_bin, "show", path], capture_output=True, text=True, check=True)
    assert "torch_npu.hooks" in shown.stdout and "[2, 15]" in shown.stdout

"""Problems of ptdbg_ascend users with comparisons, and rules for all older tools."""

import math

import pytest
from composed_dumps import (
    code_of,
    first_dumps,
    hooks_table,
    net,
    one_call,
    paths,
    ramp,
    result,
    write_first,
    write_later,
)

from msprobe.compat.hooks_compare import compare as compare_hooks
from ptdbg_ascend import compare, compare_distributed, parse


def test_R_C_Q4_calls_that_do_not_align_are_listed_on_both_sides(tmp_path, out):
    npu, bench = net(), net()
    npu.insert(1, ("Tensor_exp_forward", {"input.0": ramp(9), "output": ramp(9)}))
    bench.append(("Torch_sum_forward", {"input.0": ramp(8), "output": ramp(1)}))
    compare(paths(write_later(tmp_path / "a" / "dump.pkl", npu),
                  write_later(tmp_path / "b" / "dump.pkl", bench)), str(out))  # fmt: skip
    rows = result(out)[1]
    alone = [
        (r["NPU Name"], r["Bench Name"]) for r in rows if "Nan" in (r["NPU Name"], r["Bench Name"])
    ]
    assert ("Tensor_exp_0_forward_output", "Nan") in alone
    assert ("Nan", "Torch_sum_0_forward_output") in alone
    messages = {r["Err_message"] for r in rows} - {""}
    assert {"No bench data matched.", "No NPU data matched."} <= messages


BROKEN = (
    '["0_Torch_add_forward_stack_info", [["/w/net.py", "18", "forward", "z = x + y"]]]'
    '["0_Torch_add_forward_stack_info.0", ["/w/net.py", "18", "forward", "z = x + y"]]'
    '["0_Torch_add_forward_stack_info.0.0", "/w/net.py"]\n'
    '["0_Torch_add_forward_input.0", 1, [], "torch.float32", [2], [1.0, 0.5, 0.75]]'
    '["0_Torch_add_forward_output", 1, [], "torch.float32", [2], [1.0, 0.5, 0.75]]\n'
    '["1_Torch_mul_forward_output", 1, [], "torch.fl\n'
    '["2_Torch_sub_forward_output", 1, [], "torch.float32", [2], [1.0, 0.5, 0.75]]\n'
)


def test_R_C_E5_broken_lines_cost_themselves(tmp_path, out, capfd):
    path = tmp_path / "d.pkl"
    path.write_text(BROKEN)
    with pytest.warns(UserWarning, match="line 3"):
        parse(str(path), "0_Torch")
    printed = capfd.readouterr().out
    assert printed.count("Trace back") == 1 and "z = x + y" in printed
    assert printed.count("[max: 1.0]") == 2
    compare({"npu_pkl_path": str(path), "bench_pkl_path": str(path)}, str(out))
    assert [r["NPU Name"] for r in result(out)[1]] == [
        "0_Torch_add_forward_input.0", "0_Torch_add_forward_output", "2_Torch_sub_forward_output",
    ]  # fmt: skip
    assert "line 3" in capfd.readouterr().out


def test_R_C_E7_nested_arguments_have_a_path(tmp_path, out):
    lstm = [("VF_lstm_forward", {"input.0": ramp(3), "input.1.0": ramp(2), "input.1.1": ramp(2),
                                 "output.0": ramp(3)})]  # fmt: skip
    dumps = [write_later(tmp_path / s / "dump.pkl", lstm) for s in "ab"]
    assert (dumps[0][1] / "VF_lstm_0_forward_input.1.0.npy").exists()
    compare(paths(*dumps), str(out))
    assert [r["Bench Name"] for r in result(out)[1]][1:3] == [
        "VF_lstm_0_forward_input.1.0",
        "VF_lstm_0_forward_input.1.1",
    ]


def test_R_C_E9_stacks_are_seen_in_the_file_whatever_it_is_called(tmp_path):
    tables = []
    for mode, name in ((False, "api_stack_dump.pkl"), (True, "dump.pkl"), (True, "range_dump.pkl")):
        dumps = [write_later(tmp_path / name / s / name, net(), stacks=True) for s in "ab"]
        folder = tmp_path / f"out_{name}"
        folder.mkdir()
        compare({**paths(*dumps), "is_print_compare_log": False}, str(folder), stack_mode=mode)
        tables.append(result(folder))
    assert tables[0] == tables[1] == tables[2]
    frame = "['/w/net.py', '18', 'forward', 'y = F.relu(x)']"
    assert tables[0][1][0]["NPU_Stack_Info"].startswith(f"[{frame}, ")


def test_R_C_E14_the_dtype_of_the_file_is_that_of_the_line(tmp_path, out):
    path, folder = write_later(tmp_path / "dump.pkl", [("Torch_add_forward", {"output": ramp(4)})])
    path.write_text(path.read_text().replace("torch.float32", "torch.bfloat16"))
    compare(paths((path, folder), (path, folder)), str(out))
    (row,) = result(out)[1]
    assert row["NPU Tensor Dtype"] == "torch.bfloat16" and row["Cosine"] == "1.0"


def test_R_X01_the_dialect_is_told_from_the_content(tmp_path, out):
    npu = write_first(tmp_path / "ptdbg_dump_v3.0" / "rank0" / "api_stack_dump.pkl", net())
    bench = write_later(tmp_path / "ptdbg_dump_v0.1" / "rank0" / "npu_dump.pkl", net())
    compare(paths(npu, bench), str(out))
    rows = result(out)[1]
    assert [r["Bench Name"] for r in rows if r["NPU Name"] == "1_Torch_mul_forward_output"] == [
        "Torch_mul_0_forward_output"
    ]


def test_R_X03_backward_labels_are_made_one(tmp_path, out):
    x, g = ramp(6), ramp(6, scale=7)
    # In backward, 0.1 names the result of a call "input"; later versions name it "output".
    old = write_first(tmp_path / "a.pkl", [
        ("Functional_relu_forward", {"input.0": x, "output": x}),
        ("Functional_relu_backward", {"input.0": x, "output.0": g}),
    ])  # fmt: skip
    new = write_later(tmp_path / "b.pkl", [
        ("Functional_relu_forward", {"input.0": x, "output": x}),
        ("Functional_relu_backward", {"input.0": g, "output.0": x}),
    ])  # fmt: skip
    compare(paths(old, new), str(out))
    pairs = {r["NPU Name"]: r for r in result(out)[1]}
    produced = pairs["1_Functional_relu_backward_input.0"]
    assert produced["Bench Name"] == "Functional_relu_0_backward_output.0"
    assert produced["Cosine"] == "1.0"


def test_R_X05_names_with_input_and_output_in_them_are_calls_like_others(tmp_path, out):
    calls = [
        ("Torch_input_of_output_forward", {"input.0": ramp(3), "output": ramp(3)}),
        ("Torch_output_only_forward", {"output.0": ramp(4), "output.1": ramp(5)}),
        ("Torch_no_output_forward", {"input.0": ramp(6)}),
        ("Torch_add_forward", {"input.0": ramp(7), "output": ramp(7)}),
        ("Torch_last_forward", {"input.0": ramp(8)}),
    ]
    other = [calls[0], calls[1], calls[3], calls[4]]
    compare(paths(write_first(tmp_path / "a.pkl", calls), write_first(tmp_path / "b.pkl", other)),
            str(out))  # fmt: skip
    rows = result(out)[1]
    assert [r["NPU Name"] for r in rows if r["Bench Name"] == "Nan"] == [
        "2_Torch_no_output_forward_input.0"
    ]
    assert rows[-1]["Bench Name"] == "3_Torch_last_forward_input.0"


@pytest.mark.parametrize("writer", [write_first, write_later])
@pytest.mark.parametrize("both", [True, False])
def test_R_X06_nan_is_never_equal(writer, both, tmp_path, out):
    bad = ramp(6).copy()
    bad[2] = math.nan
    name = "Torch_log_forward"
    npu = writer(tmp_path / "a.pkl", [(name, {"output": bad})])
    bench = writer(tmp_path / "b.pkl", [(name, {"output": bad if both else ramp(6)})])
    compare(paths(npu, bench), str(out))
    (row,) = result(out)[1]
    assert row.get("Accuracy Reached or Not", "none") != "Yes"
    assert row["Verdict"] in ("unknown", "differs")
    if writer is write_first:
        assert row["MaxAbsErr"] == row["Cosine"] == "NaN"
    folder = tmp_path / "statistics"
    folder.mkdir()
    compare({k: v for k, v in paths(npu, bench).items() if "pkl" in k}, str(folder))
    (row,) = result(folder)[1]
    assert row.get("Result", "Nan") != "" and row["NPU max"] == "nan"


def test_R_X06_nan_in_the_lines_of_hooks(tmp_path):
    bad = ramp(3).copy()
    bad[0] = math.nan
    row = hooks_table(tmp_path, one_call(bad), one_call(ramp(3)))[1]
    assert row["Cosine"] == row["RMSE"] == row["MAPE"] == "nan"


def test_R_X07_errors_are_exceptions_with_the_older_codes(tmp_path, out):
    npu, bench = first_dumps(tmp_path)
    good = paths(npu, bench)
    assert code_of(compare, "dump.pkl", str(out)) == 11
    assert code_of(compare, {"npu_pkl_path": str(npu[0])}, str(out)) == 11
    assert code_of(compare, {**good, "npu_pkl_path": 7}, str(out)) == 11
    assert code_of(compare, {**good, "npu_pkl_path": "nothing.pkl"}, str(out)) == 1
    assert code_of(compare, {**good, "npu_dump_data_dir": "nowhere"}, str(out)) == 1
    assert code_of(compare, good, str(npu[0])) == 1
    assert code_of(compare, good, None) == 11
    assert code_of(compare, good, str(out), True, True, "", 4) == 11
    assert code_of(compare, good, str(out), suffix="a/../../b") == 11
    damaged = tmp_path / "damaged.pkl"
    damaged.write_text("[[[\n")
    assert code_of(compare, {**good, "bench_pkl_path": str(damaged)}, str(out)) == 6
    assert code_of(parse, str(damaged), "0_") == 6
    assert code_of(parse, str(npu[0]), 7) == 11
    assert code_of(parse, "nothing.pkl", "0_") == 1
    assert code_of(compare_hooks, str(npu[0]), str(bench[0]), str(tmp_path / "no" / "r.csv")) == 1
    assert code_of(compare_hooks, str(npu[0]), None, "r.csv") == 11
    assert code_of(compare_distributed, str(tmp_path), "nowhere", str(out)) == 1
    assert not list(out.iterdir()), "what failed left nothing"
    with pytest.warns(UserWarning, match="colour"):
        compare(good, str(out), colour=True)

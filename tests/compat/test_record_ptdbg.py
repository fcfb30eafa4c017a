"""Recording with ptdbg_ascend 0.1. Names of tests contain the ids of requirements."""

import glob
import os
import re

import numpy as np
import pytest
import torch
from older_scripts import (
    RANK0,
    X,
    arrays,
    dump_counted,
    dump_numbered,
    error_of,
    files,
    line,
    names,
    net,
    read,
    run_in,
    train,
)
from torch.nn import functional as F

import ptdbg_ascend as ptdbg

CALLS = [
    "0_Functional_linear_forward",
    "1_Functional_relu_forward",
    "2_Functional_linear_forward",
    "3_Tensor_sum_forward",
    "4_Tensor_sum_backward",
    "5_Functional_linear_backward",
    "6_Functional_relu_backward",
    "7_Functional_linear_backward",
]


def calls(path):
    """The name of each call once, in the order of the file."""
    found = [re.sub(r"_(input|output|stack_info)[.\d]*$", "", name) for name in names(path, True)]
    return list(dict.fromkeys(found))


def data_folder(path):
    (folder,) = path.parent.glob(f"{path.stem}_*_*")
    return folder


def test_R_A15_a_pkl_is_a_file_and_anything_else_a_folder(tmp_path):
    (tmp_path / "d").mkdir()
    run_in(tmp_path, dump_numbered, "./d/npu_dump.pkl")
    assert calls(tmp_path / "d" / "npu_dump.pkl") == CALLS
    run_in(tmp_path / "2", dump_counted, "d")
    assert (tmp_path / "2" / "d" / RANK0 / "dump.pkl").is_file()


def test_R_A16_nothing_is_dumped_before_the_switch_is_on(tmp_path):
    def program():
        ptdbg.set_dump_path("npu_dump.pkl")
        model = net()
        ptdbg.register_hook(model, ptdbg.acc_cmp_dump)
        train(model)
        return error_of(ptdbg.set_dump_switch, "on"), error_of(ptdbg.set_dump_switch, 1)

    (word, number), _ = run_in(tmp_path, program)
    assert files(tmp_path) == []
    assert "AssertionError" in word[0] and "ValueError" in word[0] and word[1] == 11
    assert word[2] == 'set_dump_switch: expected "ON" or "OFF", found \'on\''
    assert "found 1" in number[2]


def test_R_A17_seed_all(tmp_path):
    def program():
        numbers = []
        for arguments in ((), (1234,), (5,)):
            ptdbg.seed_all(*arguments)
            numbers.append((torch.rand(1).item(), np.random.rand(), os.environ["PYTHONHASHSEED"]))
        return numbers

    (default, same, other), _ = run_in(tmp_path, program)
    assert default == same and default[2] == "1234" and other[:2] != same[:2]


def test_R_A18_register_hook_returns_none_and_works_without_an_npu(tmp_path):
    def program():
        model = net()
        result = ptdbg.register_hook(model, ptdbg.acc_cmp_dump)
        return result, model(X).shape

    assert run_in(tmp_path, program)[0] == (None, (5, 2))


def test_R_A21_seed_and_path_first_or_late_two_runs_are_equal(tmp_path):
    def program(late):
        model = net()
        if late:
            ptdbg.register_hook(model, ptdbg.acc_cmp_dump)
        ptdbg.seed_all()
        ptdbg.set_dump_path("npu_dump.pkl")
        if not late:
            ptdbg.register_hook(model, ptdbg.acc_cmp_dump)
        ptdbg.set_dump_switch("ON")
        train(model, torch.rand(5, 4))
        ptdbg.set_dump_switch("OFF")

    texts = []
    for index, late in enumerate((False, False, True)):
        run_in(tmp_path / str(index), program, late)
        texts.append((tmp_path / str(index) / "npu_dump.pkl").read_bytes())
    assert texts[0] == texts[1] == texts[2] != b""


def test_R_A22_statistics_are_of_the_whole_tensor(tmp_path):
    x = torch.linspace(-3, 2, 4000).reshape(1000, 4)
    x[500, 0], x[501, 0] = 70, -70  # these elements are not in the sample
    run_in(tmp_path, dump_numbered, "npu_dump.pkl", None, 100, x)
    path = tmp_path / "npu_dump.pkl"
    _, step, digest, dtype, shape, statistics = line(path, "0_Functional_linear_forward_input.0")
    assert (step, digest, dtype, shape) == (100, [], "torch.float32", [1000, 4])
    assert statistics == pytest.approx([70, -70, x.double().mean().item()])
    kept = arrays(data_folder(path))["0_Functional_linear_forward_input.0"]
    assert kept.max() < 70 and kept.size == 512 + -(-(4000 - 512) // 100)


@pytest.mark.parametrize(
    "switch, wanted",
    [
        ({"mode": 2, "scope": [CALLS[1], CALLS[5]]}, [CALLS[1], CALLS[5]]),
        ({"mode": 3, "scope": [CALLS[1], CALLS[2]]}, CALLS[1:3]),
    ],
)
def test_R_A23_a_second_run_dumps_what_the_first_has_named(switch, wanted, tmp_path):
    run_in(tmp_path, dump_numbered)
    first = tmp_path / "npu_dump.pkl"
    assert calls(first) == CALLS
    run_in(tmp_path, lambda: dump_numbered("scope.pkl", **switch))
    second = tmp_path / "scope.pkl"
    assert calls(second) == wanted
    of_first = {each[0]: each for each in read(first)}
    for each in read(second):
        assert each[0].endswith("_stack_info") or each == of_first[each[0]]
    whole = arrays(data_folder(first))
    for name, array in arrays(data_folder(second)).items():
        np.testing.assert_array_equal(array, whole[name])


@pytest.mark.parametrize(
    "scope, wanted",
    [
        (["0_Functional_linear"], [CALLS[0]]),
        ([1, 6], [CALLS[1], CALLS[6]]),
        ([1, "7_Functional_linear_backward"], [CALLS[1], CALLS[7]]),
        (["0_Functional", "2_Functional", "1_Torch_relu"], [CALLS[0], CALLS[2]]),
    ],
)
def test_R_A24_list(scope, wanted, tmp_path):
    run_in(tmp_path, lambda: dump_numbered(mode=2, scope=scope))
    assert calls(tmp_path / "npu_dump.pkl") == wanted


@pytest.mark.parametrize(
    "scope, wanted",
    [
        (["1_Functional_relu", "3_Tensor_sum_forward"], CALLS[1:4]),
        (["1_x", "3_y"], CALLS[1:4]),
        ([2, 5], CALLS[2:6]),
        ([4, 4], CALLS[4:5]),
        ([6, 100], CALLS[6:]),
    ],
)
def test_R_A25_range_of_numbers_both_ends_included(scope, wanted, tmp_path):
    run_in(tmp_path, lambda: dump_numbered(mode=3, scope=scope))
    assert calls(tmp_path / "npu_dump.pkl") == wanted


@pytest.mark.parametrize(
    "scope, wanted", [((), CALLS), (["1_Func"], CALLS[1:2]), ([1, 2], CALLS[1:3])]
)
def test_R_A26_stack_mode_keeps_stacks_only(scope, wanted, tmp_path):
    run_in(tmp_path, lambda: dump_numbered(mode=4, scope=scope))
    path = tmp_path / "npu_dump.pkl"
    assert all(each[0].endswith("_stack_info") and len(each) == 2 for each in read(path))
    assert calls(path) == wanted
    assert glob.glob(str(tmp_path / "**" / "*.npy"), recursive=True) == []


def test_R_A27_lines_and_an_array_for_each(tmp_path):
    run_in(tmp_path, dump_numbered)
    path = tmp_path / "npu_dump.pkl"
    folder = data_folder(path)
    assert re.fullmatch(r"npu_dump_\d{8}_\d{6}", folder.name)
    kept = arrays(folder)
    assert sorted(kept) == sorted(names(path))
    for name, _, _, dtype, shape, (largest, least, mean) in read(path):
        array = kept[name]
        assert array.dtype == np.float64 and array.ndim == 1 and dtype == "torch.float32"
        assert array.size == np.prod(shape)
        assert [largest, least, mean] == pytest.approx([array.max(), array.min(), array.mean()])


@pytest.mark.parametrize("switch", [{"mode": 2, "scope": ["1_"]}, {"mode": 3, "scope": [1, 2]}])
def test_R_A28_scoped_dumps_say_where_calls_were_made(switch, tmp_path):
    run_in(tmp_path, lambda: dump_numbered(**switch))
    first = read(tmp_path / "npu_dump.pkl")[0]
    assert first[0] == "1_Functional_relu_forward_stack_info"
    file, number, function, source = first[1][0]
    assert (
        os.path.basename(file) == "older_scripts.py" and function == "forward" and number.isdigit()
    )
    assert source == "return self.second(F.relu(self.first(x)))"


def test_R_A32_a_star_import_has_every_name():
    namespace = {}
    exec("from ptdbg_ascend import *", namespace)
    wanted = """register_hook set_dump_path set_dump_switch seed_all acc_cmp_dump overflow_check
        compare parse set_overflow_check_switch set_backward_input compare_distributed
        PrecisionDebugger module_dump module_dump_end"""
    assert [name for name in wanted.split() if not callable(namespace.get(name))] == []


@pytest.mark.parametrize("path", ["npu_dump.pkl", "dump"])
def test_R_A33_a_relative_path_is_of_the_folder_where_it_was_named(path, tmp_path):
    def program():
        ptdbg.set_dump_path(f"./{path}")
        os.mkdir("elsewhere")
        os.chdir("elsewhere")
        model = net()
        ptdbg.register_hook(model, ptdbg.acc_cmp_dump)
        ptdbg.set_dump_switch("ON")
        train(model)
        ptdbg.set_dump_switch("OFF")

    run_in(tmp_path, program)
    assert (tmp_path / path).exists() and files(tmp_path / "elsewhere") == []


@pytest.mark.parametrize("size, step, kept", [(520, 2, 516), (512, 9, 512), (513, 100, 513)])
def test_R_A34_both_ends_and_each_nth_of_the_middle(size, step, kept, tmp_path):
    x = torch.arange(size, dtype=torch.float32)

    def program():
        ptdbg.set_dump_path("npu_dump.pkl")
        ptdbg.register_hook(net(), ptdbg.acc_cmp_dump, dump_step=step)
        ptdbg.set_dump_switch("ON")
        F.relu(x)
        ptdbg.set_dump_switch("OFF")

    run_in(tmp_path, program)
    array = arrays(data_folder(tmp_path / "npu_dump.pkl"))["0_Functional_relu_forward_input.0"]
    numbers = list(range(size))
    wanted = numbers if size <= 512 else numbers[:256] + numbers[256:-256:step] + numbers[-256:]
    assert array.tolist() == wanted and array.size == kept


@pytest.mark.parametrize("step", [0, 101, -1, 1.5, "2", True, None])
def test_R_A34_other_steps_are_refused_at_registration(step, tmp_path):
    error, _ = run_in(
        tmp_path, lambda: error_of(ptdbg.register_hook, net(), ptdbg.acc_cmp_dump, dump_step=step)
    )
    types, code, text = error
    assert "CompareException" in types and code == 12
    assert "from 1 to 100" in text and repr(step) in text


def test_R_A35_the_wanted_steps_only_and_each_from_0(tmp_path):
    def program():
        model = net()
        ptdbg.set_dump_path("npu_dump.pkl")
        ptdbg.register_hook(model, ptdbg.acc_cmp_dump)
        for step in range(5):
            if step in (1, 3):
                ptdbg.set_dump_switch("ON")
            train(model)
            ptdbg.set_dump_switch("OFF")

    run_in(tmp_path, program)
    written = [
        re.sub(r"_(input|output)[.\d]*$", "", each) for each in names(tmp_path / "npu_dump.pkl")
    ]
    again = list(dict.fromkeys(written[: len(written) // 2]))
    assert again == CALLS and written[: len(written) // 2] == written[len(written) // 2 :]
    assert len([*tmp_path.glob("npu_dump_*")]) == 2  # one data folder for each run


def test_R_A37_another_path_keeps_the_first_dump(tmp_path):
    def program(second):
        dump_numbered("npu_dump.pkl")
        before = (tmp_path / "npu_dump.pkl").read_bytes()
        dump_numbered(second)
        return before == (tmp_path / "npu_dump.pkl").read_bytes()

    kept, said = run_in(tmp_path, program, "npu_dump_scope.pkl")
    assert kept and calls(tmp_path / "npu_dump_scope.pkl") == CALLS and "overwritten" not in said


def test_R_A37_the_same_file_is_overwritten_with_a_notice(tmp_path):
    def program():
        dump_numbered("npu_dump.pkl")
        dump_numbered("npu_dump.pkl", mode=2, scope=[1])

    _, said = run_in(tmp_path, program)
    assert "npu_dump.pkl held an earlier dump, which is overwritten" in said
    assert calls(tmp_path / "npu_dump.pkl") == [CALLS[1]]
    folders = sorted(tmp_path.glob("npu_dump_*"))  # the arrays of the first run still exist
    assert [len(arrays(folder)) for folder in folders] == [21, 2]


def test_R_A39_a_call_can_be_made_again_from_its_record(tmp_path):
    run_in(tmp_path, dump_numbered)
    path = tmp_path / "npu_dump.pkl"
    kept = arrays(data_folder(path))

    def tensor(name):
        _, _, _, dtype, shape, _ = line(path, name)
        values = torch.from_numpy(kept[name]).reshape(shape)
        return values.to(getattr(torch, dtype.removeprefix("torch.")))

    relu, linear = CALLS[1], CALLS[2]
    assert torch.equal(F.relu(tensor(f"{relu}_input.0")), tensor(f"{relu}_output"))
    given = [tensor(f"{linear}_input.{i}") for i in range(3)]
    assert torch.allclose(F.linear(*given), tensor(f"{linear}_output"))

"""Recording with torch_npu.hooks. Names of tests contain the ids of requirements."""

import json
import os
import re
import subprocess
import sys
from importlib import import_module

import numpy as np
import pytest
import torch
from older_scripts import X, dump_numbered, error_of, files, names, net, read, run_in, train
from torch.utils.data import DataLoader

# linear (its input has no gradient), relu, linear, sum.
FORWARD = [
    "0_Functional_linear_forward_input.0",
    "1_Functional_linear_forward_input.1",
    "2_Functional_linear_forward_input.2",
    "3_Functional_linear_forward_output",
    "4_Functional_relu_forward_input.0",
    "5_Functional_relu_forward_output",
]


def hooks():
    return import_module("torch_npu.hooks")


def dump(path="cpu.pkl", model=None, steps=1, **registration):
    model = model or net()
    hooks().register_hook(model, hooks().wrap_acc_cmp_hook, **registration)
    hooks().set_dump_path(path)
    for _ in range(steps):
        train(model)


def test_R_B02_files_of_both_front_ends_are_compared(tmp_path, msprobe_bin):
    run_in(tmp_path, lambda: dump("hooks.pkl", sample=False))
    run_in(tmp_path, dump_numbered, "numbered.pkl")
    done = subprocess.run(
        [msprobe_bin, "compare", "-tp", "hooks.pkl", "-gp", "numbered.pkl", "--format", "json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["verdict"] == "equal", done.stdout


def test_R_B04_workers_of_a_data_loader_record_nothing(tmp_path):
    def program(workers):
        model = net()
        hooks().register_hook(model, hooks().wrap_acc_cmp_hook)
        hooks().set_dump_path("cpu.pkl")
        for rows in DataLoader(_Rows(), batch_size=2, num_workers=workers):
            train(model, rows)

    for workers in (0, 2):
        run_in(tmp_path / str(workers), program, workers)
    texts = [_kinds(tmp_path / str(workers) / "cpu.pkl") for workers in (0, 2)]
    assert any("Tensor___mul__" in name for name in texts[0])  # this process loads the data
    assert [name for name in texts[0] if "___mul__" not in name] == texts[1]


class _Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        return X[index] * 2


def _kinds(path):
    """The names in a file, without line numbers and without the calls of the data loader."""
    kinds = [re.sub(r"^\d+_", "", name) for name in names(path)]
    return [kind for kind in kinds if "stack" not in kind]


def test_R_B05_both_directions_with_inputs_and_outputs(tmp_path):
    run_in(tmp_path, dump)
    found = names(tmp_path / "cpu.pkl")
    assert found[:6] == FORWARD
    for direction in ("forward", "backward"):
        for side in ("input", "output"):
            assert any(f"relu_{direction}_{side}" in name for name in found)


def test_R_B06_ten_elements_and_three_statistics_or_all(tmp_path):
    for sample in (True, False):
        run_in(tmp_path / str(sample), lambda sample=sample: dump(sample=sample))
    sampled, whole = (read(tmp_path / str(sample) / "cpu.pkl") for sample in (True, False))
    assert [line[0] for line in sampled] == [line[0] for line in whole]
    for (name, kept, dtype, shape), (_, elements, *_) in zip(sampled, whole, strict=True):
        size = int(np.prod(shape))
        assert len(elements) == size and dtype == "torch.float32"
        assert len(kept) == min(10, size) + 3 and kept[:-3] == elements[:10], name
        wanted = [max(elements), min(elements), np.mean(elements)]
        assert kept[-3:] == pytest.approx(wanted, abs=1e-6)


def test_R_B16_the_names_and_where_they_stand(tmp_path):
    def program():
        from torch_npu.hooks import (  # noqa: F401
            register_hook,
            schedule,
            seed_all,
            set_dump_path,
            step_schedule,
            wrap_acc_cmp_hook,
            wrap_async_datadump_hook,
            wrap_checkoverflow_hook,
        )
        from torch_npu.hooks.hooks import wrap_acc_cmp_hook as same
        from torch_npu.hooks.tools import compare

        return same is wrap_acc_cmp_hook, callable(compare), "torch_npu" in sys.modules

    assert run_in(tmp_path, program)[0] == (True, True, False)


def test_R_B17_seed_all_returns_none(tmp_path):
    def program():
        numbers = []
        for arguments in ((), (1234,), (7,)):
            assert hooks().seed_all(*arguments) is None
            numbers.append((torch.rand(1).item(), np.random.rand()))
        return numbers

    default, same, other = run_in(tmp_path, program)[0]
    assert default == same != other


def test_R_B18_set_dump_path_wants_a_file(tmp_path):
    def program():
        os.mkdir("folder")
        paths = [None, "folder", "absent/cpu.pkl", 3]
        errors = [error_of(hooks().set_dump_path, path) for path in paths]
        return [error_of(hooks().set_dump_path), *errors, hooks().set_dump_path("cpu.pkl")]

    nothing, none, folder, absent, number, result = run_in(tmp_path, program)[0]
    assert result is None and nothing == none
    for types, _, text in (none, folder, absent, number):
        assert "RuntimeError" in types and text.startswith("set_dump_path: ")
    assert "found None" in none[2] and "the folder" in folder[2] and "create it first" in absent[2]


@pytest.mark.parametrize("registration", [{}, {"sample": False}, {"sample": True}])
def test_R_B19_the_calls_of_the_guide(registration, tmp_path):
    run_in(tmp_path, lambda: dump(**registration))
    assert len(read(tmp_path / "cpu.pkl")[0][1]) == (
        20 if registration.get("sample") is False else 13
    )


def test_R_B21_a_file_for_each_run_in_one_process(tmp_path):
    def program():
        model = net()
        hooks().register_hook(model, hooks().wrap_acc_cmp_hook)
        hooks().set_dump_path("first.pkl")
        train(model)
        first = (tmp_path / "first.pkl").read_bytes()
        hooks().set_dump_path("second.pkl")
        assert (tmp_path / "first.pkl").read_bytes() == first  # the first file was complete
        train(model)
        from torch_npu.hooks.tools import compare

        compare("second.pkl", "first.pkl", "result.csv")

    run_in(tmp_path, program)
    first, second = (names(tmp_path / f"{which}.pkl") for which in ("first", "second"))
    assert first == second and first[:6] == FORWARD
    assert len((tmp_path / "result.csv").read_text().splitlines()) == 1 + len(first)


def test_R_B22_two_registrations_do_not_record_twice(tmp_path):
    def program(models):
        all_models = [net() for _ in range(2)]
        for model in all_models[:models]:
            hooks().register_hook(model, hooks().wrap_acc_cmp_hook)
        hooks().set_dump_path("cpu.pkl")
        train(all_models[0])

    for models in (1, 2):
        run_in(tmp_path / str(models), program, models)
    assert read(tmp_path / "1" / "cpu.pkl") == read(tmp_path / "2" / "cpu.pkl") != []


def test_R_B23_a_line_is_name_data_dtype_size(tmp_path):
    run_in(tmp_path, lambda: dump(sample=False))
    with open(tmp_path / "cpu.pkl") as pkl_file:
        tensor_data = json.loads(pkl_file.readline())
    name, data, dtype, size = tensor_data
    assert (name, dtype, size) == (FORWARD[0], "torch.float32", [5, 4])
    assert torch.equal(torch.tensor(data), X.flatten())


@pytest.mark.parametrize(
    "arguments, wanted",
    [
        ({}, list(range(20))),
        ({"begin": 4, "end": 10, "stride": 2}, [4, 6, 8, 10]),
        ({"begin": 5, "stride": 3}, [5, 8, 11, 14, 17]),
        ({"end": 10, "stride": 3}, [0, 3, 6, 9]),
        ({"begin": 1, "end": 2}, [1, 2]),
    ],
)
def test_R_B24_schedule(arguments, wanted, tmp_path):
    def program():
        wants = hooks().schedule(**arguments)
        return [step for step in range(20) if wants(step)]

    assert run_in(tmp_path, program)[0] == wanted


@pytest.mark.parametrize("arguments", [(-1,), (0, -1), (0, 5, 0), (0, 5, -1), (6, 5)])
def test_R_B24_an_impossible_schedule(arguments, tmp_path):
    types, _, text = run_in(tmp_path, lambda: error_of(hooks().schedule, *arguments))[0]
    assert "RuntimeError" in types and text.startswith("Illegal Argument")


def test_R_B25_step_schedule_counts(tmp_path):
    def program():
        steps = hooks().step_schedule
        counts = [steps.step_num]
        steps.step()
        steps.step()
        counts.append(steps.step_num)
        steps.reset_step()
        from torch_npu.hooks import step_schedule

        return [*counts, step_schedule.step_num, step_schedule is steps]

    assert run_in(tmp_path, program)[0] == [0, 2, 0, True]


def test_R_B26_wanted_steps_of_each_epoch(tmp_path):
    def program():
        model, steps = net(), hooks().step_schedule
        hooks().register_hook(model, hooks().wrap_acc_cmp_hook, schedule=hooks().schedule(4, 10, 2))
        hooks().set_dump_path("cpu.pkl")
        for _ in range(2):
            steps.reset_step()
            for _ in range(12):
                train(model)
                steps.step()

    run_in(tmp_path, program)
    run_in(tmp_path / "one", dump)
    found = names(tmp_path / "cpu.pkl")
    assert len(found) == 2 * 4 * len(names(tmp_path / "one" / "cpu.pkl"))
    assert [int(name.split("_")[0]) for name in found] == list(range(len(found)))


ASYNC_NAME = re.compile(
    r"(\d+)_([A-Z][A-Za-z]*)_(.+)_(forward|backward)_(input|output)(\d+)"
    r"_shape\[([\d,]*)\]_stride\[([\d,]*)\]_offset\[(\d+)\]_format\[(\d+)\]\.npy"
)


def dump_arrays(model=None, x=None, steps=1, **registration):
    model = model or net()
    registration = {"path": "./output", **registration}
    hooks().register_hook(model, hooks().wrap_async_datadump_hook, **registration)
    for _ in range(steps):
        train(model, x)
        hooks().step_schedule.step()


@pytest.mark.parametrize("budget", ["0", "64"])
def test_R_B27_what_waits_is_written_before_the_program_ends(budget, tmp_path, monkeypatch):
    """On every device: the tensors are copied, and a thread writes them."""
    monkeypatch.setenv("MSPROBE_TENSOR_BUDGET_MB", budget)
    program = (
        "import torch; from torch_npu.hooks import *; m = torch.nn.Linear(300, 300);"
        "register_hook(m, wrap_async_datadump_hook, path='./output');"
        "[m(torch.ones(300, 300)).sum().backward() for _ in range(5)]"
    )
    # A process of its own: its end is what is tested, and a fork ends without one.
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True)
    assert done.returncode == 0, done.stderr
    found = [ASYNC_NAME.fullmatch(name) for name in os.listdir(tmp_path / "output")]
    assert all(found)
    linears = [match for match in found if match[3] == "linear" and match[4] == "forward"]
    assert len(linears) == 5 * 4
    for path in (tmp_path / "output").iterdir():
        np.load(path)


def test_R_B28_names_say_how_the_memory_is_laid_out(tmp_path):
    x = torch.arange(6.0).reshape(2, 3).t()

    def program():
        hooks().register_hook(net(), hooks().wrap_async_datadump_hook, path="output")
        torch.relu(x)

    run_in(tmp_path, program)
    given, made = sorted((tmp_path / "output").iterdir(), key=lambda path: path.name)
    assert (
        given.name == "0_Torch_relu_forward_input0_shape[3,2]_stride[1,3]_offset[0]_format[2].npy"
    )
    index, *_, shape, stride, offset, _ = ASYNC_NAME.fullmatch(made.name).groups()
    assert (index, offset) == ("1", "0")
    for path in (given, made):
        *_, shape, stride, offset, _ = ASYNC_NAME.fullmatch(path.name).groups()
        shape, stride = ([int(n) for n in each.split(",")] for each in (shape, stride))
        memory = torch.from_numpy(np.load(path))
        logical = torch.as_strided(memory, shape, stride, int(offset))
        assert torch.equal(logical, x)


def test_R_B29_no_variable_is_needed(tmp_path):
    """The operator that needs RUNTIME_V2_BLACKLIST is not used on any device."""
    _, said = run_in(tmp_path, dump_arrays)
    assert "RUNTIME_V2_BLACKLIST" not in os.environ and "RUNTIME" not in said
    assert len(files(tmp_path / "output")) > 10


def test_R_B30_wanted_steps_in_a_folder_that_is_made(tmp_path):
    def program(steps):
        dump_arrays(steps=steps, path="./deep/output", schedule=hooks().schedule(1, 2), capacity=5)

    counts = []
    for steps in (1, 2, 3, 5):
        run_in(tmp_path / str(steps), program, steps)
        counts.append(len(files(tmp_path / str(steps))))
    assert counts[0] == 0 and counts[1] > 0 and counts[2] == counts[3] == 2 * counts[1]


@pytest.mark.parametrize("capacity", [2, 2049, "3", 3.5])
def test_R_B30_a_capacity_that_cannot_be(capacity, tmp_path):
    types, _, text = run_in(tmp_path, lambda: error_of(dump_arrays, capacity=capacity))[0]
    assert "RuntimeError" in types and "from 3 to 2048" in text


@pytest.mark.parametrize("changed", [False, True])
def test_R_B07_other_weights_are_said(changed, tmp_path, msprobe_bin):
    def program(folder, changed):
        model = net()
        if changed:
            with torch.no_grad():
                model.second.weight[0, 0] += 1
        os.mkdir(folder)
        dump(f"{folder}/cpu.pkl", model)

    run_in(tmp_path, program, "a", False)
    run_in(tmp_path, program, "b", changed)
    command = [msprobe_bin, "compare", "-tp", "b/cpu.pkl", "-gp", "a/cpu.pkl"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert ("second.weight" in done.stdout) == changed, done.stdout

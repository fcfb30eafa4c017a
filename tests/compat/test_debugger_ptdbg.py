"""PrecisionDebugger of ptdbg_ascend 3.2 to 6.0, and runs of several processes."""

import re
import subprocess
import sys

import pytest
import torch
from older_scripts import X, arrays, error_of, files, names, net, read, run_in, train
from torch.utils.data import DataLoader

import ptdbg_ascend as ptdbg

TAG = f"ptdbg_dump_v{ptdbg.__version__}"
BEGIN = """
import os, sys
import torch, ptdbg_ascend as ptdbg
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU())
"""
RANKED = (
    BEGIN
    + """
torch.distributed.init_process_group("gloo")
if sys.argv[1] == "ddp":
    model = torch.nn.parallel.DistributedDataParallel(model)
ptdbg.set_dump_path("dump")
ptdbg.register_hook(model, ptdbg.acc_cmp_dump)
ptdbg.set_dump_switch("ON", mode="api_stack")
model(torch.ones(2, 4)).sum().backward()
ptdbg.set_dump_switch("OFF", mode="api_stack")
torch.distributed.barrier()  # a rank that exits early breaks the other one
torch.distributed.destroy_process_group()
"""
)


RUN = [sys.executable, "-m", "torch.distributed.run"]


@pytest.mark.parametrize("model", ["plain", "ddp"])
def test_R_C_E2_each_rank_has_its_folder(model, tmp_path):
    (tmp_path / "train.py").write_text(RANKED)
    done = subprocess.run(
        [*RUN, "--nproc_per_node=2", "--standalone", "train.py", model],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    folders = sorted(path.name for path in (tmp_path / "dump" / TAG).iterdir())
    assert folders == ["rank0", "rank1"]
    found = [names(tmp_path / "dump" / TAG / rank / "api_stack_dump.pkl") for rank in folders]
    assert found[0] == found[1] and any("linear_0_backward" in name for name in found[0])
    for rank in folders:
        assert arrays(tmp_path / "dump" / TAG / rank / "api_stack_dump")


def test_R_C_E2_rank_is_accepted(tmp_path):
    def program():
        ptdbg.set_dump_path("dump")
        ptdbg.register_hook(net(), ptdbg.acc_cmp_dump, rank=3)
        ptdbg.set_dump_switch("ON")
        train(net())
        ptdbg.set_dump_switch("OFF")

    run_in(tmp_path, program)
    assert (tmp_path / "dump" / TAG / "rank3" / "dump.pkl").is_file()


def test_R_C_E2_two_processes_never_share_a_file(tmp_path):
    program = BEGIN + (
        "ptdbg.set_dump_path('dump')\nptdbg.register_hook(model, ptdbg.acc_cmp_dump)\n"
        "ptdbg.set_dump_switch('ON')\nprint(flush=True); sys.stdin.readline()\n"
        "for _ in range(20): model(torch.ones(2, 4))\nptdbg.set_dump_switch('OFF')\n"
    )
    options = {"cwd": tmp_path, "stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    both = [subprocess.Popen([sys.executable, "-c", program], **options) for _ in range(2)]
    for process in both:
        assert process.stdout.readline()  # both have opened their dump
    for process in both:
        process.communicate("\n")
        assert process.returncode == 0
    folders = sorted(path.name for path in (tmp_path / "dump" / TAG).iterdir())
    assert len(folders) == 2 and "rank0" in folders
    sizes = [len(read(tmp_path / "dump" / TAG / folder / "dump.pkl")) for folder in folders]
    assert sizes[0] == sizes[1] == 20 * 7


def in_steps(debugger, steps, model=None):
    model = model or net()
    for _ in range(steps):
        debugger.start()
        train(model)
        debugger.stop()
        debugger.step()


def step_folders(tmp_path):
    return sorted(path.name for path in (tmp_path / "dump" / TAG).iterdir())


@pytest.mark.parametrize("workers", [0, 2])
def test_R_C_E15_the_data_loader_ends_the_run(workers, tmp_path):
    def program():
        model, seen = net(), []
        ptdbg.PrecisionDebugger("dump", hook_name="dump", step=[0, 1, 2], enable_dataloader=True)

        def loop():
            for rows in DataLoader(X.repeat(3, 1), batch_size=2, num_workers=workers):
                train(model, rows)
                seen.append(len(rows))

        return error_of(loop), len(seen)

    (types, _, text), seen = run_in(tmp_path, program)[0]
    assert text == "ptdbg: exit after iteration [0, 1, 2]" and types[0] == "ExitAfterIteration"
    assert seen == 3 and step_folders(tmp_path) == ["step0", "step1", "step2"]
    for step in step_folders(tmp_path):
        found = names(tmp_path / "dump" / TAG / step / "rank0" / "api_stack_dump.pkl")
        assert found[0] == "Functional_linear_0_forward_input.0"
        assert any(name.startswith("Functional_linear_0_backward") for name in found)
        assert not any(name.startswith("Torch_stack") for name in found)


@pytest.mark.parametrize("wish", ["raise", "exit", "continue"])
def test_R_C_E15_the_end_can_be_chosen(wish, tmp_path, monkeypatch):
    monkeypatch.setenv("PTDBG_AFTER_LAST_STEP", wish)

    def program():
        debugger = ptdbg.PrecisionDebugger(dump_path="dump", hook_name="dump", step=[2, 0])
        return error_of(in_steps, debugger, 5)

    error, said = run_in(tmp_path, program)
    text = "ptdbg: exit after iteration [0, 2]"
    assert step_folders(tmp_path) == ["step0", "step2"]
    if wish == "continue":
        assert error is None
    else:
        assert error[0][0] == {"raise": "ExitAfterIteration", "exit": "SystemExit"}[wish]
        assert error[2] == (text if wish == "raise" else "0")
        assert (text in said) == (wish == "exit")


def test_R_C_E12_steps_before_the_first_wanted_one_write_nothing(tmp_path):
    def program():
        debugger = ptdbg.PrecisionDebugger(dump_path="dump", hook_name="dump", step=[3])
        in_steps(debugger, 3)
        before = files(tmp_path)
        in_steps(debugger, 1)
        return before

    assert run_in(tmp_path, program)[0] == []
    (path,) = [name for name in files(tmp_path) if name.endswith(".pkl")]
    assert path == f"dump/{TAG}/step3/rank0/api_stack_dump.pkl"
    assert names(tmp_path / path)[0] == "Functional_linear_0_forward_input.0"


def test_R_C_E12_without_steps_none_overwrites_another(tmp_path):
    def program():
        in_steps(ptdbg.PrecisionDebugger(dump_path="dump", hook_name="dump"), 3)

    run_in(tmp_path, program)
    folders = [tmp_path / "dump" / TAG / step for step in ("", "step1", "step2")]
    found = [names(folder / "rank0" / "api_stack_dump.pkl") for folder in folders]
    assert len(found[0]) == len(set(found[0])) and found[0] == found[1] == found[2]
    for folder in folders:
        assert len(list((folder / "rank0" / "api_stack_dump").iterdir())) > 5


def test_R_C_E2_the_debuggers_rank(tmp_path, monkeypatch):
    """Only the wanted rank is dumped; a run that is not distributed has no rank to leave out."""

    def program():
        in_steps(ptdbg.PrecisionDebugger("dump", hook_name="dump", rank=1), 1)

    run_in(tmp_path / "alone", program)
    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank in "01":
        monkeypatch.setenv("RANK", rank)
        run_in(tmp_path / "two", program)
    assert len(files(tmp_path / "alone")) > 0
    assert {name.split("/")[2] for name in files(tmp_path / "two")} == {"rank1"}


CONFIGURED = {
    "mode": ({"mode": "list", "scope": ["Tensor_sum"]}, r"Tensor_sum_0_"),
    "api_list": ({"mode": "api_list", "api_list": ["RELU", "sum"]}, r".*(relu|sum)_0_"),
    "range": (
        {"mode": "range", "scope": ["Functional_relu_0", "Functional_linear_1_forward"]},
        r"Functional_(relu_0|linear_1)_forward",
    ),
    "directions": ({"input_output_mode": ["backward"]}, r".*_backward_"),
    "sides": ({"input_output_mode": ["input"]}, r".*_input"),
    "both": ({"input_output_mode": ["forward", "output"]}, r".*_forward_output"),
}


@pytest.mark.parametrize("which", CONFIGURED)
def test_R_C_Q1_what_is_dumped_is_configured(which, tmp_path):
    options, pattern = CONFIGURED[which]

    def program():
        debugger = ptdbg.PrecisionDebugger(dump_path="dump", hook_name="dump")
        debugger.configure_hook(**options)
        in_steps(debugger, 1)

    run_in(tmp_path, program)
    (path,) = [name for name in files(tmp_path) if name.endswith(".pkl")]
    assert path.endswith(f"{options.get('mode', 'api_stack')}_dump.pkl")
    found = names(tmp_path / path)
    assert found and [name for name in found if not re.match(pattern, name)] == []


@pytest.mark.parametrize("how", ["summary_only", "summary", "md5"])
def test_R_X02_statistics_without_elements(how, tmp_path):
    options = {"summary_only": True} if how == "summary_only" else {"summary_mode": how}

    def program():
        debugger = ptdbg.PrecisionDebugger(dump_path="dump", hook_name="dump")
        debugger.configure_hook(mode="all", **options)
        in_steps(debugger, 1)

    run_in(tmp_path, program)
    (path,) = files(tmp_path)
    lines = [line for line in read(tmp_path / path) if line[3].startswith("torch.")]
    assert path.endswith("/rank0/dump.pkl")
    for line in lines:
        if how == "md5":
            assert re.fullmatch(r"[0-9a-f]{8}", line[2]) and line[5] == []
        else:
            assert line[2] == [] and len(line[5]) == 4


def test_R_X02_statistics_of_halves_are_those_of_wide_numbers(tmp_path):
    x = torch.full((64, 64), 100.0, dtype=torch.float16)

    def program():
        ptdbg.set_dump_path("dump")
        ptdbg.register_hook(None, ptdbg.acc_cmp_dump)
        ptdbg.set_dump_switch("ON")
        torch.relu(x)
        ptdbg.set_dump_switch("OFF")

    run_in(tmp_path, program)
    first = read(tmp_path / "dump" / TAG / "rank0" / "dump.pkl")[0]
    assert first[3] == "torch.float16"
    assert first[5] == [100.0, 100.0, 100.0, 6400.0]  # the sum of squares overflows float16


def test_module_dump(tmp_path):
    def program():
        model = net()
        debugger = ptdbg.PrecisionDebugger(dump_path="dump", hook_name="dump")
        errors = [error_of(ptdbg.module_dump, *each) for each in ((3, "a"), (model, 3))]
        debugger.start()
        ptdbg.module_dump(model.first, "mine")
        train(model)
        ptdbg.module_dump_end()
        torch.tanh(X)
        debugger.stop()
        return errors

    for types, code, _ in run_in(tmp_path, program)[0]:
        assert "CompareException" in types and code == 11
    (path,) = [name for name in files(tmp_path) if name.endswith(".pkl")]
    found = [re.sub(r"_(input|output).*", "", name) for name in names(tmp_path / path)]
    assert list(dict.fromkeys(found)) == [
        "mine_0_forward",
        "mine_0_backward",
        "Torch_tanh_0_forward",
    ]

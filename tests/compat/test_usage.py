"""Less common ways in which users call the older tools."""

from importlib import import_module

import pytest
import torch
from older_scripts import CALLS, RANK0, X, calls, error_of, files, names, net, read, run_in, train

import ptdbg_ascend as ptdbg


def setup(model=None):
    ptdbg.set_dump_path("dump")
    ptdbg.register_hook(model, ptdbg.acc_cmp_dump)


def dump_path(tmp_path, stem="dump"):
    return tmp_path / "dump" / RANK0 / f"{stem}.pkl"


SCOPES = {
    "a backward call": ("list", [CALLS[5]], CALLS[5:6]),
    "both directions of a call": ("list", ["Functional_relu_0"], [CALLS[1], CALLS[6]]),
    "from forward to backward": ("range", [CALLS[3], CALLS[6]], CALLS[3:7]),
    "to a backward call that never comes": ("range", [CALLS[6], "Torch_abs_0"], CALLS[6:]),
}


@pytest.mark.parametrize("which", SCOPES)
def test_scopes_of_names_from_a_first_dump(which, tmp_path):
    mode, scope, wanted = SCOPES[which]

    def program():
        model = net()
        setup(model)
        ptdbg.set_dump_switch("ON", mode=mode, scope=scope)
        train(model)
        ptdbg.set_dump_switch("OFF")

    run_in(tmp_path, program)
    assert calls(dump_path(tmp_path, f"{mode}_dump")) == wanted


def test_the_switch_around_each_step_adds_to_one_file(tmp_path):
    def program():
        model = net()
        setup(model)
        for _ in range(3):
            ptdbg.set_dump_switch("ON")
            train(model)
            ptdbg.set_dump_switch("OFF")

    run_in(tmp_path, program)
    found = names(dump_path(tmp_path))
    assert len(set(found)) == len(found) and "Tensor_sum_2_backward_output.0" in found


def test_a_tag_for_each_step(tmp_path):
    def program():
        model = net()
        for step in range(2):
            ptdbg.set_dump_path("dump", dump_tag=f"step{step}")
            ptdbg.register_hook(model, ptdbg.acc_cmp_dump)
            ptdbg.set_dump_switch("ON")
            train(model)
            ptdbg.set_dump_switch("OFF")

    run_in(tmp_path, program)
    found = [calls(path) for path in sorted((tmp_path / "dump").glob("*/rank0/dump.pkl"))]
    assert found[0] == CALLS and "Tensor_sum_1_forward" in found[1] and len(found) == 2


def test_backward_of_what_was_called_while_it_was_off(tmp_path):
    def program():
        model = net()
        setup(model)
        loss = model(X).sum()
        ptdbg.set_dump_switch("ON")
        loss.backward()
        loss = model(X).sum()
        ptdbg.set_dump_switch("OFF")
        loss.backward()

    run_in(tmp_path, program)
    assert calls(dump_path(tmp_path)) == CALLS[:4]


def test_autocast_to_bfloat16(tmp_path):
    def program():
        model = net()
        setup(model)
        ptdbg.set_dump_switch("ON")
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(X).float().sum()
        loss.backward()
        ptdbg.set_dump_switch("OFF")

    run_in(tmp_path, program)
    dtypes = {line[0]: line[3] for line in read(dump_path(tmp_path))}
    assert dtypes["Functional_linear_0_forward_output"] == "torch.bfloat16"
    assert dtypes["Functional_linear_1_backward_output.1"] == "torch.float32"  # the weight's


def test_an_exception_in_the_model(tmp_path):
    def program():
        model = net()
        setup(model)
        ptdbg.set_dump_switch("ON")
        error = error_of(model, torch.ones(3, 3))
        train(model)
        ptdbg.set_dump_switch("OFF")
        return error

    assert "RuntimeError" in run_in(tmp_path, program)[0][0]
    assert "Tensor_sum_0_backward" in calls(dump_path(tmp_path))


def test_modules_instead_of_apis(tmp_path):
    def program():
        model = net()
        ptdbg.set_dump_path("dump")
        ptdbg.register_hook(model, ptdbg.acc_cmp_dump, dump_mode="model")
        ptdbg.set_dump_switch("ON")
        train(model)
        ptdbg.set_dump_switch("OFF")

    run_in(tmp_path, program)
    found = calls(dump_path(tmp_path))
    assert found[:2] == ["Module_first_Linear_0_forward", "Module_second_Linear_0_forward"]
    assert all(name.startswith("Module_") for name in found)
    assert "Module_second_Linear_0_backward" in found


def test_a_file_with_modes_as_words_is_that_of_1_0(tmp_path):
    def program():
        ptdbg.set_dump_path("npu.pkl")
        ptdbg.register_hook(net(), ptdbg.acc_cmp_dump)
        ptdbg.set_dump_switch("ON", mode="api_stack")
        train(net())
        ptdbg.set_dump_switch("OFF")

    run_in(tmp_path, program)
    assert [name for name in files(tmp_path) if name.endswith(".pkl")] == [
        f"{RANK0}/api_stack_npu.pkl"
    ]


def test_the_front_that_was_set_up_last_records(tmp_path):
    """Finished steps of torch_npu.hooks do not restart a dump of ptdbg_ascend."""

    def program():
        npu = import_module("torch_npu.hooks")

        model = net()
        npu.register_hook(model, npu.wrap_acc_cmp_hook)
        npu.set_dump_path("lines.pkl")
        train(model)
        setup(model)
        ptdbg.set_dump_switch("ON")
        train(model)
        ptdbg.set_dump_switch("OFF")
        npu.step_schedule.step()
        train(model)

    run_in(tmp_path, program)
    assert len(calls(dump_path(tmp_path))) == len(CALLS)
    assert len([name for name in names(tmp_path / "lines.pkl") if "relu_forward" in name]) == 2

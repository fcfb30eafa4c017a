"""The questions of the FAQ of ptdbg_ascend. Names of tests contain the ids of requirements."""

import signal
import subprocess
import sys

import pytest
import torch
from older_scripts import (
    CALLS,
    RANK0,
    X,
    arrays,
    calls,
    dump_counted,
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


def pkl(tmp_path, stem="dump", folder="dump", rank="rank0", tag="ptdbg_dump"):
    return tmp_path / folder / f"{tag}_v{ptdbg.__version__}" / rank / f"{stem}.pkl"


def test_R_C_Q1_a_second_dump_keeps_the_first(tmp_path):
    def program():
        dump_counted()

    run_in(tmp_path, program)
    first = (pkl(tmp_path)).read_text()
    _, said = run_in(tmp_path, program)
    moved = tmp_path / "dump" / f"ptdbg_dump_v{ptdbg.__version__}_1" / "rank0"
    assert (moved / "dump.pkl").read_text() == first == pkl(tmp_path).read_text()
    assert len(arrays(moved / "dump")) == len(arrays(pkl(tmp_path).with_suffix(""))) > 0
    assert "held an earlier dump, which is now in" in said


def test_R_C_Q1_dump_tag_separates(tmp_path):
    def program(tag):
        dump_counted(tag=tag)

    run_in(tmp_path, program, "a")
    run_in(tmp_path, program, "b")
    folders = sorted(path.name for path in (tmp_path / "dump").iterdir())
    assert folders == [f"a_v{ptdbg.__version__}", f"b_v{ptdbg.__version__}"]


@pytest.mark.parametrize("registered", ["first", "none"])
def test_R_C_Q2_any_model_stands_for_all(registered, tmp_path):
    def program():
        first, second = net(), net(1)
        ptdbg.set_dump_path("dump")
        ptdbg.register_hook(first if registered == "first" else None, ptdbg.acc_cmp_dump)
        ptdbg.set_dump_switch("ON")
        train(second)
        ptdbg.set_dump_switch("OFF")

    run_in(tmp_path, program)
    assert calls(pkl(tmp_path)) == CALLS


def _acl_calls():
    scope = ["Functional_relu_0_forward"]
    debugger = ptdbg.PrecisionDebugger("dump", hook_name="dump")
    return [
        lambda: ptdbg.set_dump_switch("ON", mode="acl", scope=scope),
        lambda: ptdbg.register_hook(net(), ptdbg.acc_cmp_dump, dump_mode="acl"),
        lambda: debugger.configure_hook(mode="acl", scope=scope, acl_config="dump.json"),
        lambda: debugger.configure_hook(mode="acl", scope=["Functional_relu_0_backward"]),
        lambda: ptdbg.set_backward_input(["0.npy"]),
    ]


@pytest.mark.parametrize("which", range(5))
def test_R_C_Q3_acl_is_refused_where_there_is_no_npu(which, tmp_path):
    """On a CPU: refused before training starts, with the alternative."""

    def program():
        return error_of(_acl_calls()[which])

    types, code, text = run_in(tmp_path, program)[0]
    assert "CompareException" in types and code == 11
    assert "the device is cpu" in text and 'mode "all" dumps APIs on any device' in text


def test_R_C_E10_acl_of_a_backward_call_names_the_device(tmp_path):
    """On CPU: no NameError of torch_npu."""

    def program():
        ptdbg.set_dump_path("dump")
        scope = ["Functional_relu_0_backward"]
        return error_of(ptdbg.set_dump_switch, "ON", mode="acl", scope=scope)

    types, _, text = run_in(tmp_path, program)[0]
    assert "NameError" not in types and "the device is cpu" in text


def test_R_C_E3_a_dump_makes_no_collective(tmp_path):
    """The runtime raises the error of this code in a collective; our tool makes no collective."""

    def program():
        made = []
        for name in ("all_reduce", "broadcast", "barrier", "all_gather", "all_gather_object"):
            setattr(torch.distributed, name, lambda *_a, name=name, **_k: made.append(name))
        torch.distributed.init_process_group(
            "gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1
        )
        dump_counted()
        return made

    assert run_in(tmp_path, program)[0] == [] and calls(pkl(tmp_path)) == CALLS


def test_R_C_E3_the_error_of_the_runtime_gets_a_hint(tmp_path):
    def program():
        inside = torch.distributed.distributed_c10d
        torch.distributed.init_process_group(
            "gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1
        )

        def fail(*_args, **_kwargs):
            raise RuntimeError("HCCL function error: hcclAllReduce, error code is EI0006")

        inside._check_single_tensor = fail

        class Net(torch.nn.Module):
            def forward(self, x):
                for _ in range(2):
                    with pytest.raises(RuntimeError, match="EI0006"):
                        torch.distributed.all_reduce(x)
                return torch.relu(x)

        dump_counted(model=Net(), x=torch.ones(2, 2, requires_grad=True))

    _, said = run_in(tmp_path, program)
    assert said.count("HCCL_CONNECT_TIMEOUT") == 1 and "CANN" in said


def test_R_C_E6_names_that_this_torch_does_not_have(tmp_path):
    """The list names operations of other versions of PyTorch: nothing fails."""
    _, said = run_in(tmp_path, dump_counted)
    assert calls(pkl(tmp_path)) == CALLS and said.count("not observed") <= 1


def test_R_C_E7_nested_arguments_have_a_place_for_each_level(tmp_path):
    def program():
        lstm = torch.nn.LSTM(4, 3)
        dump_counted(model=_First(lstm), x=X.reshape(5, 1, 4))

    run_in(tmp_path, program)
    found = names(pkl(tmp_path))
    for name in ("input.1.0", "input.1.1", "output.0", "output.1", "output.2"):
        assert f"VF_lstm_0_forward_{name}" in found
    assert "VF_lstm_0_forward_input.1.0" in arrays(pkl(tmp_path).with_suffix(""))


class _First(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        return self.model(x)[0]


def test_R_C_E8_off_says_so_and_a_second_off_is_none(tmp_path):
    def program():
        dump_counted()
        ptdbg.set_dump_switch("OFF")

    _, said = run_in(tmp_path, program)
    assert said.count("Dump switch is turned off") == 1
    assert said.count("Dump switch is off already") == 1


KILLED = """
import os, signal, sys
import torch, ptdbg_ascend as ptdbg
from torch.nn import functional as F
ptdbg.set_dump_path(sys.argv[1])
ptdbg.register_hook(torch.nn.Linear(2, 2), ptdbg.acc_cmp_dump)
ptdbg.set_dump_switch("ON", **({} if sys.argv[1].endswith(".pkl") else {"mode": "api_stack"}))
for i in range(40):
    F.relu(torch.full((3, 4), float(i)))
    if i == 30:
        {"exit": lambda: os._exit(1), "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
         "raise": lambda: 1 / 0, "sys": sys.exit}[sys.argv[2]]()
"""
CODES = {"exit": 1, "kill": -signal.SIGKILL, "raise": 1, "sys": 0}


@pytest.mark.parametrize("path", ["npu_dump.pkl", "dump"])
@pytest.mark.parametrize("death", CODES)
def test_R_C_E8_a_run_that_ends_in_the_middle_leaves_whole_lines(death, path, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", KILLED, path, death], cwd=tmp_path, capture_output=True
    )
    assert done.returncode == CODES[death], done.stderr
    written = tmp_path / path if path.endswith(".pkl") else pkl(tmp_path, "api_stack_dump")
    assert written.read_text().endswith("]\n")
    found = names(written)  # also checks that every line is JSON
    kept = [name for name in found if name.endswith("forward_input.0") and "relu" in name]
    assert len(kept) == 31


def test_R_C_E11_any_path_that_the_system_accepts(tmp_path):
    folder = tmp_path / "a++ b" / "ä(1)"
    run_in(folder, dump_counted, "./dump d")
    assert calls(folder / "dump d" / RANK0 / "dump.pkl") == CALLS


@pytest.mark.parametrize("order", ["rps", "prs", "rpps", "prrs", "spr", "rsp", "prsp"])
def test_R_C_E12_any_order_of_the_calls(order, tmp_path):
    """p: path, r: register, s: switch. A valid dump, or an error that names the missing call."""

    def program():
        steps = {
            "p": lambda: ptdbg.set_dump_path("dump"),
            "r": lambda: ptdbg.register_hook(net(), ptdbg.acc_cmp_dump),
            "s": lambda: ptdbg.set_dump_switch("ON", mode="api_stack"),
        }
        errors = [error_of(steps[letter]) for letter in order]
        train(net())
        ptdbg.set_dump_switch("OFF")
        return errors

    errors = run_in(tmp_path, program)[0]
    path_is_late = order.index("s") < order.index("p")
    if path_is_late:
        types, _, text = errors[order.index("s")]
        assert "RuntimeError" in types and "expected set_dump_path(folder) before it" in text
        assert not (tmp_path / "dump" / RANK0).exists()
        return
    if order.endswith("sp"):
        assert 'type set_dump_switch("OFF") before it' in errors.pop()[2]
    assert not any(errors)
    assert [path.name for path in (tmp_path / "dump").iterdir()] == [RANK0.split("/")[0]]
    assert calls(pkl(tmp_path, "api_stack_dump")) == CALLS


def test_R_C_E13_the_gradient_of_a_weight_without_bias(tmp_path):
    def program():
        torch.manual_seed(0)
        model = torch.nn.Linear(4, 3, bias=False)
        dump_counted(model=model, x=torch.randn(2, 5, 4))
        return model.weight.grad.numpy()

    gradient = run_in(tmp_path, program)[0]
    name = "Functional_linear_0_backward_output.1"
    assert line(pkl(tmp_path), name)[4] == [3, 4]
    assert (arrays(pkl(tmp_path).with_suffix(""))[name] == gradient).all()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int32", "bool"])
def test_R_C_E14_the_line_says_the_dtype_and_so_does_a_reader(dtype, tmp_path, msprobe_bin):
    x = torch.tensor([[1.0, 0.5], [-2.25, 3.0]]).to(getattr(torch, dtype))

    def program():
        ptdbg.set_dump_path("dump")
        ptdbg.register_hook(None, ptdbg.acc_cmp_dump)
        ptdbg.set_dump_switch("ON")
        torch.abs(x) if dtype != "bool" else torch.logical_not(x)
        ptdbg.set_dump_switch("OFF")

    run_in(tmp_path, program)
    (entry,) = [each for each in read(pkl(tmp_path)) if each[0].endswith("input.0")]
    assert entry[3] == f"torch.{dtype}"
    array = arrays(pkl(tmp_path).with_suffix(""))[entry[0]]
    assert array.dtype == ("float32" if dtype == "bfloat16" else dtype)  # NumPy has no bfloat16
    assert torch.equal(torch.from_numpy(array).to(x.dtype), x)
    done = subprocess.run(
        [msprobe_bin, "compare", "-tp", "dump", "-gp", "dump", "--format", "json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0 and '"equal"' in done.stdout, done.stdout + done.stderr


def test_R_C_E16_a_class_is_no_model(tmp_path):
    def program():
        hooks = (ptdbg.acc_cmp_dump, ptdbg.overflow_check)
        return [error_of(ptdbg.register_hook, torch.nn.Linear, hook) for hook in hooks]

    for types, _, text in run_in(tmp_path, program)[0]:
        assert "AssertionError" in types
        assert text.startswith("Please register hooks to nn.Module")
        assert "found the class Linear; create it first" in text


def test_R_C_E17_slicing_is_what_it_is(tmp_path):
    def program():
        t = torch.arange(12.0).reshape(3, 4)
        index = [1, slice(0, 2), None, ..., (..., 0), (None, 1), torch.tensor([2, 0])]
        index += [t > 5, torch.tensor([[0, 1], [1, 2]]), [True, False, True], torch.tensor(1)]
        plain = [t[each].tolist() for each in index]
        getter = torch.Tensor.__getitem__
        ptdbg.set_dump_path("dump")
        ptdbg.register_hook(None, ptdbg.acc_cmp_dump)
        ptdbg.set_dump_switch("ON")
        same = getter is torch.Tensor.__getitem__ or getter == torch.Tensor.__getitem__
        seen = [t[each].tolist() for each in index]
        ptdbg.set_dump_switch("OFF")
        return same, plain == seen

    assert run_in(tmp_path, program)[0] == (True, True)


def test_R_C_E18_functions_stay_the_objects_they_are(tmp_path):
    def program():
        before = F.gelu, F.dropout, F.relu, torch.add, torch.Tensor.add, hash(F.gelu)
        ptdbg.set_dump_path("dump")
        ptdbg.register_hook(net(), ptdbg.acc_cmp_dump)
        ptdbg.set_dump_switch("ON")
        during = F.gelu, F.dropout, F.relu, torch.add, torch.Tensor.add, hash(F.gelu)
        F.gelu(X)
        return all(a is b or a == b for a, b in zip(before, during, strict=True))

    assert run_in(tmp_path, program)[0]
    assert calls(pkl(tmp_path)) == ["Functional_gelu_0_forward"]


def test_R_C_E19_a_view_is_recorded_without_an_operation_on_the_device(tmp_path):
    """On a CPU: PyTorch's profiler sees only the operations of the program."""

    def program():
        x = torch.arange(6.0).reshape(2, 3)

        def operations():
            with torch.profiler.profile() as seen:
                x.t().sum()
                torch.transpose(x, 0, 1)
            return [event.name for event in seen.events() if event.name.startswith("aten::")]

        plain = operations()
        ptdbg.set_dump_path("dump")
        ptdbg.register_hook(None, ptdbg.acc_cmp_dump)
        ptdbg.set_dump_switch("ON")
        return plain, operations()

    plain, seen = run_in(tmp_path, program)[0]
    assert plain == seen and len(plain) >= 4 and files(tmp_path)

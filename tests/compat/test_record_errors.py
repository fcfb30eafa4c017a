"""Wrong calls of the older tools' recording functions: the exception has the type that callers
catch and a text that says what to do; the call changes nothing and loses nothing."""

import json
import os
import subprocess
from importlib import import_module

import pytest
import torch
from older_scripts import RANK0, X, dump_counted, error_of, files, names, net, read, run_in, train
from recording import run_program
from torch.nn import functional as F

import ptdbg_ascend as ptdbg

NUMBERS = "expected a number of 0 or more"
WRONG = {
    # call: (arguments, keywords, code, part of the text)
    "path of another type": ("set_dump_path", (3,), {}, 1, "expected a folder or a .pkl file"),
    "path, none": ("set_dump_path", (), {}, 1, "found None"),
    "path, empty": ("set_dump_path", ("",), {}, 1, "found ''"),
    "path, a file": ("set_dump_path", ("a file",), {}, 1, "cannot be created: File exists"),
    "path below a file": ("set_dump_path", ("a file/x",), {}, 1, "Not a directory"),
    "path with a zero byte": ("set_dump_path", ("a\0b",), {}, 1, "name another folder"),
    "pkl with a zero byte": ("set_dump_path", ("a\0b.pkl",), {}, 1, "choose another one"),
    "pkl with a long name": ("set_dump_path", ("a" * 300 + ".pkl",), {}, 1, "File name too long"),
    "pkl in no folder": ("set_dump_path", ("absent/a.pkl",), {}, 1, "create it first"),
    "pkl that is a folder": ("set_dump_path", ("folder.pkl",), {}, 1, "found the folder"),
    "tag": ("set_dump_path", ("d", "a/b"), {}, 11, "dump_tag; expected a name, found 'a/b'"),
    "word": ("set_dump_switch", ("on",), {}, 11, '"ON" or "OFF", found \'on\''),
    "mode": ("set_dump_switch", ("ON",), {"mode": "al"}, 11, "\"api_stack\"; found 'al'"),
    "mode 7": ("set_dump_switch", ("ON",), {"mode": 7}, 11, "found 7"),
    "mode True": ("set_dump_switch", ("ON",), {"mode": True}, 11, "found True"),
    "list of none": ("set_dump_switch", ("ON",), {"mode": "list"}, 11, "expected names of calls"),
    "list of a number": (
        "set_dump_switch",
        ("ON",),
        {"mode": "list", "scope": [1.5]},
        11,
        "scope; expected names, found [1.5]",
    ),
    "range of one": (
        "set_dump_switch",
        ("ON",),
        {"mode": "range", "scope": ["a"]},
        11,
        "the first and the last name",
    ),
    "stack of three": (
        "set_dump_switch",
        ("ON",),
        {"mode": "stack", "scope": ["a", "b", "c"]},
        11,
        "no name, one, or the first and the last",
    ),
    "api_list": ("set_dump_switch", ("ON",), {"mode": "api_list"}, 11, "expected parts of names"),
    "api_list of nothing": (
        "set_dump_switch",
        ("ON",),
        {"mode": "api_list", "api_list": [""]},
        11,
        "api_list; expected names",
    ),
    "filter": ("set_dump_switch", ("ON",), {"filter_switch": "on"}, 11, "filter_switch; expected"),
    "dump_mode": ("set_dump_switch", ("ON",), {"dump_mode": "x"}, 11, "dump_mode; expected some"),
    "dump_mode 3": ("set_dump_switch", ("ON",), {"dump_mode": 3}, 11, "found 3"),
    "summary_only": ("set_dump_switch", ("ON",), {"summary_only": 1}, 11, "True or False, found 1"),
    "overflow word": ("set_overflow_check_switch", ("x",), {}, 11, '"ON" or "OFF"'),
    "a class": ("register_hook", (torch.nn.Linear, ptdbg.acc_cmp_dump), {}, 11, "create it first"),
    "no model": ("register_hook", ("net", ptdbg.acc_cmp_dump), {}, 11, "found str"),
    "no hook": ("register_hook", (None, print), {}, 11, "expected acc_cmp_dump or overflow_check"),
    "rank": ("register_hook", (None, ptdbg.acc_cmp_dump), {"rank": "0"}, 11, NUMBERS),
    "step": (
        "register_hook",
        (None, ptdbg.acc_cmp_dump),
        {"dump_step": 0},
        12,
        "expected a number from",
    ),
    "level": ("register_hook", (None, ptdbg.acc_cmp_dump), {"dump_mode": "x"}, 11, '"model"'),
    "level of no model": (
        "register_hook",
        (None, ptdbg.acc_cmp_dump),
        {"dump_mode": "model"},
        11,
        "expects a model",
    ),
    "seed": ("seed_all", ("x",), {}, 11, "expected a whole number"),
    "debugger of nothing": ("PrecisionDebugger", ("d",), {}, 11, '"dump" or "overflow_check"'),
    "debugger of something": ("PrecisionDebugger", ("d", "x"), {}, 11, "found 'x'"),
    "debugger's steps": ("PrecisionDebugger", ("d", "dump", None, 3), {}, 11, "a list of numbers"),
    "debugger's step": ("PrecisionDebugger", ("d", "dump", None, [-1]), {}, 11, "found [-1]"),
    "debugger's rank": ("PrecisionDebugger", ("d", "dump", "1"), {}, 11, NUMBERS),
    "debugger's loader": (
        "PrecisionDebugger",
        ("d", "dump"),
        {"enable_dataloader": "no"},
        11,
        "enable_dataloader; expected True or False",
    ),
    "module_dump": ("module_dump", (3, "a"), {}, 11, "expected a torch.nn.Module"),
}
# The exceptions that callers of each function catch: those that any version raised.
CAUGHT = {
    "set_dump_path": {"RuntimeError", "CompareException"},
    "set_dump_switch": {"AssertionError", "ValueError", "CompareException"},
    "register_hook": {"AssertionError", "RuntimeError", "CompareException"},
}


@pytest.mark.parametrize("which", WRONG)
def test_a_wrong_argument_is_said_and_changes_nothing(which, tmp_path):
    """The dump that is being written goes on, to the same file."""
    function, arguments, keywords, code, text = WRONG[which]

    def program():
        open("a file", "w").close()
        os.mkdir("folder.pkl")
        ptdbg.set_dump_path("dump")
        ptdbg.register_hook(net(), ptdbg.acc_cmp_dump)
        ptdbg.set_dump_switch("ON")
        F.relu(X)
        error = error_of(getattr(ptdbg, function), *arguments, **keywords)
        F.relu(X)
        ptdbg.set_dump_switch("OFF")
        return error

    types, found, said = run_in(tmp_path, program)[0]
    assert CAUGHT.get(function, {"CompareException"}) <= set(types)
    assert found == code and text in said and "\n" not in said
    kept = names(tmp_path / "dump" / RANK0 / "dump.pkl")
    assert [name for name in kept if name.endswith("output")] == [
        "Functional_relu_0_forward_output",
        "Functional_relu_1_forward_output",
    ]
    assert sorted(os.listdir(tmp_path)) == ["a file", "dump", "folder.pkl"]


@pytest.mark.parametrize("scope", [["a", "b"], [5, 2], ["3_x", "y"], [-1, 4]])
def test_a_range_of_the_first_generation_is_one_of_numbers(scope, tmp_path):
    def program():
        ptdbg.set_dump_path("npu_dump.pkl")
        return [error_of(ptdbg.set_dump_switch, "ON", mode=mode, scope=scope) for mode in (3, 4)]

    for types, _, text in run_in(tmp_path, program)[0]:
        assert "AssertionError" in types and "two names with numbers in front" in text


@pytest.mark.parametrize(
    "registration, text",
    [
        ({"schedule": 3}, "expected schedule(begin, end, stride)"),
        ({"capacity": 1}, "a number from 3 to 2048"),
        ({"path": 3}, "expected a folder"),
        ({"seed": "x"}, "expected a whole number"),
    ],
)
def test_hooks_of_torch_npu_say_what_is_wrong(registration, text, tmp_path):
    def program():
        npu = import_module("torch_npu.hooks")

        npu.register_hook(net(), npu.wrap_acc_cmp_hook)
        npu.set_dump_path("lines.pkl")
        F.relu(X)
        errors = [
            error_of(npu.register_hook, net(), npu.wrap_async_datadump_hook, **registration),
            error_of(npu.register_hook, torch.nn.Linear, npu.wrap_acc_cmp_hook),
            error_of(npu.register_hook, net(), print),
        ]
        F.relu(X)
        return errors

    first, of_class, of_hook = run_in(tmp_path, program)[0]
    assert "RuntimeError" in first[0] and text in first[2]
    assert "AssertionError" in of_class[0] and "create it first" in of_class[2]
    assert "expected one of wrap_acc_cmp_hook, " in of_hook[2]
    assert len([line for line in read(tmp_path / "lines.pkl") if "relu" in line[0]]) == 4


def test_R_X10_keywords_of_every_generation_are_taken(tmp_path):
    """A keyword without a meaning here, or an unknown keyword, gets one log line."""

    def program():
        ptdbg.seed_all(seed=1, mode=False)
        ptdbg.set_dump_path(fpath="dump", dump_tag="t", colour="red")
        ptdbg.register_hook(
            net(),
            ptdbg.acc_cmp_dump,
            dump_step=1,
            overflow_nums=1,
            rank=0,
            dump_mode="api",
            dump_config=None,
            sample=True,
            schedule=None,
            path="x",
        )
        words = {"mode": "all", "scope": [], "api_list": [], "filter_switch": "OFF"}
        ptdbg.set_dump_switch("ON", **words, dump_mode=["all"], summary_only=False)
        ptdbg.set_dump_switch("OFF")
        ptdbg.set_overflow_check_switch("ON", filter_switch="ON")
        debugger = ptdbg.PrecisionDebugger(
            dump_path="dump",
            hook_name="dump",
            rank=0,
            step=[0],
            enable_dataloader=False,
            model=None,
            config="old.json",
        )
        debugger.configure_hook(
            mode="api_stack",
            scope=[],
            api_list=[],
            filter_switch="ON",
            input_output_mode=["all"],
            acl_config=None,
            backward_input=[],
            summary_only=False,
            summary_mode="all",
        )
        checker = ptdbg.PrecisionDebugger("dump", hook_name="overflow_check")
        checker.configure_hook(
            mode="api", acl_config=None, overflow_nums=2, filter_switch="OFF", need_replicate=False
        )

    _, said = run_in(tmp_path, program)
    warned = [line.split("[WARNING] ")[1] for line in said.splitlines() if "[WARNING]" in line]
    assert warned == [
        "set_dump_path: colour has no effect here",
        "register_hook: sample has no effect here",
        "register_hook: schedule has no effect here",
        "register_hook: path has no effect here",
        "PrecisionDebugger: config has no effect here",
        "configure_hook: acl_config has no effect here",
        "configure_hook: need_replicate has no effect here",
    ]


def test_the_debugger_before_it_is_there(tmp_path):
    def program():
        debugger = ptdbg.PrecisionDebugger
        return [error_of(each) for each in (debugger.start, debugger.stop, debugger.step)]

    for types, _, text in run_in(tmp_path, program)[0]:
        assert "MsprobeError" in types and "constructed first" in text


def test_nothing_in_scope_is_said(tmp_path):
    _, said = run_in(tmp_path, lambda: dump_counted(mode="list", scope=["Functional_gelu"]))
    assert said.count("has no lines: no call fits Functional_gelu") == 1


FULL = """
import resource, signal, sys, torch, ptdbg_ascend as ptdbg
torch.manual_seed(0)
model = torch.nn.Linear(300, 300)
if len(sys.argv) > 1:
    resource.setrlimit(resource.RLIMIT_FSIZE, (9000, 9000))
    ptdbg.set_dump_path(sys.argv[1])
    ptdbg.register_hook(model, ptdbg.acc_cmp_dump)
    ptdbg.set_dump_switch("ON")
for _ in range(30):
    model(torch.ones(3, 300)).sum().backward()
if len(sys.argv) > 1:
    ptdbg.set_dump_switch("OFF")
print(model.weight.grad.sum().item())
"""


@pytest.mark.parametrize("path", ["npu_dump.pkl", "dump"])
def test_no_more_space_ends_the_dump_not_the_run(path, tmp_path):
    def run(*arguments):
        return run_program(FULL, *arguments, cwd=tmp_path)

    plain, full = run(), run(path)
    assert full.returncode == 0 and full.stdout == plain.stdout != ""
    assert full.stderr.count("[ERROR]") == 1 and "File too large" in full.stderr


def test_a_folder_that_nobody_may_write_to(tmp_path):
    """A folder to which even root cannot write is detected when the dump begins."""

    def program():
        errors = [error_of(dump_counted, "/proc/dump"), error_of(dump_counted, "/proc/a.pkl")]
        return errors, torch.relu(X).sum().item()

    (folder, file), result = run_in(tmp_path, program)[0]
    assert result == torch.relu(X).sum().item() and folder[1] == 1 and "/proc" in folder[2]
    assert file is None or "/proc" in file[2]


def test_R_X04_characters_matter_in_generated_names_only(tmp_path, msprobe_bin):
    """module_dump accepts any name; lines and files get safe names."""

    def program():
        model = net()
        debugger = ptdbg.PrecisionDebugger("dump ü[1]", hook_name="dump")
        debugger.start()
        ptdbg.module_dump(model.first, "my layer/1 [a]")
        train(model)
        ptdbg.module_dump_end()
        debugger.stop()

    run_in(tmp_path, program)
    folder = tmp_path / "dump ü[1]" / RANK0
    found = names(folder / "api_stack_dump.pkl")
    assert "my layer_1 [a]_0_forward_input.0" in found and len(files(folder)) == 1 + len(found)
    command = [msprobe_bin, "compare", "-tp", folder, "-gp", folder, "--format", "json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    done = json.loads(done.stdout)
    assert (done["verdict"], done["mode"], done["not_observed"]) == ("equal", "tensors", [])


def test_R_X08_tensors_given_by_keyword_are_recorded_with_it(tmp_path):
    def program():
        ptdbg.set_dump_path("dump")
        ptdbg.register_hook(None, ptdbg.acc_cmp_dump)
        ptdbg.set_dump_switch("ON")
        F.linear(X, weight=torch.ones(2, 4), bias=torch.ones(2))
        ptdbg.set_dump_switch("OFF")

    run_in(tmp_path, program)
    found = names(tmp_path / "dump" / RANK0 / "dump.pkl")
    assert {f"Functional_linear_0_forward_input.{key}" for key in ("0", "weight", "bias")} < {
        *found
    }
    assert (
        tmp_path / "dump" / RANK0 / "dump" / "Functional_linear_0_forward_input.weight.npy"
    ).exists()

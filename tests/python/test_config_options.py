"""The effect of each option of config.json on the dump of PrecisionDebugger."""

import itertools
import json
import os
import zlib

import numpy as np
import pytest
import torch
from recording import read_dump, run_forked

APIS = ["Functional.linear.0", "Functional.relu.0", "Functional.linear.1", "Tensor.sum.0"]
MODULES = ["0.Linear", "1.ReLU", "2.Linear"]
FORWARD_APIS = {f"{api}.forward" for api in APIS}
BACKWARD_APIS = {f"{api}.backward" for api in APIS}
FORWARD_MODULES = {f"Module.{module}.forward.0" for module in MODULES}
BACKWARD_MODULES = {f"Module.{module}.backward.0" for module in MODULES}
GRADIENTS = {f"Module.{module}.parameters_grad.0" for module in ("0.Linear", "2.Linear")}
L1 = FORWARD_APIS | BACKWARD_APIS
L0 = FORWARD_MODULES | BACKWARD_MODULES | GRADIENTS


def train(folder, config, steps=1, ranked=False, **keywords):
    """Runs a small model with a config (a dict) in `folder`; returns the last output and loss."""
    from msprobe.pytorch import PrecisionDebugger

    os.chdir(folder)
    if ranked:
        torch.distributed.init_process_group(
            "gloo", init_method=f"file://{folder}/store", rank=0, world_size=1
        )
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU(), torch.nn.Linear(3, 2))
    inputs = torch.randn(5, 4)
    (folder / "config.json").write_text(json.dumps(config))
    debugger = PrecisionDebugger("config.json", **keywords)
    for _ in range(steps):
        debugger.start(model)
        output = model(inputs)
        output.sum().backward()
        debugger.stop()
        debugger.step()
        model.zero_grad()
    return output.detach().numpy(), inputs.numpy()


def dump_of(folder, config, **keywords):
    run_forked(train, folder, {"dump_path": "out", **config}, **keywords)
    return read_dump(folder / "out")


def names_of(folder, level, **section):
    return set(dump_of(folder, {"level": level, "statistics": section}).names)


def steps_in(folder):
    return {path.name for path in folder.glob("step*")}


@pytest.mark.parametrize(("level", "names"), [("L0", L0), ("L1", L1), ("mix", L0 | L1), ("", L1)])
def test_level(tmp_path, level, names):
    dump = dump_of(tmp_path, {"level": level})
    assert set(dump.names) == names
    assert dump.header["level"] == (level or "L1")
    assert dump.header["task"] == "statistics"
    parents = dump.side("construct.json")
    inside = parents.get("Functional.relu.0.forward")
    assert inside == ("Module.1.ReLU.forward.0" if level == "mix" else None)


def test_level_l2_gets_one_line_and_records_nothing(tmp_path, capfd):
    config = {"dump_path": "out", "level": "L2", "acl_config": "acl.json"}
    run_forked(train, tmp_path, config, steps=2)
    assert not (tmp_path / "out").exists()
    said = sorted(capfd.readouterr().err.splitlines(), key=lambda line: "acl_config" in line)
    assert [line.count("nothing is collected") for line in said] == [1, 0]
    assert '"acl_config" has no effect' in said[1]


WORDS = ["forward", "backward", "input", "output"]
MODES = [["all"], [], *(list(c) for n in (1, 2, 3, 4) for c in itertools.combinations(WORDS, n))]


@pytest.mark.parametrize("mode", MODES, ids="-".join)
def test_data_mode(tmp_path, mode):
    """Direction AND kind; a direction or kind that is not named is not restricted."""
    dump = dump_of(tmp_path, {"level": "mix", "statistics": {"data_mode": mode}})
    forward = "forward" in mode or "backward" not in mode
    backward = "backward" in mode or "forward" not in mode
    given = "input" in mode or "output" not in mode
    made = "output" in mode or "input" not in mode
    names = (FORWARD_APIS | FORWARD_MODULES) if forward else set()
    names |= (BACKWARD_APIS | BACKWARD_MODULES | GRADIENTS) if backward else set()
    assert set(dump.names) == names
    for name in sorted(names - GRADIENTS):
        if "forward" in name:
            keys = {"stack"} | ({"input_args", "input_kwargs"} if given else set())
            keys |= {"output"} if made else set()
            keys |= {"parameters"} if made and name.startswith("Module") else set()
            keys |= {"training"} if name.startswith("Module") else set()
        else:
            keys = ({"input"} if given else set()) | ({"output"} if made else set())
        assert set(dump.data[name]) == keys, name


@pytest.mark.parametrize(
    ("mode", "forward", "backward"),
    [
        (["forward", "input"], "io", "i"),
        (["backward", "output"], "o", "io"),
        (["input"], "i", "i"),
        (["all"], "io", "io"),
        (["forward"], "io", ""),
    ],
)
def test_data_mode_rule_or(tmp_path, mode, forward, backward):
    """As in msprobe 1.0: a value is recorded if any word selects it."""
    section = {"data_mode": mode, "data_mode_rule": "or"}
    dump = dump_of(tmp_path, {"level": "mix", "statistics": section})
    for name, record in dump.data.items():
        if "forward" in name:
            assert ("input_args" in record, "output" in record) == ("i" in forward, "o" in forward)
        elif name not in GRADIENTS:
            assert ("input" in record, "output" in record) == ("i" in backward, "o" in backward)
    assert (set(dump.names) == L0 | L1) == bool(backward)


@pytest.mark.parametrize(
    ("level", "words", "names"),
    [
        ("L1", ["relu"], {"Functional.relu.0.forward", "Functional.relu.0.backward"}),
        ("L1", ["ReLU"], set()),
        ("L1", ["linear.1.f", "sum.0.b"], {"Functional.linear.1.forward", "Tensor.sum.0.backward"}),
        ("L0", ["ReLU"], {"Module.1.ReLU.forward.0", "Module.1.ReLU.backward.0"}),
        ("L0", ["parameters_grad"], GRADIENTS),
        (
            "mix",
            ["Module.1."],
            {
                "Module.1.ReLU.forward.0",
                "Module.1.ReLU.backward.0",
                "Functional.relu.0.forward",  # inside the module
            },
        ),
        ("mix", ["nothing has this name"], set()),
    ],
)
def test_list(tmp_path, level, words, names):
    assert names_of(tmp_path, level, list=words) == names


@pytest.mark.parametrize(
    ("level", "scope", "names"),
    [
        (
            "L1",
            ["Functional.relu.0.forward", "Functional.linear.1.forward"],
            {"Functional.relu.0.forward", "Functional.linear.1.forward"},
        ),
        ("L1", ["Functional.relu.0.forward"], {"Functional.relu.0.forward"}),
        ("L1", ["Functional.linear.7.forward", "Functional.linear.8.forward"], set()),
        (
            "L1",
            ["Tensor.sum.0.forward", "Functional.relu.0.backward"],
            {
                "Tensor.sum.0.forward",
                "Tensor.sum.0.backward",
                "Functional.linear.1.backward",
                "Functional.relu.0.backward",
            },
        ),
        (
            "L0",
            ["Module.1.ReLU.forward.0", "Module.2.Linear.forward.0"],
            {"Module.1.ReLU.forward.0", "Module.2.Linear.forward.0"},
        ),
        (
            "mix",
            ["Module.1.ReLU.forward.0", "Module.2.Linear.forward.0"],
            {
                "Module.1.ReLU.forward.0",
                "Functional.relu.0.forward",
                "Functional.linear.1.forward",
                "Module.2.Linear.forward.0",
            },
        ),
        (
            "mix",
            ["Functional.relu.0.forward", "Functional.relu.0.forward"],
            {"Functional.relu.0.forward"},
        ),
    ],
)
def test_scope(tmp_path, level, scope, names):
    assert names_of(tmp_path, level, scope=scope) == names


def test_scope_and_list_hold_together(tmp_path):
    scope = ["Functional.relu.0.forward", "Tensor.sum.0.forward"]
    assert names_of(tmp_path, "L1", scope=scope, list=["linear"]) == {"Functional.linear.1.forward"}


@pytest.mark.parametrize(
    ("wanted", "steps"),
    [
        ([], range(6)),
        ([0, "2-3", "5"], [0, 2, 3, 5]),
        ([4], [4]),
        (["3-4", 3, 4], [3, 4]),
        ([9], []),
    ],
)
def test_step(tmp_path, wanted, steps):
    run_forked(train, tmp_path, {"dump_path": "out", "step": wanted}, steps=6)
    assert steps_in(tmp_path / "out") == {f"step{step}" for step in steps}
    for step in steps:
        assert set(read_dump(tmp_path / "out", step).names) == L1  # call numbers start at 0 again


@pytest.mark.parametrize(
    ("rank", "recorded"), [([], True), ([0], True), (["0-3"], True), ([1], False)]
)
def test_rank(tmp_path, rank, recorded):
    config = {"dump_path": "out", "rank": rank}
    run_forked(train, tmp_path, config, ranked=True)
    assert (tmp_path / "out" / "step0" / "rank0" / "dump.json").exists() == recorded
    assert (tmp_path / "out").exists() == recorded


def test_a_run_without_ranks_is_never_left_out(tmp_path):
    assert set(dump_of(tmp_path, {"rank": [5]}).names) == L1


def leaves(value):
    """All tensors in a record."""
    if isinstance(value, dict) and value.get("type") == "torch.Tensor":
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from leaves(item)


@pytest.mark.parametrize("task", ["statistics", "tensor"])
def test_summary_mode_md5(tmp_path, task):
    config = {"dump_path": "out", "level": "mix", "task": task, task: {"summary_mode": "md5"}}
    output, inputs = run_forked(train, tmp_path, config)
    dump = read_dump(tmp_path / "out")
    first = dump.data["Functional.linear.0.forward"]["input_args"][0]
    last = dump.data["Functional.linear.1.forward"]["output"][0]
    assert first["md5"] == f"{zlib.crc32(inputs.tobytes()):08x}"
    assert last["md5"] == f"{zlib.crc32(output.tobytes()):08x}"
    assert all("md5" in tensor and "Max" in tensor for tensor in leaves(dump.data))


@pytest.mark.parametrize("mode", ["statistics", ""])
def test_summary_mode_statistics(tmp_path, mode):
    config = {"dump_path": "out", "statistics": {"summary_mode": mode}}
    output, _ = run_forked(train, tmp_path, config)
    dump = read_dump(tmp_path / "out")
    last = dump.data["Functional.linear.1.forward"]["output"][0]
    assert (np.float32(last["Max"]), np.float32(last["Min"])) == (output.max(), output.min())
    assert last["Mean"] == pytest.approx(output.astype("f8").mean(), rel=2**-24)
    assert last["Norm"] == pytest.approx((output.astype("f8") ** 2).sum() ** 0.5, rel=2**-24)
    assert not any("md5" in tensor for tensor in leaves(dump.data))


@pytest.mark.parametrize("budget", ["0", "8"])  # 0: the call writes; 8: a thread writes
def test_task_tensor(budget, tmp_path, monkeypatch):
    """One file for each tensor, named in the record, with its elements."""
    monkeypatch.setenv("MSPROBE_TENSOR_BUDGET_MB", budget)
    output, inputs = run_forked(
        train, tmp_path, {"dump_path": "out", "task": "tensor", "level": "mix"}
    )
    dump, files = read_dump(tmp_path / "out"), read_dump(tmp_path / "out").tensors()
    assert {tensor["data_name"] for tensor in leaves(dump.data)} == files.keys()
    assert (files["Functional.linear.0.forward.input.0.pt"].numpy() == inputs).all()
    assert (files["Module.2.Linear.forward.0.output.0.pt"].numpy() == output).all()
    assert "Module.0.Linear.forward.0.parameters.weight.pt" in files
    assert "Module.0.Linear.parameters_grad.0.weight.pt" in files
    assert dump.header["dump_data_dir"] == "out/step0/rank/dump_tensor_data"


def test_tensor_list(tmp_path):
    dump = dump_of(tmp_path, {"statistics": {"tensor_list": ["relu.0.forward"]}})
    assert set(dump.names) == L1
    assert {name.rsplit(".", 3)[0] for name in dump.tensors()} == {"Functional.relu.0.forward"}


@pytest.mark.parametrize(
    ("level", "listed", "names"),
    [
        ("L1", "relu", {"Functional.relu.0.forward", "Functional.relu.0.backward"}),
        (
            "L0",  # gradients of parameters, too, which are measured before their entry is written
            "Module.0",
            {
                "Module.0.Linear." + part
                for part in ("forward.0", "backward.0", "parameters_grad.0")
            },
        ),
    ],
)
def test_tensors_of_what_is_not_listed_are_not_stored(level, listed, names, tmp_path):
    dump = dump_of(tmp_path, {"task": "tensor", "level": level, "tensor": {"list": [listed]}})
    assert set(dump.names) == names
    named = {tensor["data_name"] for tensor in leaves(dump.data)}
    assert named == {path.name for path in tmp_path.rglob("*.pt")}


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
def test_task_structure(tmp_path, level):
    """Names, stacks and parents of every call, without values; L1 becomes mix."""
    dump = dump_of(tmp_path, {"task": "structure", "level": level})
    calls = FORWARD_MODULES | (FORWARD_APIS if level != "L0" else set())
    gradients = BACKWARD_MODULES | (BACKWARD_APIS if level != "L0" else set())
    assert dump.names == []
    assert (dump.header["task"], dump.header["level"]) == (
        "structure",
        "L0" if level == "L0" else "mix",
    )
    assert sorted(path.name for path in dump.folder.iterdir()) == [
        "construct.json",
        "coverage.json",
        "dump.json",
        "stack.json",
    ]
    parents = dump.side("construct.json")
    assert parents.keys() == calls | gradients
    inside = {"Functional.relu.0.forward": "Module.1.ReLU.forward.0"}
    assert level == "L0" or parents.items() >= inside.items()
    stacks = dump.side("stack.json").values()
    assert {name for names, _ in stacks for name in names} == calls
    frames = "".join(frame for _, frames in stacks for frame in frames)
    assert "in train," in frames and ("in forward," in frames or level == "L0")
    assert "_call_impl" not in frames  # frames of PyTorch on the way to forward() are omitted


def test_extra_info_off(tmp_path):
    dump = dump_of(tmp_path, {"extra_info": False})
    assert {path.name for path in dump.folder.iterdir()} == {
        "coverage.json",
        "dump.json",
        "weights.json",
    }
    assert not any("stack" in record for record in dump.data.values())


def test_a_section_of_another_task_is_not_read(tmp_path):
    dump = dump_of(
        tmp_path, {"statistics": {"list": ["relu"]}, "tensor": {"list": ["sum"], "x": 1}}
    )
    assert set(dump.names) == {"Functional.relu.0.forward", "Functional.relu.0.backward"}


def test_keyword_arguments_win(tmp_path):
    config = {"dump_path": "file", "level": "L2", "task": "free_benchmark", "step": [0]}
    keywords = {
        "dump_path": str(tmp_path / "a/b/c"),
        "level": "L0",
        "task": "tensor",
        "step": ["1-2"],
    }
    run_forked(train, tmp_path, config, steps=4, **keywords)
    assert not (tmp_path / "file").exists()
    assert steps_in(tmp_path / "a/b/c") == {"step1", "step2"}
    dump = read_dump(tmp_path / "a/b/c", 1)
    assert set(dump.names) == L0
    assert dump.tensors()


def second_debugger(folder):
    from msprobe.pytorch import PrecisionDebugger

    first = PrecisionDebugger(dump_path=str(folder / "first"))
    second = PrecisionDebugger(dump_path=str(folder / "second"), level="L0")
    PrecisionDebugger.start()
    torch.relu(torch.ones(1))
    PrecisionDebugger.stop()
    return first is second


def test_there_is_one_debugger(tmp_path):
    assert run_forked(second_debugger, tmp_path)
    assert read_dump(tmp_path / "first").names == ["Torch.relu.0.forward"]
    assert not (tmp_path / "second").exists()


IDLE = {"precision": "high", "$schema": "s.json", "acl_config": "a.json", "exception_dump": {}}
IDLE_SECTION = {"file_format": "npy", "online_run_ut": False, "port": -1, "tls_path": "./"}
IDLE_SECTION |= {"host": "", "nfs_path": ""}
IDLE_SECTION |= {"backward_input": ["a.pt"]}


def test_keys_without_effect_change_nothing_and_say_so(tmp_path, capfd):
    for name in ("with", "without"):
        (tmp_path / name).mkdir()
    section = {"summary_mode": "md5"}
    dump = dump_of(tmp_path / "with", {**IDLE, "statistics": section | IDLE_SECTION})
    said = capfd.readouterr().err
    for key in {**IDLE, **IDLE_SECTION}.keys() - {"$schema", "exception_dump"}:
        assert said.count(f'"{key}" has no effect') == 1, said
    assert dump.data == dump_of(tmp_path / "without", {"statistics": section}).data


def test_check_mode_has_no_effect(tmp_path, capfd):
    config = {"task": "overflow_check", "overflow_check": {"check_mode": "aicore"}}
    assert dump_of(tmp_path, config).data == {}  # without an overflow nothing is recorded
    assert capfd.readouterr().err.count('"check_mode" has no effect') == 1

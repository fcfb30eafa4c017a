"""The editable lists beside support_wrap_ops.yaml: risk levels, and values that are omitted."""

import os
import shutil

import pytest
import torch
from recording import forked, read_dump, run_forked

LOW = {"Tensor.reshape.0", "Torch.cat.0", "Tensor.clamp.0"}
MIDDLE = {"Functional.relu.0", "Tensor.sum.0"}
CORE = {"Functional.linear.0", "Torch.chain_matmul.0"}
MODULE = {"Module.0.Linear.forward.0", "Module.0.Linear.backward.0"}
GRADIENTS = {"Module.0.Linear.parameters_grad.0"}


def both(apis):
    return {f"{api}.{direction}" for api in apis for direction in ("forward", "backward")}


def train(folder, text, level):
    from msprobe.pytorch import PrecisionDebugger

    os.chdir(folder)
    (folder / "config.json").write_text(text)
    debugger = PrecisionDebugger("config.json", dump_path="out", level=level)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4))
    debugger.start(model)
    x = model(torch.ones(2, 4))
    x = torch.nn.functional.relu(torch.cat([x, x]).reshape(4, 4)).clamp(max=0.5)
    torch.chain_matmul(x, x).sum().backward()
    debugger.stop()


@pytest.mark.parametrize(
    ("text", "level", "names"),
    [
        ("{}", "L1", both(LOW | MIDDLE | CORE)),
        ('{"risk_level": null}', "L1", both(LOW | MIDDLE | CORE)),
        ('{"risk_level": ""}', "L1", both(LOW | MIDDLE | CORE)),
        ('{"risk_level": "ALL"}', "L1", both(LOW | MIDDLE | CORE)),
        ('{"risk_level": "FOCUS"}', "L1", both(MIDDLE | CORE)),
        ('{"risk_level": "CORE"}', "L1", both(CORE)),
        ('{"risk_level": "CORE"}', "mix", both(CORE) | MODULE | GRADIENTS),
        ('{"risk_level": "CORE"}', "L0", MODULE | GRADIENTS),
        ('{"risk_level": "CORE", "statistics": {"list": ["cat"]}}', "L1", both(["Torch.cat.0"])),
        (
            '{"risk_level": "CORE", "statistics":'
            ' {"scope": ["Torch.cat.0.forward", "Tensor.reshape.0.forward"]}}',
            "L1",
            {"Torch.cat.0.forward", "Tensor.reshape.0.forward"},
        ),
    ],
)
def test_risk_level(text, level, names, tmp_path):
    run_forked(train, tmp_path, text, level)
    assert set(read_dump(tmp_path / "out").names) == names


@forked
def test_calls_omitted_by_a_risk_level_change_no_number(tmp_path):
    """Calls that the risk level omits, inside recorded calls and beside them."""
    from msprobe.pytorch import PrecisionDebugger

    (tmp_path / "config.json").write_text('{"risk_level": "CORE"}')
    debugger = PrecisionDebugger(str(tmp_path / "config.json"), dump_path=str(tmp_path / "out"))
    debugger.start()
    x = torch.ones(2, 2)
    torch.nn.functional.softmax(x, 0)
    torch.stack([torch.matmul(x, x)])
    torch.nn.functional.linear(x, x)
    torch.matmul(x, x)
    debugger.stop()
    assert read_dump(tmp_path / "out").names == [
        "Torch.matmul.0.forward",
        "Functional.linear.0.forward",
        "Torch.matmul.1.forward",
    ]


@forked
def test_memory_that_a_collective_will_fill_is_left_out(tmp_path):
    from msprobe.pytorch import PrecisionDebugger

    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1
    )
    debugger = PrecisionDebugger(dump_path=str(tmp_path / "out"))
    debugger.start()
    torch.distributed.all_gather([torch.zeros(2)], torch.ones(2))
    torch.distributed.all_reduce(torch.ones(2))
    debugger.stop()
    data = read_dump(tmp_path / "out", rank=0).data
    gathered = data["Distributed.all_gather.0.forward"]
    assert gathered["input_args"][0] is None
    assert gathered["input_args"][1]["Max"] == 1
    assert gathered["output"][0][0]["Max"] == 1
    assert data["Distributed.all_reduce.0.forward"]["input_args"][0]["Max"] == 1


def with_rules(folder, rules, *arguments, **keywords):
    from msprobe.pytorch import PrecisionDebugger, hooks

    shutil.copytree(hooks.LISTS, folder / "lists")
    hooks.LISTS = str(folder / "lists")
    (folder / "lists/builtin_ignore_ops.yaml").write_text(rules)
    debugger = PrecisionDebugger(dump_path=str(folder / "out"), **keywords)
    debugger.start()
    x = torch.ones(2, requires_grad=True)
    y = torch.ones(2, requires_grad=True)
    torch.add(x, y, alpha=2).sum().backward()
    torch.max(torch.ones(2, 2), dim=0)
    debugger.stop()
    return x.grad.tolist(), y.grad.tolist()


@pytest.mark.parametrize("task", ["statistics", "tensor"])
def test_rules_of_the_user(task, tmp_path):
    """A rule applies only to forward: gradients of an omitted value are recorded."""
    rules = "Torch:\n  add: {input: [1, alpha], output: all}\n  max: {output: [0]}\n"
    assert run_forked(with_rules, tmp_path, rules, task=task) == ([1, 1], [2, 2])
    dump = read_dump(tmp_path / "out")
    added = dump.data["Torch.add.0.forward"]
    assert added["input_args"][0]["Max"] == 1
    assert added["input_args"][1] is None
    assert added["input_kwargs"] == {"alpha": None}
    assert added["output"] == [None]
    output = dump.data["Torch.max.0.forward"]["output"]
    assert output[0] is None and output[1]["dtype"] == "torch.int64"
    gradients = dump.data["Torch.add.0.backward"]
    assert [tensor["Max"] for tensor in gradients["output"]] == [1, 2]
    if task == "tensor":
        names = {name for name in dump.tensors() if ".forward." in name and "Torch" in name}
        assert names == {
            "Torch.add.0.forward.input.0.pt",
            "Torch.max.0.forward.input.0.pt",
            "Torch.max.0.forward.output.1.pt",
        }


def test_a_rule_about_an_api_that_is_not_listed_is_a_warning(tmp_path, capfd):
    run_forked(with_rules, tmp_path, "Torch:\n  addd: {input: all}\n")
    assert read_dump(tmp_path / "out").data["Torch.add.0.forward"]["output"][0]["Max"] == 3
    said = capfd.readouterr().err
    assert said.count("builtin_ignore_ops.yaml:2: no API is listed as Torch.addd") == 1


def test_the_shipped_rules_name_apis_that_are_listed(tmp_path, capfd):
    run_forked(train, tmp_path, "{}", "L1")
    assert "no API is listed" not in capfd.readouterr().err

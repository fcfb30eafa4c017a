"""`msprobe overflow_check`: the first NaN or infinity of one run, over all of its ranks."""

import json
import math
import re
import subprocess
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from recording import run_forked, run_ranks
from torch import nn
from torch.nn import functional as F

from msprobe.pytorch import PrecisionDebugger

X = torch.arange(8.0) + 1


def record(rank, program, folder, level="L1"):
    model, step = program(rank)
    debugger = PrecisionDebugger(dump_path=str(folder), level=level, task="statistics")
    debugger.start(model)
    step()
    debugger.stop()


def check(msprobe_bin, folder, tmp_path, *more):
    """(what --format json prints, the file or None, what is printed for people)."""
    command = [msprobe_bin, "overflow_check", "-i", folder, "-o", tmp_path / "out", *more]
    done = subprocess.run([*command, "--format", "json"], capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stderr
    told = json.loads(done.stdout, parse_constant=lambda word: pytest.fail(f"not JSON: {word}"))
    file = json.loads(Path(told["file"]).read_text()) if told["file"] else None
    text = subprocess.run(command, capture_output=True, text=True)
    return told, file, text.stdout + text.stderr


def anomalies(program, tmp_path, msprobe_bin, ranks=3, level="L1"):
    run_ranks(ranks, record, program, tmp_path / "run", level)
    return check(msprobe_bin, tmp_path / "run" / "step0", tmp_path)


def log_of_negative(x):
    return torch.log(x - 3)  # planted: NaN at two of 8 places, -inf at one


def before(rank):
    """NaN on rank 1, before anything is exchanged."""

    def step():
        y = torch.sin(X)
        if rank == 1:
            y = y + log_of_negative(X)
        dist.all_reduce(y)
        return F.gelu(y)

    return None, step


def test_before_the_first_exchange(tmp_path, msprobe_bin):
    told, file, text = anomalies(before, tmp_path, msprobe_bin)
    [(rank, [node])] = file.items()
    assert (rank, node["op_name"]) == ("rank_1", "Torch.log.0.forward")
    [made] = node["data_info"]["output"]
    assert math.isnan(made["Max"]) and node["data_info"]["input_args"][0]["Max"] == 5.0
    assert "# planted" in "".join(node["stack_info"]) and node["construct_info"] == []
    assert told["phase"] == "before the first exchange"
    [first] = told["first"]
    assert first["rank"] == "rank 1" and first["reached"] == [0, 2]
    [value] = first["values"]
    assert (value["nan"], value["infinite"], value["elements"]) == (2, 1, 8)
    assert "NaN and Inf begin on rank 1, Torch.log.0.forward" in text
    assert "2 of 8 elements are NaN; 1 of 8 elements is -Inf" in text
    assert "rank 1 sent NaN and Inf to ranks 0, 2 in Distributed.all_reduce.0.forward" in text or (
        "rank 1 sent NaN to ranks 0, 2 in Distributed.all_reduce.0.forward" in text
    )
    assert "test_overflow_check.py" in text and "# planted" in text


def chinese(msprobe_bin, folder, tmp_path):
    """What is printed with --lang zh; fails on a line with three English words in a row."""
    command = [msprobe_bin, "overflow_check", "-i", folder, "-o", tmp_path / "zh", "--lang", "zh"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for line in (done.stdout + done.stderr).splitlines():
        if ".py:" not in line:
            assert not re.search(r"[a-z]+ [a-z]+ [a-z]+", line), line
    return done.stdout


def test_it_speaks_chinese(tmp_path, msprobe_bin):
    for program in (before, between, after, silent):
        run_ranks(3, record, program, tmp_path / program.__name__)
    said = chinese(msprobe_bin, tmp_path / "before" / "step0", tmp_path)
    assert "NaN 和 Inf 始于 rank 1" in said
    assert "8 个元素中有 2 个是 NaN" in said and "8 个元素中有 1 个是 -Inf" in said
    said = chinese(msprobe_bin, tmp_path / "between" / "step0", tmp_path)
    assert "之前的一次交换也没有带来 NaN 或无穷" in said
    chinese(msprobe_bin, tmp_path / "after" / "step0", tmp_path)
    said = chinese(msprobe_bin, tmp_path / "silent" / "step0", tmp_path)
    assert "没有产生 NaN 或无穷" in said and "3 个 rank" in said and "3 条记录" in said


def silent(rank):
    return None, lambda: torch.sin(X)


def between(rank):
    """NaN on rank 2 between two exchanges, and a later one on rank 0."""

    def step():
        y = torch.sin(X)
        dist.all_reduce(y)
        if rank == 2:
            y = log_of_negative(X)
        gathered = [torch.empty(8) for _ in range(3)]
        dist.all_gather(gathered, y)
        if rank == 0:
            torch.exp(X * 1000)
        return sum(gathered)

    return None, step


def test_between_exchanges(tmp_path, msprobe_bin):
    told, file, _ = anomalies(between, tmp_path, msprobe_bin)
    assert {rank: node["op_name"] for rank, [node] in file.items()} == {
        "rank_2": "Torch.log.0.forward"
    }
    assert told["phase"] == "between exchanges"
    assert [(hop["from"], hop["to"]) for hop in told["travelled"]] == [([2], [0, 1])]
    assert "the exchange before it" in told["first"][0]["why"]


def after(rank):
    def step():
        y = torch.sin(X)
        dist.all_reduce(y)
        if rank != 1:
            torch.exp(y * 1e5 + 1e5)

    return None, step


def test_after_the_last_exchange(tmp_path, msprobe_bin):
    told, file, _ = anomalies(after, tmp_path, msprobe_bin)
    assert {rank: node["op_name"] for rank, [node] in file.items()} == {
        "rank_0": "Torch.exp.0.forward",
        "rank_2": "Torch.exp.0.forward",
    }
    assert told["phase"] == "after the last exchange"


def backward(rank):
    """The gradient of sqrt at 0 is infinite, on rank 1."""
    x = (X - 1 if rank == 1 else X.clone()).requires_grad_()

    def step():
        y = torch.sqrt(x)  # planted
        y.sum().backward()
        dist.all_reduce(x.grad)

    return None, step


def test_in_a_backward_pass(tmp_path, msprobe_bin):
    told, file, _ = anomalies(backward, tmp_path, msprobe_bin)
    [(rank, [node])] = file.items()
    assert (rank, node["op_name"]) == ("rank_1", "Torch.sqrt.0.backward")
    assert set(node["data_info"]) >= {"input", "output"}
    assert told["first"][0]["reached"] == [0, 2]


def point_to_point(rank):
    """Rank 0 makes NaN, sends it to 1, which sends it to 2."""

    def step():
        y = log_of_negative(X) if rank == 0 else torch.empty(8)
        if rank > 0:
            dist.recv(y, rank - 1)
        if rank < 2:
            dist.send(torch.cos(y), rank + 1)

    return None, step


def test_send_and_receive(tmp_path, msprobe_bin):
    told, file, text = anomalies(point_to_point, tmp_path, msprobe_bin)
    assert [*file] == ["rank_0"]
    assert [(hop["from"], hop["to"]) for hop in told["travelled"]] == [([0], [1]), ([1], [2])]
    assert "rank 1 sent NaN to rank 2 in Distributed.send.0.forward" in text


def broadcast(rank):
    def step():
        y = torch.sin(X)
        dist.all_reduce(y)
        y = log_of_negative(X) if rank == 1 else torch.zeros(8)
        dist.broadcast(y, src=1)
        dist.all_reduce(y)

    return None, step


def test_a_broadcast(tmp_path, msprobe_bin):
    told, file, _ = anomalies(broadcast, tmp_path, msprobe_bin, ranks=4)
    assert [*file] == ["rank_1"]
    [hop] = told["travelled"]
    assert hop["op_name"].startswith("Distributed.broadcast.0")
    assert (hop["from"], hop["to"]) == ([1], [0, 2, 3])


def groups(rank):
    """Two groups have exchanges with the same numbers; NaN is in the second group."""

    def step():
        pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
        y = torch.sin(X)
        dist.all_reduce(y, group=pairs[rank // 2])
        if rank == 3:
            y = log_of_negative(X)
        dist.all_reduce(y, group=pairs[rank // 2])

    return None, step


def test_groups_are_told_apart(tmp_path, msprobe_bin):
    told, file, _ = anomalies(groups, tmp_path, msprobe_bin, ranks=4)
    assert [*file] == ["rank_3"] and told["first"][0]["reached"] == [2]


def a_sum_that_overflows(rank):
    def step():
        y = torch.full((4,), 3e38)
        dist.all_reduce(y)

    return None, step


def test_a_reduction_that_overflows(tmp_path, msprobe_bin):
    told, file, _ = anomalies(a_sum_that_overflows, tmp_path, msprobe_bin, ranks=2)
    [node] = next(iter(file.values()))
    assert node["op_name"] == "Distributed.all_reduce.0.forward"
    assert told["first"][0]["kind"] == "exchange"
    assert "every rank gave finite numbers" in told["first"][0]["why"]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 8)

    def forward(self, x):
        return torch.log(self.fc(x) - 1e3)  # planted


def in_a_module(rank):
    model = nn.Sequential(Net())
    return model, lambda: model(X)


def test_the_call_inside_a_module_is_named(tmp_path, msprobe_bin):
    _, file, _ = anomalies(in_a_module, tmp_path, msprobe_bin, ranks=2, level="mix")
    nodes = [node for [node] in file.values()]
    assert {node["op_name"] for node in nodes} == {"Torch.log.0.forward"}
    assert nodes[0]["construct_info"] == ["Module.0.Net.forward.0"]


def data_with_nan(rank):
    data = torch.tensor([1.0, math.nan]) if rank == 1 else torch.ones(2)
    return None, lambda: dist.all_reduce(torch.sin(data))


def test_nan_in_the_data(tmp_path, msprobe_bin):
    told, file, _ = anomalies(data_with_nan, tmp_path, msprobe_bin, ranks=2)
    [(rank, [node])] = file.items()
    assert rank == "rank_1" and told["first"][0]["kind"] == "outside"
    assert "came with input, from data" in node["why"]


def healthy(rank):
    """Masks of -inf and memory that nobody has written are no anomaly."""

    def step():
        y = torch.sin(X)
        mask = torch.full((8,), -math.inf).triu(1) if X.dim() > 1 else None
        scores = y.masked_fill(X > 4, -math.inf)
        F.softmax(scores if mask is None else scores + mask, -1)
        torch.empty(8).copy_(y)
        dist.all_reduce(y)

    return None, step


def test_nothing_is_found_in_a_healthy_run(tmp_path, msprobe_bin):
    told, file, text = anomalies(healthy, tmp_path, msprobe_bin)
    assert told["verdict"] == "none" and file is None and not (tmp_path / "out").exists()
    assert text.count("\n") == 1 and "no NaN or infinity" in text


def alone():
    torch.exp(X * 1000)


def record_alone(folder):
    record(0, lambda rank: (None, alone), folder)


def test_one_process_and_the_exit_code(tmp_path, msprobe_bin):
    run_forked(record_alone, tmp_path / "run")
    folder = tmp_path / "run" / "step0"
    _, file, _ = check(msprobe_bin, folder, tmp_path)
    assert [*file] == ["rank_0"]
    for verb in (["overflow_check"], ["nan_analyze"], ["-f", "pytorch", "nan_analyze"]):
        command = [msprobe_bin, *verb, "-i", folder, "-o", tmp_path / "more"]
        assert subprocess.run(command, capture_output=True).returncode == 0
        assert subprocess.run([*command, "--exit-code"], capture_output=True).returncode == 1
    assert len(list((tmp_path / "more").glob("anomaly_analyze_*.json"))) >= 3
    (folder / "rank").rename(folder / "proc4711")
    _, file, text = check(msprobe_bin, folder, tmp_path)
    assert [*file] == ["proc4711"] and "begins on proc4711" in text


def leaf(value, **more):
    return {
        "type": "torch.Tensor",
        "dtype": "torch.float16",
        "shape": [2, 2],
        "Max": value,
        "Min": value,
        "Mean": value,
        "Norm": value,
        "requires_grad": False,
        **more,
    }


GOOD, BAD = leaf(1.0), leaf(math.nan)


def entry(inputs, outputs, kwargs=None):
    return {"input_args": inputs, "input_kwargs": kwargs or {}, "output": outputs}


def write(folder, data, stacks=None, construct=None):
    """A dump as msprobe 8 writes it."""
    folder.mkdir(parents=True)
    dump = {"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": None}
    (folder / "dump.json").write_text(json.dumps({**dump, "data": data}, indent=1))
    if stacks is not None:
        (folder / "stack.json").write_text(json.dumps(stacks))
    if construct is not None:
        (folder / "construct.json").write_text(json.dumps(construct))


def test_a_dump_of_an_older_tool(tmp_path, msprobe_bin):
    """Leaves in lists, stacks of calls 1 and 10, peers in keywords, a rank without side files."""
    sent = {"dst": {"type": "int", "value": 1}}
    stacks = {
        "0": [["Torch.log.10.forward"], ["File model.py, line 88, in ten, \n y = torch.log(x)"]],
        "1": [["Torch.log.1.forward"], ["File model.py, line 7, in one, \n y = torch.log(x)"]],
    }
    construct = {"Torch.log.1.forward": "Module.layers.4.mlp.Mlp.forward.0"}
    rank0 = {
        "Torch.stack.0.forward": entry([[GOOD, BAD]], [BAD]),  # NaN in a list: not clean
        "Torch.log.1.forward": entry([GOOD], [[GOOD, [BAD]]]),  # NaN in a nested list: made
        "Torch.log.10.forward": entry([GOOD], [BAD]),
        "Distributed.send.0.forward": entry([BAD], [BAD], sent),
    }
    rank1 = {"Distributed.recv.0.forward": entry([GOOD, {"type": "int", "value": 0}], [BAD])}
    write(tmp_path / "step0" / "rank0", rank0, stacks, construct)
    write(tmp_path / "step0" / "rank1", rank1)
    told, file, text = check(msprobe_bin, tmp_path / "step0", tmp_path)
    [(rank, [node])] = file.items()
    assert (rank, node["op_name"]) == ("rank_0", "Torch.log.1.forward")
    assert node["stack_info"] == stacks["1"][1]
    assert node["construct_info"] == ["Module.layers.4.mlp.Mlp.forward.0"]
    assert [*node["data_info"]] == ["input_args", "input_kwargs", "output"]
    assert [value["name"] for value in told["first"][0]["values"]] == ["output.0.1.0"]
    assert "some of 4 elements are NaN" in text
    assert "rank 0 sent NaN to rank 1 in Distributed.send.0.forward" in text
    assert "warning: rank1 has no stack.json" in text and len(told["notes"]) == 2


def test_a_rank_that_cannot_be_read_does_not_hide_the_others(tmp_path, msprobe_bin):
    write(tmp_path / "step0" / "rank0", {"Torch.log.0.forward": entry([GOOD], [BAD])}, {}, {})
    write(tmp_path / "step0" / "rank1", {"Torch.log.0.forward": entry([GOOD], [GOOD])}, {}, {})
    (tmp_path / "step0" / "rank1" / "dump.json").write_text('{"task": "statistics", "data": {"a"]')
    told, file, text = check(msprobe_bin, tmp_path / "step0", tmp_path)
    assert [*file] == ["rank_0"] and "rank1" in told["notes"][0]
    assert "not every rank could be read" in text
    write(tmp_path / "step1" / "rank0", {"Torch.log.0.forward": entry([GOOD], [GOOD])}, {}, {})
    (tmp_path / "step1" / "rank1").mkdir()
    (tmp_path / "step1" / "rank1" / "dump.json").write_text('{"task": "statistics", "data": {"a"]')
    command = [msprobe_bin, "overflow_check", "-i", tmp_path / "step1", "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2 and json.loads(done.stdout)["verdict"] == "unknown"


def test_of_several_steps_the_first_with_an_anomaly(tmp_path, msprobe_bin):
    for step, made in enumerate([GOOD, BAD, BAD]):
        data = {"Torch.log.0.forward": entry([GOOD], [made])}
        write(tmp_path / "run" / f"step{step}" / "rank0", data, {}, {})
    told, _, text = check(msprobe_bin, tmp_path / "run", tmp_path)
    assert told["first"][0]["rank"] == "step1/rank 0" and "step1/rank 0" in text


@pytest.mark.parametrize("kind", ["missing", "empty", "damaged"])
def test_bad_input_is_one_clear_line(kind, tmp_path, msprobe_bin):
    folder = tmp_path / "step0"
    if kind != "missing":
        folder.mkdir()
    if kind == "damaged":
        (folder / "rank0").mkdir()
        (folder / "rank0" / "dump.json").write_text("[1, 2")
    command = [msprobe_bin, "overflow_check", "-i", folder, "-o", tmp_path / "out"]
    done = subprocess.run(command, capture_output=True, text=True)
    errors = [line for line in done.stderr.splitlines() if not line.startswith("hint:")]
    assert done.returncode == 2 and len(errors) == 1 and errors[0].startswith("error: ")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["model.pt", "weights.pt"])
def test_weights_are_no_dump(name, tmp_path, msprobe_bin):
    """They have no calls: that nothing begins in them would say nothing."""
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    torch.save({"weight": torch.full([2], math.nan)}, folder / name)
    command = [msprobe_bin, "nan_analyze", "-i", folder, "-o", tmp_path / "out"]
    done = subprocess.run(command, capture_output=True, text=True)
    found = "a checkpoint" if name == "model.pt" else "tensor files"
    assert done.returncode == 2 and f"found {found}" in done.stderr
    assert "msprobe compare TARGET GOLDEN" in done.stderr


@pytest.mark.parametrize("verb", ["nan_analyze", "overflow_check"])
def test_the_verb_has_the_name_that_was_typed(verb, tmp_path, msprobe_bin):
    write(tmp_path / "run", {"Torch.log.0.forward": entry([GOOD], [BAD])}, {}, {})
    command = [msprobe_bin, verb, "-i", tmp_path / "run", "-o", tmp_path / "out"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout.startswith(f"msprobe {verb}: NaN begins"), done.stderr


def weights_with_nan(rank):
    """The weights were spoiled before: the modules show clean inputs only."""
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    with torch.no_grad():
        model[0].weight[0, 0] = math.nan
    return model, lambda: model(torch.ones(3, 4)).sum().backward()


def test_a_weight_that_was_spoiled_before(tmp_path, msprobe_bin):
    """Neither a module around it nor a backward pass made the NaN."""
    told, file, _ = anomalies(weights_with_nan, tmp_path, msprobe_bin, ranks=2, level="mix")
    assert {node["op_name"] for [node] in file.values()} == {"Functional.linear.0.forward"}
    assert [first["kind"] for first in told["first"]] == ["outside", "outside"]
    assert told["first"][0]["values"][0]["text"] == "1 of 16 elements is NaN"

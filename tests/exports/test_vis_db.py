"""The .vis.db files of `graph_visualize` and `compare --vis-db`, read with Python's sqlite3."""

import json
import re
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "report_page"))

from page_tools import HOSTILE, WRONG, tensor, write_dump

from recorded import recorded

PROGRAMS = recorded("programs/26.2.0")
MODULE = "Module.layers.1.mlp.MLP.forward.0"

# As msprobe 26.2.0 writes it: what the plugin asks for by name.
NODES = {
    "id": "TEXT",
    "graph_id": "TEXT",
    "node_order": "INTEGER",
    "node_name": "TEXT",
    "node_type": "TEXT",
    "up_node": "TEXT",
    "sub_nodes": "TEXT",
    "precision_index": "INTEGER",
    "overflow_level": "TEXT",
    "micro_step_id": "INTEGER",
    "matched_node_link": "TEXT",
    "stack_id": "TEXT",
    "parallel_merge_info": "TEXT",
    "matched_distributed": "TEXT",
    "modified": "INTEGER",
    "input_data": "TEXT",
    "output_data": "TEXT",
    "data_source": "TEXT",
    "dump_data_dir": "TEXT",
    "step": "INTEGER",
    "rank": "INTEGER",
    "is_distributed": "INTEGER",
}
CONFIG = {
    "id": "TEXT",
    "graph_type": "TEXT",
    "task": "TEXT",
    "tool_tip": "TEXT",
    "micro_steps": "INTEGER",
    "overflow_check": "INTEGER",
    "node_colors": "TEXT",
    "rank_list": "TEXT",
    "step_list": "TEXT",
}
INDEXES = {
    "index1": "step, rank, data_source, up_node, node_order",
    "index2": "step, rank, data_source, node_name",
    "index3": "step, rank, data_source, node_order",
    "index4": "step, rank, node_order",
    "index5": "step, rank, micro_step_id, node_order",
    "index6": "step, rank, modified, matched_node_link",
    "index7": "is_distributed",
}


def run(binary, *arguments, cwd=None):
    command = [binary, *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=60)


def rows(path, query, *values):
    database = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    database.row_factory = sqlite3.Row
    try:
        return [dict(row) for row in database.execute(query, values)]
    finally:
        database.close()


def nodes_of(path, source="NPU", step=0, rank=0):
    query = "SELECT * FROM tb_nodes WHERE data_source = ? AND step = ? AND rank = ?"
    found = rows(path, query + " ORDER BY node_order", source, step, rank)
    return {node["node_name"]: node for node in found}


def graph(binary, folder, *arguments):
    """The file that graph_visualize writes."""
    done = run(binary, "graph_visualize", *arguments, "-o", folder)
    assert done.returncode == 0, done.stderr
    (path,) = folder.glob("*.vis.db")
    assert f"written: {path} " in done.stdout
    return path


@pytest.fixture
def pair(tmp_path):
    name = f"{HOSTILE}.0.forward"
    write_dump(tmp_path / "target", wrong=True, extra=True, hostile=[name])
    write_dump(tmp_path / "golden", hostile=[name])
    return tmp_path


def test_the_schema_is_that_of_the_older_tool(tmp_path, msprobe_bin):
    path = graph(msprobe_bin, tmp_path, "-tp", PROGRAMS / "encoder/mix_statistics/step0/rank")
    assert re.fullmatch(r"build_\d{14}\.vis\.db", path.name)
    columns = {r["name"]: r["type"] for r in rows(path, "PRAGMA table_info(tb_nodes)")}
    assert columns == NODES
    config = {r["name"]: r["type"] for r in rows(path, "PRAGMA table_info(tb_config)")}
    assert config == CONFIG
    assert [r["name"] for r in rows(path, "PRAGMA table_info(tb_stack)")] == ["id", "stack_info"]
    indexes = rows(path, "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql != ''")
    assert {r["name"]: r["sql"] for r in indexes} == {
        name: f"CREATE INDEX {name} ON tb_nodes ({columns})" for name, columns in INDEXES.items()
    }
    assert rows(path, "PRAGMA integrity_check") == [{"integrity_check": "ok"}]


def test_the_graph_of_one_dump(tmp_path, msprobe_bin):
    path = graph(msprobe_bin, tmp_path, "-tp", PROGRAMS / "encoder/mix_statistics/step0/rank")
    nodes = nodes_of(path)
    assert [node["node_order"] for node in nodes.values()] == list(range(len(nodes)))
    root = list(nodes.values())[-1]
    assert root["node_name"] == "DefaultModel"
    assert root["up_node"] == ""
    for node in nodes.values():  # both directions agree
        for child in json.loads(node["sub_nodes"] or "[]"):
            assert nodes[child]["up_node"] == node["node_name"]
        if node is not root:
            assert node["node_name"] in json.loads(nodes[node["up_node"]]["sub_nodes"])
    kinds = {name: node["node_type"] for name, node in nodes.items()}
    assert kinds["Functional.linear.0.forward"] == "1"
    assert kinds["Module.embed.Linear.forward.0"] == "0"
    assert kinds["Apis_Between_Modules.0"] == "9"
    assert nodes["Functional.linear.0.forward"]["up_node"] == "Module.embed.Linear.forward.0"
    gradients = nodes["Module.head.Linear.parameters_grad.0"]
    assert gradients["up_node"] == "Module.head.Linear.backward.0"
    values = json.loads(nodes["Functional.linear.0.forward"]["input_data"])
    assert values["Functional.linear.0.forward.input.0"] == {
        "type": "torch.Tensor",
        "dtype": "torch.float32",
        "shape": "[2, 3, 4]",
        "Max": "0.46875",
        "Min": "-0.46875",
        "Mean": "-0.0423177070915699",
        "Norm": "1.370642900466919",
        "requires_grad": "False",
        "data_name": "-1",
    }
    attention = nodes["Functional.multi_head_attention_forward.0.forward"]["input_data"]
    plain = json.loads(attention)
    name = "Functional.multi_head_attention_forward.0.forward.input"
    assert plain[f"{name}.3"]["value"] == "8"
    assert plain[f"{name}.3"]["dtype"] == "<class int>"
    assert plain[f"{name}.7"] == {"value": "null"}
    stacks = {r["id"]: r["stack_info"] for r in rows(path, "SELECT * FROM tb_stack")}
    assert (
        "self.embed(x)" in json.loads(stacks[nodes["Functional.linear.0.forward"]["stack_id"]])[0]
    )
    assert stacks[root["stack_id"]] == "[]"
    (config,) = rows(path, "SELECT * FROM tb_config")
    assert (config["graph_type"], config["node_colors"]) == ("build", "null")
    assert (config["rank_list"], config["step_list"]) == ("[0]", "[0]")


def test_a_comparison_has_our_verdicts(pair, msprobe_bin):
    done = run(
        msprobe_bin,
        "compare",
        "target",
        "golden",
        "-o",
        "out",
        "--vis-db",
        "new/x.vis.db",
        cwd=pair,
    )
    assert done.returncode == 0, done.stderr
    assert "written: new/x.vis.db" in done.stdout
    path = pair / "new/x.vis.db"
    target, golden = nodes_of(path), nodes_of(path, "Bench")
    assert target[WRONG[0]]["precision_index"] == 1
    assert target["Functional.linear.1.forward"]["precision_index"] == 0
    assert target["Torch.clone.0.forward"]["precision_index"] is None  # no partner
    assert target["Torch.clone.0.forward"]["matched_node_link"] == "[]"
    assert json.loads(target[WRONG[0]]["matched_node_link"]) == ["DefaultModel", MODULE, WRONG[0]]
    assert all(node["precision_index"] is None for node in golden.values())
    (value,) = json.loads(target[WRONG[0]]["output_data"]).values()
    assert value["Result"] == "error"
    assert float(value["Max diff"]) > 0
    assert "float32" in json.loads(value["Err_message"])[0]
    (value,) = json.loads(target["Functional.linear.1.forward"]["output_data"]).values()
    assert (value["Result"], value["Err_message"]) == ("pass", "[]")
    assert (value["Max diff"], value["MaxRelativeErr"]) == ("0.0", "0.0%")
    (value,) = json.loads(golden[WRONG[0]]["output_data"]).values()
    assert "Result" not in value
    hostile = f"{HOSTILE}.0.forward"
    assert hostile in target
    assert list(json.loads(target[hostile]["input_data"])) == [f"{hostile}.input.0"]
    (config,) = rows(path, "SELECT * FROM tb_config")
    assert (config["graph_type"], config["task"]) == ("compare", "summary")
    levels = [color["accuracy_level"] for color in json.loads(config["node_colors"]).values()]
    assert levels == ["pass", "warning", "warning", "error", "unmatched node"]


@pytest.mark.parametrize(
    ("kind", "task", "key"),
    [("L0_tensor", "all", "Cosine"), ("mix_tensor", "all", "EucDist"), ("L0_md5", "md5", "md5")],
)
def test_tensors_and_checksums(tmp_path, msprobe_bin, kind, task, key):
    dumps = recorded("tables/26.2.0/dumps") / kind
    path = graph(msprobe_bin, tmp_path, "-tp", dumps / "pert", "-gp", dumps / "base")
    (config,) = rows(path, "SELECT * FROM tb_config")
    assert config["task"] == task
    node = nodes_of(path)["Module.fc.Linear.forward.0"]
    assert node["precision_index"] == 1
    (value,) = json.loads(node["output_data"]).values()
    assert key in value
    assert (node["dump_data_dir"] is not None) == (task == "all")


def test_ranks_steps_and_exchanges(tmp_path, msprobe_bin):
    ddp = PROGRAMS / "ddp/mix_statistics/step0"
    path = graph(msprobe_bin, tmp_path / "ranks", "-tp", ddp, "-gp", ddp)
    (config,) = rows(path, "SELECT * FROM tb_config")
    assert config["rank_list"] == "[0, 1]"
    node = nodes_of(path, rank=1)["Distributed.all_reduce.0.forward"]
    assert node["is_distributed"] == 1
    assert json.loads(node["matched_distributed"]) == {
        "communications_type": "all_reduce",
        "nodes_info": {"0": [0, "Distributed.all_reduce.0.forward"]},
    }
    path = graph(msprobe_bin, tmp_path / "steps", "-tp", PROGRAMS / "lstm/mix_statistics")
    (config,) = rows(path, "SELECT * FROM tb_config")
    assert config["step_list"] == "[0, 1]"
    assert list(nodes_of(path, step=0)) == list(nodes_of(path, step=1))


def spoil(folder, call, slot, **numbers):
    path = folder / "dump.json"
    dump = json.loads(path.read_text())
    dump["data"][call][slot][0].update(numbers)
    path.write_text(json.dumps(dump))


def test_overflow(tmp_path, msprobe_bin):
    write_dump(tmp_path / "run")
    first, second = "Functional.linear.0.forward", "Functional.gelu.0.forward"
    third, fourth = "Functional.linear.1.forward", "Functional.gelu.1.forward"
    spoil(tmp_path / "run", first, "output", Max=float("nan"))
    spoil(tmp_path / "run", second, "input_args", Max=float("nan"))
    spoil(tmp_path / "run", second, "output", Min=float("-inf"))
    spoil(tmp_path / "run", third, "input_args", Mean=float("inf"))
    spoil(tmp_path / "run", fourth, "output", Norm=1e9)
    path = graph(msprobe_bin, tmp_path / "out", "-tp", tmp_path / "run", "-oc")
    levels = {name: node["overflow_level"] for name, node in nodes_of(path).items()}
    assert [levels[name] for name in (first, second, third, fourth)] == [
        "critical",
        "high",
        "medium",
        "high",
    ]
    assert levels["Functional.linear.2.forward"] is None
    path = graph(msprobe_bin, tmp_path / "without", "-tp", tmp_path / "run")
    assert {node["overflow_level"] for node in nodes_of(path).values()} == {None}


def write_calls(folder, calls):
    """`calls`: name -> what construct.json says of it."""
    folder.mkdir(parents=True)
    value = {"input_args": [tensor(1.0)], "input_kwargs": {}, "output": [tensor(2.0)]}
    head = {"task": "statistics", "level": "mix", "framework": "pytorch", "dump_data_dir": None}
    data = dict.fromkeys(calls, value)
    (folder / "dump.json").write_text(json.dumps({**head, "data": data}))
    (folder / "construct.json").write_text(json.dumps(calls))


def test_rings_deep_parents_and_missing_parents_end_at_the_root(tmp_path, msprobe_bin):
    calls = {
        "Module.a.A.forward.0": "Module.b.B.forward.0",
        "Module.b.B.forward.0": "Module.a.A.forward.0",
        "Module.self.S.forward.0": "Module.self.S.forward.0",
        "Torch.add.0.forward": "Module.absent.X.forward.0",
        "DefaultModel": None,  # a call with the name of the root
    }
    calls |= {f"Module.d.D.forward.{i}": f"Module.d.D.forward.{i + 1}" for i in range(1000)}
    write_calls(tmp_path / "run", calls)
    path = graph(msprobe_bin, tmp_path / "out", "-tp", tmp_path / "run")
    nodes = nodes_of(path)
    assert len(nodes) >= len(calls) + 1
    for name in nodes:
        depth = 0
        while nodes[name]["up_node"]:
            name, depth = nodes[name]["up_node"], depth + 1
        assert depth <= 401
    rings = {nodes[f"Module.{n}.forward.0"]["up_node"] for n in ("a.A", "b.B")}
    assert "DefaultModel#2" in rings


def test_micro_steps(tmp_path, msprobe_bin):
    said = {
        "Torch.add.0.forward": ["Module.a.A.forward.0", 0],
        "Module.a.A.forward.0": [None, 0],
        "Module.a.A.forward.1": [None, 3],
    }
    write_calls(tmp_path / "said", said)
    path = graph(msprobe_bin, tmp_path / "o1", "-tp", tmp_path / "said")
    assert nodes_of(path)["Module.a.A.forward.1"]["micro_step_id"] == 3
    assert nodes_of(path)["Torch.add.0.forward"]["up_node"] == "Module.a.A.forward.0"
    seen = ("forward.0", "backward.0", "forward.1", "backward.1")
    write_calls(tmp_path / "seen", {f"Module.a.A.{name}": None for name in seen})
    path = graph(msprobe_bin, tmp_path / "o2", "-tp", tmp_path / "seen")
    steps = [nodes_of(path)[f"Module.a.A.{name}"]["micro_step_id"] for name in seen]
    assert steps == [0, 0, 1, 1]
    (config,) = rows(path, "SELECT * FROM tb_config")
    assert config["micro_steps"] == 2


def test_the_command_of_msprobe_8(pair, msprobe_bin):
    (pair / "compare.json").write_text(
        json.dumps({"npu_path": "target", "bench_path": "golden", "is_print_compare_log": False})
    )
    command = ("-f", "pytorch", "graph", "-i", "compare.json", "-o", "out", "-oc", "-f")
    done = run(msprobe_bin, *command, cwd=pair)
    assert done.returncode == 0, done.stderr
    assert len(list((pair / "out").glob("compare_*.vis.db"))) == 1
    (pair / "build.json").write_text(json.dumps({"npu_path": "target"}))
    done = run(msprobe_bin, "-f", "pytorch", "graph", "-i", "build.json", "-o", "one", cwd=pair)
    assert done.returncode == 0, done.stderr
    assert len(list((pair / "one").glob("build_*.vis.db"))) == 1
    (pair / "merge.json").write_text(json.dumps({"npu_path": "target", "parallel_merge": {}}))
    done = run(msprobe_bin, "-f", "pytorch", "graph", "-i", "merge.json", "-o", "one", cwd=pair)
    assert done.returncode == 2
    assert "not merged" in done.stderr


def test_steps_are_judged_as_compare_judges_them(pair, msprobe_bin):
    for side in ("target", "golden"):
        for step in ("step0", "step1"):
            shutil.copytree(pair / side, pair / "runs" / side / step / "rank0")
    both = ("-tp", "runs/target", "-gp", "runs/golden", "-o", "out")
    graph = run(msprobe_bin, "graph_visualize", *both, cwd=pair).stdout
    compared = run(msprobe_bin, "compare", *both, cwd=pair).stdout
    report = graph[: graph.index("written:")].split()
    assert report == compared[: compared.index("written:")].split()
    assert "step 1: differs, inherited from step 0" in graph
    assert graph.count("FIRST DIVERGENCE") == 1
    (path,) = (pair / "out").glob("compare_*.vis.db")
    colors = [
        {name for name, node in nodes_of(path, step=step).items() if node["precision_index"] == 1}
        for step in (0, 1)
    ]
    assert WRONG[0] in colors[0]
    assert not colors[1]  # of an inherited step no call is the first that is wrong
    later = nodes_of(path, step=1)
    assert later[WRONG[0]]["precision_index"] == 0.35
    assert later["Functional.linear.1.forward"]["precision_index"] == 0


def test_a_call_with_a_wrong_input_is_not_red(pair, msprobe_bin):
    """Red is where an error begins; what it reaches has a color of its own."""
    path = graph(msprobe_bin, pair / "out", "-tp", pair / "target", "-gp", pair / "golden")
    nodes = nodes_of(path)
    red = {name for name, node in nodes.items() if node["precision_index"] == 1}
    assert red == {WRONG[0], MODULE}  # and the module that holds it
    reached = ("Functional.linear.2.forward", "Functional.gelu.2.forward")
    assert {nodes[name]["precision_index"] for name in reached} == {0.35}


def test_what_cannot_be_shown_is_said(pair, msprobe_bin):
    apis = PROGRAMS / "encoder/L1_statistics/step0/rank"
    done = run(msprobe_bin, "graph_visualize", "-tp", apis, "-o", "out", cwd=pair)
    assert done.returncode == 2
    assert "level L0 or mix" in done.stderr
    assert not (pair / "out").exists()  # nothing is left behind
    both = ("graph_visualize", "-tp", "target", "-gp", "golden", "-o", "out")
    done = run(msprobe_bin, *both, "--tp", "2", "1", cwd=pair)
    assert done.returncode == 2
    assert "not merged" in done.stderr
    one = ("--rank_size", "1", "1", "--tp", "1", "1", "--pp", "1", "1", "--vpp", "1", "1")
    assert run(msprobe_bin, *both, *one, cwd=pair).returncode == 0
    (pair / "file").write_text("")
    done = run(
        msprobe_bin, "compare", "target", "golden", "-o", "o", "--vis-db", "file/x", cwd=pair
    )
    assert done.returncode == 2
    assert WRONG[0] in done.stdout  # what was found is printed


def test_help_shows_the_flags_that_everybody_needs(msprobe_bin):
    text = run(msprobe_bin, "graph_visualize", "--help").stdout
    for flag in ("-tp", "-gp", "-o,", "-oc", "--rank", "--step"):
        assert flag in text

"""The unchanged examples of msprobe's first documentation write the folders that it shows."""

import json
import subprocess

import pytest

EXAMPLES = "tests/data/first_documentation"
# Definitions that the examples leave to the reader.
BEFORE = """
import torch
model = torch.nn.Linear(4, 2)
data_loader = [(torch.ones(3, 4), None)] * 2
"""


def run(python, root, folder, section, config):
    """Runs an example; it writes to ./dump_path below `folder`."""
    text = (root / EXAMPLES / f"example_{section}.py.txt").read_text()
    lines = [line for line in text.splitlines() if "npu" not in line]
    # The loops are indented with tabs and with blanks; "..." stands for lines of the reader.
    lines = [line.expandtabs(4).replace("    #...", "    loss = output.sum()") for line in lines]
    program = "\n".join(lines)
    (folder / "train.py").write_text(program if section == "2.1" else BEFORE + program)
    (folder / "config.json").write_text(json.dumps(config | {"dump_path": "./dump_path"}))
    done = subprocess.run([python, "train.py"], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder / "dump_path"


def names(rank):
    return list(json.loads((rank / "dump.json").read_text())["data"])


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
def test_whole_model(forked_python, root, tmp_path, level):
    config = {"task": "tensor", "level": level}
    rank = run(forked_python, root, tmp_path, "2.1", config) / "step0" / "rank"
    assert sorted(path.name for path in rank.iterdir()) == [
        "construct.json",
        "coverage.json",
        "dump.json",
        "dump_tensor_data",
        *(["signatures.json"] if level != "L0" else []),
        "stack.json",
        "weights.json",
    ]
    files = {path.name for path in (rank / "dump_tensor_data").iterdir()}
    modules = {
        "Module.linear_1.Linear.forward.0.input.0.pt",
        "Module.linear_2.Linear.backward.0.input.0.pt",
        "Module.linear_2.Linear.parameters_grad.0.weight.pt",
    }
    apis = {"Functional.relu.0.forward.output.0.pt", "Functional.linear.1.backward.input.0.pt"}
    assert modules <= files if level != "L1" else not modules & files
    assert apis <= files if level != "L0" else not apis & files


@pytest.mark.parametrize("section", ["2.2", "2.3"])
def test_each_step(forked_python, root, tmp_path, section):
    dump_path = run(forked_python, root, tmp_path, section, {"task": "statistics", "level": "L1"})
    assert sorted(path.name for path in dump_path.iterdir()) == ["step0", "step1"]
    for step in dump_path.iterdir():
        found = names(step / "rank")
        assert found[0] == "Functional.linear.0.forward"
        assert found[-1] == "Functional.linear.0.backward"
        # Calls after forward_backward_dump_end() are not recorded.
        assert ("Tensor.sum.0.forward" in found) == (section == "2.2")

"""The older tool's own compare reads MindSpore dumps of ours, without MindSpore.

`msprobe.mindspore` of the older tool imports MindSpore; its comparison, inside, does not. The
package is entered without that import.
"""

import csv
import os
import subprocess

import pytest
from runs import run_forked
from test_compare import record

COMPARE = """
import os, sys, types
import msprobe
package = types.ModuleType("msprobe.mindspore")
package.__path__ = [os.path.join(os.path.dirname(msprobe.__file__), "mindspore")]
sys.modules["msprobe.mindspore"] = package
from msprobe.msprobe import main
sys.argv[0] = "msprobe"
main()
assert "mindspore" not in sys.modules
"""


def test_the_older_tool_compares_dumps_of_ours(root, tmp_path):
    peer = root / ".cache/peer/bin/python"
    if not peer.exists():
        pytest.skip("no .cache/peer: make bench-peer installs the older tool there")
    wrong = run_forked(record, tmp_path / "wrong", "mix", wrong=True)
    right = run_forked(record, tmp_path / "right", "mix")
    words = [peer, "-c", COMPARE, "compare", "-tp", f"{wrong}/dump.json"]
    words += ["-gp", f"{right}/dump.json", "-o", tmp_path / "out"]
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run([*map(str, words)], capture_output=True, text=True, env=clean)
    assert done.returncode == 0, done.stdout + done.stderr
    (table,) = (tmp_path / "out").glob("compare_result_*.csv")
    with table.open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    forward = {row["NPU Name"]: row for row in rows if ".forward." in row["NPU Name"]}
    assert len(forward) > 50
    same = forward["Cell.features.SequentialCell.forward.0.output.0"]
    assert same["Result"] == "pass" and same["NPU Dtype"] == "Float32"
    head = forward["Cell.head.Dense.forward.0.input.0"]
    assert float(head["Max diff"]) > 0
    assert [row for row in forward.values() if row["NPU Name"].startswith("Tensor.__mul__")]

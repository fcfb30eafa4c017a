"""`msprobe compare --ray` of runs in different parallel layouts: the nodes send the dumps of their
ranks, which are joined where the command was typed."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from joined_runs import write_joined_runs
from small_runs import without_files

JSON = ("--format", "json")
# node: of each run the ranks that it has; -1: the run of one process. No node has both sides.
APART = {"a": {"bad": [0, 1], "two": [1]}, "b": {"bad": [2, 3], "two": [0]}}
DIES = "def begin(node, paths):\n    if node == 'b': raise RuntimeError('no such node')\n"

# For fake_ray/ray.py. Tests replace `begin`, which raises where a node cannot do it, and `change`.
CALL = """
import json
import os


def begin(node, paths):
    pass


def change(node, packed):
    return packed


def call(node, function, *given):
    if function.__name__ == "_look":
        has = function(*given)
        for side in ("target", "golden"):
            ranks = HAS[node].get(has[side]["path"], [])
            has[side]["dumps"] = [dump for dump in has[side]["dumps"] if dump[1] in ranks]
        return has
    if function.__name__ != "_copy":
        begin(node, None)
        return function(*given)
    begin(node, given[0]["paths"])
    return change(node, function(*given))
"""


@pytest.fixture
def runs(tmp_path):
    return write_joined_runs(tmp_path)


@pytest.fixture
def msprobe(msprobe_bin, runs):
    def run(*words, code=0):
        done = subprocess.run(
            [msprobe_bin, *words], cwd=runs, capture_output=True, timeout=120, text=True
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done

    return run


@pytest.fixture
def on_nodes(msprobe, runs, monkeypatch):
    """Compares with --ray on nodes that are threads. has: what each of them has; patch: Python
    behind CALL."""

    def run(*words, has=APART, patch="", code=0):
        script = runs / "nodes.py"
        script.write_text(f"{CALL}\nHAS = {has}\nNODES = list(HAS)\n{patch}")
        monkeypatch.setenv("FAKE_RAY", str(script))
        monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent / "fake_ray"))
        return msprobe("compare", *words, "--ray", "auto", code=code)

    return run


def errors_in(text):
    steps = json.loads(text)["steps"].values()
    return [step["ranks"][""]["error"] for step in steps]


def test_the_report_is_that_of_one_process(msprobe, on_nodes, runs):
    alone = msprobe("compare", "bad", "two", "-o", "alone", *JSON).stdout
    text = msprobe("compare", "bad", "two", "-o", "alone").stdout
    assert on_nodes("bad", "two", "-o", "out", *JSON).stdout == alone
    assert without_files(on_nodes("bad", "two", "-o", "out").stdout) == without_files(text)
    on_nodes("bad", "two", "-o", "out", "--exit-code", "--junit", "ray.xml", code=1)
    msprobe("compare", "bad", "two", "-o", "alone", "--junit", "alone.xml")
    assert (runs / "ray.xml").read_text() == (runs / "alone.xml").read_text()
    assert len(list((runs / "out").glob("step*/compare_result_*.csv"))) == 6
    assert msprobe("merge_result", "-i", "out", "-o", "merged", *JSON).stdout == alone


@pytest.mark.parametrize("sides", [("bad", "one"), ("one", "four")])
def test_one_side_is_one_process(msprobe, on_nodes, sides):
    has = {"a": {"one": [-1]}, "b": {"bad": [0, 1, 2, 3], "four": [0, 1, 2, 3]}}
    alone = msprobe("compare", *sides, "-o", "alone", *JSON).stdout
    assert on_nodes(*sides, "-o", "out", *JSON, has=has).stdout == alone


def test_flags_are_kept(msprobe, on_nodes, runs):
    (runs / "layout.yaml").write_text(
        "target_mesh: {tp: 4}\ngolden_mesh: {tp: 2}\nignore: ['Functional.relu.*']\n"
    )
    flags = ("--layout", "layout.yaml", "--fail-on", "differs", "--step", "1", *JSON)
    alone = msprobe("compare", "bad", "two", "-o", "alone", *flags, code=1).stdout
    assert on_nodes("bad", "two", "-o", "out", *flags, code=1).stdout == alone


def test_ranks_of_a_lost_node_are_sent_by_another(msprobe, on_nodes):
    everywhere = {node: {"bad": [0, 1, 2, 3], "two": [0, 1]} for node in "ab"}
    done = on_nodes("bad", "two", "-o", "out", *JSON, has=everywhere, patch=DIES)
    assert "node b was lost" in done.stderr
    assert done.stdout == msprobe("compare", "bad", "two", "-o", "alone", *JSON).stdout


def test_what_only_a_lost_node_has_is_not_compared(msprobe, on_nodes):
    done = on_nodes("bad", "two", "-o", "out", *JSON, patch=DIES, code=2)
    for error in errors_in(done.stdout):
        assert error.startswith("not compared: the node that has bad/step")
        assert error.endswith("/rank2/dump.json was lost: b")
    assert "msprobe compare bad two --part 3/4 -o out" in done.stderr
    # What the hints say completes the comparison.
    for part in (1, 3, 4):
        msprobe("compare", "bad", "two", "--part", f"{part}/4", "-o", "out")
    alone = msprobe("compare", "bad", "two", "-o", "alone", *JSON).stdout
    assert msprobe("merge_result", "-i", "out", "-o", "out", *JSON).stdout == alone


def test_a_cluster_that_is_gone(on_nodes):
    gone = "def begin(node, paths):\n    if node == 'b': os._exit(1)\n"
    done = on_nodes("bad", "two", "-o", "out", *JSON, patch=gone, code=2)
    for error in errors_in(done.stdout):
        assert "not compared: --ray: the process of Python ended with exit code 1" in error


def test_a_rank_that_cannot_be_read_is_the_error_of_one_process(msprobe, on_nodes, runs):
    (runs / "bad" / "step1" / "rank2" / "dump.json").write_text('{"data": 7}')
    alone = msprobe("compare", "bad", "two", "-o", "alone", *JSON, code=2)
    done = on_nodes("bad", "two", "-o", "out", *JSON, code=2)
    assert done.stdout == alone.stdout
    assert alone.stderr in done.stderr


def test_elements_are_not_sent(on_nodes, runs):
    (runs / "bad" / "step0" / "rank2" / "dump_tensor_data").mkdir()
    (runs / "bad" / "step0" / "rank2" / "dump_tensor_data" / "a.pt").write_text("")
    shared = on_nodes("bad", "two", "-o", "out", *JSON)
    assert not list((runs / "out").glob("**/*.pt"))
    shutil.move(runs / "bad" / "step0" / "rank2" / "dump_tensor_data", runs / "elsewhere")
    elements = 'def change(node, packed):\n    return packed.replace(b"false", b"true", 1)\n'
    done = on_nodes("bad", "two", "-o", "out", *JSON, patch=elements, code=2)
    assert "the elements of bad/step0/rank0/dump.json, which are not copied" in done.stderr
    done = on_nodes("bad", "two", "-o", "out", *JSON, "--no-tensor-files", patch=elements)
    assert done.stdout == shared.stdout


# What a node changes of its answer, and the error.
HOSTILE = {
    "another folder": ("files[0][0] = '../dump.json'", "the number of a file"),
    "a file twice": ("files.append(files[0])", "the number of a file"),
    "no dump": ("files.pop(0)", "the number of a file"),
    "a number beyond all": ("files[-1][0] = '99'", "the number of a file"),
    "a size": ("wrong_size = len(files[-1][1]) + 1", "the size of a file"),
    "less than all": ("wrong_size = len(files[-1][1]) - 1", "the end of the files"),
    "a negative size": ("wrong_size = -1", "the size of a file"),
    "nothing": ("files = []", "ended there with exit code 0"),
    "no answer": ("head = 7", "the end of the files"),
    "too much": ("files = []; head['bytes'] = 1 << 40", "more than 1.0 GB"),
}
CHANGE = """
def change(node, packed):
    if node == "a":
        return packed
    line, rest = packed.split(b"\\n", 1)
    head = json.loads(line)
    files = []
    for name, size in head["files"]:
        files.append([name, rest[:size]])
        rest = rest[size:]
    wrong_size = None
    {}
    if head != 7:
        head["files"] = [[name, len(content)] for name, content in files]
        if wrong_size is not None:
            head["files"][-1][1] = wrong_size
    return b"\\n".join([json.dumps(head).encode(), b"".join(f[1] for f in files)])
"""


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_answers_are_errors(on_nodes, runs, what):
    hostile, error = HOSTILE[what]
    before = {path.name for path in runs.parent.iterdir()}
    done = on_nodes("bad", "two", "-o", "out", *JSON, patch=CHANGE.format(hostile), code=2)
    for found in errors_in(done.stdout):
        assert error in found and "node b: " in found
    assert {path.name for path in runs.parent.iterdir()} == before
    names = {path.name for path in (runs / "out").glob("compare_ranks/**/*") if path.is_file()}
    assert names == {"dump.json", "weights.json"}

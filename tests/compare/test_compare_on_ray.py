"""`msprobe compare --ray`: ranks compared by the nodes of a cluster."""

import functools
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from small_runs import RANKS, without_files, write_runs

WORDS = ("compare", "target", "golden")
HALVES = {"a": [0, 1, 2], "b": [3, 4]}  # node: the ranks whose dumps it has
DIES = "def begin(node, task):\n    if node == 'b': raise RuntimeError('no such node')\n"


@pytest.fixture
def runs(tmp_path, request):
    return write_runs(tmp_path, getattr(request, "param", RANKS))


@pytest.fixture
def msprobe(msprobe_bin, runs):
    def run(*words, code=0, env=None):
        done = subprocess.run(
            [msprobe_bin, *words], cwd=runs, capture_output=True, timeout=120, text=True, env=env
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done

    return run


# For fake_ray/ray.py. Tests replace `begin`, which raises where a node cannot do it, and `change`.
CALL = """
import json
import os
import threading


def begin(node, task):
    pass


def change(node, packed):
    return packed


def call(node, function, *given):
    if function.__name__ == "_look":
        has = function(*given)
        for side in ("target", "golden"):
            ranks = RANKS[node] if isinstance(RANKS[node], list) else RANKS[node][side]
            has[side]["dumps"] = [dump for dump in has[side]["dumps"] if dump[1] in ranks]
        return has
    if function.__name__ != "_compare":
        begin(node, None)
        return function(*given)
    begin(node, given[0])
    return change(node, function(*given))
"""


@pytest.fixture
def on_nodes(msprobe, runs, monkeypatch):
    """Runs a command line with --ray on nodes that are threads. ranks: of each node; patch: Python
    behind CALL."""

    def run(*words, ranks=HALVES, patch="", code=0):
        script = runs / "nodes.py"
        script.write_text(f"{CALL}\nRANKS = {ranks}\nNODES = list(RANKS)\n{patch}")
        monkeypatch.setenv("FAKE_RAY", str(script))
        monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent / "fake_ray"))
        return msprobe(*WORDS, "--ray", "auto", *words, code=code)

    return run


def test_the_report_is_that_of_one_process(msprobe, on_nodes, runs):
    json_of = ("--format", "json")
    alone = msprobe(*WORDS, "-o", "alone", *json_of).stdout
    assert on_nodes("-o", "out", *json_of).stdout == alone
    assert msprobe("merge_result", "-i", "out", "-o", "out", *json_of).stdout == alone
    for i in (1, 2):
        msprobe(*WORDS, "--part", f"{i}/2", "-o", "parts")
    assert msprobe("merge_result", "-i", "parts", "-o", "parts", *json_of).stdout == alone
    tables = {path.name[:20] for path in (runs / "out").glob("step*/compare_result_rank*.csv")}
    assert len(tables) == RANKS
    # Again in the same folder, and in words.
    said = on_nodes("-o", "out", "--exit-code", "--junit", "ray.xml", code=1).stdout
    text = msprobe(*WORDS, "-o", "alone", "--exit-code", "--junit", "alone.xml", code=1).stdout
    assert without_files(said) == without_files(text)
    assert (runs / "ray.xml").read_text() == (runs / "alone.xml").read_text()
    table = next(line for line in said.splitlines() if line.startswith("written: "))
    assert (runs / table.split()[1]).is_file()


def tables_in(folder):
    return {
        str(path.relative_to(folder))[:-19]: path.read_text()  # without _TIME.csv
        for path in folder.glob("step*/compare_result_rank*.csv")
    }


@pytest.mark.parametrize("runs", [65], indirect=True)
def test_nodes_write_the_rows_that_one_process_writes(msprobe, on_nodes, runs):
    ranks = {"a": list(range(40)), "b": list(range(40, 65))}
    for flags in ((), ("--all-rows",)):
        folder = "".join(flags).strip("-=") or "usual"
        said = on_nodes("-o", folder, *flags, ranks=ranks).stdout
        alone = msprobe(*WORDS, "-o", f"{folder}_alone", *flags).stdout
        assert without_files(said) == without_files(alone)
        assert ("--all-rows writes them" in said) != ("--all-rows" in flags)
        assert tables_in(runs / folder) == tables_in(runs / f"{folder}_alone")
    # What the hint says of rank 40, of which no node has both sides, writes the same rows.
    apart = {
        "a": {"target": list(range(41)), "golden": list(range(40))},
        "b": {"target": list(range(41, 65)), "golden": list(range(40, 65))},
    }
    for flags, said in ((), "golden --part 41/65"), (("--all-rows",), "--all-rows --part 41/65"):
        done = on_nodes("-o", said[:5], *flags, ranks=apart, code=2)
        assert said in done.stderr


def test_flags_reach_the_nodes(msprobe, on_nodes, runs):
    (runs / "mine.yaml").write_text("rounding:\n  float32: 3e7\n")
    flags = ["--thresholds", "mine.yaml", "--fail-on", "differs", "--rank", "0-1,3", "--step", "1"]
    flags += ["--xlsx", "--suffix", "_mine", "--format", "json"]
    alone = msprobe(*WORDS, "-o", "alone", *flags)
    assert on_nodes("-o", "out", *flags).stdout == alone.stdout
    assert len(list((runs / "out").glob("compare_result_mine_rank*.xlsx"))) == 3


def test_ranks_of_a_lost_node_are_compared_by_another(msprobe, on_nodes):
    everywhere = {"a": list(range(RANKS)), "b": list(range(RANKS))}
    done = on_nodes("-o", "out", "--format", "json", ranks=everywhere, patch=DIES)
    assert "node b was lost" in done.stderr
    assert done.stdout == msprobe(*WORDS, "-o", "alone", "--format", "json").stdout


def test_ranks_that_only_a_lost_node_has_are_not_compared(msprobe, on_nodes):
    done = on_nodes("-o", "out", "--format", "json", patch=DIES, code=2)
    found = json.loads(done.stdout)["steps"]
    for step in "01":
        wrong = {rank for rank, of in found[step]["ranks"].items() if "error" in of}
        assert wrong == {"3", "4"}
        error = found[step]["ranks"]["3"]["error"]
        assert error == "not compared: the node that compared it was lost: b"
    assert "--part 4/5" in done.stderr
    # What the hint says completes the comparison.
    for part in (4, 5):
        msprobe(*WORDS, "--part", f"{part}/5", "-o", "out")
    merged = msprobe("merge_result", "-i", "out", "-o", "out", "--format", "json").stdout
    assert merged == msprobe(*WORDS, "-o", "alone", "--format", "json").stdout


def test_a_node_needs_both_sides(on_nodes):
    ranks = {
        "a": {"target": [0, 1, 2, 3, 4], "golden": [0, 1, 2]},
        "b": {"target": [], "golden": [3, 4]},
    }
    errors = on_nodes("-o", "out", ranks=ranks, code=2).stderr
    assert "target/step0/rank3/dump.json is on node a, and golden/step0/rank3/dump.json" in errors
    assert "on node b: one node needs both" in errors


def test_a_rank_that_fails_costs_itself(on_nodes, runs):
    (runs / "target" / "step1" / "rank4" / "dump.json").write_text("{")
    fails = (
        "def begin(node, task):\n    if task and '4' in task['words'][-2]: task['words'] = ['no']\n"
    )
    done = on_nodes("-o", "out", "--format", "json", ranks={"a": list(range(RANKS))}, code=2)
    assert "rank4" in done.stderr and "not compared" not in done.stderr
    one = {"a": list(range(RANKS)), "b": []}
    done = on_nodes("-o", "out2", "--format", "json", ranks=one, patch=fails, code=2)
    ranks = json.loads(done.stdout)["steps"]["0"]["ranks"]
    assert [rank for rank, of in ranks.items() if "error" in of] == ["4"]
    assert "node a: " in ranks["4"]["error"]


# What a node changes of its answer: files[0] is the part, the others are tables. And the error.
HOSTILE = {
    "another folder": ("files[-1][0] = '../compare_result_1.csv'", "the name of a table"),
    "folders": ("files[-1][0] = 'step0/../../compare_result_1.csv'", "the name of a table"),
    "an absolute path": ("files[-1][0] = ROOT + '/compare_result_1.csv'", "the name of a table"),
    "another part": ("files[-1][0] = 'compare_part_1_of_5.bin'", "the name of a table"),
    "a size": ("wrong_size = len(files[-1][1]) + 1", "the size of a file"),
    "less than all": ("wrong_size = len(files[-1][1]) - 1", "the end of the files"),
    "a negative size": ("wrong_size = -1", "the size of a file"),
    "no part": ("files.pop(0)", "ended there with exit code 0"),
    "a damaged part": ("files[0][1] = bytes(9)", "no part of a comparison"),
    "the part of others": ("files[0][1] = other[0]", "the ranks that it was asked for"),
    "no answer": ("head = 7", "the end of the files"),
    "too much": ("files = []; head['bytes'] = 1 << 40", "more than 1.0 GB"),
}
CHANGE = """
other = []
waits = threading.Event()


def change(node, packed):
    line, rest = packed.split(b"\\n", 1)
    head = json.loads(line)
    files = []
    for name, size in head["files"]:
        files.append([name, rest[:size]])
        rest = rest[size:]
    files.sort(key=lambda file: "part" not in file[0])
    if node == "a":
        other.append(files[0][1])
        waits.set()
        return packed
    waits.wait(60)
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
    change = CHANGE.format(hostile).replace("ROOT", repr(str(runs)))
    before = {path.name for path in runs.parent.iterdir()}
    done = on_nodes("-o", "out", "--format", "json", patch=change, code=2)
    ranks = json.loads(done.stdout)["steps"]["0"]["ranks"]
    assert [rank for rank, of in ranks.items() if "error" in of] == ["3", "4"]
    assert all(error in ranks[rank]["error"] for rank in "34"), ranks["3"]["error"]
    assert all("node b: " in ranks[rank]["error"] for rank in "34")
    assert {path.name for path in runs.parent.iterdir()} == before
    tables = {path.name[:20] for path in (runs / "out").glob("step*/compare_result_rank*.csv")}
    assert tables == {f"compare_result_rank{rank}" for rank in range(3)}


def test_what_ray_cannot_do_is_refused(msprobe, on_nodes, runs):
    for flags in (("--part", "1/2"), ("--html", "page.html"), ("--rank-order",)):
        assert f"--ray cannot be combined with {flags[0]}" in on_nodes(*flags, code=2).stderr
    assert "--format csv" in on_nodes("--format", "csv", code=2).stderr
    assert "there is one" in on_nodes("--rank", "3", code=2).stderr
    unequal = {"a": {"target": [0, 1, 2], "golden": [0, 1]}}
    assert "ranks that are joined" in on_nodes("--exact", ranks=unequal, code=2).stderr
    (runs / "layout.yaml").write_text("target_mesh: {tp: 5}\n")
    assert "none are" in on_nodes("--layout", "layout.yaml", "--common", code=2).stderr
    assert "target has no rank 9" in on_nodes("--rank", "9", code=2).stderr
    assert "expected dump.json in it" in on_nodes(ranks={"a": []}, code=2).stderr
    msprobe(*WORDS, "--part", "1/2", "-o", "parts")
    assert "parts of another comparison" in on_nodes("-o", "parts", code=2).stderr
    assert not (runs / "output").exists()


def test_paths_that_no_node_has(on_nodes, msprobe, runs):
    on_nodes("-o", "out")  # writes nodes.py and sets the environment
    errors = msprobe("compare", "nowhere", "golden", "--ray", "auto", code=2).stderr
    assert "nowhere: does not exist; expected a folder with dumps on a node" in errors


def test_a_cluster_that_is_gone(on_nodes):
    gone = "def begin(node, task):\n    if node == 'b': os._exit(1)\n"
    done = on_nodes("-o", "out", "--format", "json", patch=gone, code=2)
    assert "not compared: --ray: the process of Python ended with exit code 1" in done.stdout


def test_what_is_compared_stays_after_an_interrupt(on_nodes, msprobe, msprobe_bin, runs):
    hangs = "def begin(node, task):\n    if task and node == 'b': threading.Event().wait()\n"
    on_nodes("--rank", "3", patch=hangs, code=2)  # for the script and the environment
    words = [msprobe_bin, *WORDS, "--ray", "auto", "-o", "out"]
    # A shell that runs the tests in the background has them ignore interrupts.
    heard = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    running = subprocess.Popen(words, cwd=runs, stderr=subprocess.PIPE, text=True, preexec_fn=heard)
    deadline = time.monotonic() + 60
    parts = [runs / "out" / f"compare_part_{i}_of_5.bin" for i in (1, 2, 3)]
    while not all(p.exists() and b"stopped before" not in p.read_bytes() for p in parts):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    running.send_signal(signal.SIGINT)
    errors = running.communicate(timeout=60)[1]
    assert "msprobe merge_result -i out -o out reports on it" in errors
    done = msprobe("merge_result", "-i", "out", "-o", "out", "--format", "json", code=2)
    ranks = json.loads(done.stdout)["steps"]["0"]["ranks"]
    assert [rank for rank, of in ranks.items() if "error" in of] == ["3", "4"]
    assert "not compared: the comparison was stopped before" in ranks["3"]["error"]


def test_no_ray_is_one_error(msprobe, runs):
    (runs / "ray.py").write_text("raise ImportError('no ray')")
    env = dict(os.environ, PYTHONPATH=str(runs))
    errors = msprobe(*WORDS, "--ray", "auto", code=2, env=env).stderr
    assert "Ray is not installed" in errors and "pip install 'mindstudio-probe[ray]'" in errors
    assert errors.count("\n") == 2 and not (runs / "output").exists()


# The first node, in a process of its own: this one is forked by other tests, which Ray's threads do
# not survive. The second node may have other files: a folder lies over another one.
HEAD = """
import sys, time
from ray.cluster_utils import Cluster
head = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
print(head.address, flush=True)
deadline = time.monotonic() + 60
while sum(node["Alive"] for node in head.global_state.node_table()) < 2:
    time.monotonic() < deadline or sys.exit("one node only")
    time.sleep(0.1)
print("two nodes", flush=True)
sys.stdin.read()
head.shutdown()
"""
NODE = (
    'mount --bind "$1" "$2" && cd / && '
    'exec "$3" -m ray.scripts.scripts start --address="$4" --num-cpus=1 --block'
)


class RealCluster:
    """Two nodes of Ray. In the folder `place` of each are the dumps of its ranks alone."""

    def __init__(self, folder):
        self.place, self.other = folder / "place", folder / "other"
        self.head = subprocess.Popen(
            [sys.executable, "-c", HEAD],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.node = None
        self.address = self.head.stdout.readline().strip()

    def add_node(self):
        words = ["unshare", "-m", "sh", "-c", NODE, "node", self.other, self.place, sys.executable]
        self.node = subprocess.Popen(
            [*map(str, words), self.address],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        assert self.head.stdout.readline() == "two nodes\n"

    def kill_node(self):
        if self.node and self.node.poll() is None:
            os.killpg(self.node.pid, signal.SIGKILL)
            self.node.wait()

    def end(self):
        self.kill_node()
        self.head.stdin.close()
        self.head.wait(60)
        self.head.stdout.close()


@pytest.fixture
def real_cluster(runs):
    """Starts a cluster of which the first node has some ranks, and the second some."""
    if importlib.util.find_spec("ray") is None:
        pytest.skip("Ray is not installed")
    if subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode != 0:
        pytest.skip("no right to give a node other files")
    started = []

    def start(first, second):
        for name, ranks in (("place", first), ("other", second)):
            for dump in runs.glob("*/step*/rank*"):
                if int(dump.name.removeprefix("rank")) in ranks:
                    shutil.copytree(dump, runs / name / dump.relative_to(runs))
        started.append(RealCluster(runs))
        started[0].add_node()
        return started[0]

    yield start
    for cluster in started:
        cluster.end()


def on_real_nodes(cluster, program, env=None, code=0):
    words = [program, *WORDS, "--ray", cluster.address, "-o", "out", "--format", "json"]
    done = subprocess.run(
        words, cwd=cluster.place, capture_output=True, timeout=240, text=True, env=env
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done


def test_real_nodes_with_their_own_dumps(msprobe, msprobe_bin, real_cluster):
    alone = msprobe(*WORDS, "-o", "alone", "--format", "json").stdout
    cluster = real_cluster([0, 1, 2], [3, 4])
    assert on_real_nodes(cluster, msprobe_bin).stdout == alone
    tables = (cluster.place / "out").glob("step*/compare_result_rank*.csv")
    assert len({path.name[:20] for path in tables}) == RANKS


@pytest.mark.campaign
@pytest.mark.parametrize("there", [[3, 4], list(range(RANKS))], ids=["alone", "everywhere"])
def test_a_real_node_dies_in_the_middle(msprobe, msprobe_bin, runs, real_cluster, there):
    alone = msprobe(*WORDS, "-o", "alone", "--format", "json").stdout
    cluster = real_cluster([0, 1, 2] if len(there) < RANKS else there, there)
    slow = "import sys, time\nif '--part=1/1' in sys.orig_argv: time.sleep(4)\n"
    (runs / "site").mkdir()
    (runs / "site" / "sitecustomize.py").write_text(slow)
    env = dict(os.environ, PYTHONPATH=str(runs / "site"))

    def kill_in_the_middle():
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            if list(cluster.place.glob("out/step0/compare_result_rank*.csv")):
                time.sleep(1)  # both nodes compare their next ranks
                return cluster.kill_node()
            time.sleep(0.05)

    thread = threading.Thread(target=kill_in_the_middle)
    thread.start()
    all_lost = len(there) < RANKS
    done = on_real_nodes(cluster, msprobe_bin, env, code=2 if all_lost else 0)
    thread.join()
    assert "was lost" in done.stderr
    if not all_lost:
        assert done.stdout == alone
        return
    ranks = json.loads(done.stdout)["steps"]["0"]["ranks"]
    lost = [rank for rank, of in ranks.items() if "error" in of]
    assert lost in (["4"], ["3", "4"])
    assert "not compared: the node that compared it was lost: " in ranks["4"]["error"]


def test_no_cluster_is_one_error(msprobe, runs):
    if importlib.util.find_spec("ray") is None:
        pytest.skip("Ray is not installed")
    errors = msprobe(*WORDS, "--ray", "127.0.0.1:1", code=2).stderr
    assert "no cluster of Ray answers at 127.0.0.1:1" in errors and errors.count("\n") == 2
    assert not (runs / "output").exists()

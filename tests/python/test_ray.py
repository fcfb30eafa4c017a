"""`msprobe multi_run_ut --ray`: the calls of a dump, executed by the nodes of a cluster."""

import json
import os
import subprocess
import threading
import time

import pytest
from recording import run_forked
from test_replay import recorded
from test_run_ut import BROKEN, rows


@pytest.fixture(scope="module")
def dump(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dump")
    run_forked(recorded, folder, "statistics")
    return folder / "step0" / "rank"


@pytest.fixture
def cluster(tmp_path):
    """Starts a cluster of two nodes, by default of one CPU each."""
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    started = []

    def start(cpus=1):
        head = {"num_cpus": cpus, "include_dashboard": False}
        found = Cluster(initialize_head=True, head_node_args=head)
        started.append(found)
        found.add_node(num_cpus=cpus)
        found.wait_for_nodes()
        return found

    yield start
    for each in started:
        each.shutdown()


def check(forking_msprobe, dump, out, *flags, code=0, patch=""):
    """The JSON report of `multi_run_ut`, or what it printed as an error. patch: code that runs in
    the workers after `import torch`."""
    environment = dict(os.environ)
    if patch:
        site = out.parent / "site"
        site.mkdir()
        (site / "sitecustomize.py").write_text(f"import torch, os, time, signal\n{patch}")
        environment["PYTHONPATH"] = str(site)
    command = [forking_msprobe, "multi_run_ut", "-api_info", dump, "-o", out, "--format", "json"]
    command += map(str, flags)
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == code, done.stdout + done.stderr
    return json.loads(done.stdout) if code < 2 else done.stderr


def assert_same_rows(one, other):
    for key in ("result_csv", "details_csv"):
        assert sorted(rows(one[key])) == sorted(rows(other[key]))


@pytest.mark.campaign
def test_a_cluster_writes_the_same_rows(forking_msprobe, dump, cluster, tmp_path):
    local = check(forking_msprobe, dump, tmp_path / "local", "-n", 2)
    remote = check(forking_msprobe, dump, tmp_path / "ray", "--ray", cluster().address)
    assert remote["lost"] == 0
    assert_same_rows(local, remote)


@pytest.mark.campaign
def test_calls_of_a_lost_node_are_done_by_another(forking_msprobe, dump, cluster, tmp_path):
    local = check(forking_msprobe, dump, tmp_path / "local", "-n", 2)
    slow = (
        "\nfrom msprobe.pytorch import replay_worker\n"
        "fast = replay_worker.Worker.answer\n"
        "replay_worker.Worker.answer = lambda *a: (time.sleep(1), fast(*a))[1]\n"
    )
    nodes = cluster()
    out = tmp_path / "ray"

    def remove_in_the_middle():
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            found = list(out.glob("accuracy_checking_result_*.csv"))
            if found and sum(row[1] != "SKIP" for row in rows(found[0])) > 5:
                nodes.remove_node(nodes.list_all_nodes()[-1], allow_graceful=False)
                return
            time.sleep(0.05)

    thread = threading.Thread(target=remove_in_the_middle)
    thread.start()
    remote = check(forking_msprobe, dump, out, "--ray", nodes.address, patch=slow)
    thread.join()
    assert len(nodes.list_all_nodes()) == 1 and remote["lost"] == 0
    assert_same_rows(local, remote)


@pytest.mark.campaign
def test_a_crash_costs_one_call(forking_msprobe, dump, cluster, tmp_path):
    before = "wanted and os.kill(os.getpid(), signal.SIGKILL)"
    patch = BROKEN.format(name="linear", before=before, after="")
    report = check(forking_msprobe, dump, tmp_path / "out", "--ray", cluster().address, patch=patch)
    assert report["lost"] == report["error"] == 1 and report["pass"] > 25
    assert [call["name"] for call in report["worst"]] == ["Functional.linear.0"]


@pytest.mark.campaign
def test_a_cluster_without_devices_is_one_error(forking_msprobe, dump, cluster, tmp_path):
    address = cluster(cpus=0).address
    error = check(forking_msprobe, dump, tmp_path / "out", "--ray", address, code=2)
    assert "expected an NPU, GPU or CPU in the cluster" in error
    assert not (tmp_path / "out").exists()


def test_no_ray_is_one_error(forking_msprobe, dump, tmp_path, monkeypatch):
    (tmp_path / "ray.py").write_text("raise ImportError('no ray')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    error = check(forking_msprobe, dump, tmp_path / "out", "--ray", "auto", code=2)
    assert "Ray is not installed" in error and "pip install 'mindstudio-probe[ray]'" in error
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("address", "message"),
    [("127.0.0.1:1", "no cluster of Ray answers at 127.0.0.1:1"), ("local", "HOST:PORT or auto")],
)
def test_a_wrong_address_is_one_error(forking_msprobe, dump, tmp_path, address, message):
    pytest.importorskip("ray")
    error = check(forking_msprobe, dump, tmp_path / "out", "--ray", address, code=2)
    assert message in error and error.count("\n") == 2
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("flag", "value"), [("-d", "0"), ("--memory", "4GB")])
def test_flags_that_ray_decides(forking_msprobe, dump, tmp_path, flag, value):
    error = check(forking_msprobe, dump, tmp_path / "out", "--ray", "auto", flag, value, code=2)
    assert "with --ray" in error and "hint:" in error
    assert not (tmp_path / "out").exists()

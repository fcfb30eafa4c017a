"""`msprobe compare` that is stopped by a signal: the exit code, and no half-written file."""

import os
import shlex
import signal
import subprocess
import time
from pathlib import Path

import pytest
from test_terminal import write_dump

CALLS = 20_000
# One thread and the lowest priority: the workbook is still being written when it is first seen.
SLOWLY = ["env", "MSPROBE_THREADS=1", "nice", "-n", "19"]


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """Two dumps whose table takes a while."""
    folder = tmp_path_factory.mktemp("large")
    for side, factor in (("target", 2.0), ("golden", 1.0)):
        write_dump(folder / side, CALLS, factor)
    return folder


def await_part(process, out):
    """Waits until the table is being written."""
    deadline = time.monotonic() + 300
    while not (list(out.glob("*.part")) if out.exists() else []):
        assert process.poll() is None, f"it ended too early: {process.communicate()}"
        assert time.monotonic() < deadline, "it never began to write"


def default_signals():
    """In the background a test is started to ignore SIGINT, under nohup SIGHUP."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def stop(command, folder, out, number, **options):
    """Runs the command, sends it the signal while it writes a file, and waits for its end."""
    options.setdefault("preexec_fn", default_signals)
    child = subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    )
    await_part(child, out)
    child.send_signal(number)
    child.out, child.err = child.communicate(timeout=60)
    return child


def compare(msprobe_bin, out):
    return [*SLOWLY, msprobe_bin, "compare", "target", "golden", "-o", str(out), "--xlsx"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_no_part_file_remains(msprobe_bin, large, tmp_path, number):
    out = tmp_path / "out"
    child = stop(compare(msprobe_bin, out), large, out, number)
    # Ended by the signal, as a shell expects: it shows 128 + number, and ends its own loop.
    assert child.returncode == -number, child.err
    assert os.listdir(out) == []
    assert child.err.startswith("stopped (") and child.err.count("\n") == 1


@pytest.mark.parametrize("number, code", [(signal.SIGINT, "130"), (signal.SIGTERM, "143")])
def test_a_shell_shows_the_usual_code(msprobe_bin, large, tmp_path, number, code):
    out = tmp_path / "out"
    script = shlex.join(compare(msprobe_bin, out)) + " > log; echo $?"
    shell = subprocess.Popen(
        ["bash", "-c", script],
        cwd=large,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=default_signals,
    )
    await_part(shell, out)
    (child,) = Path(f"/proc/{shell.pid}/task/{shell.pid}/children").read_text().split()
    os.kill(int(child), number)
    assert shell.communicate(timeout=60)[0].split() == [code]
    assert os.listdir(out) == []


def test_an_ignored_signal_does_not_stop_it(msprobe_bin, large, tmp_path):
    """As under nohup."""
    out = tmp_path / "out"

    def ignore():
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    child = stop(compare(msprobe_bin, out), large, out, signal.SIGHUP, preexec_fn=ignore)
    assert child.returncode == 0, child.err
    assert sorted(path.suffix for path in out.iterdir()) == [".json", ".xlsx"]

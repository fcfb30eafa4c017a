"""tests/forked_python.py: a forked process does what a new Python does."""

import os
import signal
import subprocess
import sys
import time

import pytest

PROGRAMS = {
    "words": ["-c", "import sys; print(__name__, sys.argv, sys.path[0])", "-x", "a b"],
    "module": ["-m", "json.tool", "--help"],
    "input": ["-c", "print(input()[::-1])"],
    "code": ["-c", "raise SystemExit(3)"],
    "text": ["-c", "raise SystemExit('no')"],
    "error": ["-c", "def f():\n    1 / 0\nf()"],
    "syntax": ["-c", "1 +"],
    "at exit": ["-c", "import atexit; atexit.register(print, 'end'); print('begin')"],
    "threads": ["-c", "import threading, time\n"
                "threading.Thread(target=lambda: (time.sleep(0.1), print('late'))).start()"],
    "signal": ["-c", "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"],
    "killed": ["-c", "import os; print('lost'); os.kill(os.getpid(), 9)"],
    "unbuffered": ["-u", "-c", "import os; print('said'); os.kill(os.getpid(), 9)"],
    "folder": ["-c", "import os, sys; print(os.getcwd(), sys.executable, sys.orig_argv[1:])"],
    "script": ["program.py", "1"],
    "no script": ["nosuch.py"],
    "directory": ["."],
    "flags": ["-S", "-c", "import sys; print('site' in sys.modules, sys.flags.no_site)"],
    "version": ["--version"],
    "torch": ["-c", "import torch as t; t.manual_seed(5); print(t.rand(3), t.get_num_threads())"],
}  # fmt: skip


@pytest.fixture
def both(forked_python, tmp_path):
    """What a program does in a new Python, and in a forked one: codes, outputs."""
    (tmp_path / "program.py").write_text("import sys\nprint(sys.argv, sys.path[0], __file__)\n1/0")
    (tmp_path / "site").mkdir()

    def run(*words, **environment):
        found = []
        for python in (sys.executable, forked_python):
            done = subprocess.run(
                [python, *words],
                cwd=tmp_path,
                input="abc\n",
                capture_output=True,
                text=True,
                env={**os.environ, **environment},
            )
            found.append((done.returncode, done.stdout, done.stderr))
        return found

    return run


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_fork_does_the_same(both, name):
    new, forked = both(*PROGRAMS[name])
    assert forked == new


def test_the_environment_is_that_of_the_caller(both, tmp_path):
    (tmp_path / "site" / "sitecustomize.py").write_text("print('customized')")
    (tmp_path / "site" / "odd.py").write_text("")
    words = ["-c", "import os, sys, odd; print(os.environb[b'ODD'], sys.path[:3])"]
    new, forked = both(*words, ODD="\udcff", PYTHONPATH=str(tmp_path / "site"))
    assert forked == new
    assert "customized" in forked[1]


def test_another_start_is_a_new_python(both):
    words = ["-c", "import sys; print('torch' in sys.modules, hash('a'))"]
    new, forked = both(*words, PYTHONHASHSEED="77")
    assert forked == new and "False" in new[1]
    assert "True" in both(*words)[1][1]


SLEEP = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT])
def test_a_signal_ends_both_processes(forked_python, number):
    process = subprocess.Popen(
        [forked_python, "-c", SLEEP],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # The tests themselves may run where SIGINT is ignored, as in the background of a shell.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    child = int(process.stdout.readline())
    assert child != process.pid
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode == -number
    deadline = time.monotonic() + 60
    while os.path.exists(f"/proc/{child}") and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not os.path.exists(f"/proc/{child}")


def test_random_numbers_without_a_seed_are_new(forked_python):
    words = [
        forked_python,
        "-c",
        "import random, numpy; print(random.random(), numpy.random.rand())",
    ]
    made = [subprocess.run(words, capture_output=True, text=True).stdout.split() for _ in range(2)]
    assert made[0][0] != made[1][0] and made[0][1] != made[1][1]

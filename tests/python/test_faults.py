"""System calls that fail below the dump folder, and memory that runs out inside the engine.

For each fault: the training gives the same bits and ends normally, one line says why recording
ended, and the earlier records can be read, compared and recovered. The normal tests make a dozen
faults of each kind, the campaign hundreds.
"""

import errno
import json
import os
import random
import shutil
import subprocess
import sys

import pytest
from recording import whole_tensors

SHORT = -1  # write() takes half of the bytes: not an error, the rest must follow
CALLS = {
    "write": [errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EINTR, SHORT],
    "open": [errno.EACCES, errno.EMFILE, errno.ENOSPC, errno.EIO, errno.EINTR],
    "rename": [errno.EIO, errno.ENOSPC, errno.EACCES],
    "ftruncate": [errno.EIO, errno.EINTR],
    "mkdir": [errno.EACCES, errno.ENOSPC, errno.EROFS],
    "close": [errno.EIO, errno.ENOSPC, errno.EINTR],
}
HARMLESS = (errno.EINTR, SHORT)
# Level, task, MiB for the thread that writes tensors (0: no thread).
KINDS = [("mix", "statistics", 0), ("L1", "tensor", 0), ("mix", "tensor", 64), ("L0", "tensor", 64)]
EVERYTHING = ",".join(CALLS)


class Server:
    """Forks a training for each request; see tests/faults/train.py."""

    def __init__(self, root, build_dir, folder):
        preload = build_dir / "tests" / "faults" / "faults.so"
        environment = {k: v for k, v in os.environ.items() if not k.startswith("MSPROBE_")}
        self.process = subprocess.Popen(
            [sys.executable, str(root / "tests" / "faults" / "train.py")],
            env=dict(environment, LD_PRELOAD=str(preload)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.folder = folder
        self.number = 0
        self.plain = self.train(None, None)["digest"]
        assert self.plain

    def train(self, kind, arm):
        """The answer, plus `dump` (the folder) and `errors` (the error lines of the log)."""
        self.number += 1
        level, task, budget = kind or ("L1", "statistics", 0)
        dump = self.folder / f"{self.number}"
        log = self.folder / f"log{self.number}"
        order = {"folder": str(dump) if kind else "", "log": str(log), "arm": arm}
        order |= {"level": level, "task": task, "budget": budget}
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        text = log.read_text() if log.exists() else ""
        errors = [line for line in text.splitlines() if "[ERROR]" in line]
        return answer | {"dump": dump, "errors": errors, "log": text}


@pytest.fixture(scope="module")
def server(root, build_dir, tmp_path_factory):
    server = Server(root, build_dir, tmp_path_factory.mktemp("faults"))
    yield server
    server.process.stdin.close()
    server.process.wait()


def msprobe(binary, *words):
    done = subprocess.run([binary, *map(str, words)], capture_output=True, text=True)
    assert done.returncode == 0, f"msprobe {words}: {done.stderr}"
    return done.stdout


def names_of(path):
    return list(json.loads(path.read_text())["data"])


def check_dump(binary, dump, golden, output):
    """Reads, compares and recovers each step in the folder; returns the number of records."""
    records = 0
    for path in sorted(dump.glob("step*/rank/dump.json")):
        rank, right = path.parent, golden / path.parent.relative_to(dump)
        shown = msprobe(binary, "show", rank)
        # A run that failed immediately has no records.
        words = ("-tp", rank, "-gp", right, "-o", output, "--allow-nothing-compared")
        msprobe(binary, "compare", *words)
        msprobe(binary, "recover", rank)
        for name in ("dump.json", "stack.json", "construct.json"):
            if (rank / name).exists():
                json.loads((rank / name).read_text())
        names = names_of(path)
        assert names == names_of(right / "dump.json")[: len(names)]
        assert all(f"\n{name}" in shown for name in names), "show and recover do not agree"
        assert "nothing to do" in msprobe(binary, "recover", rank)
        if (rank / "dump_tensor_data").exists():
            whole_tensors(rank / "dump_tensor_data")
        assert not list(dump.rglob("*.part")), "an unfinished file was left behind"
        records += len(names)
    return records


def check(server, binary, answer, golden, harmless, where):
    assert answer["code"] == 0, f"{where}: {answer['log']}"
    assert answer["digest"] == server.plain, f"{where}: the training was changed"
    errors = len(answer["errors"])
    assert errors <= (0 if harmless or not answer["injected"] else 1), f"{where}: {answer['log']}"
    records = check_dump(binary, answer["dump"], golden["dump"], server.folder / "compared")
    if errors == 0:  # without errors no record may be missing
        assert records == golden["records"], f"{where}: {records} records, {answer['log']}"
        for path in answer["dump"].glob("step*/rank"):
            assert "missing" not in msprobe(binary, "recover", path), where
    shutil.rmtree(answer["dump"], ignore_errors=True)
    return records


def undisturbed(server, binary, kind):
    golden = server.train(kind, None)
    golden["records"] = sum(len(names_of(p)) for p in golden["dump"].glob("step*/rank/dump.json"))
    assert golden["records"] > 30 and golden["seen"] > golden["records"]
    check_dump(binary, golden["dump"], golden["dump"], server.folder / "compared")
    return golden


def counts(server, kind):
    """System call -> how often one training makes it."""
    result = {}
    for call in CALLS:
        answer = server.train(kind, [call, 1 << 40, errno.EIO, 0])
        result[call] = answer["seen"]
        shutil.rmtree(answer["dump"])
    return result


def campaign(server, binary, rounds, seed):
    dice = random.Random(seed)
    injected = records = 0
    for kind in KINDS:
        golden = undisturbed(server, binary, kind)
        there = counts(server, kind)
        for number in range(rounds):
            call = dice.choice([call for call in CALLS if there[call]])
            error = dice.choice(CALLS[call])
            at = dice.randint(1, there[call])
            lasting = error not in HARMLESS and dice.random() < 0.4
            arm = [EVERYTHING if lasting else call, at, error, int(lasting)]
            answer = server.train(kind, arm)
            where = f"{kind}, round {number}: {call} {at} of {there[call]}, error {error}"
            records += check(
                server, binary, answer, golden, error in HARMLESS, f"{where}, lasting {lasting}"
            )
            injected += answer["injected"] > 0
    return injected, records


def test_a_few_faults_of_every_kind(server, msprobe_bin):
    injected, records = campaign(server, msprobe_bin, 5, 1)
    assert injected > 10 and records > 300


@pytest.mark.campaign
def test_eight_hundred_faults(server, msprobe_bin):
    injected, records = campaign(server, msprobe_bin, 200, 2)
    print(f"{injected} faults injected: {injected} trainings unharmed, {injected} dumps readable,")
    print(f"{records} records in them")
    assert injected > 700


def out_of_memory(server, binary, rounds, seed):
    dice = random.Random(seed)
    injected = 0
    for kind in KINDS:
        golden = undisturbed(server, binary, kind)
        total = server.train(kind, ["new", 1 << 40])["seen"]
        assert total > 100
        for number in range(rounds):
            at = dice.randint(1, total)
            answer = server.train(kind, ["new", at])
            check(server, binary, answer, golden, False, f"{kind}, round {number}: new {at}")
            injected += answer["injected"] > 0
    return injected


def test_no_memory_here_and_there(server, msprobe_bin):
    assert out_of_memory(server, msprobe_bin, 3, 3) > 8


@pytest.mark.campaign
def test_no_memory_at_four_hundred_places(server, msprobe_bin):
    injected = out_of_memory(server, msprobe_bin, 100, 4)
    print(
        f"{injected} allocations failed: {injected} trainings unharmed, {injected} dumps readable"
    )

"""A training that records, in a child that is killed, and the check of what it left.

The child writes "<step> <name>" to a pipe as soon as the call of that name is over: the record is
acknowledged. The pipe's content survives the child.

    acknowledged = train_and_kill(child_main, folder, "mix", "tensor", random.Random(5), 0.3)
    check(msprobe_bin, folder, acknowledged, read_tensors)
"""

import json
import os
import select
import signal
import subprocess
import time
from collections import defaultdict


class Acknowledged:
    """The child's side of the pipe.

    Args:
        pipe: where names are written to.
        level: names of APIs are told under L1 and mix, those of modules under L0 and mix.
    """

    def __init__(self, pipe, level):
        self.step, self.level = 0, level
        self._pipe, self._calls = pipe, defaultdict(int)

    def _tell(self, names):
        os.write(self._pipe, "".join(f"{self.step} {name}\n" for name in names).encode())

    def api(self, api):
        """A call of this function is over."""
        if self.level != "L0":
            self._tell([f"{api}.{self._calls[api]}.forward"])
        self._calls[api] += 1

    def modules(self, names):
        """These calls of modules are over, forward or backward."""
        if self.level != "L1":
            self._tell(names)

    def backward(self):
        """The backward passes of all functions are over."""
        if self.level != "L0":
            calls = self._calls.items()
            self._tell(f"{api}.{n}.backward" for api, count in calls for n in range(count))

    def next_step(self):
        self.step += 1
        self._calls.clear()


def _hear(reader, delay):
    """What the child wrote until `delay` seconds after its first record."""
    heard, deadline = bytearray(), None
    while deadline is None or time.monotonic() < deadline:
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        if not select.select([reader], [], [], left)[0]:
            continue
        got = os.read(reader, 1 << 16)
        if not got:
            break  # it ended before the signal
        heard += got
        deadline = deadline or time.monotonic() + delay
    return heard


def train_and_kill(
    child_main, folder, level, task, dice, latest_s, sent=signal.SIGKILL, code=-signal.SIGKILL
):
    """Runs `child_main(folder, level, task, pipe)`, which trains without end, and kills it.

    Args:
        latest_s: the signal is sent so many seconds after the first record at the latest.
        sent: the signal.
        code: the exit code that follows.
    Returns:
        Step -> names acknowledged before the end.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reader)
            os.environ["MSPROBE_TENSOR_BUDGET_MB"] = dice.choice(["0", "64"])
            child_main(folder, level, task, writer)
        finally:
            os._exit(9)
    os.close(writer)
    heard = _hear(reader, dice.uniform(0, latest_s))
    os.kill(child, sent)
    while got := os.read(reader, 1 << 16):
        heard += got
    os.close(reader)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == code, "it did not live until the kill"
    acknowledged = defaultdict(set)
    for line in heard.decode().splitlines(keepends=True):
        assert line.endswith("\n")  # each write of the child is a whole line
        step, name = line.split()
        acknowledged[int(step)].add(name)
    return acknowledged


def _msprobe(binary, *words):
    done = subprocess.run([binary, *map(str, words)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _recorded(rank):
    return set(json.loads((rank / "dump.json").read_text())["data"])


def _check_last_step(binary, rank, step, names, read_tensors):
    """Reads the step that was cut, recovers it, and reads it again."""
    listed = set(_msprobe(binary, "show", rank).split())
    assert names <= listed, f"step {step}: show does not list {sorted(names - listed)[:5]}"
    before = (rank / "dump.json").read_bytes()
    _msprobe(binary, "recover", rank)
    for file in ("stack.json", "construct.json"):
        json.loads((rank / file).read_text())
    kept = _recorded(rank)
    assert names <= kept, f"step {step}: recover lost {sorted(names - kept)[:5]}"
    assert "nothing to do" in _msprobe(binary, "recover", rank)
    # Recovery leaves complete entries unchanged, cuts after the last one and closes the file.
    after = (rank / "dump.json").read_bytes()
    assert before.startswith(without_closing(after))
    if (rank / "dump_tensor_data").exists():
        read_tensors(rank / "dump_tensor_data")


def without_closing(recovered):
    """The bytes of a recovered dump.json that the killed run wrote, without what recover added."""
    closing = b'\n}, "cut_short": true}\n'
    return recovered.removesuffix(closing if recovered.endswith(closing) else b"}\n")


def check(binary, folder, acknowledged, read_tensors):
    """Reads finished steps as JSON, and the last step before and after its recovery.

    `read_tensors(folder)` fails if a tensor file of the folder is not whole.
    """
    for step, names in acknowledged.items():
        (rank,) = (folder / f"step{step}").iterdir()
        if step + 1 in acknowledged:
            assert names <= _recorded(rank), f"step {step}"
        else:
            _check_last_step(binary, rank, step, names, read_tensors)
    lost = {path.name for path in folder.glob("step*")} - {f"step{step}" for step in acknowledged}
    assert len(lost) <= 1, "only the step that was about to begin has no acknowledged record"


def was_cut(folder, acknowledged):
    """Whether the last step has no end; call it before :func:`check`, which recovers the step."""
    (last,) = folder.glob(f"step{max(acknowledged)}/*/dump.json")
    return not last.read_bytes().endswith(b"\n}}\n")

# ruff: noqa: RUF001 (full-width signs are the subject)
"""No text in a dump makes msprobe 26's compare refuse the whole dump."""

import json
import random
import re
import subprocess
import sys

import pytest

# core/common/const.py of msprobe 26.2.0, STRING_BLACKLIST.
REFUSED = re.compile(r"^[＋－＝％＠\+\-=%@]|;[＋－＝％＠\+\-=%@]")

# Random tensors, and calls with random texts and complex numbers, on a source line with ";-".
PROGRAM = """
import random, sys, torch
from msprobe.pytorch import PrecisionDebugger

folder, tensors, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
random.seed(seed)
torch.manual_seed(seed)
LETTERS = "+-=%@;;\\\\\\\\ab ＋－＝％＠\\n"

class Inner(torch.nn.Module):
    def forward(self, x, *values, **named):
        return torch.stack(x).sum()

class Outer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Inner()

module = Outer()
debugger = PrecisionDebugger(dump_path=folder, level="mix", task="statistics")
debugger.start(model=module)
for i in range(tensors // 100):
    texts = ["".join(random.choices(LETTERS, k=random.randint(0, 5))) for _ in range(4)]
    batch = list(torch.randn(99, random.randint(1, 5)))
    module.inner(batch, *texts, complex(0, -1.5), name=texts[0]);-1; [texts, {"=a": texts[1]}]
debugger.stop()
debugger.step()
"""


def record(tmp_path, tensors):
    seed = random.SystemRandom().randrange(2**31)
    program = tmp_path / "program.py"  # a file, so that stacks show its lines
    program.write_text(PROGRAM)
    command = [sys.executable, program, tmp_path / "dump", str(tensors), str(seed)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (dump,) = (tmp_path / "dump").glob("step0/*/dump.json")
    return dump, f"seed {seed}"


def texts_of(value):
    if isinstance(value, dict):
        for member in value.values():
            yield from texts_of(member)
    elif isinstance(value, list):
        for member in value:
            yield from texts_of(member)
    elif isinstance(value, str):
        yield value


def test_no_text_is_refused(tmp_path):
    dump, seed = record(tmp_path, 20000)
    for name in ("dump.json", "stack.json", "construct.json"):
        texts = texts_of(json.loads((dump.parent / name).read_text()))
        assert [text for text in texts if REFUSED.search(text)] == [], (name, seed)


def test_the_texts_come_back(tmp_path, msprobe_bin):
    """A text equals itself in a dump of the older tool, which has no backslashes."""
    dump, seed = record(tmp_path, 2000)
    assert '"\\\\-' in dump.read_text(), seed
    assert ";\\\\-1" in (dump.parent / "stack.json").read_text(), seed
    peer = tmp_path / "peer"
    peer.mkdir()
    whole = json.loads(dump.read_text())
    del whole["tool"]  # the older tool does not write this key

    def plain(value):
        if isinstance(value, dict):
            return {key: plain(member) for key, member in value.items() if key != "fp"}
        if isinstance(value, list):
            return [plain(member) for member in value]
        if isinstance(value, str):
            return re.sub(r"(^|;)\\(?=\\*[＋－＝％＠\+\-=%@])", r"\1", value)
        return value

    (peer / "dump.json").write_text(json.dumps(plain(whole)))
    command = [msprobe_bin, "compare", "-tp", dump.parent, "-gp", peer]
    command += ["-o", tmp_path / "out", "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert json.loads(done.stdout)["rows"]["differs"] == 0, (done.stdout, seed)


@pytest.mark.campaign
def test_the_earlier_compare_reads_100000_random_tensors(tmp_path, root):
    compare = root / ".cache/peer/bin/msprobe"
    if not compare.exists():
        pytest.skip("no .cache/peer: make bench-peer installs the older tool there")
    dump, seed = record(tmp_path, 100000)
    (tmp_path / "out").mkdir()
    done = subprocess.run(
        [compare, "compare", "-tp", dump, "-gp", dump, "-o", tmp_path / "out"],
        capture_output=True,
        text=True,
        input="",
    )
    assert done.returncode == 0, (seed, done.stdout + done.stderr)
    assert list((tmp_path / "out").glob("*compare_result*")), (seed, done.stdout + done.stderr)

"""The results of verbs that run a program, or narrow a comparison down, in Chinese."""

import json
import os
import re
import subprocess

import pytest

TRAIN = """
import os, sys, torch
from msprobe.pytorch import PrecisionDebugger
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
debugger = PrecisionDebugger(
    dump_path=os.environ.get("OUT", "own"),
    level=os.environ.get("LEVEL", "mix"),
    task=os.environ.get("TASK", "statistics"))
table = torch.randn(9, 6)
for step in range(2):
    debugger.start(net)
    x = table[torch.tensor([1, 2, 3 if os.environ.get("BUG") != "row" else 4])].relu()
    if os.environ.get("BUG") == "random":
        x = x + torch.frombuffer(bytearray(os.urandom(18)), dtype=torch.uint8).reshape(3, 6)
    loss = net(x).square().mean() * (2 if os.environ.get("BUG") == "loss" else 1)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    debugger.stop()
    debugger.step()
if os.environ.get("BUG") == "end":
    raise RuntimeError("one, two: calls differ in the target")
"""

CHINESE = re.compile("[\u3400-\u9fff]")
# What stays as it is in a Chinese sentence: quotations, code, commands, flags, words of our files.
AS_IT_IS = re.compile(
    r'"[^"]*"|\[[^\]]*\]|\'[^\']*\'|`[^`]*`|\{"[^{}]*\}|[\w.]+\([^()]*\)|(?<!\w)--?[A-Za-z][\w-]*'
    r"|\b(?:msprobe|python) [^;\uff1b]*|pip install ['\w=.\[\]-]+|import \w+|ray \w+"
    r"|\b(?:task|level) \w+|\b(?:steps?|ranks?|task|level|fail-on|kernel|dump)\b|\w*\.\w[\w.]*"
)


def is_english(shown):
    """Whether two English words stand side by side, or there is no Chinese at all."""
    rest = AS_IT_IS.sub(" ", shown)
    return re.search(r"\b[a-z]{2,},? [a-z]{2,}\b", rest) or not CHINESE.search(shown)


def english_lines(text):
    """The lines in which two English words stand side by side; names and sources are no words."""
    lines = [line for line in text.splitlines() if ".py:" not in line and "msprobe " not in line]
    return [line for line in lines if is_english(line + " \u4e2d")]


@pytest.fixture
def said(forking_msprobe, forked_python, tmp_path):
    (tmp_path / "train.py").write_text(TRAIN)

    def run(*words, **environment):
        environment = dict(os.environ, MSPROBE_LANG="zh", **environment)
        if words[0] == "train.py":
            environment["MSPROBE_LANG"] = "en"
        program = forked_python if words[0] == "train.py" else forking_msprobe
        done = subprocess.run(
            [program, *words], cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        return done.stdout + done.stderr

    return run


@pytest.mark.parametrize("verb", ["selfcheck", "determinism"])
@pytest.mark.parametrize("bug", ["", "random", "end"])
def test_of_a_program_that_runs(said, verb, bug):
    text = said(verb, "train.py", BUG=bug)
    what_it_says, _, output = text.partition("\u5176\u6700\u540e\u51e0\u884c")  # its last lines
    assert not english_lines(what_it_says), text
    assert "\u4e2a" in what_it_says or bug == "end", text
    if bug == "end":  # the program's own words are not ours
        assert "RuntimeError: one, two: calls differ in the target" in output


def record(said, **environment):
    for side, bug in (("golden", ""), ("target", environment.pop("BUG"))):
        said("train.py", OUT=side, BUG=bug, **environment)


@pytest.mark.parametrize(
    ("bug", "level", "task", "headline"),
    [
        ("loss", "L0", "statistics", "\u9700\u7ee7\u7eed\u91c7\u96c6"),
        ("row", "mix", "statistics", ""),
        ("row", "mix", "tensor", ""),
        ("", "mix", "statistics", "\u65e0\u9700\u7f29\u5c0f\u8303\u56f4"),
    ],
)
def test_of_bisect(said, bug, level, task, headline):
    record(said, BUG=bug, LEVEL=level, TASK=task)
    text = said("bisect", "target", "golden", "-o", "narrow")
    assert headline in text.splitlines()[0] and not english_lines(text), text
    if bug == "row":
        assert "\u539f\u56e0" in text and "train.py:14" in text, text


def test_help_is_not_half_english(said):
    verbs = [line.split()[0] for line in said("--help").splitlines() if line.startswith("  ")]
    found = []
    for verb in (verb for verb in verbs if verb.isidentifier()):
        for line in said(verb, "--help-all").splitlines():
            command = "msprobe " in line
            if not command and re.search("[a-z]{2,} [a-z]{2,} [a-z]{2,}", line):
                found.append(f"{verb}: {line}")
    assert len(verbs) > 20 and not found, "\n".join(found)


def test_of_replay(said):
    record(said, BUG="row", TASK="tensor")
    text = said("replay", "target/step0", "linear.0", "golden/step0")
    table = text.splitlines()[-4:-2]
    assert all(re.search("\u91c7\u96c6\u503c|\u91cd\u65b0\u6267\u884c", line) for line in table), (
        text
    )
    assert not english_lines(text.replace("float32 ", "")), text


def test_of_modules_alone(said):
    """What no module made, and what to record next; what a dump covers."""
    record(said, BUG="loss", LEVEL="L0")
    text = said("compare", "target", "golden", "-o", "out")
    assert "\u843d\u76d8" in text and not english_lines(text), text
    about = said("show", "target/step0").split("\n\n")[0].splitlines()
    assert not english_lines("\n".join(line for line in about if "python 3" not in line)), about


def test_what_programs_parse_stays_english(said):
    report = json.loads(said("determinism", "--format", "json", "train.py", BUG="random"))
    assert "recorded calls" in report["first"]["why"]


@pytest.mark.parametrize("command", ["pt", "cn", "pk", "vc", "dc", "cad"])
def test_of_the_shell_of_parse(said, command):
    text = said("parse", command, "--help") + said("parse", "help") + said("parse", command)
    assert not english_lines(text), text


UNDEFINED = """
import torch
from msprobe.pytorch import PrecisionDebugger
debugger = PrecisionDebugger(dump_path="undefined", level="mix", task="tensor")
net = torch.nn.Tanh()
debugger.start(net)
big = torch.tensor([3.0, 1e30])
net(torch.rsqrt(torch.tensor([-1.0, 0.0, 4.0, -2.0])))  # NaN and infinity
torch.dist(big, big * 0)  # infinity, and float64 gives a number
debugger.stop()
"""


def test_of_calls_that_overflow(said, tmp_path):
    (tmp_path / "train.py").write_text(UNDEFINED)
    said("train.py")
    text = said("run_overflow_check", "-api_info", "undefined/step0/rank/dump.json", "-o", "out")
    assert not english_lines(text) and "\u8bbe\u5907\u4e0a\u4e3a" in text, text
    text += said("overflow_check", "-i", "undefined/step0", "-o", "out")
    assert not english_lines(text), text
    twice = re.findall("(\\S+\u4e2a\u5143\u7d20\u4e2d).*\\1.*\\1|\u6761\u8bb0\u5f55 \u4e2a", text)
    assert not twice and "4 \u4e2a\u5143\u7d20\u4e2d\u6709 2 \u4e2a\u662f NaN" in text, text

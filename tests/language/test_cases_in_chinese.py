"""Every case of tests/compare in Chinese: no English sentence is left in what a person reads."""

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

CASES = Path(__file__).resolve().parents[1] / "compare" / "cases"
WORD = re.compile(r"\(?[a-z][a-z']*[,;:.)]*")


def english_of(line):
    """The longest run of plain English words in a line."""
    best, run = [], []
    for word in line.split():
        run = [*run, word] if WORD.fullmatch(word) else []
        best = max(best, run, key=len)
    return best


@pytest.fixture
def chinese(msprobe_bin, tmp_path):
    def run(name):
        """What the case prints for a person, in lines."""
        case = CASES / name
        words = shlex.split((case / "command").read_text())
        work = tmp_path / name
        hidden = shutil.ignore_patterns("expected*", "command", "README")
        shutil.copytree(case, work, ignore=hidden)
        kept = {k: v for k, v in os.environ.items() if not k.startswith("MSPROBE_")}
        done = subprocess.run(
            [msprobe_bin, *words[1:]],
            cwd=work,
            capture_output=True,
            text=True,
            timeout=60,
            env={**kept, "LC_ALL": "C.UTF-8", "TERM": "dumb", "MSPROBE_LANG": "zh"},
        )
        programs = "--format" in words and words[words.index("--format") + 1] in ("json", "csv")
        return [*done.stderr.splitlines(), *([] if programs else done.stdout.splitlines())]

    return run


@pytest.mark.parametrize("name", sorted(path.parent.name for path in CASES.glob("*/command")))
def test_no_english_sentence_is_left(name, chinese):
    half = []
    for line in chinese(name):
        # A command to type, and a line of a user's program, are no sentences.
        text = re.sub(r"msprobe .*|^ *\|.*|.*\.py.*", "", line)
        if len(english_of(text)) >= 3:
            half.append(line)
    assert not half


def test_an_english_sentence_is_seen():
    assert len(english_of("缺少 1 call in stack.json has no record: Torch.tanh.0")) == 3
    assert len(english_of("总计 call_0 in step, 应为 max_abs_error 之一")) < 3


@pytest.mark.parametrize("words", ["compere --lang zh", "-f tensorflow compare --lang=zh"])
def test_the_flag_counts_before_a_verb_is_known(words, msprobe_bin):
    kept = {k: v for k, v in os.environ.items() if not k.startswith("MSPROBE_")}
    done = subprocess.run([msprobe_bin, *words.split()], capture_output=True, text=True, env=kept)
    assert done.returncode == 2 and done.stderr.startswith("错误"), done.stderr

"""The command on bad input: exit code 2, one clear message, no half-written output.

Single inputs with exact messages are data in tests/compare/cases. The tests here need a recorded
dump that is cut or changed at many places, or a system that refuses to write.
"""

import json
import random
import re
import resource
import shutil
import signal
import subprocess

import pytest
import torch
from recording import run_forked


def record(folder):
    """Writes two equal dumps of task tensor."""
    from msprobe.pytorch import PrecisionDebugger

    debugger = PrecisionDebugger(dump_path=str(folder / "golden"), level="mix", task="tensor")
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU())
    debugger.start(model)
    model(torch.ones(2, 3)).sum().backward()
    debugger.stop()
    shutil.copytree(folder / "golden", folder / "target")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recorded")
    run_forked(record, folder)
    return folder


@pytest.fixture
def work(recorded, tmp_path):
    """A folder with target/ and golden/, which a test may damage."""
    shutil.copytree(recorded, tmp_path / "work")
    return tmp_path / "work"


@pytest.fixture
def msprobe(msprobe_bin, work):
    """msprobe(words) runs the command, and checks its exit code and messages on every call."""

    def run(*words, **options):
        command = [msprobe_bin, *map(str, words)]
        done = subprocess.run(
            command, cwd=work, capture_output=True, text=True, errors="replace", **options
        )
        text = done.stderr
        assert done.returncode in (0, 2), f"exit code {done.returncode}: {text}"
        assert not re.search(r"Traceback|terminate called|what\(\)|Aborted|Sanitizer", text), text
        if done.returncode == 2:
            lines = text.splitlines()
            assert lines[0].startswith("error: "), text
            # The report is also printed for dumps without a common value, and when its files cannot
            # be written.
            complete = any("what is printed is complete" in line for line in lines)
            nothing = " was compared: " in lines[0]
            assert done.stdout == "" or nothing or complete, text
            assert all(line.startswith("hint:  ") for line in lines[1:]) and len(lines) <= 2, text
            assert max(map(len, lines)) < 300, "longer than a person reads"
        return done

    return run


COMPARE = ("compare", "-tp", "target", "-gp", "golden", "-o", "out")


def outputs(work):
    return sorted(path.name for path in (work / "out").rglob("*"))


def is_read(done):
    """Whether the dump was compared, or has no records (exit code 2)."""
    return done.returncode == 0 or "a dump without records" in done.stderr


def test_whole_dumps_compare(msprobe, work):
    """The tests below need this: undamaged dumps compare without an error."""
    assert msprobe(*COMPARE).returncode == 0
    assert [name.rsplit("_", 1)[0] for name in outputs(work)] == [
        "compare_finding",
        "compare_result",
    ]


@pytest.mark.parametrize(
    ("words", "pieces"),
    [
        (["compare", "-tp", "nowhere", "-gp", "golden"], ["nowhere", "does not exist"]),
        (["compare", "-tp", "target", "-gp", "nowhere"], ["nowhere", "-gp"]),
        (["compare", "-tp", "empty", "-gp", "golden"], ["empty", "expected dump.json"]),
        (["compare", "-tp", "target"], ["-gp"]),
        (["compare", "-tp", "target", "-gp", "golden", "--format", "xml"], ["xml", "csv"]),
        (["compare", "-tp", "target", "-gp", "golden", "--colour"], ["--colour"]),
        (["show", "nowhere"], ["nowhere", "does not exist"]),
        (["show", "empty"], ["empty", "expected dump.json"]),
        (["show"], ["required"]),
        (["show", "target", "--limit", "many"], ["--limit", "expected a number of 0 or more"]),
        (["recover", "nowhere"], ["nowhere", "does not exist"]),
        (["recover", "empty"], ["empty", "expected dump.json"]),
        (["recover", "golden", "target"], ["target"]),
        (["compere", "-tp", "target"], ["compere"]),
    ],
    ids=" ".join,
)
def test_wrong_words(msprobe, work, words, pieces):
    (work / "empty").mkdir()
    done = msprobe(*words, "-o", "out") if words[0] == "compare" else msprobe(*words)
    assert done.returncode == 2
    for piece in pieces:
        assert piece in done.stderr
    assert not (work / "out").exists()


@pytest.mark.parametrize(
    "words", [("compare", "-tp", "", "-gp", "golden"), (*COMPARE[:5], "-o", "")]
)
def test_an_empty_path_is_named(msprobe, words):
    done = msprobe(*words)
    assert done.returncode == 2
    assert re.search(r"-tp|-o\b", done.stderr.splitlines()[0]), done.stderr


@pytest.mark.parametrize("verb", ["show", "recover", "compare"])
def test_a_device_is_no_dump(msprobe, verb):
    words = ("-tp", "/dev/zero", "-gp", "golden") if verb == "compare" else ("/dev/zero",)
    done = msprobe(verb, *words)
    assert done.returncode == 2
    assert "does not exist" not in done.stderr


def test_cut_anywhere(msprobe, work):
    """Of a dump cut at any byte, the whole records are compared; if there are none, it says so."""
    path = work / "target/step0/rank/dump.json"
    whole = path.read_bytes()
    header = whole.index(b"\n") + 1
    first = whole.index(b"\n", header)
    dice = random.Random(1)
    cuts = {0, 1, header - 2, header - 1, header, first - 1, first, len(whole) - 1, len(whole)}
    for cut in sorted(cuts | set(dice.sample(range(len(whole)), 25))):
        path.write_bytes(whole[:cut])
        shutil.rmtree(work / "out", ignore_errors=True)
        done = msprobe(*COMPARE)
        assert bool(outputs(work)) == (done.returncode == 0), f"cut at {cut}"
        if cut > first:
            assert done.returncode == 0, f"cut at {cut}: {done.stderr}"
        assert msprobe("show", path).returncode == (0 if is_read(done) else 2)
        if msprobe("recover", path).returncode == 0:
            json.loads(path.read_text())


FILES = ["dump.json", "stack.json", "construct.json"]


@pytest.mark.parametrize("file", FILES)
def test_changed_bytes(msprobe, work, file):
    """One changed byte gives a result or an error, never a crash or an incomplete table."""
    path = work / "target/step0/rank" / file
    whole = path.read_bytes()
    dice = random.Random(file)
    codes = set()
    for _ in range(40):
        place = dice.randrange(len(whole))
        path.write_bytes(whole[:place] + bytes([dice.randrange(256)]) + whole[place + 1 :])
        shutil.rmtree(work / "out", ignore_errors=True)
        done = msprobe(*COMPARE)
        codes.add(done.returncode)
        assert bool(outputs(work)) == (done.returncode == 0)
        if done.returncode == 2:
            assert file in done.stderr
        msprobe("show", path.parent)
    assert 2 in codes or file != "dump.json"


@pytest.mark.parametrize(
    "words",
    [
        (*COMPARE, "--format", "csv"),
        (*COMPARE[:5], "--format", "json"),
        ("show", "target"),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("text", [b"Functional.relu", b"torch.float32", b"linear.0.forward.input"])
def test_text_that_is_no_utf8(msprobe_bin, work, words, text):
    """Invalid UTF-8 in a dump does not make our output invalid UTF-8."""
    path = work / "target/step0/rank/dump.json"
    path.write_bytes(path.read_bytes().replace(text, text + b"\xfe"))
    done = subprocess.run([msprobe_bin, *words], cwd=work, capture_output=True)
    assert done.returncode in (0, 2)
    for answer in (done.stdout, done.stderr, *(p.read_bytes() for p in work.glob("out/*"))):
        answer.decode()


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "null", '"text"', "\0\0\0", "{}", '{"data": 3}']
)
@pytest.mark.parametrize("file", FILES)
def test_another_content(msprobe, work, file, content):
    path = work / "target/step0/rank" / file
    path.write_text(content)
    done = msprobe(*COMPARE)
    assert bool(outputs(work)) == (done.returncode == 0)
    if file == "dump.json" and content != "{}":
        assert done.returncode == 2
        assert "target/step0/rank/dump.json" in done.stderr


def test_damaged_tensor_files(msprobe, work):
    """The row of an unreadable file is unknown; the other rows are compared."""
    folder = work / "target/step0/rank/dump_tensor_data"
    damage = [lambda b: b"", lambda b: b[: len(b) // 2], lambda b: b"PK" + bytes(200), lambda b: b]
    files = sorted(folder.glob("*.pt"))
    for number, file in enumerate(files):
        file.write_bytes(damage[number % 4](file.read_bytes()))
    files[3].unlink()
    done = msprobe(*COMPARE, "--format", "json")
    assert done.returncode == 0
    report = json.loads(done.stdout)
    assert report["verdict"] not in ("equal",)


def test_levels_that_have_nothing_in_common(msprobe, work):
    """Modules against APIs: the summary says so, and never says equal; there is no table."""
    for side, begins in (("target", "Module"), ("golden", "Functional")):
        path = work / side / "step0/rank/dump.json"
        dump = json.loads(path.read_text())
        dump["data"] = {k: v for k, v in dump["data"].items() if k.startswith(begins)}
        path.write_text(json.dumps(dump))
    for words in ([*COMPARE, "--format", "json"], [*COMPARE, "--format", "json", "--exit-code"]):
        done = msprobe(*words)
        assert done.returncode == 2
        assert "was compared: no value has a partner" in done.stderr
        assert not (work / "out").exists()
        assert json.loads(done.stdout)["verdict"] == "unknown"


@pytest.mark.parametrize("place", ["blocked", "blocked/out", "/proc/nothing/out", "/dev/null/out"])
def test_an_output_folder_that_cannot_be(msprobe, work, place):
    (work / "blocked").write_text("mine")
    done = msprobe(*COMPARE[:5], "-o", place)
    assert done.returncode == 2
    assert place.split("/out")[0] in done.stderr
    assert (work / "blocked").read_text() == "mine"
    # Only what is known before the work begins is refused before it.
    assert ("No divergence" in done.stdout) == (place != "blocked")


@pytest.mark.parametrize("flags", [(), ("--xlsx",), ("-da",)], ids=["csv", "xlsx", "-da"])
def test_a_full_disk_leaves_no_half_table(msprobe, work, flags):
    """Uses a limit on file sizes instead of a full disk."""

    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (300, resource.RLIM_INFINITY))

    done = msprobe(*COMPARE, *flags, preexec_fn=limit)
    assert done.returncode == 2
    assert "out" in done.stderr
    # A file that is small enough is written whole.
    assert [name for name in outputs(work) if not name.startswith("diff_analyze_")] == []
    # The verdict comes first.
    assert "EQUAL" in done.stdout.splitlines()[0] and "compare_result" not in done.stdout


def test_the_verdict_on_ranks_comes_before_the_files(msprobe, work):
    for side in ("target", "golden"):
        (work / side / "step0/rank").rename(work / side / "step0/rank0")
        shutil.copytree(work / side / "step0/rank0", work / side / "step0/rank1")
    done = msprobe(*COMPARE[:5], "-o", "/proc/nothing")
    assert done.returncode == 2
    assert "2 ranks" in done.stdout and "EQUAL" in done.stdout, done.stdout
    assert done.stderr.count("error: ") == 1 and "/proc/nothing" in done.stderr

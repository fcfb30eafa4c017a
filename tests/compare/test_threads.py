"""The result of a comparison does not depend on the number of threads."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench" / "compare"))
import inputs


def leaf(generator):
    numbers = [generator.uniform(-4, 4) for _ in range(4)]
    value = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [8, generator.randrange(9)]}
    value |= dict(zip(("Max", "Min", "Mean", "Norm"), numbers, strict=True))
    return value | {"requires_grad": True}


def write_dump(folder, inserted):
    """Writes a dump so large that it is read in several pieces; one side has additional calls."""
    generator, entries = random.Random(3), {}
    for i in range(3000):
        call = {"input_args": [leaf(generator), leaf(generator)], "output": [leaf(generator)]}
        if inserted and i % 500 == 250:
            entries[f"Torch.extra.{i}.forward"] = call | {"input_kwargs": {"a": '=x,"y"\n'}}
            call["output"][0]["Max"] += 1
        entries[f"Torch.f{i % 3}.{i // 3}.forward"] = call
    head = {"task": "statistics", "level": "L1", "framework": "pytorch", "data": entries}
    folder.mkdir()
    (folder / "dump.json").write_text(json.dumps(head, indent=1))
    assert (folder / "dump.json").stat().st_size > 2_000_000


def test_one_thread_and_many_give_the_same_bytes(msprobe_bin, tmp_path):
    write_dump(tmp_path / "target", inserted=True)
    write_dump(tmp_path / "golden", inserted=False)

    assert_same_for_any_threads(msprobe_bin, tmp_path)


def test_rewrites_do_not_depend_on_threads(msprobe_bin, tmp_path):
    """More calls than one thread takes at once, in two programs of different calls."""
    inputs.rewritten(tmp_path, 36_000)
    answers = assert_same_for_any_threads(msprobe_bin, tmp_path)
    assert "rewritten: " in answers["table"].decode()


def assert_same_for_any_threads(msprobe_bin, folder):
    def answer(threads, kind):
        command = [msprobe_bin, "compare", "-tp", "target", "-gp", "golden", "--format", kind]
        environment = os.environ | {"MSPROBE_THREADS": str(threads)}
        done = subprocess.run(command, cwd=folder, capture_output=True, env=environment)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.partition(b"\nwritten: ")[0]  # a table's last line has the time

    answers = {}
    for kind in ("csv", "json", "table"):
        alone = answers[kind] = answer(1, kind)
        assert len(alone) > 100
        for threads in (2, 5):
            assert answer(threads, kind) == alone, (kind, threads)
    return answers

"""Alignment of recorded programs with generated edits of them (align_edits_test.cc), a campaign."""

import os
import random
import re
import subprocess
import sys

import pytest

LEVELS = ("L0", "L1", "mix")


def recorded(root, folder):
    """Dumps of the programs of bench/diagnosis: one for each program and level."""
    sys.path.insert(0, str(root / "bench/diagnosis"))
    import case
    import recordings

    plain = [each for each in case.all_cases().values() if not each.both]
    programs = {each.program: each for each in plain}
    maker = recordings.Recordings(folder)
    goldens = [maker.golden(each, "statistics", lv) for each in programs.values() for lv in LEVELS]
    maker.close()
    return [next(golden.glob("step0/rank*")) for golden in goldens]


@pytest.mark.campaign
@pytest.mark.parametrize("source", ["recorded by the older tools", "programs of bench/diagnosis"])
def test_wrong_pairs_are_rare(root, build_dir, tmp_path, source):
    seed = random.randrange(1_000_000)
    settings = {"MSPROBE_EDIT_SEED": str(seed), "MSPROBE_EDIT_ROUNDS": "300"}
    if source == "programs of bench/diagnosis":
        dumps = recorded(root, tmp_path)
        settings["MSPROBE_EDIT_ROUNDS"] = "15"
        settings["MSPROBE_EDIT_DUMPS"] = ":".join(map(str, dumps))
    program = build_dir / "tests/compare/compare_test"
    command = [program, "--gtest_filter=*AlignEdits*"]
    done = subprocess.run(command, env=os.environ | settings, capture_output=True, text=True)
    print(done.stdout)
    assert done.returncode == 0, done.stdout
    assert len(re.findall(r"% wrong, F1", done.stdout)) == 2

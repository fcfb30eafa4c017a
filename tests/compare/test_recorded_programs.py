"""Campaigns over recorded programs.

Alignment with generated edits of them (align_edits_test.cc), and what must not change a verdict
(invariants_test.cc).
"""

import os
import random
import re
import subprocess
import sys

import pytest

LEVELS = ("L0", "L1", "mix")


def recorder(root, folder):
    """The cases of bench/diagnosis, and what records them."""
    sys.path.insert(0, str(root / "bench/diagnosis"))
    import case
    import recordings

    return list(case.all_cases().values()), recordings.Recordings(folder)


def run(build_dir, tests, settings):
    program = build_dir / "tests/compare/compare_test"
    command = [program, f"--gtest_filter={tests}"]
    done = subprocess.run(command, env=os.environ | settings, capture_output=True, text=True)
    print(done.stdout)
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.campaign
@pytest.mark.parametrize("source", ["recorded by the older tools", "programs of bench/diagnosis"])
def test_wrong_pairs_are_rare(root, build_dir, tmp_path, source):
    seed = random.randrange(1_000_000)
    settings = {"MSPROBE_EDIT_SEED": str(seed), "MSPROBE_EDIT_ROUNDS": "300"}
    if source == "programs of bench/diagnosis":
        cases, maker = recorder(root, tmp_path)
        programs = {each.program: each for each in cases if not each.both}.values()
        goldens = [maker.golden(each, "statistics", lv) for each in programs for lv in LEVELS]
        maker.close()
        dumps = [next(golden.glob("step0/rank*")) for golden in goldens]
        settings["MSPROBE_EDIT_ROUNDS"] = "15"
        settings["MSPROBE_EDIT_DUMPS"] = ":".join(map(str, dumps))
    told = run(build_dir, "*AlignEdits*", settings)
    assert len(re.findall(r"% wrong, F1", told)) == 2


@pytest.mark.campaign
@pytest.mark.parametrize("level", ["L1", "mix"])
def test_invariants(root, build_dir, tmp_path, level):
    cases, maker = recorder(root, tmp_path)
    pairs = []
    for each in cases:
        target, golden = (side(each, "statistics", level) for side in (maker.target, maker.golden))
        dumps = (path for path in target.glob("step*/rank*") if path.is_dir())
        pairs += [f"{path}:{golden / path.relative_to(target)}" for path in sorted(dumps)]
    maker.close()
    assert len(pairs) > 300
    run(build_dir, "Invariants*", {"MSPROBE_PAIRS": ";".join(pairs)})

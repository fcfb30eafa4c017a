"""Every proof of every comparison of the cases holds: --why checks all of them."""

import os
import shlex
import shutil
import subprocess

import pytest
import test_cases

REFUSED = "does not hold"
PROOF = ["--why", "forward"]  # the checker looks at all values, whatever call is asked for


def compares(name):
    words = shlex.split((test_cases.CASES / name / "command").read_text())
    return words[1:2] == ["compare"] and "--help" not in words and "--help-all" not in words


@pytest.mark.parametrize("name", [n for n in test_cases.cases() if compares(n)])
def test_the_proofs_of_a_case_hold(name, tmp_path, msprobe_bin):
    work = tmp_path / name
    shutil.copytree(test_cases.CASES / name, work)
    words = shlex.split((work / "command").read_text())
    environment = {k: v for k, v in os.environ.items() if not k.startswith("MSPROBE_")}
    environment.update(LC_ALL="C.UTF-8", TERM="dumb")
    done = subprocess.run(
        [msprobe_bin, *words[1:], *PROOF],
        cwd=work,
        capture_output=True,
        text=True,
        env=environment,
        timeout=60,
    )
    assert REFUSED not in done.stdout + done.stderr
    assert "internal error" not in done.stderr


def test_a_value_is_asked_for_by_its_name(tmp_path, msprobe_bin):
    shutil.copytree(test_cases.CASES / "operations", tmp_path / "work")
    value = "Torch.my_norm.0.forward.output.0"
    command = [msprobe_bin, "compare", "-tp", "target", "-gp", "golden", "--why", value]
    done = subprocess.run(command, cwd=tmp_path / "work", capture_output=True, text=True)
    said = done.stdout[done.stdout.index("WHY ") :].splitlines()
    assert said[0] == f"WHY {value}"
    assert said[1].startswith(f"  {value} is")

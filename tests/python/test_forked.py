"""@forked: a test in a child gives the same report as in this process."""

import os

import pytest
from recording import forked, run_program


@forked
def compare(found):
    wanted = {"steps": 2}
    assert found == wanted


@forked
def skip():
    pytest.skip("no device here")


@forked
def die():
    os._exit(3)


@forked
def leave():
    raise SystemExit(4)


@forked
def set_a_variable():
    os.environ["MSPROBE_TEST_FORKED"] = "1"


def said_by(test, **arguments):
    """The failure text of the test."""
    with pytest.raises(pytest.fail.Exception) as failure:
        test(**arguments)
    return str(failure.value)


def test_a_failure_shows_the_line_and_the_values():
    said = said_by(compare, found={"steps": 1})
    assert "def compare(found):" in said
    assert ">       assert found == wanted" in said
    assert "E         {'steps': 1} != {'steps': 2}" in said
    assert f"{os.path.basename(__file__)}:12: AssertionError" in said
    assert "recording.py" not in said  # only the lines of the test


def test_what_ends_the_child_is_a_failure():
    assert "SystemExit: 4" in said_by(leave)
    assert said_by(die) == "die died with exit code 3"


def test_a_skip_is_a_skip():
    with pytest.raises(pytest.skip.Exception, match="no device here"):
        skip()


def test_it_runs_in_another_process():
    set_a_variable()
    assert "MSPROBE_TEST_FORKED" not in os.environ


@pytest.mark.parametrize("number", [1, 2])
@forked
def test_fixtures_and_parameters_arrive(number, tmp_path, request):
    assert tmp_path.is_dir()
    assert request.node.name == f"test_fixtures_and_parameters_arrive[{number}]"


def test_a_program_in_a_fork_ends_as_a_process_does(tmp_path):
    program = """
import atexit, os, sys
atexit.register(print, "end")
print(sys.argv[1:], os.getcwd())
"""
    done = run_program(program, "a", 1, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, f"['a', '1'] {tmp_path}\nend\n")
    done = run_program("import sys\nsys.exit(3)\n")
    assert done.returncode == 3
    done = run_program("import os\nos.kill(os.getpid(), 9)\n")
    assert done.returncode == -9
    (tmp_path / "wrong.py").write_text("print(__name__)\n1 / 0\n")
    done = run_program("wrong.py", cwd=tmp_path)
    assert done.returncode == 1 and done.stdout == "__main__\n"
    assert 'wrong.py", line 2' in done.stderr and "ZeroDivisionError" in done.stderr

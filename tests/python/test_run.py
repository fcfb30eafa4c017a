"""tests/run.py counts a failure, an error, a skip and a crash each as what it is."""

import importlib.util
import subprocess
import sys

import pytest


@pytest.fixture(scope="module")
def run(root):
    spec = importlib.util.spec_from_file_location("run_tests", root / "tests" / "run.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_googletest_report(run, tmp_path):
    report = tmp_path / "x.json"
    report.write_text(
        '{"testsuites": [{"testsuite": ['
        '{"status": "RUN", "result": "COMPLETED"},'
        '{"status": "RUN", "result": "COMPLETED", "failures": [{"failure": "no"}]},'
        '{"status": "RUN", "result": "SKIPPED"},'
        '{"status": "NOTRUN", "result": "SUPPRESSED"}]}]}'
    )
    assert run.count_googletest(report) == run.Count(passed=1, failed=1, skipped=2)


def test_pytest_report(run, tmp_path):
    source = tmp_path / "test_sample.py"
    source.write_text(
        "import pytest\n"
        "@pytest.fixture\n"
        "def broken(): raise ValueError\n"
        "def test_good(): pass\n"
        "def test_bad(): assert False\n"
        "def test_error(broken): pass\n"
        "def test_skip(): pytest.skip('no')\n"
    )
    report = tmp_path / "x.xml"
    command = [sys.executable, "-m", "pytest", "-q", f"--junitxml={report}", str(source)]
    subprocess.run(command, cwd=tmp_path, capture_output=True)
    assert run.count_junit(report) == run.Count(passed=1, failed=2, skipped=1)


@pytest.mark.parametrize("code", ["import os; os.abort()", "raise SystemExit(3)"])
def test_a_program_that_dies_without_a_report_is_a_failure(run, tmp_path, code):
    count = run.run_part(
        "crash", [sys.executable, "-c", code], tmp_path / "none", run.count_junit, None, quiet=True
    )
    assert count == run.Count(failed=1)

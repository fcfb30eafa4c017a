"""The files in the package that people read and copy are the same as those the program uses."""

import subprocess
from importlib import resources

import pytest

FILES = [
    "compare/model/thresholds.yaml",
    "compare/align/mindspore_apis.yaml",
    "accuracy/standards.yaml",
]


@pytest.mark.parametrize("name", FILES)
def test_the_file_in_the_package_is_the_one_of_the_engine(root, name):
    shipped = resources.files("msprobe").joinpath(name.split("/")[-1]).read_text(encoding="utf-8")
    assert shipped == (root / "engine" / name).read_text(encoding="utf-8")


def test_a_copy_of_the_thresholds_changes_nothing(msprobe_bin, root, tmp_path):
    copy = tmp_path / "mine.yaml"
    copy.write_text(resources.files("msprobe").joinpath("thresholds.yaml").read_text())
    case = root / "tests/compare/cases/tensors"
    command = [msprobe_bin, "compare", "-tp", case / "target", "-gp", case / "golden"]
    tables = [
        subprocess.run([*command, "--format", "csv", *more], capture_output=True, text=True)
        for more in ([], ["--thresholds", copy])
    ]
    assert tables[0].stdout == tables[1].stdout and tables[0].stdout.count("\n") > 5
    assert tables[1].returncode == 0, tables[1].stderr


def test_the_help_says_where_it_is(msprobe_bin):
    command = [msprobe_bin, "compare", "--help-all"]
    said = subprocess.run(command, capture_output=True, text=True).stdout
    assert "msprobe/thresholds.yaml" in said

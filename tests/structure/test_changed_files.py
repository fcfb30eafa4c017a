"""tools/changed_files.py: what changed since a revision, the newest first."""

import subprocess
from pathlib import Path

import pytest
from changed_files import EMPTY_TREE, changed_files, rooms_with_tests


@pytest.fixture
def project(tmp_path):
    """A repository with a commit of two days ago and one of today."""
    names = ("engine/a/one.cc", "engine/a/one.h", "cli/two.cc", "tests/a/one_test.cc")
    for name in names:
        write(tmp_path / name, "")
    commit(tmp_path, "2026-01-01T00:00:00+0000")
    write(tmp_path / "engine/a/one.h", "// new\n")
    write(tmp_path / "README.md", "new\n")
    commit(tmp_path, "2026-01-03T00:00:00+0000")
    return tmp_path


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def commit(folder: Path, date: str) -> None:
    environment = {"GIT_COMMITTER_DATE": date, "GIT_AUTHOR_DATE": date, "HOME": str(folder)}
    name = ["-c", "user.name=a", "-c", "user.email=a@b"]
    for command in (["init", "-q"], ["add", "-A"], [*name, "commit", "-q", "-m", "x"]):
        subprocess.run(
            ["git", *command], cwd=folder, check=True, env={"PATH": "/usr/bin:/bin", **environment}
        )


def test_the_last_day_of_history(project):
    assert changed_files(project, "day") == ["README.md", "engine/a/one.h"]


def test_what_is_not_committed_comes_first(project):
    write(project / "cli/two.cc", "// new\n")
    write(project / "cli/three.cc", "")
    assert changed_files(project, "day")[:2] == ["cli/three.cc", "cli/two.cc"]
    assert changed_files(project, "HEAD") == ["cli/three.cc", "cli/two.cc"]


def test_a_file_that_is_gone_has_not_changed(project):
    (project / "engine/a/one.h").unlink()
    assert changed_files(project, "day") == ["README.md"]


def test_in_a_young_history_everything_has_changed(project):
    assert len(changed_files(project, EMPTY_TREE)) == 5


def test_an_unknown_revision_is_an_error(project):
    with pytest.raises(SystemExit, match="nowhere"):
        changed_files(project, "nowhere")


def test_rooms_that_have_tests(project):
    changed = ["README.md", "cli/two.cc", "engine/a/b/one.cc", "tests/a/one_test.cc"]
    assert rooms_with_tests(project, changed) == ["a"]

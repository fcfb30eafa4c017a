"""tools/tidy.py: which rooms it reads for changed files, and the list of complex functions."""

import pytest
import tidy

OUTPUT = """\
{root}/engine/a/b.cc:7:3: error: function 'Read' has cognitive complexity of 31 (threshold 25) \
[readability-function-cognitive-complexity,-warnings-as-errors]
void Read() {{
     ^
{root}/engine/a/b.cc:9:3: error: an expensive copy [performance-x,-warnings-as-errors]
  auto c = d;
  ^
/usr/include/c++/12/bits/ranges_util.h:1:2: error: no match [clang-diagnostic-error]
  x
{root}/engine/a/b.cc:20:1: warning: lambda has cognitive complexity of 26 (threshold 25) [r]
"""
READ = tidy.Complex("engine/a/b.cc", 7, "Read", 31)


def test_findings_are_told_apart():
    complex_ones, others = tidy.read_findings(OUTPUT.format(root=tidy.ROOT))
    assert complex_ones == {READ, tidy.Complex("engine/a/b.cc", 20, "lambda", 26)}
    assert len(others) == 1
    assert others[0].startswith(f"{tidy.ROOT}/engine/a/b.cc:9:3: error: an expensive copy")
    assert others[0].endswith("auto c = d;\n  ^")


def test_what_clang_tidy_says_before_a_finding_is_kept():
    _, others = tidy.read_findings("Error reading configuration\nand more")
    assert others == ["Error reading configuration\nand more"]


def test_a_function_may_be_as_complex_as_the_list_says():
    assert tidy.too_complex({READ}, tidy.read_known("engine/a/b.cc Read 31\n")) == []
    (problem,) = tidy.too_complex({READ}, tidy.read_known("engine/a/b.cc Read 30\n"))
    assert problem.startswith("engine/a/b.cc:7: Read has a cognitive complexity of 31")
    assert "expected at most 30" in problem
    (problem,) = tidy.too_complex({READ}, {})
    assert "expected at most 25" in problem


def test_two_functions_of_a_name_need_two_lines():
    other = tidy.Complex("engine/a/b.cc", 90, "Read", 28)
    known = tidy.read_known("engine/a/b.cc Read 28\nengine/a/b.cc Read 31\n")
    assert tidy.too_complex({READ, other}, known) == []
    (problem,) = tidy.too_complex({READ, other}, tidy.read_known("engine/a/b.cc Read 31\n"))
    assert problem.startswith("engine/a/b.cc:90: Read")


@pytest.mark.parametrize(
    ("found", "checked", "left"),
    [
        ({READ}, {"engine/a/b.cc"}, [31]),  # as it was 40: lower
        (set(), {"engine/a/b.cc"}, []),  # mended
        (set(), set(), [40]),  # not read
    ],
)
def test_the_list_only_shrinks(found, checked, left):
    known = tidy.read_known("# why\nengine/a/b.cc Read 40\n")
    assert tidy.shrunk(found, known, checked) == {("engine/a/b.cc", "Read"): left}


def test_the_list_does_not_grow():
    known = tidy.read_known("engine/a/b.cc Read 30\n")
    assert tidy.shrunk({READ}, known, {"engine/a/b.cc"}) == known


def test_each_line_of_the_list_names_a_file_that_exists():
    for path, _ in tidy.read_known((tidy.ROOT / tidy.KNOWN).read_text(encoding="utf-8")):
        assert (tidy.ROOT / path).is_file(), path


ROOMS = [
    tidy.Room("/build/a.cxx", ("engine/a/one.cc",)),
    tidy.Room("/build/b.cxx", ("engine/b/two.cc",)),
    tidy.Room("/build/c.cxx", ("cli/three.cc",)),
]


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.setattr(tidy, "ROOT", tmp_path)
    for name in ("engine/a/one.cc", "engine/b/two.cc", "cli/three.cc"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text('#include "engine/a/one.h"\n')


@pytest.mark.parametrize(
    ("paths", "changed", "wanted"),
    [
        ("", None, ROOMS),
        ("engine/b|cli", None, ROOMS[1:]),
        ("", ["cli/three.cc", "engine/a/one.h"], [ROOMS[2], ROOMS[0]]),  # the header's own room
        ("", ["README.md", "engine/b/new.h", "tests/a/one.cc"], []),
        ("engine", ["cli/three.cc", "engine/b/two.cc"], [ROOMS[1]]),
    ],
)
def test_rooms_that_are_read(project, paths, changed, wanted):
    assert list(tidy.select(ROOMS, paths, changed)) == wanted

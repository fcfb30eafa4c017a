"""All examples in the comments of headers compile."""

import re
import subprocess
import sysconfig
from pathlib import Path

import pytest
from examples import (
    Example,
    all_examples,
    is_code,
    places_of,
    program,
    read_contexts,
    without_ellipses,
)

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = all_examples(ROOT)
CONTEXTS = read_contexts()
COMPILED = [example for example in EXAMPLES if is_code(example, CONTEXTS)]


@pytest.fixture(scope="session")
def compiler(build_dir) -> str:
    """The compiler that built the engine."""
    cache = (build_dir / "CMakeCache.txt").read_text()
    return re.search(r"^CMAKE_CXX_COMPILER:\w+=(.+)$", cache, re.MULTILINE).group(1)


def errors(compiler, examples, folder) -> dict:
    """Header or context -> compiler errors. One run for all, because it takes some seconds."""
    source = folder / "examples.cc"
    source.write_text(program(ROOT, examples, CONTEXTS))
    folders = (ROOT, ROOT / "python/src", sysconfig.get_path("include"))
    command = [compiler, "-std=c++20", "-fsyntax-only", "-w", "-fmax-errors=0", "-DFMT_SHARED"]
    command += [f"-I{folder}" for folder in folders]
    done = subprocess.run([*command, source], cwd=ROOT, capture_output=True, text=True)
    found = {}
    for place, text in re.findall(r"^(.+?):\d+:\d+: (?:fatal )?error: (.+)$", done.stderr, re.M):
        found.setdefault(place.removeprefix("contexts.txt: "), []).append(text)
    assert found or done.returncode == 0, done.stderr
    return found


@pytest.fixture(scope="session")
def said(compiler, tmp_path_factory):
    return errors(compiler, COMPILED, tmp_path_factory.mktemp("examples"))


@pytest.mark.parametrize("header", sorted({example.header for example in COMPILED}))
def test_examples_compile(said, header):
    assert [said[place] for place in said if place.split("#")[0] == header] == []


def test_nothing_else_is_wrong(said):
    headers = {example.header for example in COMPILED}
    assert {place: said[place] for place in said if place.split("#")[0] not in headers} == {}


def test_contexts_belong_to_examples():
    places = {place for example in EXAMPLES for place in places_of(example)}
    assert CONTEXTS.keys() - places == set()


def test_an_example_that_is_wrong_is_found(compiler, tmp_path):
    wrong = Example("engine/base/status.h", 1, 4, "Status s = NoSuchFunction(3);")
    assert errors(compiler, [wrong], tmp_path).keys() == {"engine/base/status.h"}


def test_what_an_example_leaves_out():
    assert without_ellipses("if (a) ...   // why") == "if (a) {}   // why"
    assert without_ellipses("f([&] { ...; return true; });") == "f([&] { {} return true; });"
    assert without_ellipses("F(a, ...);") == "F(a, ...);"

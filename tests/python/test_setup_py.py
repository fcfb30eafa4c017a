"""`python setup.py` accepts the usual commands of setuptools, or refuses them in one clear line."""

import os
import subprocess
import sys

import pytest


@pytest.fixture
def setup_py(root, tmp_path):
    """Runs setup.py with a pip that prints its arguments: (status, words of pip, all text)."""
    (tmp_path / "pip").mkdir()
    (tmp_path / "pip/__init__.py").write_text("")
    (tmp_path / "pip/__main__.py").write_text("import sys\nprint('pip', *sys.argv[1:])\n")

    def run(*words):
        env = dict(os.environ, PYTHONPATH=str(tmp_path))
        command = [sys.executable, str(root / "setup.py"), *words]
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
        lines = [line[4:] for line in done.stdout.splitlines() if line.startswith("pip ")]
        calls = [line.replace(f"{root}/", "").replace(f" {root}", " .") for line in lines]
        return done.returncode, calls, done.stdout + done.stderr

    return run


WHEEL = "wheel --no-deps --wheel-dir"
INSTALL = "install --no-deps"
END = " . --no-build-isolation"


@pytest.mark.parametrize(
    ("words", "calls"),
    [
        ("bdist_wheel", [f"{WHEEL} dist"]),
        ("-q bdist_wheel", [f"{WHEEL} dist --quiet"]),
        ("--quiet bdist_wheel", [f"{WHEEL} dist --quiet"]),
        ("bdist_wheel -q", [f"{WHEEL} dist --quiet"]),
        ("-v bdist_wheel", [f"{WHEEL} dist --verbose"]),
        ("-vv bdist_wheel", [f"{WHEEL} dist --verbose --verbose"]),
        ("bdist_wheel -d there", [f"{WHEEL} there"]),
        ("bdist_wheel -dthere", [f"{WHEEL} there"]),
        ("bdist_wheel --dist-dir there", [f"{WHEEL} there"]),
        ("bdist_wheel --dist-dir=there", [f"{WHEEL} there"]),
        ("-q build bdist_wheel -d there", [f"{WHEEL} there --quiet"]),
        ("clean bdist_wheel", [f"{WHEEL} dist"]),
        ("clean --all", []),
        ("install", [INSTALL]),
        ("build install --user", [f"{INSTALL} --user"]),
        ("install --prefix=/opt/it -f", [f"{INSTALL} --prefix /opt/it --force-reinstall"]),
        ("bdist_wheel install --root /r", [f"{WHEEL} dist", f"{INSTALL} --root /r"]),
    ],
)
def test_words_that_are_taken(setup_py, words, calls):
    status, called, said = setup_py(*words.split())
    assert status == 0, said
    # If Python has no build back end, pip downloads it.
    assert [call.removesuffix(END).removesuffix(" .") for call in called] == calls


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("--version", "27.0.0\n"),
        ("--name", "mindstudio-probe\n"),
        ("--fullname", "mindstudio-probe-27.0.0\n"),
        ("--name --version", "mindstudio-probe\n27.0.0\n"),
        ("--license", "Apache-2.0\n"),
    ],
)
def test_words_that_ask(setup_py, words, text):
    assert setup_py(*words.split()) == (0, [], text)


@pytest.mark.parametrize("words", ["--help", "-h", "bdist_wheel --help", "--help-commands"])
def test_help_lists_the_commands(setup_py, words):
    status, called, said = setup_py(*words.split())
    assert status == 0 and not called
    assert all(word in said for word in ("bdist_wheel", "install", "build", "clean", "--dist-dir"))


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("", "expected a command of bdist_wheel, install, build, clean, found nothing"),
        ("-q", "expected a command of bdist_wheel, install, build, clean, found -q"),
        ("sdist", "expected a command of bdist_wheel, install, build, clean, found sdist"),
        ("build", "expected bdist_wheel or install after build"),
        ("bdist_wheel --plat-name x", "-d, --dist-dir after bdist_wheel, found --plat-name"),
        ("bdist_wheel -d", "expected a folder after -d, found nothing"),
        ("--frobnicate bdist_wheel", "found --frobnicate"),
        ("install --record files.txt", "found --record"),
    ],
)
def test_words_that_are_refused(setup_py, words, text):
    status, called, said = setup_py(*words.split())
    assert status == 1 and not called
    assert text in said and said.count("\n") == 1
    assert "python setup.py --help" in said

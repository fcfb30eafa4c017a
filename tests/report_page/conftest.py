"""A browser for the tests of the page; without one they are skipped, with the reason."""

import os
import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from page_tools import STEPS, WRONG_STEP, run_compare, until, write_dump, write_step

CHROMIUM = os.environ.get("MSPROBE_CHROMIUM") or shutil.which("chromium")


@pytest.fixture(scope="session")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="needs a browser: make browser")
    if not CHROMIUM:
        pytest.skip("needs a browser: make browser")
    with playwright.sync_playwright() as running:
        started = running.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def open_page(browser):
    """open_page(file, hash) -> a page whose calls are there. At the end: no error, no request."""
    contexts, wrong = [], []

    def open_file(path, fragment="", **options):
        context = browser.new_context(viewport={"width": 1400, "height": 900}, **options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: wrong.append(message.text))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("dialog", lambda dialog: wrong.append("a dialog: " + dialog.message))
        url = Path(path).resolve().as_uri()
        page.on(
            "request",
            lambda sent: wrong.append(sent.url) if sent.url.split("#")[0] != url else None,
        )
        page.goto(url + fragment)
        until(page, "document.documentElement.dataset.state")
        return page

    yield open_file
    for context in contexts:
        context.close()
    assert wrong == []


@pytest.fixture(scope="session")
def compare_page(tmp_path_factory, msprobe_bin):
    """compare_page(target options, golden options) -> the page of the comparison."""

    def make(target, golden, *flags):
        folder = tmp_path_factory.mktemp("page")
        write_dump(folder / "target", **target)
        write_dump(folder / "golden", **golden)
        return run_compare(msprobe_bin, folder, *flags)

    return make


@pytest.fixture(scope="session")
def steps_page(tmp_path_factory, msprobe_bin):
    """The page of a comparison over several steps."""
    top = tmp_path_factory.mktemp("steps")
    for step in range(STEPS):
        write_step(top / f"target/step{step}/rank0", step, step >= WRONG_STEP)
        write_step(top / f"golden/step{step}/rank0", step, False)
    return run_compare(msprobe_bin, top)

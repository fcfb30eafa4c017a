"""The page in Firefox: that it opens, shows the culprit, filters, draws and unpacks values."""

import time

import pytest
from firefox import FIREFOX, Firefox
from page_tools import WRONG


@pytest.fixture(scope="module")
def firefox(tmp_path_factory):
    if not FIREFOX:
        pytest.skip("needs Firefox: make browser")
    started = Firefox(tmp_path_factory.mktemp("firefox"))
    yield started
    started.close()


def until(firefox, expression):
    for _ in range(200):
        if found := firefox.run("return " + expression):
            return found
        time.sleep(0.05)
    raise AssertionError("never true: " + expression)


def test_the_page_works_in_firefox(firefox, compare_page):
    page = compare_page({"wrong": True, "extra": True}, {})
    firefox.open(page.as_uri())
    assert until(firefox, "document.documentElement.dataset.state") == "ready"
    assert firefox.run("return document.querySelector('#finding h1').innerText") == WRONG[0]
    assert until(firefox, "document.querySelector('#call h2')?.innerText").endswith(WRONG[0])
    assert "1.0%" in firefox.run("return document.querySelector('#call .values').innerText")
    until(firefox, "document.querySelectorAll('.near-call').length > 3")
    names = "return [...document.querySelectorAll('.row .c-name')].map((n) => n.innerText)"
    assert len(firefox.run(names)) == 13
    firefox.run(
        "const q = document.getElementById('query'); q.value = 'op:gelu dir:backward';"
        "q.dispatchEvent(new Event('input'))"
    )
    assert firefox.run(names) == [f"Functional.gelu.{n}.backward" for n in (2, 1, 0)]
    assert firefox.run(
        "const c = document.querySelector('#curve canvas');"
        "const image = c.getContext('2d').getImageData(0, 0, c.width, c.height);"
        "return image.data.some((v) => v > 0)"
    )


def test_a_page_that_was_cut_says_so_in_firefox(firefox, compare_page, tmp_path):
    whole = compare_page({"wrong": True}, {}).read_bytes()
    cut = tmp_path / "cut.html"
    cut.write_bytes(whole[: whole.rindex(b'<i id="end"')])
    firefox.open(cut.as_uri())
    assert until(firefox, "document.documentElement.dataset.state") == "incomplete"
    assert "its end is missing" in firefox.run("return document.querySelector('#state').innerText")

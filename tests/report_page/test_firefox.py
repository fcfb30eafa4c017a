"""The page in Firefox: that it opens, shows the culprit, filters, draws and unpacks values."""

import time

import numpy as np
import pytest
from firefox import FIREFOX, Firefox
from page_tools import WRONG, run_compare, write_tensor_dump


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


def test_the_elements_that_differ_in_firefox(firefox, tmp_path, msprobe_bin):
    golden = np.ones((20, 50), np.float32)
    target = golden.copy()
    target[3, :7] += np.float32(0.25)
    for side, numbers in (("target", target), ("golden", golden)):
        write_tensor_dump(tmp_path / side, numbers)
    firefox.open(run_compare(msprobe_bin, tmp_path).as_uri())
    words = until(firefox, "document.querySelector('.bars')?.getAttribute('aria-label')")
    assert words.endswith("from 1e-1 to 1e0: 7")
    heights = "[...document.querySelectorAll('.bars i')].map((b) => b.clientHeight)"
    assert max(firefox.run("return " + heights)) > 10
    assert "[3, 0]" in firefox.run("return document.querySelector('.places').innerText")


def test_parameters_over_steps_in_firefox(firefox, steps_page):
    firefox.open(steps_page.as_uri() + "#trend=1.0.1.4.0")
    firefox.open(steps_page.as_uri() + "#trend=1.0.1.4.0")  # a new fragment alone loads nothing
    assert until(firefox, "document.querySelector('#trend output')?.innerText").startswith(
        "fc.bias, step 4: differs"
    )
    strip = (
        "const c = document.querySelectorAll('.parameter canvas')[1];"
        "const pen = c.getContext('2d');"
        "const line = pen.getImageData(0, c.height / 2 | 0, c.width, 1).data;"
        "return [0.4, 0.73].map((share) => line[4 * (c.width * share | 0) + 3])"
    )
    until(firefox, "document.querySelectorAll('.parameter canvas')[1]?.width > 10")
    equal, wrong = firefox.run(strip)
    assert wrong == 255 and 0 < equal < 100
    charts = "return document.querySelectorAll('.charts path').length"
    assert firefox.run(charts) >= 3
    firefox.run("document.querySelector('#trend p button').click()")
    assert until(firefox, "/parameters_grad/.test(document.querySelector('#call h2')?.innerText)")


def test_the_language_in_firefox(firefox, compare_page):
    firefox.open(compare_page({"wrong": True}, {}).as_uri())
    until(firefox, "document.documentElement.dataset.state === 'ready'")
    head = "return document.querySelector('#table .c-module').innerText"
    english = firefox.run(head)
    firefox.run("[...document.querySelectorAll('#tools button')].at(-1).click()")
    assert until(firefox, "document.documentElement.lang === 'zh'")
    assert firefox.run(head) == "模块"
    assert until(firefox, "/lang=zh/.test(location.hash)")
    firefox.run("[...document.querySelectorAll('#tools button')].at(-1).click()")
    assert firefox.run(head) == english == "module"

"""The page in Chinese: nothing stays English but names and code, and English comes back whole."""

import json
import re
import subprocess

import numpy as np
import pytest
from page_tools import (
    HOSTILE,
    run_compare,
    tensor,
    until,
    write_dump,
    write_gradients,
    write_tensor_dump,
)

# Texts of the page that a person reads: not what has translate="no", code, or a key.
READ = """() => {
  const found = [], skip = 'script,style,code,pre,kbd,[translate="no"]';
  const names = ['title', 'placeholder', 'aria-label'];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const node = walk.currentNode;
    if (!node.parentElement.closest(skip)) found.push(node.nodeValue.trim());
  }
  for (const e of document.querySelectorAll('[title],[placeholder],[aria-label]'))
    if (!e.closest(skip)) for (const name of names) found.push(e.getAttribute(name) || '');
  return [...new Set(found)].filter((t) => /[a-z]{3}/i.test(t));
}"""
CHINESE = re.compile(r"[\u4e00-\u9fff]")
# The tool's name, words that are the same in both languages, places of elements, names of calls and
# modules, alone or between marks.
SAME = re.compile(
    r"\u2068.*\u2069|msprobe( [\d.]+)?|rank|step|rank -?\d+"
    r"|rank \\ step|step \d+([:\uff1a] ?[\d.e+-]+)?"
    r"|shape|dtype|mean|norm|max|min"
    r"|NaN|[±+-]?inf|pytorch|statistics"
    r"|[LS]\d|mix|(float|int|bool)\d*( \[.*\])?|(\S*\.)+\S*( .*)?"
)

# What a recording of the tool writes beside the dump.
COVERAGE = {
    "schema": "msprobe.coverage/1",
    "apis": {"recorded": 9, "nested": 5, "ignored": 2, "traced": 1, "wrappers": 0},
    "modules": {"recorded": 3, "nested": 0, "ignored": 0, "traced": 0, "wrappers": 0},
    "gradients": {"recorded": 3, "ignored": 1, "missing": 1},
    "operations": {"recorded": 8, "nested": 40, "gradient": 5, "ignored": 0, "not_observed": 4},
    "not_observed": [
        {"operation": "aten::a", "count": 2, "reason": "called from C++ code, not from Python"},
        {"operation": "aten::b", "count": 2, "reason": "not in support_wrap_ops.yaml"},
    ],
    "apis_not_observed": [],
}


def english(page):
    texts = page.evaluate(READ)
    return [t for t in texts if not CHINESE.search(t) and not SAME.fullmatch(t.strip(" ←→=≈✕≠?↳"))]


@pytest.fixture(scope="module")
def pages(tmp_path_factory, msprobe_bin):
    """A comparison of two steps with a wrong call and a weight, one dump, and hostile names."""
    top = tmp_path_factory.mktemp("language")
    for step in (0, 1):
        write_dump(top / f"target/step{step}/rank0", wrong=step == 1, extra=True)
        write_dump(top / f"golden/step{step}/rank0")
        for side in ("target", "golden"):
            path = top / f"{side}/step{step}/rank0/dump.json"
            dump = json.loads(path.read_text())
            weight = tensor(1.0 + step, 0.1 if side == "target" and step else 0)
            dump["data"]["Module.fc.Linear.parameters_grad"] = {"weight": [weight]}
            path.write_text(json.dumps(dump))
    names = ["module", "filter", "class"]  # words of the page, as names of a program
    hostile = [HOSTILE, *(f"Functional.{name}.0.forward" for name in names)]
    write_dump(top / "one", hostile=hostile)
    (top / "one/coverage.json").write_text(json.dumps(COVERAGE))
    page = run_compare(msprobe_bin, top)
    for words in (["show", "one", "--html", "one.html"],):
        subprocess.run([msprobe_bin, *words], cwd=top, check=True, capture_output=True)
    golden = np.ones((4, 8), np.float32)
    for side, numbers in (("target", golden * np.float32(1.01)), ("golden", golden)):
        write_tensor_dump(top / "elements" / side, numbers)
    elements = run_compare(msprobe_bin, top / "elements")
    finite = {"norm": lambda step: step, "state": lambda step: 1}
    write_gradients(top / "finite", 3, finite)
    write_gradients(top / "nan/rank1", 3, finite | {"loss": lambda step: "nan" if step else 1})
    (top / "falls").mkdir()
    table = "step,0,1\nnorm,0.99,0.5\nloss,1,1\nsummary,1,1\n"
    (top / "falls/similarities.csv").write_text(table)
    found = {"comparison": page, "dump": top / "one.html", "elements": elements}
    for name in ("finite", "nan", "falls"):
        found[name] = top / f"{name}.html"
        words = ["report", name, "-o", found[name]]
        subprocess.run([msprobe_bin, *words], cwd=top, check=True, capture_output=True)
    return found


@pytest.mark.parametrize("name", ["comparison", "dump", "elements", "finite", "nan", "falls"])
def test_no_text_stays_english(open_page, pages, name):
    page = open_page(pages[name], "#lang=zh")
    assert page.evaluate("document.documentElement.lang") == "zh"
    for key in "?fp":
        page.keyboard.press(key)
        if key == "?":
            assert page.locator("#help").is_visible()
            assert "\n".join(english(page)) == ""
            page.keyboard.press("Escape")
    assert "\n".join(english(page)) == ""
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "too wide"


def test_the_language_is_switched_and_kept(open_page, pages):
    page = open_page(pages["comparison"])
    before = page.evaluate(READ)
    assert not any(CHINESE.search(text) for text in before)
    page.keyboard.press("l")
    until(page, "location.hash.includes('lang=zh')")
    assert len([text for text in page.evaluate(READ) if CHINESE.search(text)]) > 25
    page.click("#tools button:has-text('English')")
    assert page.evaluate(READ) == before
    until(page, "!location.hash.includes('lang=')")


def test_the_language_of_reader_and_writer(open_page, pages, tmp_path, msprobe_bin):
    assert (
        open_page(pages["dump"], locale="zh-CN").evaluate("document.documentElement.lang") == "zh"
    )
    own = open_page(pages["dump"], "#lang=en", locale="zh-CN")
    assert own.evaluate("document.documentElement.lang") == "en"
    write_dump(tmp_path / "dump")
    command = [msprobe_bin, "show", "dump", "--html", "page.html", "--lang", "zh"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    page = open_page(tmp_path / "page.html")
    assert page.evaluate("document.documentElement.lang") == "zh"


def test_a_narrow_chinese_page_cuts_no_word(open_page, compare_page):
    page = open_page(compare_page({"wrong": True}, {}), locale="zh-CN")
    page.set_viewport_size({"width": 1024, "height": 768})
    page.wait_for_timeout(100)
    page.locator(".row.first").click()
    for cell in page.locator("#call .values td:first-child").all():
        assert cell.evaluate("cell => cell.getClientRects()[0].height") < 26, cell.inner_text()


def test_a_sign_is_no_number_of_calls(open_page, pages):
    page = open_page(pages["dump"], "#lang=zh")
    asked = page.locator("#asked").inner_text()
    assert "API 调用：落盘 9 个，其内部 5，按配置略过 2" in asked  # noqa: RUF001
    assert "调用的梯度：落盘 3" in asked  # noqa: RUF001
    assert page.locator(".row .c-class").first.inner_text() == "· 有限"


def test_names_of_a_program_stay_as_they_are(open_page, pages):
    def shown(fragment):
        page = open_page(pages["dump"], fragment)
        return page.locator(".row .c-name").all_inner_texts()

    assert shown("#lang=zh") == shown("")


def test_names_that_are_words_of_the_page_stay_in_sentences(open_page, pages):
    for name, sentence in (
        ("finite", "norm，step 2：范数 2"),  # noqa: RUF001
        ("falls", "norm，step 1：不一致，相似度 0.5000"),  # noqa: RUF001
    ):
        page = open_page(pages[name], "#lang=zh")
        page.locator(".strip").focus()
        page.keyboard.press("End")
        assert page.locator("#trend output").inner_text() == sentence
        labels = page.evaluate(
            "[...document.querySelectorAll('.parameter canvas')].map((c) => c.ariaLabel)"
        )
        assert "\u2068state\u2069" in labels or "\u2068loss\u2069" in labels


def test_a_side_without_calls_of_a_region_is_said_in_chinese(open_page, compare_page):
    page = open_page(compare_page({"extra": True}, {}), "#lang=zh")
    page.fill("#query", "region:1")
    page.locator(".row").first.click()
    text = page.inner_text("#call .region")
    assert "\u6ca1\u6709\u5df2\u91c7\u96c6\u7684\u8c03\u7528" in text and "no recorded" not in text

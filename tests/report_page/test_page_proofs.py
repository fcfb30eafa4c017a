"""How the page shows that values are the golden's, or that they are not."""

import pytest


@pytest.fixture(scope="module")
def wrong_page(compare_page):
    return compare_page({"wrong": True, "extra": True}, {})


def proof(page):
    return page.locator("#call .proof").first


def test_the_proof_of_a_call_is_shown(open_page, wrong_page):
    page = open_page(wrong_page)
    assert proof(page).locator("summary").inner_text() == "How this is known"
    proof(page).locator("summary").click()
    own = proof(page).locator("> ul > li")
    assert "where rounding explains" in own.last.inner_text() or "times" in own.last.inner_text()
    assert "wrong" in own.last.get_attribute("class")
    later = open_page(wrong_page, "#call=9")  # takes what is made of it
    assert proof(later).locator("> ul ul li.wrong").count() > 0  # within what is made of it


def test_an_equal_call_needs_no_proof(open_page, wrong_page):
    page = open_page(wrong_page, "#call=0")
    assert "equal" in page.locator("#call .badge").inner_text()
    assert page.locator("#call .proof").count() == 0


def test_the_proof_is_chinese_too(open_page, wrong_page):
    page = open_page(wrong_page, "#lang=zh")
    assert proof(page).locator("summary").inner_text() == "判断依据"
    text = proof(page).text_content()
    assert "golden" not in text and "rounding" not in text

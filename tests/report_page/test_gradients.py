"""`msprobe report` of gradients: one recording, and the tables of grad_compare."""

import re
import subprocess

import pytest
from page_tools import HOSTILE, write_gradients

# Names of parameters that are words of the page.
NORMS = {"norm": lambda step: 1 + step, "state": lambda step: 0.001, "loss": lambda step: 2}


def report(binary, folder, source, *flags, code=0):
    done = subprocess.run(
        [binary, "report", source, "-o", "page.html", *flags],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == code, done.stderr
    return done


def finding(folder):
    page = (folder / "page.html").read_text()
    return re.sub(
        "<[^>]*>", "", re.search(r'<section id="finding".*?</section>', page, re.DOTALL)[0]
    )


def rows(page):
    return page.locator(".parameter span").all_inner_texts()


def test_one_recording_shows_its_norms(tmp_path, msprobe_bin, open_page):
    for rank in (0, 1):
        write_gradients(tmp_path / f"run/rank{rank}", 4, NORMS)
    report(msprobe_bin, tmp_path, "run")
    assert finding(tmp_path).split("\n")[1:4] == [
        "The largest gradient, in step 3, on rank 0",
        "norm",
        "Its norm is 4.",
    ]
    page = open_page(tmp_path / "page.html")
    assert rows(page) == ["norm", "loss", "state"]
    assert page.locator("#trend select option").all_inner_texts() == ["rank 0", "rank 1"]
    assert len(page.locator("#trend figure").all()) == 1
    assert page.locator("#trend output").inner_text() == "norm, step 3: norm 4"
    page.locator(".strip").focus()
    page.keyboard.press("ArrowLeft")
    assert page.locator("#trend output").inner_text() == "norm, step 2: norm 3"
    assert not page.locator("#trend button:has-text('Open this step')").is_visible()


def test_the_first_nan_is_the_finding(tmp_path, msprobe_bin, open_page):
    nan = {"first": lambda s: "nan" if s > 1 else 1, HOSTILE: lambda s: "inf" if s > 1 else 2}
    write_gradients(tmp_path / "run", 4, nan | {"last": lambda s: 3})
    report(msprobe_bin, tmp_path, "run")
    assert "The first gradient with NaN or infinity, in step 2\n" in finding(tmp_path)
    assert "\n1 other gradients of this step, too." in finding(tmp_path)
    page = open_page(tmp_path / "page.html")
    assert rows(page)[-1] == "last"
    assert "■ NaN or infinity." in page.locator("#trend .legend").inner_text()


@pytest.mark.parametrize("source", ["out", "out/similarities.csv", "out/rank0/similarities.csv"])
def test_the_tables_of_grad_compare(tmp_path, msprobe_bin, open_page, source):
    table = "step,0,1,2\nnorm,1,1,0.25\nstate,1,0.99,1\nsummary,1,0.995,0.5\n"
    for name in ("out", "out/rank0", "out/rank1"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "similarities.csv").write_text(table)
    report(msprobe_bin, tmp_path, source)
    text = finding(tmp_path)
    assert "The similarity first falls in step 2" in text and "\nnorm\n" in text
    assert "1 before, now 0.25\n" in text and "The first direction differs in step 1" in text
    page = open_page(tmp_path / "page.html")
    assert rows(page) == ["norm", "state"]
    assert page.locator("#trend output").inner_text().endswith("differs, similarity 0.2500")
    assert len(page.locator("#trend figure").all()) == 1  # the table has no norms


def test_the_page_opens_at_what_its_banner_names(tmp_path, msprobe_bin, open_page):
    """The parameter that falls first is not the one that is furthest apart at the end."""
    table = "step,0,1,2,3\nearly,1,0.3,0.3,0.3\nlate,1,1,1,0.01\nsummary,1,0.9,0.9,0.4\n"
    (tmp_path / "out").mkdir()
    (tmp_path / "out/similarities.csv").write_text(table)
    report(msprobe_bin, tmp_path, "out")
    assert "first falls in step 1" in finding(tmp_path)
    page = open_page(tmp_path / "page.html")
    assert rows(page)[0] == "late"
    assert page.locator("#trend output").inner_text().startswith("early, step 1: differs")
    assert page.locator(".parameter[aria-selected=true] span").inner_text() == "early"


def test_a_table_that_is_damaged_is_refused(tmp_path, msprobe_bin):
    (tmp_path / "similarities.csv").write_text("step,0\na,7\nsummary,1\n")
    done = report(msprobe_bin, tmp_path, ".", code=2)
    assert "a share from 0 to 1" in done.stderr
    assert not (tmp_path / "page.html").exists()

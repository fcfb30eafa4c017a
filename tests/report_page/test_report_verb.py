"""`msprobe report`: the page of what an earlier comparison left. The finding needs no browser."""

import json as json_text
import re
import subprocess

import pytest
from page_tools import WRONG, write_dump


def run(binary, folder, *arguments, code=0):
    done = subprocess.run(
        [binary, *arguments], cwd=folder, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == code, done.stderr
    return done


def finding(folder, name="report.html"):
    page = (folder / name).read_text()
    section = re.search(r'<section id="finding".*?</section>', page, re.DOTALL)[0]
    # A sentence that a table or a document has is finished: it is English.
    section = re.sub(' data-zh="[^"]*"', "", section)
    return re.sub('<p class="quiet"><span[^>]*>In module<.*?</p>\n', "", section)  # not in a table


@pytest.fixture
def compared(tmp_path, msprobe_bin):
    write_dump(tmp_path / "target", wrong=True)
    write_dump(tmp_path / "golden")
    flags = ["--format", "json", "--html", "direct.html"]
    json = run(msprobe_bin, tmp_path, "compare", "target", "golden", "-o", "out", *flags).stdout
    (tmp_path / "found.json").write_text(json)
    run(msprobe_bin, tmp_path, "compare", "target", "golden", "--table-file", "t.xlsx")
    return tmp_path


@pytest.mark.parametrize("source", ["out", "t.xlsx", "found.json"])
def test_the_page_says_what_the_page_of_the_comparison_says(compared, msprobe_bin, source):
    done = run(msprobe_bin, compared, "report", source, "-o", "report.html")
    assert done.stdout == "written: report.html\n"
    assert finding(compared) == finding(compared, "direct.html")
    assert WRONG[0] in finding(compared)


def sentences(folder, name):
    """What a person reads in front of the calls, line by line."""
    page = (folder / name).read_text()
    text = page[page.index('<section id="finding"') : page.index('<p id="state"')]
    return [line for line in re.sub("<[^>]*>", "\n", text).split("\n") if line.strip()]


@pytest.mark.parametrize("options", [{}, {"extra": True}, {"rewritten": True}])
@pytest.mark.parametrize("steps", [1, 3])
def test_report_and_compare_say_the_same_sentences(tmp_path, msprobe_bin, options, steps):
    for side in ("target", "golden"):
        for step in range(steps):
            place = tmp_path / side / (f"step{step}/rank0" if steps > 1 else "")
            wrong = side == "target" and (step > 0 or steps == 1)
            write_dump(place, wrong=wrong, **(options if side == "target" else {}))
            dump = json_text.loads((place / "dump.json").read_text())
            given = {"type": "str", "value": "tanh"}
            if wrong and WRONG[0] in dump["data"]:
                dump["data"][WRONG[0]]["input_kwargs"] = {"approximate": given}
            (place / "dump.json").write_text(json_text.dumps(dump))
    flags = ["-o", "out", "--html", "direct.html"]
    run(msprobe_bin, tmp_path, "compare", "target", "golden", *flags)
    run(msprobe_bin, tmp_path, "report", "out", "-o", "report.html")
    said, wanted = (sentences(tmp_path, name) for name in ("report.html", "direct.html"))
    assert said == wanted


@pytest.mark.parametrize("options", [{"extra": True}, {"rewritten": True}])
@pytest.mark.parametrize("source", ["out", "out/*.csv", "found.json", "t.xlsx"])
def test_other_calls_that_agree(tmp_path, msprobe_bin, options, source):
    """The first of them is named with its line, also by a table that was moved away."""
    write_dump(tmp_path / "target", **options)
    write_dump(tmp_path / "golden")
    flags = ["-o", "out", "--format", "json", "--html", "direct.html"]
    json = run(msprobe_bin, tmp_path, "compare", "target", "golden", *flags).stdout
    (tmp_path / "found.json").write_text(json)
    run(msprobe_bin, tmp_path, "compare", "target", "golden", "--table-file", "t.xlsx")
    (path,) = tmp_path.glob(source)
    run(msprobe_bin, tmp_path, "report", path, "-o", "report.html")
    wanted = finding(tmp_path, "direct.html")
    assert "(train.py:" in wanted and 'class="structure"' in wanted
    assert finding(tmp_path) == wanted


def test_how_far_rounding_goes(tmp_path, msprobe_bin):
    write_dump(tmp_path / "target")
    write_dump(tmp_path / "golden")
    dump = json_text.loads((tmp_path / "target/dump.json").read_text())
    dump["data"][WRONG[0]]["output"][0]["Max"] *= 1 + 1e-7
    (tmp_path / "target/dump.json").write_text(json_text.dumps(dump))
    flags = ["-o", "out", "--tolerant", "--html", "direct.html"]
    run(msprobe_bin, tmp_path, "compare", "target", "golden", *flags)
    run(msprobe_bin, tmp_path, "report", "out", "-o", "report.html")
    assert "largest" in finding(tmp_path, "direct.html")
    assert finding(tmp_path) == finding(tmp_path, "direct.html")


def test_a_table_without_its_document_is_read_alone(tmp_path, msprobe_bin):
    write_dump(tmp_path / "target", wrong=True)
    write_dump(tmp_path / "golden")
    run(msprobe_bin, tmp_path, "compare", "target", "golden", "-o", "out")
    (document,) = (tmp_path / "out").glob("compare_finding_*.json")
    document.unlink()
    run(msprobe_bin, tmp_path, "report", "out", "-o", "report.html")
    assert WRONG[0] in finding(tmp_path)


def test_the_page_of_a_dump_is_that_of_show(compared, msprobe_bin):
    run(msprobe_bin, compared, "report", "target", "-o", "report.html")
    run(msprobe_bin, compared, "show", "target", "--html", "shown.html")
    assert (compared / "report.html").read_bytes() == (compared / "shown.html").read_bytes()


def test_the_page_of_a_checkpoint_is_that_of_show(tmp_path, msprobe_bin):
    torch = pytest.importorskip("torch")
    torch.save({"weight": torch.ones(2)}, tmp_path / "model.pt")
    run(msprobe_bin, tmp_path, "report", "model.pt", "-o", "report.html")
    run(msprobe_bin, tmp_path, "show", "model.pt", "--html", "shown.html")
    assert (tmp_path / "report.html").read_bytes() == (tmp_path / "shown.html").read_bytes()


def test_tables_of_ranks_and_steps_are_one_page(tmp_path, msprobe_bin):
    for step in (0, 1):
        for rank in (0, 1):
            place = f"step{step}/rank{rank}"
            write_dump(tmp_path / "target" / place, wrong=step == 1 and rank == 1)
            write_dump(tmp_path / "golden" / place)
    flags = ["--html", "direct.html"]
    run(msprobe_bin, tmp_path, "compare", "target", "golden", "-o", "out", *flags)
    run(msprobe_bin, tmp_path, "report", "out", "-o", "report.html")
    assert finding(tmp_path) == finding(tmp_path, "direct.html")
    assert (tmp_path / "report.html").read_text().count("data-rank=") == 4
    flags = ["--format", "json"]
    said = run(msprobe_bin, tmp_path, "compare", "target", "golden", *flags).stdout
    steps = json_text.loads(said)["steps"]
    counts = [rank["counts_as"] for step in steps.values() for rank in step["ranks"].values()]
    assert counts == ["equal", "equal", "equal", "differs"]


def test_tables_of_rows_that_differ(tmp_path, msprobe_bin):
    for rank in (0, 1):
        write_dump(tmp_path / "target" / f"step0/rank{rank}", wrong=rank == 1)
        write_dump(tmp_path / "golden" / f"step0/rank{rank}")
    flags = ["--differing-rows", "--html", "direct.html"]
    run(msprobe_bin, tmp_path, "compare", "target", "golden", "-o", "out", *flags)
    run(msprobe_bin, tmp_path, "report", "out", "-o", "report.html")
    assert finding(tmp_path) == finding(tmp_path, "direct.html")
    assert "rows agree and are not in the table: msprobe compare --all-rows writes them" in (
        (tmp_path / "report.html").read_text()
    )


def test_the_document_of_merge_result_is_that_of_the_tables_of_parts(tmp_path, msprobe_bin):
    for rank in (0, 1):
        write_dump(tmp_path / "target" / f"step0/rank{rank}", wrong=rank == 1)
        write_dump(tmp_path / "golden" / f"step0/rank{rank}")
    sides = ["compare", "target", "golden"]
    run(msprobe_bin, tmp_path, *sides, "-o", "whole", "--html", "direct.html")
    for part in ("1/2", "2/2"):
        run(msprobe_bin, tmp_path, *sides, "-o", "out", "--part", part, "--differing-rows")
    run(msprobe_bin, tmp_path, "merge_result", "-i", "out", "-o", "out")
    run(msprobe_bin, tmp_path, "report", "out", "-o", "report.html")
    assert finding(tmp_path) == finding(tmp_path, "direct.html")
    page = (tmp_path / "report.html").read_text()
    assert "rows agree and are not in the table" in page
    assert "different times" not in page


@pytest.mark.parametrize(
    ("source", "wanted"),
    [("missing", "missing"), ("other.csv", "NPU Name"), ("empty", "compare_result_TIME.csv")],
)
def test_what_is_no_result_is_refused(tmp_path, msprobe_bin, source, wanted):
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    (tmp_path / "empty").mkdir()
    done = run(msprobe_bin, tmp_path, "report", source, code=2)
    assert wanted in done.stderr
    assert not (tmp_path / "report.html").exists()


def test_the_calls_of_the_table_are_there(compared, msprobe_bin, open_page):
    run(msprobe_bin, compared, "report", "out", "-o", "report.html")
    page = open_page(compared / "report.html")
    assert page.evaluate("document.documentElement.dataset.state") == "ready"
    assert len(page.locator(".row").all()) == 12
    assert page.locator("#call h2").inner_text().endswith(WRONG[0])


def region_of(open_page, path, name):
    """What the page says of the region of a call: its texts, and the calls of the region."""
    page = open_page(path)
    calls = page.locator(".row .c-name span:first-child").all_inner_texts()
    page.click(f".row >> nth={calls.index(name)}")
    page.wait_for_timeout(100)
    said = page.locator("#call .region")
    assert said.count() == 1, calls
    links = said.locator("[data-go]").all_inner_texts()
    # The document names the first divergence before all other calls.
    operations = sorted(re.findall(r"\w+", said.locator("p").inner_text()))
    return said.locator("summary").inner_text(), operations, sorted(links)


@pytest.mark.parametrize("wrong", [False, True])
@pytest.mark.parametrize("source", ["found.json", "out", "out/*.csv"])
def test_the_regions_of_a_document(tmp_path, msprobe_bin, open_page, source, wrong):
    write_dump(tmp_path / "target", rewritten=True, wrong=wrong)
    write_dump(tmp_path / "golden")
    flags = ["-o", "out", "--format", "json", "--html", "direct.html"]
    json = run(msprobe_bin, tmp_path, "compare", "target", "golden", *flags).stdout
    (tmp_path / "found.json").write_text(json)
    (path,) = tmp_path.glob(source)
    run(msprobe_bin, tmp_path, "report", path, "-o", "report.html")
    of = [
        region_of(open_page, tmp_path / name, "Torch.tanh.0.forward")
        for name in ("direct.html", "report.html")
    ]
    assert of[0] == of[1]
    assert of[0][0].startswith("Here the two runs" if wrong else "Part of a rewrite")
    page = [(tmp_path / name).read_text() for name in ("direct.html", "report.html")]
    rewritten = [re.search("rewritten</dt>.*", text) for text in page]
    assert (rewritten[0] and rewritten[0][0]) == (rewritten[1] and rewritten[1][0])


@pytest.mark.parametrize(
    ("compiled", "marked"),
    [({"target": ["Torch.mul.0.forward"], "golden": []}, True), (5, False), ({"target": 7}, False)],
)
def test_the_compiled_calls_of_a_document(tmp_path, msprobe_bin, compiled, marked):
    document = {"schema": "msprobe.compare/2", "verdict": "structure", "compiled": compiled}
    document["unmatched"] = {"target": ["Torch.add.0.forward"], "golden": []}
    (tmp_path / "found.json").write_text(json_text.dumps(document))
    run(msprobe_bin, tmp_path, "report", "found.json", "-o", "report.html")
    assert ('id="p0-rewritten"' in (tmp_path / "report.html").read_text()) == marked


def test_a_hostile_region(tmp_path, msprobe_bin, open_page):
    name = "Torch.mul.0.forward"
    regions = [
        {"verdict": "rewrite", "target": [name, name, 3], "golden": "x", "matched": [[name], 5]},
        {"verdict": 7, "target": [name], "golden": [None, {}], "matched": {"a": []}},
        "text",
    ]
    schema = "msprobe.compare/2"
    text = json_text.dumps({"schema": schema, "verdict": "structure", "regions": regions})
    (tmp_path / "found.json").write_text(text)
    run(msprobe_bin, tmp_path, "report", "found.json", "-o", "report.html")
    title, _, _ = region_of(open_page, tmp_path / "report.html", name)
    assert title.startswith("Part of a rewrite")

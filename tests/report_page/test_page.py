"""The page in a browser: what it shows, each control, the keyboard, names that are no names."""

import json
import re
import subprocess

import numpy as np
import pytest
from page_tools import (
    HOSTILE,
    WRONG,
    entry,
    run_compare,
    tensor,
    until,
    write_dump,
    write_tensor_dump,
)

CULPRIT = WRONG[0]


@pytest.fixture(scope="module")
def wrong_page(compare_page):
    return compare_page({"wrong": True, "extra": True}, {})


def state(page):
    return page.evaluate("document.documentElement.dataset.state")


def names(page):
    """Whole: what does not fit is cut in the middle, and stands in the title."""
    titles = [cell.get_attribute("title") for cell in page.locator(".row .c-name").all()]
    return [re.sub("[\u2068\u2069]", "", title) for title in titles]


def selected(page):
    return page.locator("#call h2").inner_text()


def fragment(page, wanted):
    until(page, f"location.hash.includes({wanted!r})")


def test_the_culprit_is_seen_at_once(open_page, wrong_page):
    page = open_page(wrong_page)
    assert state(page) == "ready"
    assert page.locator("#verdict").inner_text() == "DIFFERS"
    assert page.locator("#finding h1").inner_text() == CULPRIT
    assert "x = F.gelu(x)" in page.locator("#finding .source").inner_text()
    assert selected(page).endswith(CULPRIT)
    assert page.locator(".row.first .c-class").inner_text() == "✕ introduced"
    assert "1.0%" in page.locator("#call .values").inner_text()


def test_without_javascript_the_finding_is_there(browser, wrong_page):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(wrong_page.as_uri())
    text = page.inner_text("body")
    context.close()
    assert CULPRIT in text and "x = F.gelu(x)" in text and "JavaScript" in text


def test_filters(open_page, wrong_page):
    page = open_page(wrong_page)
    every = names(page)
    assert len(every) == 13
    for text, passes in {
        "class:introduced op:gelu": [CULPRIT],
        "class:introduced": [CULPRIT, "Module.layers.1.mlp.MLP.forward.0"],
        "gelu.1": [CULPRIT, "Functional.gelu.1.backward"],
        "gelu.1.forward": [CULPRIT],
        "op:gelu dir:backward": [f"Functional.gelu.{n}.backward" for n in (2, 1, 0)],
        "module:layers.1": [
            "Functional.linear.1.forward",
            CULPRIT,
            "Module.layers.1.mlp.MLP.forward.0",
            "Functional.gelu.1.backward",
        ],
        "side:target": ["Torch.clone.0.forward (only in the target)"],
        "layers.2 -gelu": ["Functional.linear.2.forward", "Module.layers.2.mlp.MLP.forward.0"],
        "size>1e4 op:linear": ["Functional.linear.2.forward"],
        "nothing_has_this": [],
        "": every,
    }.items():
        page.fill("#query", text)
        assert names(page) == passes, text
    assert page.locator("#shown").inner_text() == "13 of 13 calls"


def test_the_classes_are_buttons(open_page, wrong_page):
    page = open_page(wrong_page)
    page.click("#chips [data-class=introduced]")
    assert names(page)[0] == CULPRIT
    few = len(names(page))
    page.click("#chips [data-class=inherited]")
    assert len(names(page)) > few
    assert page.input_value("#query") == "class:introduced,inherited"
    assert page.locator("#chips [aria-pressed=true]").count() == 2
    page.click("#chips [data-class=introduced]")
    page.click("#chips [data-class=inherited]")
    assert page.input_value("#query") == ""


def test_sorting(open_page, wrong_page):
    page = open_page(wrong_page)
    executed = names(page)
    page.click(".thead .c-size")
    sizes = [
        float(t.replace(",", "") or -1) for t in page.locator(".row .c-size b").all_inner_texts()
    ]
    assert sizes == sorted(sizes, reverse=True) and sizes[0] > 1000
    page.click(".thead .c-name")
    assert names(page)[0].startswith("Functional.gelu.")
    page.click(".thead .c-name")
    assert names(page)[0].startswith("Torch.clone")
    for key in ("class", "module", "dtype", "shape"):
        page.click(f".thead .c-{key}")
        assert sorted(names(page)) == sorted(executed)
    page.click(".thead .c-order")
    assert names(page) == executed


def test_the_keyboard_walks_to_the_culprit(open_page, wrong_page):
    page = open_page(wrong_page, "#call=9")
    # From a call after it upstream, until nothing wrong comes in.
    for _ in range(6):
        before = selected(page)
        if "introduced" in before:
            break
        page.keyboard.press("u")
        page.wait_for_timeout(50)
        assert selected(page) != before
    assert selected(page).endswith(CULPRIT)
    page.keyboard.press("d")
    page.wait_for_timeout(50)
    assert "inherited" in selected(page)
    page.keyboard.press("f")
    page.wait_for_timeout(50)
    assert selected(page).endswith(CULPRIT)
    for key, wanted in {
        "j": "Module.layers.1",
        "ArrowUp": CULPRIT,
        "k": "linear.1",
        "n": CULPRIT,
    }.items():
        page.keyboard.press(key)
        page.wait_for_timeout(50)
        assert wanted in selected(page), key


def test_every_key_does_what_its_list_says(open_page, wrong_page):
    page = open_page(wrong_page, permissions=["clipboard-read", "clipboard-write"])
    page.keyboard.press("?")
    listed = page.locator("#help kbd").all_inner_texts()
    assert page.locator("#help").is_visible()
    page.keyboard.press("Escape")
    assert not page.locator("#help").is_visible()
    page.keyboard.press("/")
    page.keyboard.type("gelu")
    assert all("gelu" in name for name in names(page))
    page.keyboard.press("Enter")
    page.keyboard.press("x")
    assert len(names(page)) == 13
    page.keyboard.press("s")
    fragment(page, "sort=-size")
    page.keyboard.press("s")
    page.keyboard.press("+")
    fragment(page, "range=")
    page.keyboard.press("-")
    page.keyboard.press("0")
    until(page, "!location.hash.includes('range=')")
    page.keyboard.press("t")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.keyboard.press("c")
    until(page, "document.getElementById('copied').textContent")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert CULPRIT in copied and "| output.0 | max |" in copied
    page.keyboard.press("e")
    assert page.evaluate("document.activeElement.id") == "tree"
    known = set("?fnNjkudg/xse+-0[]ctpl")  # p: test_trends.py, l: test_page_language.py
    assert set(listed) == known


def test_the_tree_shows_the_worst_class_and_filters(open_page, wrong_page):
    page = open_page(wrong_page)
    lines = page.locator("#tree .line")
    texts = [text.split("\n") for text in lines.all_inner_texts()]
    assert any("mlp" in text for text in texts)
    one = page.locator("#tree .line", has_text="1").first
    page.keyboard.press("e")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert page.input_value("#query") == "module:layers"
    assert one.count() == 1
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    assert page.input_value("#query") == ""
    page.keyboard.press("ArrowLeft")
    assert lines.count() == 1


def test_the_tree_has_the_counts_of_all_classes(open_page, wrong_page):
    page = open_page(wrong_page)
    title = page.locator("#tree .line").first.get_attribute("title")
    assert title == "the whole model: 2 introduced, 6 inherited, 1 rewrite, 4 equal"
    shares = page.evaluate(
        "[...document.querySelector('#tree .shares').children].map((i) => Number(i.style.flexGrow))"
    )
    assert shares == [2, 6, 1, 4]


def test_a_name_that_does_not_fit_is_the_title_of_its_cell(open_page, compare_page):
    long = "Functional." + "long" * 30 + ".0.forward"
    page = open_page(compare_page({"hostile": [long]}, {"hostile": [long]}))
    page.fill("#query", "longlong")
    cell = page.locator(".row .c-name")
    assert names(page) == [long] and cell.inner_text().endswith("long.0.forward")


def test_two_fingers_zoom_the_curve(open_page, wrong_page):
    page = open_page(wrong_page, has_touch=True)
    page.evaluate(
        """() => {
        const c = document.querySelectorAll('#curve canvas')[1];
        c.setPointerCapture = () => {};  // needs fingers that the browser knows
        const box = c.getBoundingClientRect();
        const finger = (type, pointerId, x) => c.dispatchEvent(new PointerEvent(type,
          { pointerId, pointerType: 'touch', clientX: box.left + x, clientY: box.top + 20 }));
        finger('pointerdown', 1, 400), finger('pointerdown', 2, 600);
        for (let x = 610; x <= 1000; x += 10) finger('pointermove', 2, x);
        finger('pointerup', 1, 400), finger('pointerup', 2, 1000);
      }"""
    )
    until(page, "/range=\\d/.test(location.hash)")
    assert page.evaluate(
        "getComputedStyle(document.querySelector('#curve canvas')).touchAction"
    ) == ("none")


def test_the_curve_zooms_and_selects(open_page, wrong_page):
    page = open_page(wrong_page)
    box = page.locator("#curve").bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.4, box["y"] + 30)
    page.mouse.wheel(0, -300)
    fragment(page, "range=")
    page.mouse.click(box["x"] + box["width"] * 0.99, box["y"] + 30)
    page.wait_for_timeout(100)
    assert not selected(page).endswith(CULPRIT)
    drawn = page.evaluate(
        """() => { const c = document.querySelector('#curve canvas');
        const image = c.getContext('2d').getImageData(0, 0, c.width, c.height);
        return image.data.some((v) => v > 0); }"""
    )
    assert drawn


def test_the_address_keeps_what_is_shown(open_page, wrong_page):
    page = open_page(wrong_page)
    page.fill("#query", "gelu")
    page.keyboard.press("Enter")
    page.keyboard.press("s")
    page.keyboard.press("j")
    fragment(page, "sort=-size")
    page.wait_for_timeout(300)
    kept = page.evaluate("location.hash")
    again = open_page(wrong_page, kept)
    assert names(again) == names(page)
    assert selected(again) == selected(page)
    assert again.input_value("#query") == "gelu"


@pytest.mark.parametrize(
    "bad",
    ["#call=99999999", "#call=-1&part=7&sort=<b>&range=5-1&theme=x", "#filter=%00class:&call=x"],
)
def test_an_address_may_be_anything(open_page, wrong_page, bad):
    assert state(open_page(wrong_page, bad)) == "ready"


def test_links_lead_to_the_call_that_made_an_input(open_page, wrong_page):
    page = open_page(wrong_page)
    page.click("#call .link >> nth=0")
    page.wait_for_timeout(50)
    assert selected(page).endswith("Functional.linear.1.forward")


def test_a_backward_call_leads_to_its_forward_call(open_page, tmp_path, msprobe_bin):
    """The gradient that it gets was not recorded as another call's result."""
    head = {"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": None}
    for side, by in (("target", 1e-2), ("golden", 0.0)):
        data = {
            "Functional.linear.3.forward": entry(1.0, 2.0),
            "Functional.gelu.3.forward": entry(2.0, 3.0, 0.0, by),
            "Functional.gelu.3.backward": entry(7.0, 8.0, 0.0, by),
        }
        (tmp_path / side).mkdir()
        (tmp_path / side / "dump.json").write_text(json.dumps({**head, "data": data}))
    page = open_page(run_compare(msprobe_bin, tmp_path), "#call=2")
    assert selected(page).endswith("Functional.gelu.3.backward")
    assert "backward of ← Functional.gelu.3.forward" in page.inner_text("#call")
    for name in ("gelu.3.forward", "linear.3.forward"):
        page.keyboard.press("u")
        page.wait_for_timeout(50)
        assert selected(page).endswith(name)


def test_the_way_upstream_ends_where_a_wrong_input_comes_from_nowhere(
    open_page, tmp_path, msprobe_bin
):
    head = {"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": None}
    for side, by in (("target", 1e-2), ("golden", 0.0)):
        masked = entry(2.0, 3.0, 0.0, by)
        masked["input_args"].append(tensor(9.0, by))  # no recorded call made this mask
        data = {
            "Functional.dropout.0.forward": entry(5.0, 6.0, 0.0, by),
            "Functional.linear.0.forward": entry(1.0, 2.0),
            "Tensor.masked_fill.0.forward": masked,
        }
        (tmp_path / side).mkdir()
        (tmp_path / side / "dump.json").write_text(json.dumps({**head, "data": data}))
    page = open_page(run_compare(msprobe_bin, tmp_path), "#call=2")
    assert selected(page) == "↳ inherited Tensor.masked_fill.0.forward"
    page.keyboard.press("u")
    page.wait_for_timeout(50)
    assert selected(page).endswith("masked_fill.0.forward")


def test_the_graph_shows_the_calls_around(open_page, wrong_page):
    page = open_page(wrong_page)
    until(page, "document.querySelector('.near-call')")
    graph = page.locator(".near-call").all_inner_texts()
    assert [name.split()[1] for name in graph][:2] == ["clone.0", "linear.1"]
    assert page.locator(".near-call[aria-current]").inner_text() == "✕ gelu.1"
    assert page.locator(".near line").count() >= 3
    above, here, below = (
        page.locator(f".near-call >> text={name}").bounding_box()["y"]
        for name in ("linear.1", "gelu.1", "linear.2")
    )
    assert above < here < below


def test_the_keyboard_walks_the_graph(open_page, wrong_page):
    page = open_page(wrong_page)
    until(page, "document.querySelector('.near-call')")
    page.keyboard.press("g")
    page.keyboard.press("ArrowUp")
    assert page.evaluate("document.activeElement.textContent").endswith("linear.1")
    page.keyboard.press("Enter")
    until(page, "document.querySelector('#call h2').textContent.includes('linear.1')")
    until(page, "document.activeElement.matches('.near-call[aria-current]')")
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.textContent").endswith("gelu.1")


def test_the_stack_has_the_lines_around_where_the_file_is_there(open_page, tmp_path, msprobe_bin):
    source = tmp_path / "model.py"
    source.write_text(
        "def forward(self, x):\n    x = F.linear(x, self.weight)\n    x = F.gelu(x)\n    return x\n"
    )
    write_dump(tmp_path / "target", wrong=True, source=str(source))
    write_dump(tmp_path / "golden", source=str(source))
    page = open_page(run_compare(msprobe_bin, tmp_path))
    assert page.locator("#call .here").inner_text().strip() == "3      x = F.gelu(x)"
    assert "return x" in page.locator("#call pre").inner_text()


def test_calls_of_a_rewrite_lead_to_each_other(open_page, compare_page):
    page = open_page(compare_page({"rewritten": True}, {}))
    assert page.locator("#verdict").inner_text() == "VALUES AGREE, STRUCTURE DIFFERS"
    assert page.locator("#chips [data-class=rewrite] b").inner_text() == "3"
    page.click("#chips [data-class=rewrite]")
    rewrite = names(page)
    assert sorted(name.split(".")[1] for name in rewrite) == ["gelu", "mul", "tanh"]
    page.click(".row >> nth=0")
    page.wait_for_timeout(100)
    said = page.locator("#call .region")
    assert "Part of a rewrite" in said.inner_text()
    assert "target: mul, tanh; golden: gelu" in said.inner_text()
    assert said.locator(".link").count() == 2
    said.locator(".link >> nth=0").click()
    page.wait_for_timeout(100)
    assert selected(page).split()[-1] == rewrite[1].split()[0]
    page.fill("#query", "")
    page.locator("#call .region button", has_text="Show the 3 calls").click()
    assert page.input_value("#query") == "region:1" and names(page) == rewrite
    page.fill("#query", "-region:1")
    assert len(names(page)) == 11


def test_a_region_of_one_call(open_page, compare_page):
    page = open_page(compare_page({"extra": True}, {}))
    page.fill("#query", "side:target")
    page.click(".row >> nth=0")
    page.wait_for_timeout(100)
    assert page.locator("#call .region button").inner_text() == "Show region 1 in the table"


def test_the_region_that_lets_a_wrong_value_out(open_page, compare_page):
    page = open_page(compare_page({"rewritten": True, "wrong": True}, {}))
    assert page.locator("#verdict").inner_text() == "DIFFERS"
    said = page.locator("#call .region").inner_text()
    assert "a wrong value comes out" in said and "target: mul, tanh; golden: gelu" in said
    assert page.locator("#chips [data-class=rewrite]").count() == 0
    page.fill("#query", "region:1")
    assert len(names(page)) == 3


def test_the_elements_that_differ_are_counted(open_page, tmp_path, msprobe_bin):
    golden = np.ones((20, 50), np.float32)
    target = golden.copy()
    target[3, :7] += np.float32(0.25)
    target[4, :2] += np.float32(3e-5)
    target[19, 49] = np.nan
    write_tensor_dump(tmp_path / "target", target)
    write_tensor_dump(tmp_path / "golden", golden)
    page = open_page(run_compare(msprobe_bin, tmp_path))
    assert "worst place" not in page.locator("#call").inner_text()  # it is below the bars
    sides = page.locator(".distribution > div").all()
    assert len(sides) == 24
    counted = ": 992 elements of the target, 1,000 of the golden"
    assert sides[0].get_attribute("title").endswith(counted)
    assert page.inner_text(".ends-of-axis").split() == ["1", "1.25"]
    assert page.locator(".elements summary").inner_text().startswith("10 of 1,000 elements differ")
    words = page.locator(".bars:not(.distribution)").get_attribute("aria-label")
    assert words.endswith("from 1e-5 to 1e-4: 2; from 1e-1 to 1e0: 7; NaN or infinity: 1")
    bars = "[...document.querySelectorAll('.bars:not(.distribution) i')]"
    heights = page.evaluate(bars + ".map((b) => b.clientHeight)")
    assert [height > 0 for height in heights] == [True, False, False, False, True, True]
    largest, first = (table.split() for table in page.locator(".places tbody").all_inner_texts())
    assert largest[:4] == ["[19,", "49]", "NaN", "1"] and largest[4:8] == ["[3,", "0]", "1.25", "1"]
    assert first[:4] == ["[3,", "0]", "1.25", "1"] and first[4:6] == ["[3,", "1]"]


def test_distances_are_shown_where_values_differ(open_page, tmp_path, msprobe_bin):
    ones = np.ones((4, 8), np.float32)
    for name, numbers in (("equal", ones), ("differs", ones * np.float32(1e12))):
        write_tensor_dump(tmp_path / name / "target", numbers)
        write_tensor_dump(tmp_path / name / "golden", ones)
        said = open_page(run_compare(msprobe_bin, tmp_path / name)).locator("#call").inner_text()
        assert ("relative L2" in said) == (name == "differs")
    assert "largest absolute error\t1e+12" in said


def test_hostile_names_are_text(open_page, compare_page):
    names_of_dump = [
        f"{HOSTILE}.0.forward",
        "Functional." + "long" * 2500 + ".0.forward",
        "Functional.\u0000\u0007\u200f.0.forward",
        "Module.<b>a</b>.</script><script>alert(2)</script>.X.forward.0",
        "`|*_[x](y)_*|`",
    ]
    options = {"hostile": names_of_dump}
    page = open_page(compare_page({**options, "wrong": True}, options))
    assert state(page) == "ready"
    assert page.locator("img, #calls script, #tree b").count() == 0
    assert page.evaluate("document.scripts.length") == page.evaluate(
        "document.querySelectorAll('script[type=\"text/plain\"], script[type=module]').length"
    )
    page.fill("#query", "onerror")
    (shown,) = names(page)
    assert "<img src=x onerror=alert(1)>" in shown and "\u202e" not in shown
    page.keyboard.press("Escape")
    page.fill("#query", "longlong")
    (shown,) = names(page)
    assert len(shown) < 600 and "characters" in shown
    page.fill("#query", "`|*")
    page.click(".row")
    page.wait_for_timeout(50)
    page.keyboard.press("c")


@pytest.mark.parametrize("part", [0, 0.2, 0.5, 0.9, 1])
def test_a_page_that_was_cut_in_its_data_says_so(open_page, wrong_page, tmp_path, part):
    whole = wrong_page.read_bytes()
    first, last = whole.index(b"</script>") + 9, whole.rindex(b'<i id="end"')
    cut = tmp_path / "cut.html"
    cut.write_bytes(whole[: first + int((last - first) * part)])
    page = open_page(cut)
    assert "incomplete" in page.inner_text("#state")
    assert page.locator("#finding h1").inner_text() == CULPRIT


@pytest.mark.parametrize("part", [0, 0.5, 0.99])
def test_a_page_that_was_cut_in_its_script_says_so(browser, wrong_page, tmp_path, part):
    whole = wrong_page.read_bytes()
    first, last = whole.index(b"<script"), whole.index(b"</script>")
    cut = tmp_path / "cut.html"
    cut.write_bytes(whole[: first + int((last - first) * part)])
    page = browser.new_page()
    page.goto(cut.as_uri())
    assert "a part of this file is missing" in page.inner_text("#state")
    assert page.locator("#finding h1").inner_text() == CULPRIT
    page.close()


def test_a_damaged_part_says_so(open_page, wrong_page, tmp_path):
    text = wrong_page.read_text()
    at = text.index(">", text.index('id="p0-size"')) + 40
    damaged = tmp_path / "damaged.html"
    damaged.write_text(text[:at] + "AAAA" + text[at + 4 :])
    page = open_page(damaged)
    assert state(page) == "damaged"
    assert "cannot be read" in page.inner_text("#state")
    assert page.locator("#finding h1").inner_text() == CULPRIT


def test_steps_and_ranks_are_a_matrix(open_page, tmp_path, msprobe_bin):
    for side in ("target", "golden"):
        for step in (0, 1):
            for rank in (0, 1, 2):
                wrong = side == "target" and rank == 1 and step == 1
                write_dump(tmp_path / side / f"step{step}" / f"rank{rank}", wrong=wrong)
    page = open_page(run_compare(msprobe_bin, tmp_path))
    signs = page.locator("#matrix button").all_inner_texts()
    assert signs == ["=", "=", "=", "=", "✕", "="]
    assert selected(page).endswith(CULPRIT)
    assert not page.locator("#pairs").is_visible()
    page.click("#matrix button >> nth=0")
    page.wait_for_timeout(200)
    assert "equal" in selected(page)
    page.keyboard.press("]")
    fragment(page, "part=1")
    page.keyboard.press("[")
    fragment(page, "part=0")


def test_a_rank_that_could_not_be_read(open_page, tmp_path, msprobe_bin):
    for side in ("target", "golden"):
        for rank in (0, 1):
            write_dump(tmp_path / side / f"rank{rank}", wrong=side == "target")
    (tmp_path / "target/rank0/dump.json").write_text("{")
    page_file = tmp_path / "report.html"
    command = [msprobe_bin, "compare", "target", "golden", "-o", "out", "--html", page_file]
    assert subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=60).returncode == 2
    page = open_page(page_file)
    assert page.locator("#matrix button").all_inner_texts() == ["!", "✕"]
    page.click("#matrix button >> nth=0")
    page.wait_for_timeout(100)
    assert "could not be compared" in page.inner_text("#state")
    page.click("#matrix button >> nth=1")
    page.wait_for_timeout(200)
    assert selected(page).endswith(CULPRIT)


def test_one_dump(open_page, tmp_path, msprobe_bin):
    write_dump(tmp_path / "dump", extra=True)
    page_file = tmp_path / "dump.html"
    subprocess.run(
        [msprobe_bin, "show", "dump", "--html", page_file],
        cwd=tmp_path,
        check=True,
        capture_output=True,
    )
    page = open_page(page_file)
    assert state(page) == "ready"
    assert len(names(page)) == 13
    assert page.locator(".thead .c-size").inner_text() == "largest value"
    page.fill("#query", "linear.2")
    page.click(".row")
    page.wait_for_timeout(100)
    assert "recorded" in page.locator("#call .values").inner_text()
    assert "made by" in page.locator("#call .values").inner_text()


# The mean of red of the drawn words "forward" at the right edge.
INK_OF_CURVE = """(() => { const c = document.querySelector("#curve canvas");
    const d = c.getContext("2d").getImageData(c.width - 60, 0, 60, 14).data;
    const inked = [...d.keys()].filter((i) => i % 4 === 0 && d[i + 3] > 200);
    return inked.length ? inked.reduce((sum, i) => sum + d[i], 0) / inked.length : 255; })()"""


def test_screen_readers_and_print(open_page, wrong_page):
    page = open_page(wrong_page, color_scheme="dark")
    assert page.locator(".near-call[aria-current]").get_attribute("aria-label").count(",") == 2
    assert page.locator("[role=grid] [role=row]").count() == 13
    assert page.locator("[role=row][aria-selected=true]").count() == 1
    assert page.locator("[role=tree] [role=treeitem]").count() > 1
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != dark
    assert not page.locator("#bar").is_visible()
    assert page.locator("#call").is_visible()
    assert page.locator("#curve").is_visible()
    # Drawn anew: what is dark on paper is not the light line of the dark page.
    until(page, "getComputedStyle(document.documentElement).getPropertyValue('--ink') === '#000'")
    until(page, INK_OF_CURVE + " < 200")

"""What a reader does: copies a ticket, filters wrongly, widens columns, narrows the window."""

import json
import re

import pytest
from page_tools import WRONG, entry, run_compare, tensor, until, write_dump

CULPRIT = WRONG[0]


@pytest.fixture(scope="module")
def wrong_page(compare_page):
    return compare_page({"wrong": True, "extra": True}, {})


def names(page):
    """Whole: what does not fit is cut in the middle, and stands in the title."""
    titles = [cell.get_attribute("title") for cell in page.locator(".row .c-name").all()]
    return [re.sub("[\u2068\u2069]", "", title) for title in titles]


def ticket(page):
    page.keyboard.press("c")
    until(page, "document.getElementById('copied')?.textContent")
    return page.evaluate("navigator.clipboard.readText()")


CLIPBOARD = {"permissions": ["clipboard-read", "clipboard-write"]}


def compare_with_an_argument(binary, top, line="x = F.gelu(x)"):
    """In the target the culprit has another argument, so the report says what to do next."""
    for side, wrong in (("target", True), ("golden", False)):
        write_dump(top / side, wrong=wrong)
        dump = json.loads((top / side / "dump.json").read_text())
        if wrong:
            given = {"type": "str", "value": "tanh"}
            dump["data"][CULPRIT]["input_kwargs"] = {"approximate": given}
        (top / side / "dump.json").write_text(json.dumps(dump))
        stack = json.loads((top / side / "stack.json").read_text())
        for calls in stack.values():
            calls[1] = [f"File train.py, line 3, in forward, \n {line}"]
        (top / side / "stack.json").write_text(json.dumps(stack))
    return run_compare(binary, top)


def test_the_ticket_of_the_culprit_is_whole(open_page, tmp_path, msprobe_bin):
    page = open_page(compare_with_an_argument(msprobe_bin, tmp_path), **CLIPBOARD)
    copied = ticket(page)
    said = page.locator("#finding")
    why, following = (said.locator(part).inner_text() for part in (".why", ".next"))
    plain = re.sub(r"\\(.)", r"\1", copied)
    assert copied.startswith(f"**✕ introduced** `{CULPRIT}`\n")
    assert "- line: `train.py:3 in forward: x = F.gelu(x)`" in copied
    assert f"- why: {why}\n" in plain
    assert f"- next: {following.removeprefix('Next: ')}\n" in plain
    assert "| output.0 | max |" in copied and "1.0%" in copied
    assert "input" not in copied.split("| --- |")[-1]  # it is equal
    assert "… " not in copied


def test_the_ticket_of_a_later_call_names_the_culprit(open_page, wrong_page):
    page = open_page(wrong_page, "#call=7", **CLIPBOARD)
    copied = ticket(page)
    assert copied.startswith("**↳ inherited** ")
    assert f"- made by: `{CULPRIT}`" in copied
    assert f"- first divergence: `{CULPRIT}`, `train.py:3 in forward: x = F.gelu(x)`" in copied


def test_a_long_name_is_copied_whole(open_page, compare_page):
    name = "Functional." + "long_" * 500 + ".0.forward"
    page = open_page(compare_page({"wrong": True, "hostile": [name]}, {"hostile": [name]}))
    page.context.grant_permissions(CLIPBOARD["permissions"])
    page.fill("#query", "long_long")
    page.click(".row")
    page.keyboard.press("Enter")
    until(page, "document.querySelector('#call h2').textContent.includes('long_')")
    assert name in ticket(page)


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("liner.2", "linear.2"),
        ("class:inherit op:gleu", "class:inherit op:gelu"),
        ("class:inhertied", "class:inherited"),
        ("clas:introduced", "class:introduced"),
        ("gelu.17", "gelu.2"),
        ("module:layer.1.mpl", "module:layers.1.mlp"),
        ("dir:bakward", "dir:backward"),
        ("lniear.1 dri:forward", "linear.1 dir:forward"),
    ],
)
def test_a_filter_that_matches_nothing_offers_the_nearest_word(open_page, wrong_page, wrong, right):
    page = open_page(wrong_page)
    page.fill("#query", wrong)
    assert names(page) == []
    assert "is in no call." in page.inner_text(".nothing")
    assert page.locator(".nothing button").inner_text() == right
    page.click(".nothing button")
    assert page.input_value("#query") == right and names(page)
    assert not page.locator(".nothing").is_visible()


def test_words_that_do_not_fit_together(open_page, wrong_page):
    page = open_page(wrong_page)
    page.fill("#query", "op:linear op:gelu")
    assert "No call has all these words together." in page.inner_text(".nothing")
    page.fill("#query", "zzzzzzzzzzzzzzzzz")
    assert page.locator(".nothing button").count() == 0


def test_escape_clears_the_filter(open_page, wrong_page):
    page = open_page(wrong_page)
    for leave in ("Escape", "Enter"):
        page.fill("#query", "gelu")
        page.keyboard.press(leave)
        assert page.evaluate("document.activeElement.className") == "scroll"
        assert page.input_value("#query") == ("" if leave == "Escape" else "gelu")
    page.keyboard.press("Escape")
    assert page.input_value("#query") == "" and len(names(page)) == 13


def test_names_are_told_apart_by_their_ends(open_page, compare_page):
    stem = "Module." + ".".join(["a_long_module_name"] * 4)
    ends = [f"{stem}.Linear.forward.{n}" for n in range(3)]
    page = open_page(compare_page({"hostile": ends}, {"hostile": ends}))
    page.fill("#query", "a_long_module_name")
    shown = page.locator(".row .c-name").all_inner_texts()
    assert [name[-16:] for name in shown] == [name[-16:] for name in ends]
    assert all("…" in name for name in shown)
    inside = "[...document.querySelectorAll('.row .c-name')].every(fits)"
    inside = inside.replace("fits", "(e) => e.scrollWidth <= e.clientWidth")
    assert page.evaluate(inside)
    assert names(page) == ends


@pytest.mark.parametrize("width", [1280, 1024, 700, 360])
def test_names_are_told_apart_by_what_is_in_their_middle(open_page, compare_page, width):
    stem = "Module.transformer.encoder_with_a_long_name.layers"
    rest = "self_attention_with_a_long_name.out_projection.Linear.forward.0"
    middles = [f"{stem}.{n}.{rest}" for n in (8, 9, 10, 11)]
    rest = "coder.layers_of_it.1.mlp.fc.out_projection.Linear.forward.0"
    beginnings = [f"Module.{side}{rest}" for side in ("en", "de")]
    wanted = middles + beginnings
    page = open_page(compare_page({"hostile": wanted}, {"hostile": wanted}))
    page.set_viewport_size({"width": width, "height": 800})
    page.fill("#query", "out_projection")
    until(page, "document.querySelector('.row .c-name')?.title.includes('out_projection')")
    shown = page.locator(".row .c-name").all_inner_texts()
    assert len(set(shown)) == len(wanted), shown
    for cell in page.locator(".row .c-name").all():
        assert cell.evaluate("cell => cell.scrollWidth <= cell.clientWidth")


def test_the_tree_keeps_the_ends_of_classes(open_page, compare_page):
    kinds = [f"LayerNormalizationOf{which}" for which in ("Rows", "Columns")]
    wanted = [f"Module.norm{n}.{kind}.forward.0" for n, kind in enumerate(kinds)]
    page = open_page(compare_page({"hostile": wanted}, {"hostile": wanted}))
    page.set_viewport_size({"width": 1024, "height": 800})
    page.wait_for_timeout(100)
    for kind in kinds:
        small = page.locator("#tree small", has_text=kind[-5:])
        right = "e => e.getBoundingClientRect().right"
        end = small.locator(".ends span").last
        assert end.inner_text() == kind[-5:]
        assert end.evaluate(right) <= small.evaluate(right) + 1


def drag(page, edge, by):
    box = page.locator(edge).first.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + by / 2, y)
    page.mouse.move(x + by, y)
    page.mouse.up()


def width(page, selector):
    return page.locator(selector).first.bounding_box()["width"]


def test_columns_and_panes_are_dragged(open_page, wrong_page):
    page = open_page(wrong_page)
    name, module, tree = (width(page, s) for s in (".row .c-name", ".row .c-module", "#tree"))
    drag(page, ".thead .c-name .edge", -60)
    assert abs(width(page, ".row .c-name") - (name - 60)) < 2
    assert abs(width(page, ".row .c-module") - (module + 60)) < 2
    assert abs(width(page, ".thead .c-module") - (module + 60)) < 2
    drag(page, "#panes > .edge", 90)
    assert abs(width(page, "#tree") - (tree + 90)) < 2
    page.locator("#panes > .edge").nth(1).focus()
    call = width(page, "#call")
    page.keyboard.press("ArrowLeft")
    assert abs(width(page, "#call") - (call + 16)) < 2
    until(page, "location.hash.includes('panes=') && location.hash.includes('cols=')")
    page.wait_for_timeout(300)
    again = open_page(wrong_page, page.evaluate("location.hash"))
    assert abs(width(again, "#tree") - (tree + 90)) < 2
    page.locator("#panes > .edge").first.dblclick()
    assert abs(width(page, "#tree") - tree) < 2


@pytest.mark.parametrize(
    "address", ["#cols=1-2&panes=9", "#cols=9-9-9-9-9-9-9x&panes=-", "#panes=9999-9999"]
)
def test_widths_of_an_address_may_be_anything(open_page, wrong_page, address):
    assert (
        open_page(wrong_page, address).evaluate("document.documentElement.dataset.state") == "ready"
    )


def test_the_curve_tells_call_and_unit(open_page, wrong_page):
    page = open_page(wrong_page)
    assert not page.locator("#curve .tip").is_visible()
    box = page.locator("#curve").bounding_box()
    page.mouse.move(box["x"] + box["width"] * 5.5 / 13, box["y"] + 40)
    said = page.locator("#curve .tip").inner_text()
    assert said.startswith(CULPRIT) and "introduced" in said and said.endswith(" roundings")
    page.mouse.move(box["x"] + 5, box["y"] - 40)
    assert not page.locator("#curve .tip").is_visible()


@pytest.mark.parametrize("size", [(390, 844), (768, 600), (1400, 700)])
def test_what_to_do_next_is_never_hidden(open_page, tmp_path, msprobe_bin, size):
    """A finding with long lines: code, a caller, a reason."""
    long = "x = " + " + ".join(f"very_long_name_of_a_value_{n}" for n in range(40))
    page = open_page(compare_with_an_argument(msprobe_bin, tmp_path, long))
    page.set_viewport_size(dict(zip(("width", "height"), size, strict=True)))
    box, frame = (page.locator(s).bounding_box() for s in ("#finding .next", "#finding"))
    assert box["y"] + box["height"] <= frame["y"] + frame["height"] + 1
    if size[0] > 900:
        assert box["y"] + box["height"] <= size[1]


def test_a_narrow_screen_tells_calls_apart(open_page, tmp_path, msprobe_bin):
    """The sign of the class leaves room for the name; the name above breaks after a dot."""
    page = open_page(compare_with_an_argument(msprobe_bin, tmp_path))
    page.set_viewport_size({"width": 360, "height": 740})
    until(page, "document.querySelector('.row .c-class').offsetWidth === 28")
    row = page.locator(".row.first")
    assert len(row.locator(".c-name").inner_text()) >= 22
    lines = "e => { const r = document.createRange(); r.selectNodeContents(e);"
    lines += " return r.getClientRects()[0].width }"
    sign = row.locator(".c-class").evaluate(lines)
    assert 0 < sign < 20
    assert page.locator("#finding h1 wbr").count() == CULPRIT.count(".")
    assert page.inner_text("#finding h1") == CULPRIT


@pytest.mark.parametrize(
    ("pair", "shown"), [((8, 4), "100%"), ((5, 4), "25%"), ((404, 4), "10,000%")]
)
def test_a_large_difference_is_a_plain_percentage(open_page, tmp_path, msprobe_bin, pair, shown):
    for side, number in zip(("target", "golden"), pair, strict=True):
        write_dump(tmp_path / side)
        path = tmp_path / side / "dump.json"
        dump = json.loads(path.read_text())
        given = {"type": "int", "value": number}
        dump["data"][CULPRIT]["input_kwargs"] = {"groups": given}
        path.write_text(json.dumps(dump))
    page = open_page(run_compare(msprobe_bin, tmp_path))
    page.locator(".row", has=page.locator(f'[title*="{CULPRIT}"]')).click()
    cells = page.locator("#call tbody", has_text="groups").locator("td").all_inner_texts()
    assert cells == ["value", str(pair[0]), str(pair[1]), shown]


def test_the_counts_are_those_of_the_terminal(open_page, compare_page):
    """A call that is part of a rewrite is counted with its class, too."""
    for options in ({"wrong": True, "extra": True}, {"rewritten": True}):
        page = open_page(compare_page(options, {}))
        chips = {
            chip.get_attribute("data-class"): int(chip.inner_text().split()[-1])
            for chip in page.locator("#chips button").all()
        }
        page.click("#facts summary")
        facts = page.inner_text("#facts dl").split("calls\n")[1].split("\n")[0]
        counted = {name: int(n) for n, name in re.findall(r"(\d+) (\w+(?: \w+)?)", facts)}
        counted["noise"] = counted.pop("within rounding", 0)
        for name, number in chips.items():
            if name != "rewrite":
                assert counted.get(name, 0) == number, (name, facts)
        page.fill("#query", "class:unknown")
        assert len(names(page)) == chips["unknown"]


def test_an_inherited_step_has_no_first_divergence(open_page, tmp_path, msprobe_bin):
    for side in ("target", "golden"):
        for step in (0, 1, 2):
            write_dump(
                tmp_path / side / f"step{step}" / "rank0", wrong=side == "target" and step > 0
            )
    page = open_page(run_compare(msprobe_bin, tmp_path))
    assert page.locator("#matrix button").all_inner_texts() == ["=", "✕", "↳"]
    assert page.locator(".row.first").count() == 1
    page.click("#matrix button >> nth=2")
    until(page, "location.hash.includes('part=2')")
    assert page.locator(".row.first").count() == 0
    assert page.locator(".row.color2").count() == 0
    assert page.locator("#chips [data-class=introduced] b").inner_text() == "0"
    said = page.inner_text("#call")
    assert "What differs in this step is inherited from step 1" in said
    assert page.locator(".row", has_text="introduced").count() == 0
    page.click("#matrix button >> nth=1")
    until(page, "document.querySelectorAll('.row.first').length === 1")


def test_the_graph_and_the_tree_cut_names_in_the_middle(open_page, tmp_path, msprobe_bin):
    stem = "an_operation_with_a_very_long_name_that_no_button_holds"
    head = {"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": None}
    for side, by in (("target", 1e-2), ("golden", 0.0)):
        joined = entry(2.0, 9.0, 0.0, by)
        joined["input_args"] += [tensor(3.0), tensor(4.0)]
        data = {f"Torch.{stem}.{n}.forward": entry(1.0, n + 2.0) for n in range(3)}
        data |= {"Torch.cat.0.forward": joined}
        (tmp_path / side).mkdir()
        (tmp_path / side / "dump.json").write_text(json.dumps({**head, "data": data}))
    page = open_page(run_compare(msprobe_bin, tmp_path))
    until(page, "document.querySelector('.near-call .ends')")
    tails = page.locator(".near-call .ends span:last-child")
    boxes = [tail.bounding_box() for tail in tails.all()]
    around = page.locator(".near").bounding_box()
    assert {tail.inner_text()[-2:] for tail in tails.all()} == {".0", ".1", ".2"}
    assert all(box["x"] + box["width"] <= around["x"] + around["width"] for box in boxes)


@pytest.mark.parametrize("width", [1360, 1400, 1800])
def test_a_narrow_column_of_modules_keeps_what_tells_them_apart(open_page, wrong_page, width):
    page = open_page(wrong_page)
    page.set_viewport_size({"width": width, "height": 800})
    until(page, "document.querySelector('.row .c-module')?.offsetWidth > 0")
    shown = {
        cell.get_attribute("title"): cell.inner_text()
        for cell in page.locator(".row .c-module").all()
    }
    for layer in range(3):
        text = shown[f"layers.{layer}.mlp"]
        assert text in (f"layers.{layer}.mlp", f"\u2026{layer}.mlp"), shown
    for cell in page.locator(".row .c-module").all():
        assert cell.evaluate("cell => cell.scrollWidth <= cell.clientWidth")


def test_an_argument_that_differs_is_no_distance(open_page, tmp_path, msprobe_bin):
    for side, value in (("target", "tanh"), ("golden", "none")):
        write_dump(tmp_path / side, wrong=side == "target")
        path = tmp_path / side / "dump.json"
        dump = json.loads(path.read_text())
        argument = {"type": "str", "value": value}
        dump["data"][WRONG[0]]["input_kwargs"] = {"approximate": argument}
        path.write_text(json.dumps(dump))
    page = open_page(run_compare(msprobe_bin, tmp_path))
    assert "approximate is" in page.locator("body").inner_text()
    assert "\u221e" not in page.locator("body").inner_text()


def test_a_wide_table_shows_the_whole_dtype(open_page, tmp_path, msprobe_bin):
    for side in ("target", "golden"):
        write_dump(tmp_path / side)
        path = tmp_path / side / "dump.json"
        path.write_text(path.read_text().replace("torch.float32", "torch.complex64"))
    page = open_page(run_compare(msprobe_bin, tmp_path))
    page.set_viewport_size({"width": 1920, "height": 1080})
    until(page, "document.querySelector('.row .c-dtype')?.offsetWidth > 100")
    for cell in page.locator(".row .c-dtype").all():
        assert cell.evaluate("cell => cell.scrollWidth <= cell.clientWidth")

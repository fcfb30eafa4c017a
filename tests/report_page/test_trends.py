"""Parameters over steps: the strip of cells, the charts, the keyboard, the page of gradients."""

import json
import subprocess

import pytest
from page_tools import (
    HOSTILE,
    PARAMETERS,
    STEPS,
    WRONG_STEP,
    entry,
    run_compare,
    tensor,
    until,
)


@pytest.fixture(scope="module")
def folder(steps_page):
    return steps_page.parent


def said(page):
    return page.locator("#trend output").inner_text()


def rows(page):
    return page.locator(".parameter span").all_inner_texts()


def test_the_wrong_gradient_is_in_front_and_opens_its_step(open_page, folder):
    page = open_page(folder / "report.html")
    assert not page.locator(".strip").is_visible()
    page.keyboard.press("p")
    assert page.evaluate("document.activeElement.className") == "strip"
    page.click("#trend .controls button:has-text('weights')")
    assert page.locator("#trend .controls [aria-pressed=true]").inner_text() == "weights"
    page.click("#trend .controls button:has-text('gradients')")
    assert rows(page)[0] == "fc.bias"
    assert sorted(rows(page)) == sorted(PARAMETERS)
    assert said(page).startswith(f"fc.bias, step {WRONG_STEP}: differs, ")
    assert "roundings apart; norm" in said(page)
    page.keyboard.press("p")
    page.keyboard.press("Enter")
    until(page, "document.querySelector('#call h2')?.innerText.includes('parameters_grad')")
    pressed = page.locator("#matrix [aria-pressed=true]").get_attribute("data-part")
    assert pressed == str(WRONG_STEP)


def test_arrows_walk_over_the_cells(open_page, folder):
    page = open_page(folder / "report.html", "#trend=1.0.0.0.0")
    assert rows(page) == ["fc.weight", "fc.bias", "embed.weight"]
    assert said(page).startswith("fc.weight, step 0: equal")
    page.focus(".strip")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    assert said(page).startswith("fc.bias, step 1: equal")
    page.keyboard.press("End")
    assert said(page).startswith(f"fc.bias, step {STEPS - 1}: differs")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("PageDown")
    assert said(page).startswith(f"embed.weight, step {STEPS - 1}: equal")
    until(page, "location.hash.includes('trend=1.0.2.5.0')")


def test_a_click_chooses_and_a_second_click_opens(open_page, folder):
    page = open_page(folder / "report.html", "#trend=1.0.0.0.0")
    box = page.locator(".parameter canvas").nth(1).bounding_box()
    at = (box["x"] + box["width"] * (WRONG_STEP + 0.5) / STEPS, box["y"] + 5)
    page.mouse.click(*at)
    assert said(page).startswith(f"fc.bias, step {WRONG_STEP}: differs")
    page.mouse.click(*at)
    until(page, f"location.hash.includes('part={WRONG_STEP}')")
    title = page.locator(".parameter").nth(1).get_attribute("title")
    assert "\u2068fc.bias\u2069, step 4: differs" in title


def colors(page, row, *shares):
    """The colors of a row at shares of its width. Read at once: Chromium warns of two reads."""
    script = """([row, shares]) => {
      const c = document.querySelectorAll('.parameter canvas')[row];
      const line = c.getContext('2d').getImageData(0, c.height / 2 | 0, c.width, 1).data;
      return shares.map((share) => [...line.slice(4 * (c.width * share | 0)).slice(0, 4)]);
    }"""
    return page.evaluate(script, [row, shares])


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_cells_that_differ_are_stronger(open_page, folder, scheme):
    page = open_page(folder / "report.html", "#trend=1.0.0.0.0", color_scheme=scheme)
    equal, wrong = colors(page, 1, 2.5 / STEPS, (WRONG_STEP + 0.4) / STEPS)
    assert wrong[3] == 255 and 0 < equal[3] < 100
    assert wrong[0] > wrong[2] and equal[0] <= equal[2]


def test_the_charts_have_a_point_for_each_step(open_page, folder):
    page = open_page(folder / "report.html", "#trend=1.0.1.4.0")
    norms, apart = (page.locator(".charts svg").nth(i) for i in (0, 1))
    for kind in ("target", "golden"):
        path = norms.locator(f"path.{kind}").get_attribute("d")
        assert path.count("L") == STEPS - 1 and path.count("M") == 1
    assert "target: " in norms.get_attribute("aria-label")
    heights = [
        float(p.split(" ")[1])
        for p in apart.locator("path.distance").get_attribute("d")[1:].split("L")
    ]
    assert heights[WRONG_STEP] < heights[0] and heights[0] == heights[1]


def test_the_page_prints_the_charts(open_page, folder):
    page = open_page(folder / "report.html", "#trend=1.0.1.4.0")
    page.emulate_media(media="print")
    assert page.locator(".charts svg").first.is_visible()
    assert not page.locator("#trend .controls").is_visible()


def test_tables_of_steps_have_trends_too(open_page, folder, msprobe_bin):
    command = [msprobe_bin, "report", "out", "-o", "of_tables.html"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=60)
    page = open_page(folder / "of_tables.html", "#trend=1.0.0.0.1")
    assert rows(page)[0] == "fc.bias"
    assert said(page).startswith("fc.weight, step 0: equal, 0 roundings apart; norm 33 in")


def test_a_narrow_window_shows_all(open_page, folder):
    page = open_page(folder / "report.html", "#trend=1.0.1.4.0")
    page.set_viewport_size({"width": 500, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 500


@pytest.mark.parametrize("size", [(1920, 1080), (1400, 900), (1280, 800), (1024, 768), (390, 844)])
def test_the_strip_leaves_the_calls_on_the_screen(open_page, folder, size):
    page = open_page(folder / "report.html")
    page.set_viewport_size(dict(zip(("width", "height"), size, strict=True)))
    top = "document.querySelector('#table').getBoundingClientRect().top + scrollY"
    before = page.evaluate(top)
    page.click("#trend summary")
    table = page.locator("#table").bounding_box()
    shown = min(table["y"] + table["height"], max(size[1], 640)) - table["y"]
    assert shown >= 100 if size[0] > 900 else page.evaluate(top) == before


def test_outputs_are_a_map_of_layers_and_steps(open_page, folder):
    page = open_page(folder / "report.html", "#trend=0.0.0.0.0")
    page.click("#trend .controls button:has-text('outputs')")
    assert rows(page) == ["embed", "fc"]
    assert said(page).startswith("embed, step 0: equal")


def loss_dump(folder, losses):
    for step, loss in enumerate(losses):
        one = tensor(loss, shape=()) | {"Max": loss, "Min": loss, "Mean": loss, "Norm": loss}
        data = {
            "Functional.linear.0.forward": entry(1.0, 2.0),
            "Functional.mse_loss.0.forward": entry(2.0, 3.0) | {"output": [one]},
            "Functional.mse_loss.0.backward": entry(4.0, 5.0),
            "Functional.linear.0.backward": entry(5.0, 6.0),
        }
        head = {"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": None}
        place = folder / f"step{step}/rank0"
        place.mkdir(parents=True)
        (place / "dump.json").write_text(json.dumps({**head, "data": data}))


def test_the_losses_of_both_runs_stand_beside_the_steps(open_page, tmp_path, msprobe_bin):
    loss_dump(tmp_path / "target", [3.0, 2.0, 1.75, 1.5])
    loss_dump(tmp_path / "golden", [3.0, 2.0, 1.5, 1.0])
    page = open_page(run_compare(msprobe_bin, tmp_path))
    drawn = page.locator("#matrix #losses figure")
    assert drawn.locator("figcaption").inner_text() == "loss target golden"
    words = drawn.locator("svg").get_attribute("aria-label")
    assert words == "loss; target: 3.00, 2.00, 1.75, 1.50; golden: 3.00, 2.00, 1.50, 1.00"
    titles = drawn.locator(".point title").all_text_contents()
    assert titles[3] == "step 3: target 1.5, golden 1"
    drawn.locator(".point").nth(3).click()
    until(page, "location.hash.includes('part=3')")
    until(page, "document.querySelector('#call h2').textContent.includes('mse_loss.0.forward')")


def test_a_loss_that_is_nan_is_said_to_be_nan(open_page, tmp_path, msprobe_bin):
    loss_dump(tmp_path / "target", [3.0, float("nan"), float("nan"), 1.5])
    loss_dump(tmp_path / "golden", [3.0, 2.0, 1.5, 1.0])
    drawn = open_page(run_compare(msprobe_bin, tmp_path)).locator("#matrix #losses figure")
    words = drawn.locator("svg").get_attribute("aria-label")
    assert words == "loss; target: 3.00, NaN, NaN, 1.50; golden: 3.00, 2.00, 1.50, 1.00"
    assert drawn.locator(".point title").all_text_contents()[2] == "step 2: target NaN, golden 1.5"
    assert drawn.locator("text.nan").all_text_contents() == ["NaN"]


@pytest.fixture(scope="module")
def gradients_page(tmp_path_factory, msprobe_bin):
    import numpy

    top = tmp_path_factory.mktemp("gradients")
    names = (*PARAMETERS, HOSTILE.replace("/", "_"))
    for side in ("target", "golden"):
        for step in range(STEPS):
            tables = top / side / "rank0"
            (tables / f"step{step}").mkdir(parents=True)
            lines = ["param_name,max,min,norm,shape"]
            for k, name in enumerate(names):
                signs = numpy.ones(8, bool)
                if side == "target" and step >= WRONG_STEP and k == 1:
                    signs[:4] = False
                numpy.save(tables / f"step{step}" / f"{name}.npy", signs)
                lines.append(f"{name},1.0,-1.0,{1 + step + (side == 'target' and k == 1)},[8]")
            (tables / f"grad_summary_{step}.csv").write_text("\n".join(lines) + "\n")
    command = [msprobe_bin, "grad_compare", "target", "golden", "-o", "out", "--html", "page.html"]
    subprocess.run(command, cwd=top, check=True, capture_output=True, timeout=60)
    return top / "page.html"


def test_the_page_of_gradients(open_page, gradients_page):
    page = open_page(gradients_page)
    assert page.locator("#verdict").inner_text() == f"FALLS in step {WRONG_STEP}"
    assert page.locator("#finding h1").inner_text() == "fc.weight"
    assert not page.locator("#calls").is_visible() and not page.locator("#state").is_visible()
    assert rows(page)[0] == "fc.weight" and len(rows(page)) == 4
    assert said(page).startswith(
        f"fc.weight, step {WRONG_STEP}: differs, similarity 0.5000; norm 6 in"
    )
    assert "similarity" in page.locator(".charts figcaption").nth(1).inner_text()
    page.click("#trend .controls button:has-text('each rank')")
    assert rows(page) == ["rank 0"]
    page.keyboard.press("?")
    assert page.locator("#help").is_visible()

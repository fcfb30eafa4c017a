"""The page of one dump, of none, and of calls and steps without a partner."""

import json
import subprocess

from page_tools import write_dump


def test_a_dump_without_calls_says_so(tmp_path, msprobe_bin, open_page):
    head = {"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": None}
    (tmp_path / "dump.json").write_text(json.dumps({**head, "data": {}}))
    subprocess.run([msprobe_bin, "show", ".", "--html", "page.html"], cwd=tmp_path, check=True)
    page = open_page(tmp_path / "page.html")
    assert page.locator("#finding").inner_text().startswith("This dump has no call")
    assert not page.locator("#curve").is_visible() and not page.locator("#panes").is_visible()


def test_masked_values_do_not_flatten_the_curve_of_a_dump(tmp_path, msprobe_bin, open_page):
    value = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [4]}
    numbers = {"Max": 2.0, "Min": -2.0, "Mean": 0.0, "Norm": 3.0}
    calls = {}
    for i in range(20):
        out = numbers | ({"Min": -3.4e38} if i == 7 else {})
        calls[f"Torch.where.{i}.forward"] = {
            "input_args": [value | numbers],
            "input_kwargs": {},
            "output": [value | out],
        }
    head = {"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": None}
    (tmp_path / "dump.json").write_text(json.dumps({**head, "data": calls}))
    subprocess.run([msprobe_bin, "show", ".", "--html", "page.html"], cwd=tmp_path, check=True)
    page = open_page(tmp_path / "page.html")
    # Among the pixels above the ground are those of more than one call.
    tall = page.evaluate(
        """() => { const c = document.querySelector("#curve canvas");
        const w = c.width, y = Math.floor(c.height * 0.36);
        const row = c.getContext("2d").getImageData(0, y, w, 1).data;
        let n = 0; for (let x = 60; x < w; x++) n += row[4 * x + 3] > 0; return n; }"""
    )
    assert tall > 60


def test_a_call_of_one_side_is_said_to_be_that(tmp_path, msprobe_bin, open_page):
    alone = "Torch.alone.0.forward"
    write_dump(tmp_path / "target/step0/rank", hostile=[alone])
    write_dump(tmp_path / "golden/step0/rank")
    write_dump(tmp_path / "target/step1/rank")
    write_dump(tmp_path / "golden/step1/rank")
    flags = ["-o", "out", "--html", "page.html"]
    command = [msprobe_bin, "compare", "target", "golden", *flags]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert (tmp_path / "page.html").exists(), done.stderr
    page = open_page(tmp_path / "page.html")
    names = page.locator(".row .c-name span:first-child").all_inner_texts()
    page.click(f".row >> nth={names.index(alone)}")
    assert page.locator("#call .badge").inner_text() == "only in the target"
    # A run that is not distributed has no rank.
    labels = [b.get_attribute("aria-label") for b in page.locator("#matrix button").all()]
    assert [label.partition(":")[0] for label in labels] == ["step 0", "step 1"]

"""Photographs the page of a comparison with numbers on its parts: docs/learn/reading-a-report.md.

.venv/bin/python tools/report_picture.py page.html docs/pictures/report_parts.png

It needs what `make browser` installs. The page is that of the example in the document.
"""

import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

# What each number stands on, and where: pixels from the left and the top edge of the element.
PARTS = [
    ("header", 480, 5),
    ("#finding", 1350, 116),
    ("#curve", 40, 92),
    ("#query", 764, -1),
    ("#tree", 180, 400),
    ("#table", 560, 400),
    ("#call", 388, 32),
]
MARK = """(parts) => parts.map(([selector, x, y], i) => {
  const found = document.querySelector(selector);
  if (!found) return selector;
  const place = found.getBoundingClientRect();
  const mark = document.createElement("div");
  mark.textContent = i + 1;
  mark.style.cssText = `position:fixed; left:${place.left + x}px; top:${place.top + y}px;
    width:26px; height:26px; border-radius:13px; background:#1d4ed8; color:white; z-index:99;
    font:bold 16px/26px sans-serif; text-align:center; box-shadow:0 0 0 2px white`;
  document.body.append(mark);
  return "";
}).filter(Boolean)"""


def main() -> int:
    page_file, picture = sys.argv[1:]
    with sync_playwright() as running:
        browser = running.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        page = browser.new_page(viewport={"width": 1400, "height": 820}, color_scheme="light")
        page.goto(Path(page_file).resolve().as_uri())
        page.wait_for_timeout(500)
        missing = page.evaluate(MARK, PARTS)
        if missing:
            print(f"the page has no {', '.join(missing)}", file=sys.stderr)
            return 1
        page.screenshot(path=picture)
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())

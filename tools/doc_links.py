"""Finds links of Markdown files, and pages named in messages and comments, that lead nowhere.

A link to a file must have that file; a link to a heading, `page.md#the-heading`, must have it. The
name of a heading is the one that GitHub gives it: small letters, `-` for a blank, no punctuation.
In every other file a path such as docs/README.md must exist, also inside of a message to users.
"""

import re
from pathlib import Path

FENCE = re.compile(r"^ {0,3}(```|~~~)")
HEADING = re.compile(r"^ {0,3}#{1,6}\s+(?P<text>.*?)\s*#*$")
CODE = re.compile(r"`[^`]*`")
LINK = re.compile(r"\]\((?P<target>[^()\s]+(?:\([^()\s]*\)[^()\s]*)*)\)")
PAGE = re.compile(r"(?<![\w./~$}-])docs/[\w./-]+\.md\b")
# Files whose pages are made up: they test this check and stale_paths.
MADE_UP = "tests/structure/"


def _prose(content: str) -> list:
    """(line, text) of a Markdown file without its fenced blocks."""
    found, fence = [], ""
    for number, line in enumerate(content.split("\n"), 1):
        mark = FENCE.match(line)
        if fence:
            fence = "" if mark and mark[1] == fence else fence
        elif mark:
            fence = mark[1]
        else:
            found.append((number, line))
    return found


def anchors(content: str) -> set:
    """The anchors of the headings of a Markdown file; a second "Files" is "files-1"."""
    found, times = set(), {}
    for _, line in _prose(content):
        heading = HEADING.match(line)
        if not heading:
            continue
        text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading["text"])
        name = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
        count = times[name] = times.get(name, -1) + 1
        found.add(f"{name}-{count}" if count else name)
    return found


def links(content: str) -> list:
    """(line, target) of each link that is no address of another site."""
    return [
        (number, target)
        for number, line in _prose(content)
        for target in LINK.findall(CODE.sub("``", line))
        if not re.match(r"[a-z]+:", target)
    ]


def problems(root: Path, files: list) -> list:
    """One line for each link and page that is not there. `files`: paths relative to the root."""
    found, of_page = [], {}
    for path in files:
        content = (root / path).read_text(encoding="utf-8")
        if path.suffix != ".md":
            found += [
                f"{path}:{number}: names {page}, which is not there"
                for number, line in enumerate(content.split("\n"), 1)
                for page in PAGE.findall(line)
                if not (root / page).exists() and not path.as_posix().startswith(MADE_UP)
            ]
            continue
        for number, target in links(content):
            name, _, anchor = target.partition("#")
            page = root / path.parent / name if name else root / path
            if not page.exists():
                found.append(f"{path}:{number}: links {name}, which is not there")
            elif anchor and page.suffix == ".md":
                if page not in of_page:
                    of_page[page] = anchors(page.read_text(encoding="utf-8"))
                if anchor not in of_page[page]:
                    found.append(f"{path}:{number}: links {target}, and no heading is called so")
    return found

"""tools/doc_links.py finds links and pages that are not there."""

from pathlib import Path

from doc_links import anchors, links, problems


def test_anchors_are_those_of_github():
    content = "# A `verb`: what, and why?\n\n```bash\n# no heading\n```\n## Files\n## Files\n"
    assert anchors(content + "## The [page](a.md), 余弦\n") == {
        "a-verb-what-and-why",
        "files",
        "files-1",
        "the-page-余弦",
    }


def test_what_is_a_link():
    content = (
        "[a](b.md#c) [d](https://e.org) ![f](g.png) `[h](i.md)`\n```\n[j](k.md)\n```\n[l](#m)\n"
    )
    assert links(content) == [(1, "b.md#c"), (1, "g.png"), (5, "#m")]


def test_what_is_not_there_is_found(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/a.md").write_text("# A\n[b](b.md) [a](#a) [c](#c) [d](../d.md#d)\n")
    (tmp_path / "d.md").write_text("# E\n[docs](docs)\n")
    (tmp_path / "e.cc").write_text('Hint("see docs/a.md");\nHint("see docs/f.md");\n')
    assert problems(tmp_path, [Path("docs/a.md"), Path("d.md"), Path("e.cc")]) == [
        "docs/a.md:2: links b.md, which is not there",
        "docs/a.md:2: links #c, and no heading is called so",
        "docs/a.md:2: links ../d.md#d, and no heading is called so",
        "e.cc:2: names docs/f.md, which is not there",
    ]

"""Finds names of one file (its unnamed namespaces) that another file of the same folder has too.

Where a folder is compiled as one file (CONTRIBUTING.md), two functions of one name would be
overloads of each other, or an error; and a name that a header of the folder declares, too, would be
hidden from the local code of the files that follow: it would call the wrong function without a
word. An alias that says the same in both files may be repeated.

    for problem in problems(ROOT, files):
        print(problem)
"""

import re
from collections import defaultdict
from pathlib import Path

import function_lengths

OPENING = {
    ".cc": re.compile(r"\bnamespace \{"),
    ".h": re.compile(r"\bnamespace msprobe[\w:]* \{"),
}
TYPE = re.compile(r"^(?:template <.*> )?(?:struct|class|enum class|enum|union) (\w+)")
ALIAS = re.compile(r"^(?:template <.*> )?using (\w+) = (.*)")
USING = re.compile(r"^using ([\w:]+::(\w+));")
FUNCTION = re.compile(r"(\w+)\s*\(")
OTHERS = (
    "using ",
    "namespace ",
    "static_assert",
    "TEST",
    "MATCHER",
    "INSTANTIATE_",
    "BENCHMARK",
    "HWY_",
)


def declarations(text: str, opens: re.Pattern) -> list:
    """(line, declaration without its body) of each declaration in a namespace that `opens`."""
    text = re.sub(function_lengths.BLANKED, lambda m: re.sub(r"[^\n]", " ", m.group()), text)
    found = []
    for opening in opens.finditer(text):
        depth, round_depth, begin, head = 0, 0, opening.end(), ""
        for at in range(opening.end(), len(text)):
            sign = text[at]
            round_depth += (sign == "(") - (sign == ")")
            if sign == "{":
                head = head or text[begin:at] if depth == 0 and round_depth == 0 else head
                depth += 1
            elif sign == "}":
                depth -= 1
                if depth < 0:
                    break
            ends = sign == ";" or (sign == "}" and FUNCTION.search(head.split("=")[0]))
            if not ends or depth > 0 or round_depth > 0:
                continue
            declared = text[begin : at + 1]
            line = text.count("\n", 0, at - len(declared.lstrip()) + 1) + 1
            found.append((line, " ".join((head or declared).split())))
            begin, head = at + 1, ""
    return found


def names(declaration: str) -> list:
    """The names that it declares; of an alias with what it stands for."""
    if alias := ALIAS.match(declaration):
        return [(alias[1], alias[2])]
    if using := USING.match(declaration):
        return [(using[2], using[1].removeprefix("::"))]
    if kind := TYPE.match(declaration):
        return [(kind[1], "")]
    if declaration.startswith(OTHERS):
        return []
    before = declaration.split("=")[0].split("{")[0]
    if function := FUNCTION.search(before):
        return [(function[1], "")]
    plain, inner = declaration, 1
    while inner:
        plain, inner = re.subn(r"<[^<>()]*>|\([^()]*\)|\[[^\[\]]*\]|\{[^{}]*\}", "", plain)
    return [
        (name[0], "")
        for part in plain.split(",")
        if (name := re.search(r"\w+$", part.split("=")[0].rstrip(" ;")))
    ]


def problems(root: Path, files: list) -> list:
    local = defaultdict(list)  # of a folder and a name: (path, line, what an alias stands for)
    shared = {}  # of a folder and a name: the header that declares it
    for path in files:
        if path.suffix not in OPENING:
            continue
        text = (root / path).read_text(encoding="utf-8")
        for line, declaration in declarations(text, OPENING[path.suffix]):
            for name, meaning in names(declaration):
                if path.suffix == ".h":
                    shared[path.parent, name] = path.name
                else:
                    local[path.parent, name].append((path, line, meaning))
    found = []
    for (folder, name), uses in local.items():
        path, line, meaning = uses[-1]
        if meaning and len({use[2] for use in uses}) == 1:
            continue
        others = sorted({use[0].name for use in uses if use[0] != path})
        if (folder, name) in shared:
            others.append(shared[folder, name])
        if others:
            found.append(
                f"{path}:{line}: {name} is also a name of {', '.join(others)}; {folder} may be "
                "compiled as one file: give it another name, or share it in a header"
            )
    return found

"""Finds names of one file (its unnamed namespaces) that another file of the same folder has too.

Where a folder is compiled as one file (CONTRIBUTING.md), two functions of one name would be
overloads of each other, or an error. An alias that says the same in both files may be repeated.

    for problem in problems(ROOT, files):
        print(problem)
"""

import re
from collections import defaultdict
from pathlib import Path

import function_lengths

OPENING = re.compile(r"\bnamespace \{")
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


def declarations(text: str) -> list:
    """(line, declaration without its body) of each declaration in an unnamed namespace."""
    text = re.sub(function_lengths.BLANKED, lambda m: re.sub(r"[^\n]", " ", m.group()), text)
    found = []
    for opening in OPENING.finditer(text):
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
    places = defaultdict(list)  # of a folder and a name: (path, line, what an alias stands for)
    for path in files:
        if path.suffix != ".cc":
            continue
        for line, declaration in declarations((root / path).read_text(encoding="utf-8")):
            for name, meaning in names(declaration):
                places[path.parent, name].append((path, line, meaning))
    found = []
    for (folder, name), uses in places.items():
        path, line, meaning = uses[-1]
        others = sorted({use[0].name for use in uses if use[0] != path})
        if others and not (meaning and len({use[2] for use in uses}) == 1):
            found.append(
                f"{path}:{line}: {name} is also a name of {', '.join(others)}; {folder} may be "
                "compiled as one file: give it another name, or share it in a header"
            )
    return found

"""Finds the functions of C++ and Python files and their lengths.

    for function in functions(Path("engine/base/text.cc")):
        print(function.line, function.name, function.length)

C++ is scanned, not parsed: comments, literals, preprocessor lines and access specifiers are
blanked. Then each block that follows a parameter list, and that is not the block of a namespace, a
class or an enumeration, is a function's body. This works for code in the layout of clang-format.
"""

import ast
import re
from dataclasses import dataclass
from pathlib import Path


@dataclass
class Function:
    name: str  # "Class::Method" as in the source, without the parameters
    line: int  # first line, from 1
    length: int  # number of lines, including the first and the last


# In this order: raw strings, comments, strings, characters (not the ' in 1'000'000), preprocessor
# lines, access specifiers.
BLANKED = re.compile(
    r'R"(?P<mark>[^\s()\\]{0,16})\(.*?\)(?P=mark)"'
    r"|//[^\n]*|/\*.*?\*/"
    r'|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9a-zA-Z_])'(?:\\.|[^'\\\n])*'"
    r"|^[ \t]*#(?:[^\n]*\\\n)*[^\n]*"
    r"|^[ \t]*(?:public|private|protected):",
    re.DOTALL | re.MULTILINE,
)
SCOPE = re.compile(r"\b(?:namespace|class|struct|union|enum|extern)\b")
NAME = re.compile(r"((?:[\w:]*\boperator\s*(?:\(\)|[^\s(]+))|[\w:~]+)\s*\(")


def _blank(match: re.Match) -> str:
    return "".join(c if c == "\n" else " " for c in match.group())


def cpp_functions(text: str) -> list:
    """All functions that are not inside other functions, including tests of GoogleTest."""
    text = BLANKED.sub(_blank, text)
    found, blocks = [], []  # blocks: the kinds of the blocks that are open here
    begin = 0  # position where the current declaration begins
    for match in re.finditer(r"[{};]", text):
        at, sign = match.start(), match.group()
        if sign == "{":
            head = text[begin:at]
            if "inner" in blocks or head.count("(") > head.count(")"):
                blocks.append("inner")  # a block in a body, or the {} of a default argument
            elif SCOPE.search(head) and not _declares_function(head):
                blocks.append("scope")
                begin = at + 1
            else:
                blocks.append("inner")
        elif sign == "}" and blocks:
            kind = blocks.pop()
            if "inner" in blocks:
                continue
            declared = text[begin : at + 1]
            if declared.count("(") > declared.count(")"):
                continue  # the {} of a default argument
            if text[at + 1 :].lstrip().startswith((",", "{")):
                continue  # a member's initializer in braces: the body follows
            if kind == "inner" and _declares_function(declared):
                first = begin + len(declared) - len(declared.lstrip())
                line = text.count("\n", 0, first) + 1
                found.append(Function(_name(declared), line, text.count("\n", first, at) + 1))
            begin = at + 1
        elif sign == ";" and "inner" not in blocks:
            begin = at + 1
    return found


def _declares_function(head: str) -> bool:
    """Whether the text before a block's brace declares a function: Type Name(parameters) ..."""
    declared, parameters, _ = head.split("{")[0].partition("(")
    return bool(parameters) and ("operator" in declared or "=" not in declared)


def _name(head: str) -> str:
    match = NAME.search(head)
    name = match.group(1) if match else head.split("(")[0].strip()
    if name in ("TEST", "TEST_F", "TEST_P"):  # TEST(Suite, Name)
        arguments = re.search(r"\(\s*(\w+),\s*(\w+)\s*\)", head)
        name = ".".join(arguments.groups()) if arguments else name
    return name


def python_functions(text: str) -> list:
    """All functions and methods. A nested function also counts in the length of the outer one."""
    return [
        Function(node.name, node.lineno, node.end_lineno - node.lineno + 1)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def functions(path: Path) -> list:
    text = path.read_text(encoding="utf-8")
    return python_functions(text) if path.suffix == ".py" else cpp_functions(text)

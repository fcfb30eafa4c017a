"""Collects the examples in the comments of headers into one C++ file.

An example is a block of comment lines that are indented by three blanks or more. It is compiled as
the body of a function in the header's own namespace, where the other namespaces of the engine are
visible too. `...` stands for omitted statements. contexts.txt has the declarations that examples
need but do not contain: for a header, or for all headers of a folder.
"""

import re
from dataclasses import dataclass
from pathlib import Path

COMMENT = re.compile(r"^ *//(.*)$")
NAMESPACE = re.compile(r"^namespace (msprobe[\w:]*) \{$", re.MULTILINE)
FOLDERS = ("engine", "cli", "python/src")
CONTEXTS = Path(__file__).resolve().parent / "contexts.txt"
# Given<T>() stands for an existing object; the other functions stand for its use by a program.
PRELUDE = """
template <class Type> Type& Given();
template <class... Any> void Print(Any&&...);
template <class... Any> void Use(Any&&...);
template <class... Any> void Work(Any&&...);
template <class... Any> void Write(Any&&...);
"""


@dataclass
class Example:
    header: str  # "engine/base/file.h"
    number: int  # index among the header's examples, from 1
    line: int
    text: str
    namespace: str = "msprobe"

    @property
    def name(self) -> str:
        return f"{self.header}#{self.number}"


def examples_of(root: Path, header: Path) -> list:
    text = header.read_text(encoding="utf-8")
    namespaces = NAMESPACE.findall(text)  # others may be declared in before its own
    found, lines, first = [], [], 0
    for number, line in enumerate([*text.split("\n"), ""], 1):
        comment = COMMENT.match(line)
        body = comment.group(1) if comment else None
        if body is not None and (body.startswith("   ") or (lines and not body.strip())):
            first = first if lines else number
            lines.append(body)
        elif lines:
            found.append(
                Example(
                    header.relative_to(root).as_posix(),
                    len(found) + 1,
                    first,
                    "\n".join(lines),
                    namespaces[-1] if namespaces else "msprobe",
                )
            )
            lines = []
    return found


def all_examples(root: Path) -> list:
    headers = sorted(path for folder in FOLDERS for path in (root / folder).rglob("*.h"))
    return [example for header in headers for example in examples_of(root, header)]


def read_contexts() -> dict:
    """Folder, header or example -> lines of C++ to insert before it, or "not C++: why"."""
    found, name = {}, None
    for line in CONTEXTS.read_text(encoding="utf-8").splitlines():
        section = re.fullmatch(r"\[(.+)\]", line)
        if section:
            name = section.group(1)
            assert name not in found, f"{name} is there twice"
            found[name] = ""
        elif line.strip() and not line.startswith("# "):
            found[name] += line + "\n"
    return found


def places_of(example: Example) -> list:
    """Keys of contexts: for "engine/base/text.h#1" also its header, engine/base and engine."""
    parts = example.header.split("/")
    places = ["/".join(parts[: i + 1]) for i in range(len(parts))]
    return [*places, example.name]


def is_code(example: Example, contexts: dict) -> bool:
    said = (contexts.get(name, "") for name in (example.header, example.name))
    return not any(text.startswith("not C++") for text in said)


def without_ellipses(text: str) -> str:
    """`if (x) ...` does nothing; inside of a call `...` is not C++ and stays an error."""
    return re.sub(r"(?<=[){;]) *\.\.\.;?(?= *(?:$|//|[}]| \w))", " {}", text, flags=re.MULTILINE)


def program(root: Path, examples: list, contexts: dict) -> str:
    """A C++ file with a function for each example; compiler errors name lines of the header."""
    headers = sorted({example.header for example in examples})
    includes = {f'#include "{header.removeprefix("python/src/")}"' for header in headers}
    functions = []
    namespaces = sorted({example.namespace for example in examples} - {"msprobe"})
    for number, example in enumerate(examples):
        visible = " ".join(f"using namespace {name};" for name in namespaces)
        body, places = "", [place for place in places_of(example) if place in contexts]
        for place in places:  # nested blocks, so that inner names may hide outer ones
            lines = contexts[place].splitlines()
            includes |= {line for line in lines if line.startswith("#include")}
            code = "\n".join(line for line in lines if not line.startswith("#include"))
            body += f'{{\n#line 1 "{CONTEXTS.name}: {place}"\n{code}\n'
        functions.append(
            f"namespace {example.namespace} {{\n"
            f"[[maybe_unused]] static ::msprobe::Status Example{number}() {{ {visible}\n{body}"
            f'{{\n#line {example.line} "{example.header}"\n{without_ellipses(example.text)}\n'
            "}" + "}" * len(places) + "\nreturn ::msprobe::Status::Ok();\n}\n}\n"
        )
    # Some headers include Python.h, which must be included first.
    return "\n".join(["#include <Python.h>", *sorted(includes), PRELUDE, *functions])

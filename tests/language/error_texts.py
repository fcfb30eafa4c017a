"""The texts of the errors and log lines that the sources make.

    for place, text in error_texts(root):
        ...   # "engine/base/file.cc:92", "a regular file"

A text is what stands in the arguments of InvalidArgument, Says, Expected, Found, Hint and kin.
Literals are put together as the program does; where a value of the run stands, the text has NAME,
or NUMBER where a format of numbers is given. Of `a ? b : c` both texts are there; a constant, a
variable or a function of the same file stands for the texts that it is set to or returns. A
function or lambda that hands its parameter on to one of the makers is a maker, too. Of Python, a
text is what stands in what is raised, and in what is given to the log.
"""

import ast
import itertools
import re

NAME, NUMBER = "Qz1", "4096"
# The name of a maker, and which of its arguments are texts.
MAKERS = {
    "InvalidArgument": (0,),
    "Unsupported": (0,),
    "Internal": (0,),
    "IoError": (1,),
    "Says": (0,),
    "Expected": (0,),
    "Found": (0,),
    "Hint": (0,),
    "Log": (1,),
    "Warn": (0,),
    "ProgressOf": (0,),
    "Line": (0, 1),
    "SetLastWords": (0,),
    "type_error": (0,),
}
FORMATTED = ("Tell", "Progress")  # take a format and its arguments
LISTS = re.compile(r"(warnings|notes|problems)_?$")  # what is pushed to their back is a text
# What is set to a field of such a name is a text that a report shows.
FIELDS = re.compile("why|reason|hint|advice")
# Hands its argument on as it is.
SAME = {"std::string", "std::string_view", "std::move", "Clean", "std::to_string"}
TOKEN = re.compile(
    r'R"\((?P<raw>.*?)\)"|"(?P<text>(?:[^"\\\n]|\\.)*)"'
    r"|'(?:[^'\\\n]|\\.)+'|//[^\n]*|/\*.*?\*/|#include[^\n]*|(?P<word>[A-Za-z_][\w]*(?:::[A-Za-z_]\w*)*)"
    r"|(?P<space>\s+)|(?P<number>\d[\w.']*)|(?P<mark>->|::|&&|\|\||==|!=|<=|>=|<<|.)",
    re.DOTALL,
)
# The parameters of other functions that are texts; those with other names are paths and values.
SENTENCES = re.compile("what|why|message|expected|found|problem|reason|hint|operation|advice")
MOST = 24  # texts of one expression
OPENING, CLOSING = {"(": ")", "[": "]", "{": "}"}, {")", "]", "}"}
ESCAPES = {"n": "\n", "t": "\t", "0": "\0"}


def unescaped(text):
    return re.sub(r"\\(.)", lambda m: ESCAPES.get(m[1], m[1]), text, flags=re.DOTALL)


class Source:
    """The tokens of a file: ("text" | "word" | "mark" | "number", content, line)."""

    def __init__(self, path, root):
        self.name = str(path.relative_to(root))
        self.tokens, line = [], 1
        content = path.read_text(encoding="utf-8")
        for found in TOKEN.finditer(content):
            kind = found.lastgroup
            if kind in ("raw", "text"):
                text = found["raw"] if kind == "raw" else unescaped(found["text"])
                self.tokens.append(("text", text, line))
            elif kind in ("word", "number", "mark"):
                self.tokens.append((kind, found[0], line))
            elif found[0][0] == "'":
                self.tokens.append(("text", unescaped(found[0][1:-1]), line))
            line += found[0].count("\n")
        self.close = self.brackets()
        self.functions = list(self.definitions())

    def brackets(self):
        """The index of the closing bracket of each opening one."""
        close, stack = {}, []
        for i, (kind, text, _) in enumerate(self.tokens):
            if kind == "mark" and text in OPENING:
                stack.append(i)
            elif kind == "mark" and text in CLOSING and stack:
                close[stack.pop()] = i
        return close

    def end_of_statement(self, at):
        """The index of the end of the expression that begins there."""
        while at < len(self.tokens) and self.tokens[at][1] not in (";", ",", ")", "}"):
            at = self.close.get(at, at) + 1
        return at

    def arguments(self, opening):
        """(begin, end) of each argument of the bracket that opens there."""
        end, begin, i = self.close.get(opening, opening), opening + 1, opening + 1
        out = []
        while i < end:
            if i in self.close:
                i = self.close[i]
            elif self.tokens[i][:2] == ("mark", ","):
                out.append((begin, i))
                begin = i + 1
            i += 1
        return [*out, (begin, end)] if begin < end else out

    def definitions(self):
        """(name, parameters, begin and end of the body, whether a lambda) of each function."""
        for i, (kind, text, _) in enumerate(self.tokens):
            if kind != "mark" or text != "(" or i not in self.close or i == 0:
                continue
            end = self.close[i] + 1
            while end < len(self.tokens) and self.tokens[end][1] in (
                "const",
                "noexcept",
                "mutable",
            ):
                end += 1
            if end + 1 < len(self.tokens) and self.tokens[end][1] == "->":
                while end < len(self.tokens) and self.tokens[end][1] not in "{;":
                    end += 1
            if end >= len(self.tokens) or self.tokens[end][1] != "{" or end not in self.close:
                continue
            before, is_lambda = i - 1, self.tokens[i - 1][1] == "]"
            if is_lambda:
                while before > 0 and self.close.get(before) != i - 1:
                    before -= 1
                before -= 2  # name = [
                if self.tokens[before + 1][1] != "=":
                    continue
            kind, name, _ = self.tokens[before]
            if kind != "word" or name in ("if", "while", "for", "switch", "catch"):
                continue
            parameters = []
            for begin, stop in self.arguments(i):
                words = [t[1] for t in self.tokens[begin:stop]]
                words = words[: words.index("=")] if "=" in words else words
                parameters.append(words[-1] if words else "")
            yield name.split("::")[-1], parameters, end, self.close[end], is_lambda


class Reader:
    """The texts of expressions of one file."""

    def __init__(self, source):
        self.source = source
        self.unknown = set()  # words that stand for a value of the run

    def split(self, begin, end, mark):
        """The parts of an expression between the marks that stand in no bracket."""
        tokens, close = self.source.tokens, self.source.close
        parts, start, i = [], begin, begin
        while i < end:
            if i in close:
                i = close[i]
            elif tokens[i][0] == "mark" and tokens[i][1] == mark:
                parts.append((start, i))
                start = i + 1
            i += 1
        return [*parts, (start, end)]

    def texts(self, begin, end, depth=0):
        """All texts that the expression can be."""
        condition = self.split(begin, end, "?")
        if len(condition) > 1:
            start = condition[1][0]
            colon = self.else_of(start, end)
            return [*self.texts(start, colon, depth), *self.texts(colon + 1, end, depth)][:MOST]
        parts = self.split(begin, end, "+")
        if len(parts) > 1:
            each = [self.texts(*part, depth) for part in parts if part[0] < part[1]]
            return ["".join(p) for p in itertools.islice(itertools.product(*each), MOST)]
        return self.single(begin, end, depth)

    def else_of(self, at, end):
        """Where the ":" stands that belongs to the "?" before `at`: a ? b ? c : d : e."""
        open_ones = 0
        while at < end:
            kind, mark, _ = self.source.tokens[at]
            if at in self.source.close:
                at = self.source.close[at]
            elif kind == "mark" and mark == "?":
                open_ones += 1
            elif kind == "mark" and mark == ":":
                if open_ones == 0:
                    break
                open_ones -= 1
            at += 1
        return at

    def single(self, begin, end, depth):
        tokens, close = self.source.tokens, self.source.close
        while end - begin > 1 and close.get(begin) == end - 1 and tokens[begin][1] in "({":
            begin, end = begin + 1, end - 1
            return self.texts(begin, end, depth)
        if begin >= end:
            return [""]
        if all(kind == "text" for kind, _, _ in tokens[begin:end]):
            return ["".join(text for _, text, _ in tokens[begin:end])]
        kind, word, _ = tokens[begin]
        called = end - begin > 2 and close.get(begin + 1) == end - 1 and kind == "word"
        if called and word == "fmt::format":
            return self.formatted(begin + 1, depth)
        if called and word in SAME:
            arguments = self.source.arguments(begin + 1)
            return self.texts(*arguments[0], depth) if arguments else [NAME]
        if kind == "word" and depth < 3:
            found = self.returned(word, depth) if called else []
            if end - begin == 1:
                self.unknown.add((word, begin))
                found = self.assigned(word, begin, depth)
            if found:
                return found
        return [NAME]

    def formatted(self, opening, depth):
        first, *rest = self.source.arguments(opening)
        out = []
        for text in self.texts(*first, depth):
            places = re.split(r"(\{\{|\}\}|\{[^{}]*\})", text)
            each, at = [], 0
            for part in places:
                if part in ("{{", "}}"):
                    each.append([part[0]])
                elif part.startswith("{") and len(part) > 1:
                    number = re.search(r":.*[.dxf]", part)
                    values = [NAME]
                    if at < len(rest):
                        values = self.texts(*rest[at], depth + 1)
                    each.append([NUMBER] if number else values)
                    at += 1
                else:
                    each.append([part])
            out += ["".join(p) for p in itertools.islice(itertools.product(*each), MOST)]
        return out[:MOST]

    def enclosing(self, at):
        inside = [f for f in self.source.functions if f[2] < at < f[3]]
        return min(inside, key=lambda f: f[3] - f[2], default=None)

    def assigned(self, word, at, depth):
        """What a constant of the file, or a variable of the function, is set to."""
        tokens, out = self.source.tokens, []
        inside = [f for f in self.source.functions if f[2] < at < f[3]]
        outer = max(inside, key=lambda f: f[3] - f[2], default=None)
        for i, (kind, text, _) in enumerate(tokens[:-2]):
            if kind != "word" or text != word or tokens[i - 1][1] in (".", "->"):
                continue
            here = outer is not None and outer[2] < i < at
            if not here and not re.match(r"k[A-Z]", word):
                continue
            j = i + 1
            while j in self.source.close and tokens[j][1] == "[":
                j = self.source.close[j] + 1
            if tokens[j][1] == "=" and tokens[j + 1][1] != "[":
                stop = j + 1
                while stop < len(tokens) and tokens[stop][1] not in (";", ")"):
                    stop = self.source.close.get(stop, stop) + 1
                texts = self.texts(j + 1, stop, depth + 1)
                out += [t for t in texts if t != NAME]
        return out[:MOST]

    def returned(self, word, depth):
        """What a function of the file returns, if that is text."""
        out = []
        for name, _, begin, end, _ in self.source.functions:
            if name != word:
                continue
            for i in range(begin, end):
                if self.source.tokens[i][:2] != ("word", "return"):
                    continue
                stop = i + 1
                while stop < end and self.source.tokens[stop][1] != ";":
                    stop = self.source.close.get(stop, stop) + 1
                out += [t for t in self.texts(i + 1, stop, depth + 1) if t != NAME]
        return out[:MOST]


def makers_in(source, makers):
    """(name, indices, index of the token) of each call of a maker in the file."""
    for i, (kind, word, _) in enumerate(source.tokens[:-1]):
        if kind != "word" or source.tokens[i + 1][1] != "(":
            continue
        name = word.split("::")[-1]
        if name in ("push_back", "emplace_back") and LISTS.match(source.tokens[i - 2][1]):
            yield {0}, i
        for scope in ("", source.name):
            if (scope, name) in makers:
                yield makers[scope, name], i


def all_makers(sources):
    """The makers above, and the functions and lambdas that hand a parameter on to one of them."""
    makers = {("", name): set(which) for name, which in MAKERS.items()}
    headers = {t[1] for s in sources if s.name.endswith(".h") for t in s.tokens if t[0] == "word"}
    changed = True
    while changed:
        changed = False
        for source in sources:
            for which, i in list(makers_in(source, makers)):
                reader = Reader(source)
                arguments = source.arguments(i + 1)
                for k in which:
                    if k < len(arguments):
                        reader.texts(*arguments[k])
                for word, at in reader.unknown:
                    function = reader.enclosing(at)
                    if function is None or word not in function[1] or not SENTENCES.fullmatch(word):
                        continue
                    name, parameters, _, _, is_lambda = function
                    scope = "" if not is_lambda and name in headers else source.name
                    if name in MAKERS:
                        continue
                    known = makers.setdefault((scope, name), set())
                    if parameters.index(word) not in known:
                        known.add(parameters.index(word))
                        changed = True
    return makers


def error_texts(root):
    paths = [
        p for folder in ("engine", "cli", "python/src") for p in sorted((root / folder).rglob("*"))
    ]
    sources = [Source(p, root) for p in paths if p.suffix in (".cc", ".h")]
    makers, out = all_makers(sources), []
    for source in sources:
        reader = Reader(source)
        found = []
        for which, i in makers_in(source, makers):
            arguments = source.arguments(i + 1)
            found += [(i, reader.texts(*arguments[k])) for k in which if k < len(arguments)]
        for i, (kind, word, _) in enumerate(source.tokens[:-1]):
            called = source.tokens[i + 1][1] == "(" and source.arguments(i + 1)
            if kind == "word" and word.split("::")[-1] in FORMATTED and called:
                found.append((i, reader.formatted(i + 1, 0)))
            is_field = source.tokens[i - 1][1] in (".", "->") and source.tokens[i + 1][1] == "="
            if kind == "word" and is_field and FIELDS.fullmatch(word):
                found.append((i, reader.texts(i + 2, source.end_of_statement(i + 2))))
        for i, texts in found:
            place = f"{source.name}:{source.tokens[i][2]}"
            out += [(place, text) for text in texts if text not in ("", NAME)]
    return out


def texts_of_python(node):
    """All texts that an expression of Python can be; []: it is no text."""
    if isinstance(node, ast.Constant):
        return [node.value] if isinstance(node.value, str) else []
    if isinstance(node, ast.JoinedStr):
        parts = [v.value if isinstance(v, ast.FormattedValue) else v for v in node.values]
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        parts = [node.left, node.right]
    elif isinstance(node, ast.IfExp):
        return [t for part in (node.body, node.orelse) for t in texts_of_python(part) or [NAME]]
    else:
        return []
    each = [texts_of_python(part) or [NAME] for part in parts]
    return ["".join(p) for p in itertools.islice(itertools.product(*each), MOST)]


def front_texts(root):
    """As error_texts, of the fronts in Python."""
    out = []
    for path in sorted((root / "python").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            call = node.exc if isinstance(node, ast.Raise) else node
            if not isinstance(call, ast.Call):
                continue
            name = getattr(call.func, "attr", getattr(call.func, "id", ""))
            if call is node and name not in ("log", "warn", "_log", "_warn", "warning"):
                continue
            for argument in call.args:
                # An answer of a program of ours has its hint after a tab.
                texts = [t for text in texts_of_python(argument) for t in text.split("\t")]
                out += [(f"{path.relative_to(root)}:{node.lineno}", text) for text in texts]
    return out

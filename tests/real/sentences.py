"""Holds each sentence of a report against the two dumps, which are read here as plain JSON."""

import functools
import json
import pathlib
import re


@functools.lru_cache(maxsize=16)
def load(path):
    path = pathlib.Path(path)
    text = path.read_text()
    construct = path.parent / "construct.json"
    weights = path.parent / "weights.json"
    return (
        json.loads(text)["data"],
        json.loads(construct.read_text()) if construct.exists() else {},
        json.loads(weights.read_text()) if weights.exists() else {},
    )


def tensors(value):
    """Fingerprints of the tensors in a slot of an entry, in order; those with names by name."""
    if isinstance(value, dict):
        if "fp" in value:
            return [value["fp"]]
        value = [each for _, each in sorted(value.items())]
    if isinstance(value, list):
        return [fp for each in value for fp in tensors(each)]
    return []


def inputs(entry):
    return [
        fp
        for key in ("input_args", "input_kwargs", "input", "parameters")
        for fp in tensors(entry.get(key))
    ]


def outputs(entry):
    return tensors(entry.get("output"))


def said(value):
    """A value in a sentence, as JSON spells it."""
    return {"True": "true", "False": "false"}.get(value, value)


def words(entry):
    return json.dumps(entry)


class Report:
    def __init__(self, report):
        self.report = report
        self.target, self.construct, self.target_weights = load(report["target"]["path"])
        self.golden, _, self.golden_weights = load(report["golden"]["path"])
        self.first = report["first_divergence"]

    def before(self, name):
        """Names that both dumps have before an entry of one of them, or of the golden alone."""
        alone = not self.first["target_name"] or name not in self.target
        names = list(self.golden if alone else self.target)
        return [e for e in names[: names.index(name)] if e in self.target and e in self.golden]

    def differs(self, name, part):
        return part(self.target[name]) != part(self.golden[name])

    def check_first(self):
        name, golden_name = self.first["target_name"], self.first["golden_name"]
        why, advice = self.first["why"], self.first.get("advice") or ""
        entry = self.target.get(name, {})
        partner = self.golden.get(golden_name, {})
        earlier = self.before(name or golden_name)
        wrong = [each for each in earlier if self.differs(each, outputs)]
        if found := re.match(r"(\d+) calls? before it (?:is|are) bit-equal; ", why):
            equal = [e for e in earlier if not self.differs(e, outputs)]
            assert int(found[1]) <= len(equal), f"{why}: {len(equal)} are equal"
            assert not wrong, f"{why}: but {wrong[:3]} differ"
        if "its inputs are bit-equal" in why:
            assert inputs(entry) == inputs(partner), f"{why}: {name}"
        if "its inputs agree within rounding" in why:
            assert inputs(entry) != inputs(partner), f"{why}: {name}"
        for value in re.finditer(r"is (\S+) in the target, (\S+) in the golden", why):
            a, b = (each.rstrip(";,") for each in value.groups())
            if "None" in (a, b):
                continue
            assert said(a) in words(entry) and said(b) in words(partner), f"{why}: {name}"
        if "no recorded operation made the value" in why:
            made = {fp for each in earlier for fp in outputs(self.target[each])}
            made &= {fp for each in earlier for fp in outputs(self.golden[each])}
            new = [a for a, b in zip(inputs(entry), inputs(partner), strict=False) if a != b]
            assert not made.intersection(new), f"{why}: a recorded operation made it"
            weights = json.dumps(self.target_weights), json.dumps(self.golden_weights)
            in_weights = [fp for fp in new if f'"{fp}"' in weights[0]]
            assert not in_weights, f"{why}: it is in weights.json"
        if found := re.search(r"it was still right when (\S+) began", why):
            assert inputs(self.target[found[1]]) == inputs(self.golden[found[1]]), why
        if "reads memory that nobody wrote" in why:
            assert "unwritten" in words(entry), why
        if "none of the" in advice and "shows the error" in advice:
            inside = [
                each for each, parent in self.construct.items() if parent and parent[0] == name
            ]
            for each in inside:
                if each in self.target and each in self.golden and self.differs(each, outputs):
                    assert self.differs(each, inputs), f"{advice}: {each} shows it"
        assert "TF32" not in advice, "TF32 on two CPUs"

    def check_names(self):
        """Arguments and gradients of an API are called by their names, where the dump has them."""
        name, why = self.first["target_name"] or "", self.first["why"]
        api, _, direction = name.rpartition(".")
        path = pathlib.Path(self.report["target"]["path"]).parent / "signatures.json"
        names = json.loads(path.read_text()) if path.exists() else {}
        if api.rpartition(".")[0] in names and "Module." not in why:
            raw = (
                r"(?<![\w.])(input|output)\.\d"
                if direction == "backward"
                else r"(?<![\w.])input\.\d"
            )
            why = re.sub(r"the gradient of (input|output)\.\d", "", why)
            assert not re.search(raw, why), f"{name}: {why}"

    def check_lines(self):
        """The golden's line is one of the golden's, and has other code than the target's."""
        line, golden = self.first["source_line"] or "", self.first["golden_line"]
        if golden:
            code = re.sub(r"^.*? in \S+?: ", "", golden)
            stacks = pathlib.Path(self.report["golden"]["path"]).parent / "stack.json"
            assert json.dumps(code)[1:-1] in stacks.read_text(), golden
            assert code != re.sub(r"^.*? in \S+?: ", "", line), f"{line} and {golden}"

    def check_start(self):
        begun = self.report["beginning"]["weights"] or ""
        if found := re.match(r"the same weights \((\d+)\)", begun):
            golden = {name: weight["fp"] for name, weight in self.golden_weights.items()}
            same = [n for n, w in self.target_weights.items() if golden.get(n) == w["fp"]]
            assert len(same) == int(found[1]), begun

    def check_counts(self):
        calls = self.report["calls"]
        if self.report["verdict"] == "equal":
            assert calls["noise"] == calls["introduced"] == calls["inherited"] == 0
        if self.first is not None:
            assert self.report["verdict"] not in ("equal", "noise")


def check(report, *_):
    held = Report(report)
    held.check_start()
    held.check_counts()
    if held.first is not None:
        held.check_first()
        held.check_names()
        held.check_lines()

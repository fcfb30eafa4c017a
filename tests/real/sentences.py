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


def header(path):
    """The header of a dump, and where compiled code was entered."""
    path = pathlib.Path(path)
    coverage = path.parent / "coverage.json"
    compiled = json.loads(coverage.read_text()).get("compiled", []) if coverage.exists() else []
    return json.loads(path.read_text()).get("provenance", {}), compiled


def module_path(name):
    """ "layers.0.fc" of "Module.layers.0._orig_mod.fc.Linear.forward.0", "" of other names."""
    if not name.startswith("Module."):
        return ""
    parts = re.split(r"\.(?:forward|backward|parameters_grad)\b", name)[0].split(".")
    return ".".join(p for p in parts[1:-1] if p != "_orig_mod")


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
        self.golden, self.golden_construct, self.golden_weights = load(report["golden"]["path"])
        self.target_run, self.target_compiled = header(report["target"]["path"])
        self.golden_run, self.golden_compiled = header(report["golden"]["path"])
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
            # Calls that are paired under another name are looked up here under their own.
            aligned = self.report["calls"]["aligned"]
            assert int(found[1]) <= len(equal) + aligned, f"{why}: {len(equal)} are equal"
            assert len(wrong) <= aligned, f"{why}: but {wrong[:3]} differ"
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
        assert "already wrong" not in why, why
        assert not re.match(r"\d+ (?!calls? before it )", why), f"{why}: of what?"
        if "the initialisation and its seed" in advice:
            known = {w["fp"] for w in self.golden_weights.values() if "fp" in w}
            same = [n for n, w in self.target_weights.items() if w.get("fp") in known]
            assert not same, f"{advice}: {same[0]} is the same"
        if "skips an operation" in advice:
            taken = inputs(self.golden[golden_name])
            passed = {fp for each in self.target.values() for fp in inputs(each)}
            assert passed.intersection(taken), f"{advice}: nobody takes what {golden_name} takes"

    def check_draws(self):
        """Sentences on random numbers, against the states of the generators."""
        why, advice = self.first["why"], self.first.get("advice") or ""
        seeds = self.target_run.get("seed"), self.golden_run.get("seed")
        if "fix the seed on both sides" in advice:
            assert seeds[0] != seeds[1], f"{advice}: both have {seeds[0]}"
        if found := re.search(r"both runs have the seed (\d+)", why):
            assert {str(each) for each in seeds} == {found[1]}, why
            states = [run.get("random_state") for run in (self.target_run, self.golden_run)]
            assert states[0] != states[1], f"{why}: the step began with one state"
        if found := re.search(r"only the (target|golden) calls (\S+)", why):
            sides = {"target": self.target, "golden": self.golden}
            assert found[2] in sides.pop(found[1]), why
        if found := re.search(
            r"in the (target|golden) it runs inside .* generator: (\S+), which", why
        ):
            dump = self.target if found[1] == "target" else self.golden
            name = self.first["target_name" if found[1] == "target" else "golden_name"]
            assert dump[found[2]]["random_state"] != dump[name]["random_state"], why

    def check_structure(self):
        """No call is a rewrite of itself, and compiled code lacks no calls."""
        stem = functools.partial(re.sub, r"\.\d+(\.(?:forward|backward))?(\.\d+)?$", "")
        for region in self.report["regions"]:
            if region["verdict"] == "rewrite":
                calls = [sorted(stem(n) for n in region[side]) for side in ("target", "golden")]
                assert calls[0] != calls[1], f"a rewrite of itself: {calls[0]}"
        alone = [*self.report["unmatched"]["target"], *self.report["unmatched"]["golden"]]
        if self.first is not None:
            named = [self.first["target_name"], self.first["golden_name"]]
            alone += [name for name in named if name and None in named]
        sides = (
            (self.golden, self.golden_construct, self.target_compiled),
            (self.target, self.construct, self.golden_compiled),
        )
        for dump, construct, compiled in sides:
            paths = [module_path(code["module"]) for code in compiled if code["module"]]
            for name in alone:
                if name not in dump:
                    continue
                around, path = construct.get(name), module_path(name)
                while around:
                    path = path or module_path(around)
                    around = construct.get(around)
                inside = [p for p in paths if path == p or path.startswith(p + ".")]
                assert not inside, f"{name} is said to be missing, and {inside[0]} is compiled"

    def check_names(self):
        """Arguments and gradients of an API are called by their names, where the dump has them."""
        name, why = self.first["target_name"] or "", self.first["why"]
        api, _, direction = name.rpartition(".")
        path = pathlib.Path(self.report["target"]["path"]).parent / "signatures.json"
        names = json.loads(path.read_text()) if path.exists() else {}
        if api.rpartition(".")[0] in names and "Module." not in why:
            raw = (
                r"(?<![\w.])(?:input|output)\.(\d+)"
                if direction == "backward"
                else r"(?<![\w.])input\.(\d+)"
            )
            why = re.sub(r"the gradient of (input|output)\.\d", "", why)
            known = len(names[api.rpartition(".")[0]])
            assert all(int(at) >= known for at in re.findall(raw, why)), f"{name}: {why}"

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
            bare = functools.partial(re.sub, r"\b_orig_mod\.", "")
            golden = {bare(name): weight["fp"] for name, weight in self.golden_weights.items()}
            same = [n for n, w in self.target_weights.items() if golden.get(bare(n)) == w["fp"]]
            assert len(same) == int(found[1]), begun
        data = self.report["beginning"]["data"] or ""
        if found := re.match(r"other data \((\S+)\.input\.(\d+) differs\)", data):
            slot = (self.target[found[1]].get("input_args") or [])[int(found[2])]
            everywhere = {fp for entry in self.golden.values() for fp in inputs(entry)}
            assert not everywhere.intersection(tensors(slot)), f"{data}: the golden has them"

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
    held.check_structure()
    if held.first is not None:
        held.check_first()
        held.check_names()
        held.check_lines()
        held.check_draws()

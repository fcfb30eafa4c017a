"""What the text and the JSON of a comparison claim, held against what every pair here is.

Both sides of a pair have the same seed, initialisation, data and machine. What a report says of the
numbers of one call is checked by tests/real/sentences.py.
"""

import json
import re
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests" / "real"))
import sentences

NEVER = (
    r"[Ff]ix the seed",
    r"[Ff]ix the initialisation",
    r"(?:rewrites?:|;) (\w+(?: \(backward\))?) for \1(?:[ ;]|$)",  # a call is no rewrite of itself
    r"gradients\.\S+ is off by .{0,80}no recorded operation made the value",  # it lay in .grad
    r"input\.\d+ is (?:True|False) in",  # the argument has a name
    r"\b0 values of paired calls",
    r"normal overflow",
    r"\b0 differ\b",
    r"TF32",
)


def calls_of(api, dump):
    """How many forward calls of an API a dump has."""
    return sum(name.endswith(".forward") and api_of(name) == api for name in dump)


def api_of(name):
    """`Torch.cat.0.backward` -> `Torch.cat`."""
    return re.sub(r"\.\d+\.(?:forward|backward)$", "", name)


def about_operations(report):
    """The advice that one side alone has an operation, though both make as many of its calls."""
    first = report["first_divergence"]
    advice = (first or {}).get("advice") or ""
    if "skips an operation" not in advice and "runs an operation" not in advice:
        return []
    api = api_of(first["target_name"] or first["golden_name"])
    target, golden = (
        calls_of(api, sentences.load(report[s]["path"])[0]) for s in ("target", "golden")
    )
    more, fewer = (golden, target) if "skips" in advice else (target, golden)
    return [] if more > fewer else [f"{advice!r}: {target} calls of {api} against {golden}"]


def about_counts(report):
    """A sentence that begins with a number does not say what is counted."""
    why = (report["first_divergence"] or {}).get("why", "")
    return [f"{why[:40]!r}: of what?"] if re.match(r"\d+ could not be judged", why) else []


def line_of(report, side, name):
    """The innermost line of the program in the stack of a call: "gan_leftover.py:57"."""
    path = Path(report[side]["path"])
    stacks = json.loads((path.parent / "stack.json").read_text())
    entry = sentences.load(path)[0].get(name, {})
    frames = stacks[entry["stack"]][1] if "stack" in entry else []
    own = (re.match(r"File .*/programs/(\S+), line (\d+)", frame) for frame in frames)
    return next((f"{match[1]}:{match[2]}" for match in own if match), None)


def about_lines(report, text):
    """Where both runs make the call from different lines, both lines have to be printed."""
    first = report["first_divergence"]
    if not first or not first["target_name"] or not first["golden_name"]:
        return []
    lines = [line_of(report, side, first[f"{side}_name"]) for side in ("target", "golden")]
    if lines[1] in (lines[0], None) or re.search(rf"{re.escape(lines[1])}\b", text):
        return []
    return [f"the line of the golden, {lines[1]}, is not printed"]


def about_all(reports, text):
    """Claims about the whole comparison that contradict each other."""
    verdicts = {report["verdict"] for _, _, report in reports}
    blamed = any(report["first_divergence"] or "wrong_update" in report for _, _, report in reports)
    found = []
    if "all results agree, but" in text and "differs" in verdicts and not blamed:
        found.append("'DIFFERS' and 'all results agree'")
    if "bits decide" in text and "structure" in verdicts:
        found.append("'bits decide', although another rank or step makes other calls")
    sides = re.search(r"(\d+) calls of the target ended .*; (\d+) calls of the golden ended", text)
    if sides and sides[1] == sides[2]:
        found.append(f"'not observed: {sides[0]}': both sides alike")
    return found


def false_ones(truth, variant, reports, text):
    """Sentences that are false, and those that are missing."""
    plain = re.sub(r"\n\s*(?:\| )?", " ", text)  # sentences are continued on the next line
    matches = [re.search(each, plain) for each in [*NEVER, *truth.never]]
    found = [f"says {match[0]!r}" for match in matches if match]
    if variant == "BUG" and truth.says and not re.search(truth.says, plain):
        found.append(f"does not say {truth.says!r}")
    found += about_all(reports, text)
    first = next((each for _, _, each in reports if each["first_divergence"]), None)
    for step, rank, report in reports:
        where = f"step {step}" + (f" rank {rank}" if rank else "")
        found += [f"{where}: {each}" for each in about_operations(report) + about_counts(report)]
        if report is first:
            found += about_lines(report, plain)
        try:
            sentences.check(report)
        except AssertionError as error:
            found.append(f"{where}: {str(error).splitlines()[0]}")
    return found
